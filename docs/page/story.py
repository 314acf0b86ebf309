"""The page of the story: src/apps/story.cpp, with the statements of `forward` and `backward` side by side.

Beside the lines are the numbers of docs/story_example.txt. A program that includes the same file has printed them, and
its test compares them. The page therefore needs no compiler.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault import Fault
from sources import TAG, Line, Source

SOURCE, CHAPTER, EXAMPLE = "src/apps/story.cpp", "docs/story.md", "docs/story_example.txt"
# The main equation of each layer, forward and backward: the page links to its line.
FORWARD = {
    "embedding": "1",
    "layernorm": "3",
    "linear": "1",
    "pooling_logits": "1",
    "pooling": "5",
    "gate": "1",
    "gelu": "1",
    "dropout": "2",
    "cross_entropy": "3",
}
BACKWARD = {
    "embedding": "2",
    "layernorm": "4",
    "linear": "2",
    "pooling_logits": "2",
    "pooling": "11",
    "gate": "3",
    "gelu": "3",
    "dropout": "3",
    "cross_entropy": "5",
}
Rows = list[list[str]]


@dataclass
class Call:
    """A call in `forward` or `backward`."""

    line: Line
    room: str  # pooling_logits
    arguments: list[str]
    group: str  # the comment above the first line of a group; empty for other lines

    @property
    def code(self) -> str:
        return self.line.code.strip()


@dataclass
class Example:
    """The numbers of a run: the results of every line, by the line's first tag, and the weights."""

    words: dict[str, str]  # window, targets, alphabet, loss
    of_line: dict[str, dict[str, Rows]]
    weights: dict[str, Rows]


def _calls(source: Source, name: str) -> list[Call]:
    begins = [line.number for line in source.lines if line.text == f"  void {name}() {{"]
    if len(begins) != 1:
        raise Fault(SOURCE, f"has no list {name}")
    calls, group = [], ""
    for line in source.lines[begins[0] :]:
        if line.text == "  }":
            return calls
        if line.text.lstrip().startswith("//"):
            group = line.text.strip().removeprefix("// ")
            continue
        call = re.fullmatch(r"([a-z_]+)\((.*)\);", line.code.strip())
        if not call or not line.tags:
            raise Fault(f"{SOURCE}:{line.number}", "is not a call with the tag of its equation")
        called = call.group(1)
        if name == "backward" and not called.endswith("_backward"):
            raise Fault(f"{SOURCE}:{line.number}", f"{called} is no backward pass")
        room = called.removesuffix("_forward").removesuffix("_backward")
        calls.append(Call(line, room, call.group(2).split(", "), group))
        group = ""
    raise Fault(SOURCE, f"the list {name} does not end")


def pairs(source: Source) -> list[tuple[Call, Call]]:
    """Pairs each line of `forward` with the line of `backward` that differentiates it."""
    forward, backward = _calls(source, "forward"), _calls(source, "backward")[::-1]
    for one, other in zip(forward, backward, strict=False):
        if one.room != other.room:
            raise Fault(f"{SOURCE}:{other.line.number}", f"{other.room} does not face {one.room}, line {one.line.number}")
    if len(forward) != len(backward):
        raise Fault(SOURCE, f"forward has {len(forward)} lines, backward {len(backward)}")
    return list(zip(forward, backward, strict=True))


def example(text: str) -> Example:
    """Parses the output of build/story_example."""
    found = Example({}, {}, {})
    place: dict[str, Rows] = {}
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        if tag := re.fullmatch(r"\(([a-z_]+\.\d+|weights)\)", line):
            place = found.of_line.setdefault(tag.group(1), {}) if tag.group(1) != "weights" else found.weights
        elif word := re.fullmatch(r"(\w+) (.*?)\|?", line):
            found.words[word.group(1)] = word.group(2)
        elif re.fullmatch(r"[A-Za-z]\w*", line):
            name = line
            place[name] = []
        elif re.fullmatch(r"( +-?\d+\.\d+)+", line) and name in place:
            place[name].append(line.split())
        else:
            raise Fault(f"{EXAMPLE}:{number}", f"is not what the example prints: {line!r}")
    return found


def _set(number: str) -> str:
    """A number with a minus sign, except for zero."""
    return number.lstrip("-") if float(number) == 0 else number.replace("-", "−")


def _letter(text: str) -> str:
    return html.escape(text.replace(" ", "␣"))


def table(name: str, rows: Rows, heads: list[str], columns: list[str] | None = None) -> str:
    """A table of numbers with a caption, row headers `heads` and column headers `columns`."""
    top = "".join(f'<th scope="col">{_letter(letter)}</th>' for letter in columns or [])
    lines = f"<tr><td></td>{top}</tr>" if top else ""
    lines += "".join(
        "<tr>"
        + (f'<th scope="row">{_letter(heads[at])}</th>' if at < len(heads) else "")
        + "".join(f"<td>{_set(number)}</td>" for number in row)
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<div class="wide"><table class="numbers"><caption>{name}</caption>{lines}</table></div>'


class Story:
    """The page's body. `tag_address(name, number)`: address of an equation. `line_address(tag)`: address and name of
    the equation's plain loop."""

    def __init__(
        self, root: Path, tag_address: Callable[[str, str], str], line_address: Callable[[str], tuple[str, str]]
    ) -> None:
        self.source = Source(root, SOURCE)
        self.pairs = pairs(self.source)
        self.example = example((root / EXAMPLE).read_text(encoding="utf-8"))
        self._tag_address, self._line_address = tag_address, line_address
        for one in (call for pair in self.pairs for call in pair):
            if one.line.tags[0] not in self.example.of_line:
                raise Fault(EXAMPLE, f"has no numbers of ({one.line.tags[0]})")

    def body(self) -> str:
        parts = ['<div class="pairs">\n<p class="forward">Forward, downwards</p><p class="backward">Backward, upwards</p>']
        # Both functions use the same group titles, and each may add a note.
        notes: dict[str, list[str]] = {}
        for group in (call.group for pair in self.pairs for call in pair if call.group):
            title, _, note = group.partition(".")
            notes.setdefault(title, []).extend([note.strip()] if note.strip() else [])
        for forward, backward in self.pairs:
            if forward.group:
                title = forward.group.partition(".")[0]
                parts.append(f"<h2>{html.escape(title)}</h2>")
                for note in notes[title]:
                    linked = TAG.sub(lambda tag: f'<a href="{self._tag_address(*tag.groups())}">{tag.group()}</a>', note)
                    parts.append(f'<p class="note">{linked}</p>')
            parts.append(self._side(forward, "forward") + self._side(backward, "backward"))
        return "\n".join(parts) + "\n</div>\n"

    def _side(self, call: Call, side: str) -> str:
        tags = " ".join(f'<a href="{self._tag_address(*tag.split("."))}">({tag})</a>' for tag in call.line.tags)
        equations = FORWARD if side == "forward" else BACKWARD
        if call.room not in equations:
            raise Fault(f"{SOURCE}:{call.line.number}", f"calls {call.room}, which has no equation in story.py")
        address, name = self._line_address(f"{call.room}.{equations[call.room]}")
        number = call.line.number
        return (
            f'<section class="{side}" id="{side}-{call.line.tags[0]}" aria-label="{side}, {call.line.tags[0]}">\n'
            f'<pre class="call">{html.escape(call.code, quote=False)}</pre>\n'
            f'<p class="lines"><span>{tags}</span> <a href="{address}">{name}</a> <a href="#L{number}">line {number}</a></p>\n'
            f"{self._numbers(call, side)}</section>"
        )

    def _numbers(self, call: Call, side: str) -> str:
        words = self.example.words
        letters, alphabet = list(words["window"]), list(words["alphabet"])
        found = self.example.of_line[call.line.tags[0]]
        tables = []
        for name, rows in found.items():
            if name.endswith(("_bnc", "_bc")):  # transposed: one row per position, as in the other arrays
                rows = [list(column) for column in zip(*rows, strict=True)]
            asked = [f"{one}→{other}" for one, other in zip(letters, words["targets"], strict=True)]
            heads = asked if name == "loss_bc" else letters
            tables.append(table(name, rows, heads, alphabet if name.endswith("_bcv") else None))
        folded = []
        for argument in call.arguments:
            names = [argument] + (["key_dd"] if argument == "query_dd" else [])
            for name in names if argument in self.example.weights else []:
                name = name if side == "forward" else f"d_{name}"
                folded.append((name, table(name, self.example.weights[name], alphabet if name.endswith("_vd") else [])))
        if not tables:
            tables, folded = [text for _, text in folded], []
        shown = f'<div class="arrays">{"".join(tables)}</div>\n'
        if folded:
            named = ", ".join(name for name, _ in folded)
            arrays = "".join(text for _, text in folded)
            shown += f'<details><summary>{named}</summary><div class="arrays">{arrays}</div></details>\n'
        return shown
