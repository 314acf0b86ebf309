"""A picture: its place, its alternative text, and the constants that it shows."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple

from fault import Fault
from svg import Drawing


class Constant(NamedTuple):
    """A value of the source in a picture. The pattern must match once in the file; its group is the value."""

    file: str
    pattern: str
    expected: str


@dataclass(frozen=True)
class Picture:
    name: str
    page: str  # such as layers/pooling, conventions, docs/chunks or index
    after: str  # the heading of the chapter before the picture; empty: the top of the page
    title: str
    description: str  # in a few sentences, for a screen reader
    caption: str
    width: float
    height: float
    paint: Callable[[Drawing], object]
    constants: tuple[Constant, ...] = ()
    more_faults: Callable[[Path], list[Fault]] | None = None  # checks that constants cannot express
    has_links: bool = False
    script: str = ""  # script that its page loads for it

    def draw(self) -> str:
        drawing = Drawing(self.name, self.width, self.height)
        self.paint(drawing)
        return drawing.render(self.title, self.description, self.has_links)

    def faults(self, root: Path) -> list[Fault]:
        """Differences between the source below `root` and the picture."""
        faults = [fault for constant in self.constants for fault in self._compare(root, constant)]
        return faults + (self.more_faults(root) if self.more_faults else [])

    def _compare(self, root: Path, constant: Constant) -> list[Fault]:
        path = root / constant.file
        if not path.is_file():
            return [Fault(constant.file, f"the picture {self.name} shows a constant of this file, which is missing")]
        source = path.read_text(encoding="utf-8")
        matches = list(re.finditer(constant.pattern, source))
        if len(matches) != 1:
            found = f"{len(matches)} lines match" if matches else "nothing matches"
            return [Fault(constant.file, f"for the picture {self.name} {found} {constant.pattern!r}")]
        # The value may span several lines, with lines such as #if between them.
        value = " ".join(re.sub(r"(?m)^#.*", "", matches[0].group(1)).split())
        if value == constant.expected:
            return []
        line = source.count("\n", 0, matches[0].start(1)) + 1
        text = f"the picture {self.name} shows {constant.expected!r}, here stands {value!r}"
        return [Fault(f"{constant.file}:{line}", text)]
