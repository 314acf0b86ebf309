"""The pages of the site and their links.

A layer or block has one page: its chapter, with the lines of every device under each equation, and the complete files
of the devices beside it. If the page would exceed the size limit, files of the fast devices are listed in parts: only
the lines around those that compute an equation, beginning with the largest file. Their complete files have their own
pages. Every other file that a chapter links to also has a page, so that the site needs no other source.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chapter
import index
import kernel_pages
import lab
import listing
import story
import tex
from check import LARGEST_PAGE
from fault import Fault
from pictures import Picture
from sources import DEVICES, Calls, Room, Row, Source, layout, mixers, rooms

PREFIX = {"plain": "p", "cpu": "c", "cuda": "g", "block": "b"}  # prefix of the line ids
HEADING = {"plain": "Plain loops", "cpu": "CPU", "cuda": "GPU", "block": "The block"}
CONVENTIONS = "docs/conventions.md"
STORY = "story.html"
FAST = ("cpu", "cuda")
# Documents of features with a name that differs from their folder's.
NAMES = {"extras/distributed/README.md": "scale", "extras/figures/README.md": "pictures"}
CONTEXTS = (16, 8, 4, 2, 1, 0)  # context lines around each equation's line in a file that is listed in parts
LENT_CONTEXT = 2  # the same in a file of another layer, if the page shows only its own lines there
LONG = 4  # a page with at least this number of headings has a list of them

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Attention by Hand</title>
<link rel="stylesheet" href="{root}page.css">
{scripts}
<body class="{kind}">
<header>
<a class="home" href="{root}index.html">Attention by Hand</a>{lab}
<nav aria-label="Pages">{navigation}</nav>
</header>
{body}
{footer}</body>
</html>
"""


@dataclass
class Output:
    """A page before it is written."""

    path: str  # layers/layernorm.html
    title: str
    kind: str  # class of its body
    body: str


def _relative(page: str, target: str) -> str:
    """Relative address of a file of the site, or of a fragment of the page itself."""
    path, _, fragment = target.partition("#")
    address = "" if path == page and fragment else posixpath.relpath(path, posixpath.dirname(page) or ".")
    return address + ("#" + fragment if fragment else "")


class Site:
    """All pages, made from the files of the repository."""

    def __init__(self, root: Path, pictures: list[Picture], lab_trains: bool = False) -> None:
        """lab_trains: true if there is a module, so that the lab can train."""
        self.root = root
        self.pictures = pictures
        self.has_lab, self.lab_trains = lab.present(root), lab_trains
        self.mixers = mixers(root) if self.has_lab else {}
        self.sentences: dict[str, str] = {}  # sentence of each chapter in the index
        self.rooms = rooms(root)
        self.documents = layout.documents(root) | NAMES
        self.calls = Calls(root, self.rooms)
        self.images: set[str] = set()
        self._in_parts: dict[str, int] = {}  # files listed in parts: number of context lines
        self._room_of: dict[str, Room] = {}  # files of layers and blocks
        self._more: list[str] = []  # linked files that have a page of their own
        self._addresses = {"README.md": "index.html", index.PAGE: "index.html", CONVENTIONS: "conventions.html"}
        self.kernels = kernel_pages.operations(root)
        self._addresses |= {kernel_pages.chapter_of(name): kernel_pages.page_of(name) for name in self.kernels}
        self.has_story = (root / story.CHAPTER).is_file()
        if self.has_story:
            self._addresses |= {story.SOURCE: f"{STORY}#L", story.CHAPTER: STORY}
        for room in self.rooms.values():
            self._addresses[room.chapter] = f"{room.page}.html"
            for device, sources in room.devices.items():
                for number, source in enumerate(sources):
                    if source.path not in room.lent:
                        self._addresses[source.path] = f"{room.page}.html#{self._prefix(device, number)}"
                        self._room_of[source.path] = room
        self.chapters = self._reading_order()
        of_chapter = {room.chapter: name for name, room in self.rooms.items()}
        self.order = [of_chapter[path] for path in self.chapters if path in of_chapter]
        # Pages in reading order, and their names in the navigation.
        self.pages = {"index.html": "start"} | {page: Path(page).stem for page in map(self.address_of_file, self.chapters)}

    def outputs(self) -> Iterator[Output]:
        """Every page. Pages of files that other pages link to come last."""
        yield from self._rooms_that_fit()
        yield self._index()
        if self.has_story:
            yield self._story()
        yield self._document(CONVENTIONS, "conventions.html", "Conventions")
        if self.has_lab:
            yield self._lab()
        yield from map(self._kernels, self.kernels)
        done: set[str] = set()
        while self._more:
            path = self._more.pop()
            if path not in done:
                done.add(path)
                yield self._file(path)
        pages = self.pages.keys() | {self._addresses[path] for path in done} | ({lab.PAGE} if self.has_lab else set())
        for picture in self.pictures:
            if f"{picture.page}.html" not in pages:
                raise Fault(f"the picture {picture.name}", f"belongs to {picture.page}, and there is no such page")

    @property
    def written(self) -> set[str]:
        """Files of the repository that have a page or a place on a page."""
        return set(self._addresses)

    # ---- Files listed in parts ----

    def _rooms_that_fit(self) -> list[Output]:
        """The pages of all layers and blocks, with the smallest possible number of files listed in parts."""
        outputs = {name: self._room(self.rooms[name]) for name in self.order}
        heavy = [name for name, output in outputs.items() if self._is_too_large(output)]
        for name in heavy:
            self._list_in_parts(self.rooms[name])
        # Built again: other pages may link to files that now have their own pages.
        return [self._room(self.rooms[name]) for name in self.order] if heavy else list(outputs.values())

    def _list_in_parts(self, room: Room) -> None:
        """Lists files of a layer in parts until its page fits, with the largest possible context."""
        files = [source for device in FAST for source in room.devices.get(device, []) if source.path not in room.lent]
        paths = [source.path for source in sorted(files, key=lambda source: (source.size, source.path))]
        beside = {path: self._addresses[path] for path in paths}
        self._addresses |= {path: f"files/{path}.html" for path in paths}
        for context in CONTEXTS:
            self._in_parts |= dict.fromkeys(paths, context)
            if not self._is_too_large(self._room(room)):
                break
        for path in paths:  # small files may still fit as a whole
            del self._in_parts[path]
            self._addresses[path] = beside[path]
            if self._is_too_large(self._room(room)):
                self._in_parts[path] = context
                self._addresses[path] = f"files/{path}.html"
                break
        self._more += [path for path in paths if path in self._in_parts]

    def _is_too_large(self, output: Output) -> bool:
        return len(self.html(output).encode()) > LARGEST_PAGE

    # ---- Addresses ----

    @staticmethod
    def _prefix(device: str, number: int) -> str:
        """Prefix of the line ids of a device's files: c for the first file, c2- for the second."""
        return PREFIX[device] + (f"{number + 1}-" if number else "")

    def _address_of_line(self, page: str, room: Room, device: str, source: Source, number: int) -> str:
        """Address of a line of a device's file, relative to a page."""
        prefix = self._prefix(device, room.devices[device].index(source))
        return _relative(page, f"{room.page}.html#{prefix}{number}")

    def address_of_file(self, path: str) -> str:
        """Address of a repository file. A file without a page gets one."""
        if path not in self._addresses:
            if not (self.root / path).is_file():
                raise Fault(path, "is linked to, but does not exist")
            if path.endswith(".svg"):
                self.images.add(path)
                self._addresses[path] = path
            else:
                address = self._address_of_document(path) if path.endswith(".md") else f"files/{path}.html"
                if address in self._addresses.values():
                    raise Fault(path, f"has the address of another page, {address}")
                self._addresses[path] = address
                self._more.append(path)
        return self._addresses[path]

    def _address_of_document(self, path: str) -> str:
        """Address of a document. A feature's document has the address docs/NAME, or docs/tasks/NAME if it is a task."""
        if not path.startswith("extras/"):
            return path[:-3] + ".html"
        name = self.documents[path]
        is_task = (self.root / path).with_name(f"{name}_programs.cpp").is_file()
        return f"docs/tasks/{name}.html" if is_task else f"docs/{name}.html"

    def _context(self, path: str, page: str) -> chapter.Context:
        def address(document: str, link: str) -> str:
            if link.startswith(("https:", "http:")) or link.startswith("#"):
                return link
            target, _, fragment = link.partition("#")
            file = posixpath.normpath(posixpath.join(posixpath.dirname(document), target))
            found = self.address_of_file(file)
            return _relative(page, found.split("#")[0] + "#" + fragment if fragment else found)

        def figure(equation: str, tag: str, place: str) -> str:
            return self._figure(equation, tag, place, page)

        pictures: dict[str, str] = {}
        for picture in self.pictures:
            if f"{picture.page}.html" == page and picture.after:
                pictures[picture.after] = pictures.get(picture.after, "") + self._picture(picture)
        return chapter.Context(path, address, self._tag_address(page), figure, pictures)

    def _tag_address(self, page: str) -> listing.Address:
        def address(name: str, number: str) -> str:
            if name not in self.rooms:
                raise Fault(page, f"({name}.{number}) refers to no layer and no block")
            return _relative(page, f"{self.rooms[name].page}.html#{name}.{number}")

        return address

    # ---- Pieces ----

    @staticmethod
    def _picture(picture: Picture) -> str:
        # Attributes are half of a picture's bytes. HTML, unlike XML, needs no quotes around most values.
        drawn = re.sub(r"""="([^\s"'=<>`]+)\"""", r"=\1", picture.draw().replace("/>", " />"))
        return (
            f'<figure class="picture" id="picture-{picture.name}"><div class="wide">{drawn}</div>'
            f"<figcaption>{html.escape(picture.caption, quote=False)}</figcaption></figure>\n"
        )

    def _figure(self, equation: str, tag: str, place: str, page: str) -> str:
        """An equation with its tag, its plain loops, links to its lines, and the lines of the fast devices in a
        fold."""
        room = self.rooms.get(tag.split(".")[0])
        if room is None or f"{room.page}.html" != page:
            raise Fault(place, f"({tag}) belongs to another chapter")
        number = tag.split(".")[1]
        spoken = html.escape(f"{tag}: {tex.plain(equation)}")
        parts = [
            f'<figure id="{tag}" class="equation" data-t="{number}" aria-label="{spoken}">',
            f'<div class="math">{tex.mathml(equation, True)}<a class="tag" href="#{tag}">({tag})</a></div>',
        ]
        address = self._tag_address(page)
        first, *others = room.devices
        links, folded = [], []
        for device in room.devices:
            places = room.places(device, tag)
            if not places and tag not in room.definitions:
                raise Fault(place, f"({tag}) has no line in {device if device != 'block' else room.header.path}")
            if not places:
                continue
            lines, last = [], None
            for source, line in places:
                is_part = source is not room.devices[device][0]
                link = f'<a href="{self._address_of_line(page, room, device, source, line.number)}">{line.number}</a>'
                part = layout.stem(source.path).removeprefix(f"{room.name}_") + " " if is_part and source != last else ""
                lines.append(part + link)
                last = source
            links.append(f"<span>{HEADING[device]} {', '.join(lines)}</span>")
            if device == first:
                source, line = places[0]
                parts.append(listing.excerpt(source, self._excerpt(room, source, line.number), tag, address))
            else:
                shown: set[tuple[str, int]] = set()
                for source, line in places[: 1 if self._is_short(room) else None]:
                    if (source.path, line.number) in shown:
                        continue
                    rows = source.excerpt(line.number, room.name)
                    shown |= {(source.path, row.line.number) for row in rows}
                    folded.append(f"<p>{source.path}:{line.number}</p>")
                    folded.append(listing.excerpt(source, rows, tag, address))
        if tag in room.definitions:
            links.append(f'<span><a href="{_relative(page, "conventions.html")}">a definition</a>, computed in another form</span>')
        if room.kind == "blocks":
            source, line = room.places(first, tag)[0]
            called = self.calls.of(source, source.statement(line.number))
            calls = [f'<a href="../layers/{name}.html">{name}</a>' for name in called]
            if not calls:
                raise Fault(place, f"({tag}) calls no layer at {source.path}:{line.number}")
            links.append(f"<span>calls {', '.join(calls)}</span>")
        parts.append(f'<p class="lines">{" ".join(links)}</p>')
        if folded:
            parts.append(f"<details><summary>CPU and GPU</summary>{''.join(folded)}</details>")
        return "\n".join(parts) + "\n</figure>\n"

    def _is_short(self, room: Room) -> bool:
        """True: an equation shows one place per device only, because the page is near its size limit."""
        return any(source.path in self._in_parts for sources in room.devices.values() for source in sources)

    @staticmethod
    def _excerpt(room: Room, source: Source, number: int) -> list[Row]:
        """Excerpt for an equation: one statement of a block, or the statement and its loops of a layer."""
        if room.kind == "layers":
            return source.excerpt(number, room.name)
        lines = [source.lines[one - 1] for one in source.statement(number)]
        return [Row(line, lines[0].indent + source.hanging(line.number), False) for line in lines]

    def _listings(self, room: Room, device: str, page: str) -> str:
        """The files of a device, whole or in parts, each in a fold. The folds are open if the listings fit beside the
        chapter."""
        address = self._tag_address(page)
        written = [f'<section class="listing" id="{device}" aria-label="{HEADING[device]}">']
        for number, source in enumerate(room.devices[device]):
            prefix = self._prefix(device, number)
            context = LENT_CONTEXT if source.path in room.lent else self._in_parts.get(source.path)
            if source.path in room.lent:
                self._more.append(source.path)
            if context is None:
                heading, code = source.path, listing.whole(source, prefix, room.name, address)
            else:
                file = _relative(page, f"files/{source.path}.html")
                tagged = [line.number for line in source.lines if any(tag.split(".")[0] == room.name for tag in line.tags)]
                shown = set().union(*(source.surroundings(line, context) for line in tagged))
                heading = f'<a href="{file}">{source.path}</a>, in parts'
                code = listing.parts(source, shown, prefix, room.name, address, file)
            summary = f'<summary id="{prefix}"><h2><span>{HEADING[device]}</span> {heading}</h2></summary>'
            written.append(f"<details>{summary}{code}</details>")
            costs = kernel_pages.costs_of_file(self.root, source.path, page)  # only files of cuda/ have any
            if costs:
                written.append(f"<div>{costs}</div>")
        return "\n".join(written) + "\n</section>\n"

    # ---- Pages ----

    def _room(self, room: Room) -> Output:
        page = f"{room.page}.html"
        text = (self.root / room.chapter).read_text(encoding="utf-8")
        prose = self._with_contents(chapter.rendered(text, self._context(room.chapter, page)))
        header = self.address_of_file(room.header.path)
        links = self._room_links(room, page, header) if room.kind == "layers" else []
        ladder = kernel_pages.LADDERS.get(room.name, room.name)
        if room.kind == "layers" and ladder in self.kernels:
            links.append(("its kernels at work", _relative(page, kernel_pages.page_of(ladder))))
        if self.has_lab:
            trained = [name for name, block in self.mixers.items() if block == room.name and room.kind == "blocks"]
            links += [(f"train {name} in the lab", f"../{lab.PAGE}#mixer={name}") for name in trained]
            links += [] if trained else [("train a network in the lab", f"../{lab.PAGE}")]
        if links:
            prose = self._links(links) + prose
        beside = "".join(self._listings(room, device, page) for device in room.devices)
        body = f'<main>\n<article>\n{prose}</article>\n<div class="beside">\n{beside}</div>\n</main>'
        return Output(page, room.name, room.kind, body)

    @staticmethod
    def _links(links: list[tuple[str, str]]) -> str:
        """A line of links: pairs of text and address."""
        written = " ".join(f'<a href="{address}">{html.escape(text)}</a>' for text, address in links)
        return f'<p class="rooms">{written}</p>\n'

    def _room_links(self, room: Room, page: str, header: str) -> list[tuple[str, str]]:
        test = self.address_of_file(room.test)
        links = [("header", _relative(page, header))]
        links += [(HEADING[device].lower() if device == "plain" else HEADING[device], f"#{device}") for device in DEVICES]
        return [*links, ("test", _relative(page, test))]

    def _document(self, path: str, page: str, title: str) -> Output:
        text = (self.root / path).read_text(encoding="utf-8")
        prose = self._with_contents(chapter.rendered(text, self._context(path, page)))
        return Output(page, title, "document", f"<main><article>\n{prose}</article></main>")

    def _story(self) -> Output:
        """The page of the story: a training program, with forward and backward side by side, then the whole file."""
        address = self._tag_address(STORY)

        def line_address(tag: str) -> tuple[str, str]:
            room = self.rooms.get(tag.split(".")[0])
            places = room.places("plain", tag) if room else []
            if not places:
                raise Fault(story.SOURCE, f"calls a room without a plain loop of ({tag})")
            source, line = places[0]
            return self._address_of_line(STORY, room, "plain", source, line.number), f"{source.path}:{line.number}"

        told = story.Story(self.root, address, line_address)
        text = (self.root / story.CHAPTER).read_text(encoding="utf-8")
        prose = chapter.rendered(text, self._context(story.CHAPTER, STORY))
        whole = listing.whole(told.source, "L", "", address)
        body = (
            f"<main>\n<article>\n{prose}</article>\n{told.body()}"
            f'<section class="listing"><h2 id="L">{story.SOURCE}</h2>{whole}\n</section></main>'
        )
        return Output(STORY, "story", "story", body)

    def _kernels(self, name: str) -> Output:
        """A chapter of docs/kernels, with the viewer after its first paragraph and the costs of every line at its
        end."""
        path, page = kernel_pages.chapter_of(name), kernel_pages.page_of(name)
        text = (self.root / path).read_text(encoding="utf-8")
        title, prose = chapter.headings(text)[0], chapter.rendered(text, self._context(path, page))
        lead, _, rest = prose.partition("</p>\n")
        others = [("introduction and terms", _relative(page, self.address_of_file(f"{kernel_pages.FOLDER}/README.md")))]
        others += [(other.replace("_", " "), _relative(page, kernel_pages.page_of(other))) for other in self.kernels if other != name]
        body = (
            f"<main>\n<article>\n{lead}</p>\n{self._links(others)}</article>\n{kernel_pages.viewer(self.root, name)}"
            f"<article>\n{rest}{kernel_pages.costs(self.root, name)}</article></main>"
        )
        return Output(page, title, "kernels", body)

    def _lab(self) -> Output:
        bell = "".join(self._picture(picture) for picture in self.pictures if picture.name == "touch-bell")
        chapters = {self.rooms[name].name: self.rooms[name].chapter for name in self.order if self.rooms[name].kind == "blocks"}
        address = self._context(lab.TEMPLATE, lab.PAGE).address
        body = lab.body(
            self.root,
            address=lambda file: address("", file),
            sentences=self.sentences,
            chapters=chapters,
            bell=bell,
        )
        return Output(lab.PAGE, "lab", "lab", body)

    def lab_equations(self) -> str:
        """The script with the equations that the lab shows."""

        def loop(room: Room, tag: str) -> str:
            source, line = room.places(next(iter(room.devices)), tag)[0]
            return listing.excerpt(source, self._excerpt(room, source, line.number), tag, self._tag_address(lab.PAGE))

        return lab.script_of_equations(self.root, self.rooms, loop)

    def _file(self, path: str) -> Output:
        """The page of a file without another page: a document is rendered, any other file is listed as code."""
        page = f"files/{path}.html" if path in self._room_of else self._addresses[path]
        if path.endswith(".md"):
            title = chapter.headings((self.root / path).read_text(encoding="utf-8"))[0]
            return self._document(path, page, title)
        code = listing.whole(Source(self.root, path), "L", "", self._tag_address(page))
        room = self._room_of.get(path)
        above = f'<p class="rooms">part of <a href="{_relative(page, room.page)}.html">{room.name}</a></p>\n' if room else ""
        body = f'<main><section class="listing"><h1>{path}</h1>\n{above}{code}\n</section></main>'
        return Output(page, path, "file", body)

    def _index(self) -> Output:
        """The first page: commands, reading order, and the map of the network."""
        prose = chapter.rendered((self.root / index.PAGE).read_text(encoding="utf-8"), self._context(index.PAGE, "index.html"))
        pictures = "".join(self._picture(picture) for picture in self.pictures if picture.page == "index")
        if self.has_lab:
            links = self._links([("Train a network in the lab, in this browser", lab.PAGE)])
            prose = prose.replace("</h1>\n", f"</h1>\n{links}", 1)
        body = f'<main><article>\n{prose}</article>\n<aside class="map" id="map" aria-label="Map">{pictures}</aside></main>'
        return Output("index.html", "start", "index", body)

    def _reading_order(self) -> list[str]:
        """The chapters and documents of the index, in the order of the index."""
        items = index.items(self.root)
        order = [path for path, _ in items]
        chapters = [room.chapter for room in self.rooms.values()]
        for path in chapters + [CONVENTIONS] + [story.CHAPTER] * self.has_story:
            if order.count(path) != 1:
                raise Fault(index.PAGE, f"has {order.count(path)} items for {path}, not one")
        for path, sentence in items:
            if not sentence:
                raise Fault(index.PAGE, f"has no sentence for {path}")
            self.sentences[path] = html.escape(sentence, quote=False)
        return order

    @staticmethod
    def _with_contents(prose: str) -> str:
        """A chapter; with many headings, a list of the headings is added after the title."""
        headings = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', prose)
        if len(headings) < LONG:
            return prose
        links = " ".join(f'<a href="#{place}">{re.sub("<a [^>]*>|</a>", "", text)}</a>' for place, text in headings)
        return prose.replace("</h1>\n", f'</h1>\n<nav class="contents" aria-label="On this page">{links}</nav>\n', 1)

    def html(self, output: Output) -> str:
        """The complete HTML of a page."""
        pages = list(self.pages)
        navigation, footer = f"<span>{html.escape(output.title)}</span>", ""
        if output.path in pages:
            at = pages.index(output.path)
            before, after = "", ""
            if at > 0:
                before = f'<a rel="prev" href="{_relative(output.path, pages[at - 1])}">← {self.pages[pages[at - 1]]}</a>'
            if at + 1 < len(pages):
                after = f'<a rel="next" href="{_relative(output.path, pages[at + 1])}">{self.pages[pages[at + 1]]} →</a>'
            navigation = f"{before} {navigation} {after}"
            footer = f'<footer><nav aria-label="Before and after">{before} {after}</nav></footer>\n'
        root = "../" * output.path.count("/")
        here = [picture for picture in self.pictures if f"{picture.page}.html" == output.path]
        scripts = ["page.js", *sorted({picture.script for picture in here} - {""})]
        more = ""
        if output.path == lab.PAGE:
            here = [picture for picture in self.pictures if picture.name == "touch-bell"]
            more = f'<link rel="stylesheet" href="{lab.STYLE}">\n'
            scripts = ["page.js", *({picture.script for picture in here} - {""})]
            scripts += [lab.EQUATIONS, lab.SCRIPT] if self.lab_trains else []
        if output.kind == "kernels":
            more = f'<link rel="stylesheet" href="{root}{kernel_pages.STYLE}">\n'
            scripts += [output.path.replace(".html", ".js"), kernel_pages.SCRIPT]
        return PAGE.format(
            title=html.escape(output.title),
            kind=output.kind,
            root=root,
            lab=f' <a href="{root}{lab.PAGE}">lab</a>' if self.has_lab and output.path != lab.PAGE else "",
            scripts=more + "\n".join(f'<script src="{root}{script}" defer></script>' for script in scripts),
            navigation=navigation.strip(),
            footer=footer,
            body=output.body,
        )
