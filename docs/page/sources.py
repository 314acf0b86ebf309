"""The rooms of every layer and block, and where in them an equation is computed.

A tag such as (layernorm.4) stands at the end of a line of code. What a reader wants beside the equation is more than
that line: the loop around it, but not the whole function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from fault import Fault

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import layout  # noqa: E402
from layout import TAG  # noqa: E402

DEVICES = {"plain": "plain loops", "cpu": "CPU", "cuda": "GPU"}  # folder: what a reader calls it
# Functions of a layer that are no use of it where a part of a block calls them: they move numbers at the border of a
# chunk, only add, or are those of spans, which a core has where it is asked for.
COPIES = {"copy_rows", "pooling_put_low_part", "pooling_zeta", "adaptive_span_forward", "adaptive_span_backward",
          "adaptive_span_clamp", "attention_bias_backward"}
SUMS = {"add": "dropout"}
MEMBER = re.compile(r"\b(\w+_)\b(?:\.(\w+))?")  # norm_.forward: a part, and what is called of it
# AttentionCore, whose part ScoreKernel is DotProductScores unless whoever has one says otherwise.
CHOICE = re.compile(r"template <class Device, class T, template <class, class> class (\w+) = (\w+)>\nclass (\w+)")
MIXERS = "src/network/mixers.hpp"  # the registry
MIXER = re.compile(r'^struct (\w+) \{\n  static constexpr MixerProperties properties = \{\s*\.name = "(\w+)"', re.MULTILINE)
LONGEST_EXCERPT = 8
FAR_IN = 16  # columns: from there on what a statement goes on in is lined up with a bracket, far from its beginning
LOOP = re.compile(r"(?:for|while|for_\w+) ?[(<]|do \{")
HANDED_OVER = re.compile(r"\[[^\]]*\](?:<[^>]*>)?\([^()]*\)(?: mutable)? \{$")  # parallel_for(device, n, [&](Index i) {
NAMED = re.compile(r"(?:const )?auto&? \w+ = \[|struct |class |\w[\w:<>*& ]* \w+\([^\[]*\) (?:const )?\{$")


@dataclass
class Line:
    """One line of a source file."""

    number: int
    text: str
    tags: list[str] = field(default_factory=list)  # "layernorm.4"

    @property
    def code(self) -> str:
        """Without its comment."""
        return self.text.split("//", 1)[0].rstrip()

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


class Row(NamedTuple):
    """A line of an excerpt."""

    line: Line
    margin: int  # so much of its indentation is left out
    cut: bool  # whether lines are left out behind it


class Source:
    """A file of C++, line by line. Only tags at code count here; those in a comment of its own speak of equations."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self.name = Path(path).name
        text = (root / path).read_text(encoding="utf-8")
        self.size = len(text)
        self.lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
        for line in self.lines:
            if line.code.strip():
                line.tags = ["%s.%s" % tag for tag in TAG.findall(line.text[len(line.code) :])]

    def lines_of(self, tag: str) -> list[Line]:
        return [line for line in self.lines if tag in line.tags]

    def has_tags_of(self, name: str) -> bool:
        return any(tag.startswith(f"{name}.") for line in self.lines for tag in line.tags)

    def statement(self, number: int) -> range:
        """The lines of the statement that ends or begins at a line: its continuations are indented deeper."""
        first = last = number
        while first > 1 and self._goes_on(self.lines[first - 2]):
            first -= 1
        depth = self.lines[first - 1].indent
        while last < len(self.lines) and self._goes_on(self.lines[last - 1]) and self.lines[last].indent > depth:
            last += 1
        return range(first, last + 1)

    def hanging(self, number: int) -> int:
        """How much of a line's indentation an excerpt leaves out, where it goes on in a statement far to the right."""
        first, *rest = (self.lines[one - 1] for one in self.statement(number))
        further = min((line.indent for line in rest), default=0) - first.indent
        return further - 4 if number > first.number and further > FAR_IN else 0

    @staticmethod
    def _goes_on(line: Line) -> bool:
        """Whether the statement of this line goes on in the next one."""
        code = line.code.strip()
        return bool(code) and not code.endswith((";", "{", "}", ":")) and not code.startswith("#")

    def loops_around(self, number: int) -> list[range]:
        """The headers of all loops around the statement at a line, the outermost first, each with all of its lines: what
        is run for each of something, in a block of its own or as a function that is handed over. A function that has a
        name is where they end: who calls it, and how often, is not said there."""
        depth = self.lines[self.statement(number).start - 1].indent
        found = []
        for line in reversed(self.lines[: self.statement(number).start - 1]):
            header = self.statement(line.number) if line.code.endswith("{") else range(0)
            first = self.lines[header.start - 1]
            if not header or first.indent >= depth or self._end_of_block(line.number) <= number:
                continue
            depth = first.indent
            text = " ".join(self.lines[one - 1].code.strip() for one in header)
            if depth == 0 or NAMED.match(text):
                break
            if LOOP.match(text) or HANDED_OVER.search(text):
                found.append(header)
        return found[::-1]

    def function_of(self, number: int) -> range:
        """The signature of the function that a line stands in; nothing where it stands in none."""
        for line in reversed(self.lines[: number - 1]):
            if line.code.endswith("{") and self.lines[self.statement(line.number).start - 1].indent == 0:
                return self.statement(line.number)
        return range(0)

    def excerpt(self, number: int, name: str) -> list["Row"]:
        """The statement at a line with the headers of all loops around it, each with its closing brace, as they are
        indented; never a part of a signature. Of the innermost loop's body at most LONGEST_EXCERPT lines are shown, and
        none that computes equations of other layers than `name` alone."""
        statement = self.statement(number)
        headers = self.loops_around(number)
        if LOOP.match(self.lines[statement.start - 1].code.strip()) and self.lines[statement[-1] - 1].code.endswith("{"):
            body = range(statement.start, self._end_of_block(statement[-1]) + 1)[:LONGEST_EXCERPT]  # the loop computes it
        else:
            body = self._around(statement, LONGEST_EXCERPT - (len(headers[-1]) if headers else 0))
            if headers and self._end_of_block(headers[-1][-1]) - headers[-1].start < LONGEST_EXCERPT:
                body = range(headers[-1].start, self._end_of_block(headers[-1][-1]) + 1)
        shown = {one for piece in (*headers, body) for one in piece}
        shown -= {one for one in body if self._is_of_others(one, name)}
        shown = self._closed(shown)
        margin = min(self.lines[one - 1].indent for one in shown if self.lines[one - 1].code.strip())
        end = max(statement[-1], *shown)
        rows = []
        for one, following in zip_longest(sorted(shown), sorted(shown)[1:], fillvalue=end + 1):
            cut = any(self.lines[between - 1].code.strip() for between in range(one + 1, following))
            line = self.lines[one - 1]
            rows.append(Row(line, min(margin + self.hanging(one), line.indent), cut))
        return rows

    def _is_of_others(self, number: int, name: str) -> bool:
        """Whether the statement of a line computes equations, and none of the layer `name`."""
        lines = [self.lines[one - 1] for one in self.statement(number)]
        tags = [tag.split(".")[0] for line in lines for tag in line.tags]
        return bool(tags) and name not in tags and not lines[-1].code.endswith("{")

    def surroundings(self, number: int, context: int) -> set[int]:
        """The lines that a part of a listing shows of the statement at a line: the signature of its function, the headers
        of its loops, and `context` lines before and behind it."""
        statement, signature = self.statement(number), self.function_of(number)
        shown = {one for header in self.loops_around(number) for one in header} | set(signature)
        first = max(statement.start - context, signature.stop if signature else 1)
        return shown | set(range(first, min(statement[-1] + context, len(self.lines)) + 1))

    def _end_of_block(self, number: int) -> int:
        """The line of the brace that closes the one at the end of a line."""
        return self._blocks.get(number, len(self.lines))

    def _closed(self, shown: set[int]) -> set[int]:
        """Lines, with those that open and close the blocks among them: the end of a block may begin another one."""
        more = {one for first, last in self._blocks.items() if last in shown for one in self.statement(first)}
        more |= {last for first, last in self._blocks.items() if first in shown}
        return shown if more <= shown else self._closed(shown | more)

    @cached_property
    def _blocks(self) -> dict[int, int]:
        """The lines that end in an open brace, and those where they are closed."""
        blocks: dict[int, int] = {}
        opened: list[int] = []
        for line in self.lines:
            for brace in re.findall(r"[{}]", re.sub(r"'[{}]'|\"[^\"]*\"", "", line.code)):
                if brace == "{":
                    opened.append(line.number)
                elif opened:
                    first = opened.pop()
                    if first != line.number and self.lines[first - 1].code.endswith("{"):
                        blocks[first] = line.number
        return blocks

    def _around(self, statement: range, most: int) -> range:
        """The statement, whole, and before it what belongs to it: statements of its depth without a gap, at most four
        lines with its own, or `most` where a loop is among them."""
        first, last = statement.start, min(statement[-1], statement.start + most - 1)
        depth = self.lines[first - 1].indent
        while first > 1 and last - first + 1 < min(most, 4):
            before = self.lines[first - 2]
            start = self.statement(before.number).start
            if before.code.strip().startswith("}"):
                above = (line for line in self.lines[before.number - 2 :: -1] if line.text.strip() and line.indent <= depth)
                start = next((line.number for line in above if not line.code.strip().startswith("}")), 1)
            opens = before.code.endswith("{")
            if not before.text.strip() or opens or self.lines[start - 1].indent != depth or last - start + 1 > most:
                break
            first = start
        return range(first, last + 1)


@dataclass
class Room:
    """What one layer or block has: a chapter, a header, and the files of each device; a block has its header alone."""

    kind: str  # "layers" or "blocks"
    name: str
    chapter: str
    test: str
    header: Source
    devices: dict[str, list[Source]]
    lent: frozenset[str] = frozenset()  # files among these that other layers of its family have

    @property
    def page(self) -> str:
        return f"{self.kind}/{self.name}"

    @cached_property
    def definitions(self) -> set[str]:
        """Tags that the header marks as definitions: they stand on plain loops alone."""
        return {
            "%s.%s" % tag
            for line in self.header.lines
            if "definition" in line.text and line.text.lstrip().startswith("//")
            for tag in TAG.findall(line.text)
            if tag[0] == self.name
        }

    def places(self, device: str, tag: str) -> list[tuple[Source, Line]]:
        """Where a device computes an equation."""
        return [(source, line) for source in self.devices[device] for line in source.lines_of(tag)]


def _parts(files: list[str], name: str, names: list[str]) -> list[str]:
    """Of a device's files those of a layer: NAME first, then NAME_*, unless a longer name claims it."""

    def owner(stem: str) -> str | None:
        fitting = [other for other in names if stem == other or stem.startswith(other + "_")]
        return max(fitting, key=len, default=None)

    mine = [file for file in files if owner(layout.stem(file)) == name]
    return sorted(mine, key=lambda file: (layout.stem(file) != name, file))


def _family(name: str, layers: list[str]) -> list[str]:
    """The layers whose names begin alike, with that of one of them, as pooling_decay and pooling_sliding_window with
    pooling: what one of them computes may stand in a file of any."""
    first = min((other for other in layers if f"{name}_".startswith(f"{other}_")), key=len)
    return [other for other in layers if f"{other}_".startswith(f"{first}_")]


def rooms(root: Path) -> dict[str, Room]:
    """Every layer and block that has equations, by name."""
    all_files = layout.layers_and_blocks(root)
    layers = [files.name for files in all_files if files.kind == "layers"]
    of_device = {device: layout.device_files(root, device) for device in DEVICES}
    found: dict[str, Room] = {}
    for files in all_files:
        name, header = files.name, Source(root, files.header)
        if name in found:
            other = found[name]
            raise Fault(header.path, f"has the name of {other.header.path}, so their tags cannot be told apart")
        if files.kind == "blocks":
            found[name] = Room("blocks", name, files.chapter, files.test, header, {"block": [header]})
            continue
        devices, lent = {}, set()
        for device in DEVICES:
            parts = [Source(root, path) for path in _parts(of_device[device], name, layers)]
            # A part without an equation is a mechanism. Where a chapter links to it, it gets a page of its own.
            devices[device] = parts[:1] + [part for part in parts[1:] if part.has_tags_of(name)]
            others = [other for other in _family(name, layers) if other != name]
            borrowed = [Source(root, path) for other in others for path in _parts(of_device[device], other, layers)]
            borrowed = [part for part in borrowed if part.has_tags_of(name)]
            devices[device] += borrowed
            lent |= {part.path for part in borrowed}
        found[name] = Room("layers", name, files.chapter, files.test, header, devices, frozenset(lent))
    return found


def mixers(root: Path) -> dict[str, str]:
    """The names of all mixers, in the order of the registry, and the block that each is: quadratic attention is that of
    metric."""
    names = {}
    for files in layout.layers_and_blocks(root):
        for type_, name in MIXER.findall((root / files.header).read_text(encoding="utf-8")):
            names[type_] = name, files.name
    registry = re.search(r"using Mixers = MixerList<([^>]*)>;", (root / MIXERS).read_text(encoding="utf-8"))
    if not registry:
        raise Fault(MIXERS, "has no list of mixers")
    types = re.findall(r"\w+Mixer\b", registry.group(1))
    for type_ in types:
        if type_ not in names:
            raise Fault(MIXERS, f"lists {type_}, which no header of a block declares")
    return dict(names[type_] for type_ in types)


class Calls:
    """Which layers a line of a block calls: its own calls of layer functions, and those of the parts it is made of."""

    def __init__(self, root: Path, found: dict[str, Room]) -> None:
        self._functions = {}  # layernorm_forward: layernorm
        for room in found.values():
            if room.kind == "layers":
                for line in room.header.lines:
                    declared = re.match(r"(?:inline |constexpr )*(?:void|\w[\w<>]*) (\w+)\(", line.text)
                    if declared and declared.group(1) not in COPIES | SUMS.keys():
                        self._functions[declared.group(1)] = room.name
        self._parts = {}  # PoolingCore: {"forward": {"pooling"}, ...}
        members: dict[str, dict[str, str]] = {}
        inner: dict[str, list[tuple[str, str, str]]] = {}
        choices: dict[str, tuple[str, str]] = {}  # AttentionCore: (ScoreKernel, DotProductScores)
        headers = [*sorted((root / "src/blocks").rglob("*.hpp")), *sorted(root.glob("extras/*/*.hpp"))]
        sources = [Source(root, path.relative_to(root).as_posix()) for path in headers]
        for source in sources:
            for name, default, part in CHOICE.findall("\n".join(line.text for line in source.lines)):
                choices[part] = (name, default)
        self._open = {name for name, _ in choices.values()}
        for source in sources:
            for name, lines in self._classes(source):
                self._parts.setdefault(name, {}).update(self._methods(lines))
                members.setdefault(name, {}).update(self._members(lines))
                for function, code in self._by_function(lines):
                    inner.setdefault(name, []).extend((function, *call) for call in MEMBER.findall(code))
        # A part that leaves one of its own parts to be chosen is another one with each choice.
        with_choice: dict[str, dict[str, str]] = {}
        for part, (name, default) in choices.items():
            for chosen in {part, *(type_ for held in members.values() for type_ in held.values())}:
                if chosen.split(" of ")[0] != part:
                    continue
                choice = chosen.split(" of ")[1] if " of " in chosen else default
                held = {member: choice if type_ == name else type_ for member, type_ in members[part].items()}
                self._parts[chosen] = {function: set(called) for function, called in self._parts[part].items()}
                inner[chosen] = inner[part]
                with_choice[chosen] = held
        members |= with_choice
        changed = True
        while changed:  # a part may be made of others
            changed = False
            for name, calls in inner.items():
                for function, member, method in calls:
                    called = self._parts.get(members[name].get(member, ""), {}).get(method or "forward", set())
                    changed |= not called <= self._parts[name][function]
                    self._parts[name][function] |= called

    @staticmethod
    def _classes(source: Source) -> list[tuple[str, list[Line]]]:
        """The lines of every class of a file; "" for what stands outside."""
        classes, name, lines = [], "", []
        for line in source.lines:
            begins = re.match(r"(?:class|struct) (\w+)", line.text)
            if begins or line.text == "};":
                classes.append((name, lines))
                name, lines = begins.group(1) if begins else "", []
            lines.append(line)
        return classes + [(name, lines)]

    def _members(self, lines: list[Line]) -> dict[str, str]:
        """The parts that a class holds, by their names; AttentionCore of AdditiveScores: a part with a choice. A class that
        hands its own choice on is shown as it is without one."""
        members = {}
        for line in lines:
            declared = re.match(r"  (\w+)<Device, T(?:, (\w+))?> ([\w, ]+);", line.code)
            if declared:
                part, choice, names = declared.groups()
                members |= {name: part if choice in (None, *self._open) else f"{part} of {choice}" for name in names.split(", ")}
        return members

    @staticmethod
    def _by_function(lines: list[Line]) -> Iterator[tuple[str, str]]:
        """The code of every function, line by line, after its name."""
        name = None
        for line in lines:
            begins = re.match(r"(?:  )?(?!return|else)[\w<>:*&, ]+?[ *&](\w+)\(", line.code)
            if begins and line.indent <= 2 and not line.code.endswith(";"):
                name = begins.group(1)
            if name:
                yield name, line.code

    def _layers_in(self, code: str) -> set[str]:
        """The layers whose functions are called by name, which says for which device: a block may have others of it."""
        return {self._functions[word] for word in re.findall(r"\w+(?=<)", code) if word in self._functions}

    def _methods(self, lines: list[Line]) -> dict[str, set[str]]:
        """The layers that each function of a class calls."""
        methods: dict[str, set[str]] = {}
        calls: dict[str, set[str]] = {}
        for name, code in self._by_function(lines):
            called = methods.setdefault(name, set())
            calls.setdefault(name, set())
            called |= self._layers_in(code)
            calls[name] |= set(re.findall(r"\w+", code))
        for name in methods:  # a function may call another of its class
            for other in calls[name] & methods.keys():
                methods[name] |= methods[other]
        return methods

    def of(self, block: Source, statement: range) -> list[str]:
        """The layers, sorted, that a statement of a block calls."""
        text = " ".join(block.lines[number - 1].code for number in statement)
        members = self._members(block.lines)
        own = {name: {layer} for name, layer in SUMS.items()} | self._parts[""]
        for of_class, lines in self._classes(block):
            for name, called in self._parts.get(of_class, self._methods(lines)).items():
                own[name] = own.get(name, set()) | called
        layers = self._layers_in(text)
        for name in re.findall(r"(?<![\w.:])(\w+)(?:<[\w, ]+>)?\(", text):
            layers |= own.get(name, set())
        for member, method in MEMBER.findall(text):
            part = self._parts.get(members.get(member, ""), {})
            layers |= part.get(method or "forward", set())
        return sorted(layers)

    def of_block(self, room: Room) -> list[str]:
        """The layers that the tagged lines of a block call, in the order of its equations, the first that calls each."""
        tagged = [(int(tag.split(".")[1]), line.number) for line in room.header.lines for tag in line.tags]
        statements = (room.header.statement(number) for _, number in sorted(tagged))
        return list(dict.fromkeys(layer for statement in statements for layer in self.of(room.header, statement)))
