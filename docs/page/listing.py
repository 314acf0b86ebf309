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

from sources import TAG, Line, Source

# Of a tag (name, number): the address of its equation, seen from the page that is being written.
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


def lines_of(source: Source, lines: list[Line], address: Address) -> list[str]:
    """Lines of a file as HTML, their tags as links to their equations."""
    highlighted = _highlighted(source.name, "\n".join(line.text for line in source.lines))

    def linked(line: str) -> str:
        return TAG.sub(lambda tag: f'<a href="{address(*tag.groups())}">{tag.group()}</a>', line)

    return [linked(highlighted[line.number - 1]) for line in lines]


def whole(source: Source, prefix: str, room: str, address: Address) -> str:
    """A file, complete: a list whose items are its lines. Their numbers are drawn by the style sheet, so that they are
    not copied with the text. Lines that compute an equation of `room` know its number, and they alone have an id, which
    the script gives to the others; without a room all have one. An item's end is left out, as HTML allows, and an empty
    one holds a break, so that it is copied, too: with a link in every line pages would have twice the bytes."""
    rows = []
    for line, text in zip(source.lines, lines_of(source, source.lines, address), strict=True):
        own = " ".join(tag.split(".")[1] for tag in line.tags if tag.split(".")[0] == room)
        name = f"id={prefix}{line.number}" if own or not room else ""
        numbers = f" data-t={own}" if own.isdigit() else f' data-t="{own}"' if own else ""
        rows.append(f"<li\n{name}{numbers}>{text or '<br>'}")
    return '<ol class="code" tabindex="0" aria-label="{}">{}</ol>'.format(source.path, "".join(rows))


def excerpt(source: Source, lines: list[Line | None], tag: str, address: Address) -> str:
    """A few lines, moved to the left margin; the one that computes the equation is marked. Lines left out are a ⋯."""
    own = f'<a href="{address(*tag.split("."))}">({tag})</a>'  # leads to where the excerpt stands
    shown = [line for line in lines if line is not None]
    texts = iter(lines_of(source, shown, address))
    margin = min(line.indent for line in shown)
    rows = []
    for line in lines:
        if line is None:
            rows.append(" " * 2 + "⋯")
            continue
        text = re.sub(r" {3,}(?=<i>)", "  ", next(texts).replace(own, f"({tag})")[margin:])
        rows.append(f"<mark>{text}</mark>" if tag in line.tags else text)
    return '<pre class="excerpt">{}\n</pre>'.format("\n".join(rows))
