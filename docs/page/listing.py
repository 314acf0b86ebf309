"""Source code as HTML: whole files, and the few lines that stand under an equation.

Only comments and what steers the course are told apart from the rest. More colours would double the bytes and help
nobody to find the line that computes an equation.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import lru_cache

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword
from pygments.util import ClassNotFound

from sources import TAG, Line, Row, Source

DEEPEST = 16  # columns of indentation from which on the second line of an excerpt's line is no deeper
# Maps a tag (name, number) to the address of its equation, relative to the page that is being written.
Address = Callable[[str, str], str]


STEERING = {"for", "while", "do", "if", "else", "switch", "case", "return", "break", "continue", "template", "namespace"}


@lru_cache(maxsize=None)
def _highlighted(name: str, text: str) -> tuple[str, ...]:
    """The lines of a file as HTML, comments in <i>, what steers in <b>."""
    try:
        lexer = get_lexer_for_filename(name.replace(".cu", ".cpp"), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return tuple(html.escape(line, quote=False) for line in text.split("\n"))
    lines = [""]
    for kind, value in lexer.get_tokens(text):
        mark = None
        if kind in Comment and kind not in Comment.Preproc and kind not in Comment.PreprocFile:
            mark = "i"
        elif kind in Keyword and value in STEERING:
            mark = "b"
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append("")
            escaped = html.escape(piece, quote=False).replace("&gt;", ">")  # which nothing requires, and code is full of
            lines[-1] += f"<{mark}>{escaped}</{mark}>" if mark and escaped.strip() else escaped
    return tuple(lines)


def lines_of(source: Source, lines: list[Line]) -> list[str]:
    """Lines of a file as HTML."""
    highlighted = _highlighted(source.name, "\n".join(line.text for line in source.lines))
    return [highlighted[line.number - 1] for line in lines]


def linked(line: str, address: Address) -> str:
    """Its tags as links to their equations."""
    return TAG.sub(lambda tag: f'<a href="{address(*tag.groups())}">{tag.group()}</a>', line)


def whole(source: Source, prefix: str, room: str, address: Address) -> str:
    """A file, complete: a list whose items are its lines. Their numbers are drawn by the style sheet, so that they are
    not copied with the text. Lines that compute an equation of `room` know its number, and they alone have an id, which
    the script gives to the others; without a room all have one. An item's end is left out, as HTML allows, and an empty
    one holds a break, so that it is copied, too: with a link in every line pages would have twice the bytes."""
    return _list(source, source.lines, prefix, room, address, "")


def parts(source: Source, shown: set[int], prefix: str, room: str, address: Address, file: str) -> str:
    """Some lines of a file, and for each gap between them a link to there in the whole `file`."""
    return _list(source, [line for line in source.lines if line.number in shown], prefix, room, address, file)


def _list(source: Source, lines: list[Line], prefix: str, room: str, address: Address, file: str) -> str:
    rows, before = [], 0
    for line, text in zip(lines, lines_of(source, lines), strict=True):
        if gap := line.number - before - 1:
            rows.append(_gap(file, before + 1, gap))
        own = " ".join(tag.split(".")[1] for tag in line.tags if tag.split(".")[0] == room)
        name = f"id={prefix}{line.number}" if own or not room else ""
        name += f" value={line.number} style=--n:{line.number}" if gap else ""  # for the script, and to be drawn
        numbers = f" data-t={own}" if own.isdigit() else f' data-t="{own}"' if own else ""
        rows.append(f"<li\n{name}{numbers}>{linked(text, address) or '<br>'}")
        before = line.number
    if gap := len(source.lines) - before:
        rows.append(_gap(file, before + 1, gap))
    label = source.path + (", in parts" if file else "")
    return '<ol class="code" tabindex="0" aria-label="{}">{}</ol>'.format(label, "".join(rows))


def _gap(file: str, first: int, lines: int) -> str:
    return f'<li\nclass=gap><a href="{file}#L{first}">⋯ {lines} line{"s" * (lines > 1)}</a>'


def _with_tags_of(room: str, tag: str, comment: str) -> str:
    """A comment without the tag beside which its line is shown, and without those of other layers that it begins with."""
    left = re.match(r"(?:\(\w+\.\d+\)[:,]? ?)*", comment).group()
    kept = [name for name in re.findall(r"\((\w+\.\d+)\)", left) if name != tag and name.split(".")[0] == room]
    return " ".join([f"({name})" for name in kept] + [comment[len(left) :]] * (comment != left))


def excerpt(source: Source, rows: list[Row], tag: str, address: Address) -> str:
    """A few lines. The one that computes the equation is marked, and does not repeat its tag, beside which it stands; tags
    of other layers are left out. Lines left out are a ⋯, and comments on a loop are left to its listing. Each line knows
    how far it is indented, so that what does not fit is continued further in."""
    room = tag.split(".")[0]
    written = []
    for row, text in zip(rows, lines_of(source, [row.line for row in rows]), strict=True):
        marked = tag in row.line.tags
        if row.line.tags:
            own = tag if marked else ""
            text = re.sub(r"<i>// (.*?)</i>", lambda found: _comment(_with_tags_of(room, own, found.group(1))), text).rstrip()
        text = re.sub(r"</?b>", "", text)  # so few lines need no bold words
        if row.line.code.endswith("{") and not row.line.tags:  # a head stands there for its loop alone
            text = re.sub(r" *<i>// .*</i>$", "", text)
        text = re.sub(r"(?<=\S) {2,}(?=<i>)", "  ", linked(text[row.margin :], address)) + " ⋯" * row.cut
        indent = max(row.line.indent - row.margin, 0)
        style = f" style=--i:{min(indent, DEEPEST)}" if indent else ""
        margin = " " * indent * bool(text)
        code = text.removeprefix(margin)
        written.append(f"<li{style}>{margin}" + (f"<mark>{code}</mark>" if marked else code or "<br>"))
    return f'<ol class="excerpt">{"".join(written)}</ol>'


def _comment(text: str) -> str:
    return f"<i>// {text}</i>" if text else ""
