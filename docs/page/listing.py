"""Source code as HTML: whole files, and the few lines under an equation.

Only comments and control-flow keywords are marked. More colours would double the size and would not help to find the
line that computes an equation.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache
from pathlib import PurePosixPath

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword
from pygments.util import ClassNotFound

from sources import TAG, Line, Row, Source

DEEPEST = 16  # columns: deeper lines of an excerpt do not indent their continuation further
# Maps a tag (name, number) to the address of its equation, relative to the current page.
Address = Callable[[str, str], str]


STEERING = {"for", "while", "do", "if", "else", "switch", "case", "return", "break", "continue", "template", "namespace"}


@cache
def _lexer(suffix: str) -> Lexer | None:
    """The lexer of all files with a suffix: pygments searches the installed packages for it each time."""
    try:
        return get_lexer_for_filename("file" + suffix.replace(".cu", ".cpp"), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def _highlighted(name: str, text: str) -> tuple[str, ...]:
    """The lines of a file as HTML, comments in <i>, control-flow keywords in <b>."""
    lexer = _lexer(PurePosixPath(name).suffix)
    if lexer is None:
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
            escaped = html.escape(piece, quote=False).replace("&gt;", ">")  # HTML does not require &gt;, and code often contains it
            lines[-1] += f"<{mark}>{escaped}</{mark}>" if mark and escaped.strip() else escaped
    return tuple(lines)


def lines_of(source: Source, lines: list[Line]) -> list[str]:
    """Lines of a file as HTML."""
    highlighted = _highlighted(source.name, "\n".join(line.text for line in source.lines))
    return [highlighted[line.number - 1] for line in lines]


def linked(line: str, address: Address) -> str:
    """Replaces tags by links to their equations."""
    return TAG.sub(lambda tag: f'<a href="{address(*tag.groups())}">{tag.group()}</a>', line)


def whole(source: Source, prefix: str, room: str, address: Address) -> str:
    """A complete file as a list with one item per line. The style sheet draws the line numbers, so that copied text
    does not contain them. Lines that compute an equation of `room` have the equation's number and an id; the script
    sets the ids of the other lines. Without a room every line has an id. An item has no end tag, as HTML allows. An
    empty item holds a break, so that it is copied, too. Links in every line would double the size of a page."""
    return _list(source, source.lines, prefix, room, address, "")


def parts(source: Source, shown: set[int], prefix: str, room: str, address: Address, file: str) -> str:
    """Some lines of a file. Each gap between them has a link to its first line in the whole `file`."""
    return _list(source, [line for line in source.lines if line.number in shown], prefix, room, address, file)


def _list(source: Source, lines: list[Line], prefix: str, room: str, address: Address, file: str) -> str:
    rows, before = [], 0
    for line, text in zip(lines, lines_of(source, lines), strict=True):
        if gap := line.number - before - 1:
            rows.append(_gap(file, before + 1, gap))
        own = " ".join(tag.split(".")[1] for tag in line.tags if tag.split(".")[0] == room)
        name = f"id={prefix}{line.number}" if own or not room else ""
        name += f" value={line.number} style=--n:{line.number}" if gap else ""  # value for the script, style for the drawn number
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
    """A comment without `tag`, and without tags of other layers at its beginning."""
    left = re.match(r"(?:\(\w+\.\d+\)[:,]? ?)*", comment).group()
    kept = [name for name in re.findall(r"\((\w+\.\d+)\)", left) if name != tag and name.split(".")[0] == room]
    return " ".join([f"({name})" for name in kept] + [comment[len(left) :]] * (comment != left))


def excerpt(source: Source, rows: list[Row], tag: str, address: Address) -> str:
    """A few lines as a list. The line that computes the equation is marked and does not repeat its tag. Tags of other
    layers and comments on a loop's header are left out. A ⋯ stands for omitted lines. Each line has its indentation as
    a style, so that a continued line is indented further."""
    room = tag.split(".")[0]
    written = []
    for row, text in zip(rows, lines_of(source, [row.line for row in rows]), strict=True):
        marked = tag in row.line.tags
        if row.line.tags:
            own = tag if marked else ""
            text = re.sub(r"<i>// (.*?)</i>", lambda found: _comment(_with_tags_of(room, own, found.group(1))), text).rstrip()
        text = re.sub(r"</?b>", "", text)  # few lines need no bold keywords
        if row.line.code.endswith("{") and not row.line.tags:  # a loop's header
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
