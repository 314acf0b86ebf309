"""Checks the site: equations without code, dead links, elements without a name, text with too little contrast.

`source_faults` checks the repository, `site_faults` checks the pages that will be written.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import kernel_pages
from lab import PAGE as LAB
from sources import TAG, Room

LARGEST_PAGE = 300_000
LARGEST_DRESS = 70_000  # style, scripts and font of a page together, except the lab
LARGEST_LAB = 1_000_000  # page, style, scripts and font of the lab, except the module, which loads afterwards
LARGEST_SCRIPT = 4_736
LEAST_CONTRAST = 4.5
TEXT_COLOURS = ("ink", "faint", "link", "forward", "backward")
GROUNDS = ("paper", "panel", "mark")
FILLS = ("a", "b", "c", "d")  # backgrounds for text in the colour ink
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "rect", "circle", "line", "polyline", "polygon", "use", "mspace"}


# ---- The repository ----


def tags_of(room: Room) -> list[str]:
    """Tags of the header's equations, in the order of the header."""
    tags = []
    for line in room.header.lines:
        if line.text.lstrip().startswith("//"):
            tags += ["%s.%s" % tag for tag in TAG.findall(line.text) if tag[0] == room.name]
    return list(dict.fromkeys(tags))


def source_faults(root: Path, rooms: dict[str, Room]) -> list[str]:
    """Equations without a line, lines without an equation, duplicate tags, and references to missing equations."""
    faults = []
    known = {tag for room in rooms.values() for tag in tags_of(room)}
    for room in rooms.values():
        chapter = (root / room.chapter).read_text(encoding="utf-8")
        displayed = re.findall(r"\\text\{\(([a-z\\_]+\.\d+)\)\}", chapter)
        displayed = [tag.replace("\\_", "_") for tag in displayed]
        for tag in sorted(set(displayed)):
            if displayed.count(tag) > 1:
                faults.append(f"{room.chapter}: ({tag}) is the tag of {displayed.count(tag)} equations")
        for tag in tags_of(room):
            if tag not in displayed:
                faults.append(f"{room.chapter}: lacks the equation ({tag}) of {room.header.path}")
            for device in room.devices:
                if device not in ("plain", "block") and tag in room.definitions:
                    continue
                if not room.places(device, tag):
                    faults.append(f"{room.header.path}: ({tag}) has no line of {device}")
        for tag in displayed:
            if tag not in known:
                faults.append(f"{room.chapter}: ({tag}) is not in {room.header.path}")
        for match in TAG.finditer(re.sub(r"`[^`\n]*`", "", chapter.replace("\\_", "_"))):
            if "%s.%s" % match.groups() not in known:
                faults.append(f"{room.chapter}: {match.group()} refers to no equation")
        for sources in room.devices.values():
            for source in sources:
                for line in source.lines:
                    faults += [f"{source.path}:{line.number}: ({tag}) is no equation" for tag in line.tags if tag not in known]
    return faults


# ---- The pages ----


class _Page(HTMLParser):
    """Contents of a page that are checked alone or against other pages."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.ids: list[str] = []
        self.folded: set[str] = set()  # ids inside a fold of the chapter
        self.links: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self._fold = 0  # depth of the outermost open fold, else 0
        self._named: list[tuple[str, bool]] = []  # open links, figures and pictures: (tag, true: it has a name)
        self.feed(text)
        self.close()
        self.idset = set(self.ids)
        if self._open:
            self._fault(f"<{self._open[-1]}> is not closed")

    def _fault(self, text: str) -> None:
        self.faults.append(f"{self.path}: {text}")

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if values.get("id"):
            self.ids.append(values["id"])
            if self._fold:
                self.folded.add(values["id"])
        if tag == "figure" and values.get("class") == "equation" and self._fold:
            self._fault(f"the equation ({values['id']}) is in a fold")
        if tag == "details" and values.get("class") == "fold" and not self._fold:
            self._fold = len(self._open) + 1
        for name in ("href", "src"):
            if values.get(name):
                self.links.append(values[name])
        if tag == "img":
            if not values.get("alt"):
                self._fault("an image has no alt text")
            self._name()
        named = bool(values.get("aria-label"))
        if tag in ("figure", "svg", "a", "button", "summary"):
            self._named.append((tag, named))
        if tag == "title" and "svg" in self._open or tag == "figcaption" or tag == "math":
            self._name()
        if tag == "li" and self._open[-1] == "li":  # an item ends at the beginning of the next item
            self._open.pop()
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID or tag == "p" and "p" not in self._open:
            return
        if tag == "ol" and self._open[-1] == "li":
            self._open.pop()
        if not self._open or self._open[-1] != tag:
            self._fault(f"</{tag}> closes <{self._open[-1] if self._open else ''}>")
            if tag in self._open:
                while self._open.pop() != tag:
                    pass
        else:
            self._open.pop()
        if len(self._open) < self._fold:
            self._fold = 0
        if self._named and self._named[-1][0] == tag:
            if not self._named.pop()[1]:
                self._fault(f"a <{tag}> has no name")

    def _name(self) -> None:
        self._named = [(tag, True) for tag, _ in self._named]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self._named = [(tag, named or tag not in ("figure", "svg")) for tag, named in self._named]
        if {"code", "pre", "ol", "style", "script", "svg"} & set(self._open):
            return
        for pattern, what in ((r"\$", "a $"), (r"\\[a-zA-Z]+", "TeX"), (r"```", "a fence"), (r"\{\{|\}\}", "a placeholder")):
            found = re.search(pattern, data)
            if found:
                self._fault(f"{what} is left in the text: {data.strip()[:60]!r}")


def site_faults(files: dict[str, str], font_size: int) -> list[str]:
    """Faults of the pages, their links, and the sizes of style, scripts and font."""
    pages = {path: _Page(path, text) for path, text in files.items() if path.endswith(".html")}
    faults = []
    linked = {target for path, page in pages.items() for target in _targets(path, page) if target != path}
    faults += [f"{path}: no page links to this one" for path in pages if path not in linked | {"index.html"}]
    for path, page in pages.items():
        faults += page.faults
        faults += [f"{path}: the id {name} occurs twice" for name, count in Counter(page.ids).items() if count > 1]
        if len(files[path].encode()) > LARGEST_PAGE:
            faults.append(f"{path}: {len(files[path].encode())} bytes, more than {LARGEST_PAGE}")
        faults += _link_faults(path, page, pages, files)
        faults += _listing_faults(path, files[path])
    script = len(files["page.js"].encode())
    style = len(re.sub(r"base64,[^)]*", "", files["page.css"]).encode())
    for path, page in pages.items():
        loaded = {posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in page.links}
        scripts = sum(len(text.encode()) for name, text in files.items() if name.endswith(".js") and name in loaded)
        size, most = style + font_size + scripts, LARGEST_DRESS
        if path.startswith("kernels/"):
            size, most = size + len(files[path].encode()), kernel_pages.LARGEST_PAGE
        if path == LAB:
            size, most = size + len(files[path].encode()), LARGEST_LAB
        if size > most:
            faults.append(f"{path}: style, scripts and font together: {size} bytes, more than {most}")
    if script > LARGEST_SCRIPT:
        faults.append(f"page.js: {script} bytes, more than {LARGEST_SCRIPT}")
    return faults + contrast_faults(files["page.css"])


def document_faults(documents: Iterable[str], written: Iterable[str]) -> list[str]:
    """Documents that no page links to: such a document has no page."""
    return [f"{path}: no page links to this document" for path in sorted(set(documents) - set(written))]


def _targets(path: str, page: _Page) -> Iterator[str]:
    """The files that a page links to."""
    for link in page.links:
        target = link.partition("#")[0]
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path


def _link_faults(path: str, page: _Page, pages: dict[str, _Page], files: dict[str, str]) -> Iterator[str]:
    for link in sorted(set(page.links)):
        if link.startswith(("https://", "http://")):
            continue
        target, _, fragment = link.partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if found not in files:
            yield f"{path}: the link {link} has no target"
        elif fragment and found.startswith("kernels/") and kernel_pages.is_moment(fragment):
            continue  # kernel_pages.faults checks these links
        elif fragment and fragment not in pages[found].idset:
            yield f"{path}: the link {link} names no place of {found}"
        elif fragment and found != path and fragment in pages[found].folded:
            yield f"{path}: the link {link} leads into a fold"


def _listing_faults(path: str, text: str) -> Iterator[str]:
    """Equations without a line in a listing beside the chapter: the listing could not show the equation's line."""
    listings = re.findall(r'<section class="listing" id="(\w+)"(.*?)</section>', text, re.DOTALL)
    for number, figure in re.findall(r'<figure id="[^"]*" class="equation" data-t="(\d+)"(.*?)</figure>', text, re.DOTALL):
        for device, listing in listings:
            if device in ("cpu", "cuda") and "a definition</a>" in figure:
                continue
            if not re.search(rf'<li\n[^>]*data-t=(?:{number}|"(?:\d+ )*{number}(?: \d+)*")[ >]', listing):
                yield f"{path}: the listing of {device} has no line of equation {number}"


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, #rrggbb, as WCAG 2 defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def contrast_faults(css: str) -> list[str]:
    """Text with too little contrast, in any of the colour sets of the style sheet."""
    faults = []
    for rule in re.findall(r"\{([^{}]*--paper:[^{}]*)\}", css):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", rule))
        pairs = [(text, ground) for text in TEXT_COLOURS for ground in GROUNDS] + [("ink", fill) for fill in FILLS]
        for text, ground in pairs:
            ratio = contrast(colours[text], colours[ground])
            if not ratio >= LEAST_CONTRAST:
                faults.append(f"page.css: --{text} {colours[text]} on --{ground} {colours[ground]} has a contrast of {ratio:.2f}")
    return faults
