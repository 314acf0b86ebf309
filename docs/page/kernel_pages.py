"""Kernel pages: pages that replay traces of kernels, lane by lane (docs/kernels).

A page is a chapter, docs/kernels/NAME.md, with the viewer (kernels/trace.js, kernels/viewer.js) above its text. A
script of the page contains the traces of docs/kernels/NAME/, the source code, and the equations of its tags, because a
page opened from a file may not fetch other files. Without script the page shows one moment as a picture, and the costs
of each line.
"""

from __future__ import annotations

import gzip
import html
import json
import posixpath
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qs

import listing
import tex
import touch
from fault import Fault
from kernel_traces import Costs, Event, Trace, traces
from sources import Room, Source

HERE = Path(__file__).resolve().parent
FOLDER, SCRIPT, STYLE = "docs/kernels", "kernels/kernels.js", "kernels/kernels.css"
PARTS = ("trace", "viewer")
LADDERS = {"linear": "product", "embedding": "embedding_gradient"}  # chapters of layers with another name
LARGEST_SCRIPT, LARGEST_PAGE = 60_000, 600_000
LARGEST_TRACE, LARGEST_TRACES = 30_000, 250_000  # packed by gzip
COSTS = (
    "The tables count the requests to global memory, the bytes that their lanes ask for, the least number of sectors that could "
    "hold these bytes, and the sectors moved by all requests; then the requests to shared memory, their bank conflicts, and the "
    "shuffles and barriers of the warps."
)
MOMENT = re.compile(r"level=\w+(&(launch|block|warp|step|lane)=\d+)*(&beside=\w+(&besideStep=\d+)?)?")


def operations(root: Path) -> list[str]:
    """Operations whose chapters have traces, in the reading order of the introduction."""
    introduction = root / FOLDER / "README.md"
    order = re.findall(r"^- .*?\]\((\w+)\.md\)", introduction.read_text(encoding="utf-8"), re.M) if introduction.is_file() else []
    found = sorted(path.stem for path in (root / FOLDER).glob("*.md") if any((root / FOLDER / path.stem).glob("*.trace")))
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def chapter_of(name: str) -> str:
    return f"{FOLDER}/{name}.md"


def page_of(name: str) -> str:
    return f"kernels/{name}.html"


def title_of(root: Path, operation: str, level: str) -> str:
    """Title of a level, from the first sentence of its file: `2: one warp per row` for level_2 of layernorm."""
    path = root / FOLDER / operation / f"{level}.cu"
    if operation == "production":
        return level.replace("_", " ")
    begins = re.match(r"// (?:Level )?(.*?)\.(?=\s)", path.read_text(encoding="utf-8"), re.DOTALL) if path.is_file() else None
    return " ".join(begins.group(1).replace("\n//", "").split()) if begins else level.replace("_", " ")


def short(level: str) -> str:
    """Name in addresses: 2 for level_2."""
    return level.removeprefix("level_")


@lru_cache(maxsize=None)
def _parsed(text: str) -> Trace:
    return Trace(text)


def ordered(root: Path, operation: str) -> dict[str, str]:
    """Traces of a page: first traces that the chapter links by name, in the order of the links; then all others."""
    found = traces(root, f"{FOLDER}/{operation}")
    linked = re.findall(r"#level=(\w+)", (root / chapter_of(operation)).read_text(encoding="utf-8"))
    place = {name: (0, linked.index(name)) for name in reversed(linked) if not name.isdigit()}
    return {name: found[name] for name in sorted(found, key=lambda name: place.get(name, (1, 0)))}


def levels(root: Path, operation: str) -> dict[str, Trace]:
    return {short(name): _parsed(text) for name, text in ordered(root, operation).items()}


# ---- Loaded files ----


def scripts(root: Path, rooms: dict[str, Room]) -> dict[str, str]:
    """The viewer, its style, and the traces of each page."""
    if not operations(root):
        return {}
    text = "".join(touch.without_comments((HERE / f"kernels/{part}.js").read_text(encoding="utf-8")) for part in PARTS)
    if len(text.encode()) > LARGEST_SCRIPT:
        raise Fault("docs/page/kernels", f"{len(text.encode())} bytes, more than {LARGEST_SCRIPT}")
    files = {SCRIPT: f"(() => {{\n{text}}})();\n", STYLE: (HERE / "kernels/kernels.css").read_text(encoding="utf-8")}
    for name in operations(root):
        files[f"kernels/{name}.js"] = _data(root, name, rooms)
    return files


def _data(root: Path, operation: str, rooms: dict[str, Room]) -> str:
    texts = ordered(root, operation)
    shown = {short(name): {"title": title_of(root, operation, name), "trace": text} for name, text in texts.items()}
    paths = sorted(set().union(*(_parsed(text).sources() for text in texts.values())) - {""})
    sources = {path: Source(root, path) for path in paths}
    code = {path: [line.rstrip() for line in listing.lines_of(one, one.lines)] for path, one in sources.items()}
    tags = sorted({tag for one in sources.values() for line in one.lines for tag in line.tags})
    equations = {tag: {"math": equation(root, rooms, tag), "href": f"../{rooms[tag.split('.')[0]].page}.html#{tag}"} for tag in tags}
    told = {"levels": shown, "sources": code, "equations": equations}
    return f"const kernelData = {json.dumps(told, ensure_ascii=False)};\n"


def equation(root: Path, rooms: dict[str, Room], tag: str) -> str:
    """An equation, as in its chapter."""
    room = rooms.get(tag.split(".")[0])
    if room is None:
        raise Fault(FOLDER, f"({tag}) refers to no layer and no block")
    return _equations(root / room.chapter)[tag]


@lru_cache(maxsize=None)
def _equations(chapter: Path) -> dict[str, str]:
    found = {}
    for content in re.findall(r"^ *```math\n(.*?)^ *```", chapter.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        text, tag = tex.split_tag(content.strip())
        if tag:
            found[tag] = tex.mathml(text, True)
    return found


# ---- The page ----


def viewer(root: Path, operation: str) -> str:
    """The container of the viewer; without script it shows a moment as a picture."""
    drawn = _picture(root, operation)
    return f'<div id="kernels">{drawn}<p>With a script this page replays the kernels step by step.</p></div>\n'


def costs(root: Path, operation: str) -> str:
    """The table of costs per line for every level, in a fold."""
    parts = [f"<p>{COSTS}</p>"]
    for name, trace in levels(root, operation).items():
        rows = []
        for (path, line), cost in trace.by_line().items():
            text = html.escape(Source(root, path).lines[line - 1].text.strip())
            place = f"{html.escape(path.removeprefix(f'{FOLDER}/{operation}/'))}:{line}"
            rows.append((place, cost, f"<code>{text}</code>"))
        title = html.escape(title_of(root, operation, f"level_{name}" if name.isdigit() else name))
        parts.append(_table(f"{title}: costs by line", rows, "code"))
    return "\n".join(parts) + "\n"


@lru_cache(maxsize=None)
def _costs_of_production(root: Path) -> dict[str, dict[tuple[str, int], Costs]]:
    """Costs by line of every recorded production kernel."""
    recorded = levels(root, "production") if "production" in operations(root) else {}
    return {name: trace.by_line() for name, trace in recorded.items()}


def costs_of_file(root: Path, path: str, page: str) -> str:
    """Tables of costs by line, one per recorded production kernel that runs code of this file; empty without one."""
    parts = []
    for name, costs in _costs_of_production(root).items():
        rows = [(str(line), cost, "") for (where, line), cost in costs.items() if where == path]
        moment = posixpath.relpath(page_of("production"), posixpath.dirname(page)) + f"#level={name}"
        title = f'Costs by line of <a href="{moment}">{title_of(root, "production", name)}</a>'
        if rows:
            parts.append(_table(title, rows, kind="measured"))
    return "\n".join(parts)


def _table(title: str, rows: list[tuple[str, Costs, str]], last: str = "", kind: str = "fold") -> str:
    """A folded table of costs: each row has a place, its costs and, where `last` names a column for it, a text."""
    heads = ("line", "requests", "bytes", "sectors needed", "sectors moved", "shared", "conflicts", "shuffles, barriers") + ((last,) if last else ())
    written = []
    for place, cost, text in rows:
        cells = (cost.requests, cost.bytes, cost.needed, cost.sectors, cost.shared, cost.conflicts, cost.waits)
        numbers = "".join(f"<td>{cell or ''}</td>" for cell in cells)
        written.append(f"<tr><th>{place}</th>{numbers}{f'<td>{text}</td>' if last else ''}</tr>")
    head = "".join(f"<th>{one}</th>" for one in heads)
    return (
        f'<details class="{kind}"><summary>{title}</summary><div class="wide">'
        f'<table class="costs"><tr>{head}</tr>{"".join(written)}</table></div></details>'
    )


def _picture(root: Path, operation: str) -> str:
    """A moment of the page as SVG: the first exchange of a warp, else the first write with recorded numbers."""
    for kinds in ("x", "wW"):
        for name, trace in reversed(levels(root, operation).items()):
            for event in trace.events():
                if event.kind in kinds and len(event.values) >= len(event.lanes) > 7:
                    return _drawn(root, operation, name, trace, event)
    raise Fault(FOLDER, f"{operation} has no moment that can be drawn")


def _drawn(root: Path, operation: str, name: str, trace: Trace, event: Event) -> str:
    each, (path, line) = len(event.values) // len(event.lanes), trace.sites[event.site][0]
    cells = []
    for lane in range(32):
        x, y = lane % 8 * 80, lane // 8 * 40
        value = event.values[event.lanes.index(lane) * each] if lane in event.lanes else ""
        fill = "var(--a)" if value else "var(--panel)"
        cells.append(
            f'<rect x="{x + 1}" y="{y + 1}" width="76" height="36" rx="3" fill="{fill}"/>'
            f'<text x="{x + 6}" y="{y + 14}" font-size="10" fill="var(--faint)">{lane}</text>'
            f'<text x="{x + 6}" y="{y + 31}" font-size="13" fill="var(--ink)">{value}</text>'
        )
    what = "gives to another lane" if event.kind == "x" else "writes"
    caption = f"One moment: what each lane of a warp {what}, at {path}:{line}"
    drawn = "".join(cells).replace("/>", " />")
    return (
        f'<figure class="picture"><div class="wide"><svg viewBox="0 0 640 160" width="640" height="160" role="img"><title>{html.escape(caption)}</title>'
        f"{drawn}</svg></div><figcaption>{html.escape(caption)}</figcaption></figure>"
    )


# ---- Checks ----


def moment_fault(root: Path, page: str, fragment: str) -> str | None:
    """The fault of a link to a moment, #level=2&step=3; None if the link is correct."""
    operation = re.fullmatch(r"kernels/(\w+)\.html", page)
    shown = levels(root, operation.group(1)) if operation else {}
    given = {name: values[0] for name, values in parse_qs(fragment).items()}
    if not MOMENT.fullmatch(fragment) or given["level"] not in shown or given.get("beside", given["level"]) not in shown:
        return "names no kernel"
    launch, block, warp, step = (int(given.get(key, 0)) for key in ("launch", "block", "warp", "step"))
    if not shown[given["level"]].has_moment(launch, block, warp, step):
        return "names no moment of its kernel"
    return None


def faults(root: Path, files: dict[str, str]) -> list[str]:
    """Links to missing moments, and traces whose total size is too large."""
    found = []
    for path, text in files.items():
        for link in re.findall(r'href="?([^"> ]*#level=[^"> ]*)', text if path.endswith(".html") else ""):
            target, _, fragment = html.unescape(link).partition("#")
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if fault := moment_fault(root, page, fragment):
                found.append(f"{path}: the link {html.unescape(link)} {fault}")
    packed = {path: len(gzip.compress(path.read_bytes(), mtime=0)) for path in sorted((root / FOLDER).glob("*/*.trace"))}
    found += [f"{path}: {size} bytes packed, more than {LARGEST_TRACE}" for path, size in packed.items() if size > LARGEST_TRACE]
    if sum(packed.values()) > LARGEST_TRACES:
        found.append(f"{FOLDER}: traces of {sum(packed.values())} bytes packed, more than {LARGEST_TRACES}")
    return found


def is_moment(fragment: str) -> bool:
    return fragment.startswith("level=")
