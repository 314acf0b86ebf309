"""Converts a chapter to HTML: Markdown with equations as MathML and, under each equation, the lines that compute it.

The chapters are written for a code host: ```math blocks, $...$ and $`...`$. Here markdown-it parses the same text, with
one additional inline rule. An equation with a tag becomes a figure.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

import tex
from fault import Fault
from sources import TAG


# Beginning of a fold. Markdown inside a fold is rendered only after an empty line.
FOLD = re.compile(r"<details>\n?<summary>[^\n]+</summary>\n\n")


@dataclass
class Context:
    """Data that the text of a chapter does not contain."""

    path: str  # docs/layers/layernorm.md
    address: Callable[[str, str], str]  # (the chapter's path, a link in the chapter) -> link in the page
    tag_address: Callable[[str, str], str]  # (name, number) of a tag -> address of its equation
    figure: Callable[[str, str, str], str]  # (TeX, tag, place in the chapter) -> figure of the equation
    pictures: dict[str, str]  # text of a heading -> HTML that follows the heading


def _inline_math(state: StateInline, silent: bool) -> bool:
    """Parses $...$ and $`...`$ before other rules interpret a backslash or an underscore."""
    if state.src[state.pos] != "$":
        return False
    opening, closing = ("$`", "`$") if state.src.startswith("$`", state.pos) else ("$", "$")
    end = state.src.find(closing, state.pos + len(opening))
    if end < 0:
        return False
    if not silent:
        token = state.push("math", "", 0)
        token.content = state.src[state.pos + len(opening) : end]
    state.pos = end + len(closing)
    return True


def _point(tokens: list[Token], index: int) -> str:
    """Punctuation at the beginning of the text after an equation; both must stay on one line."""
    text = tokens[index].content if index < len(tokens) and tokens[index].type == "text" else ""
    return text[:1] if text[:1] in (".", ",", ":", ";", ")") else ""


def slug(text: str) -> str:
    """The fragment of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


class _Renderer(RendererHTML):
    """HTML of the tokens that differ from CommonMark."""

    context: Context

    def _place(self, token: Token) -> str:
        return f"{self.context.path}:{token.map[0] + 1}" if token.map else self.context.path

    def html_block(self, tokens, index, options, env) -> str:
        """Gives a fold its class, which the style sheet, page.js and check.py use."""
        return tokens[index].content.replace("<details>", '<details class="fold">')

    def math(self, tokens, index, options, env) -> str:
        try:
            equation, point = tex.mathml(tokens[index].content, False), _point(tokens, index + 1)
            return f'<span class="m">{equation}{point}</span>' if point else equation
        except tex.TexError as error:
            raise Fault(self.context.path, f"${tokens[index].content}$: {error}") from error

    def fence(self, tokens, index, options, env) -> str:
        token = tokens[index]
        if token.info.strip() != "math":
            return f"<pre><code>{html.escape(token.content, quote=False)}</code></pre>\n"
        place = self._place(token)
        try:
            equation, tag = tex.split_tag(token.content.strip())
            if tag:
                return self.context.figure(equation, tag, place)
            return f'<div class="math">{tex.mathml(equation, True)}</div>\n'
        except tex.TexError as error:
            raise Fault(place, str(error)) from error

    def code_inline(self, tokens, index, options, env) -> str:
        """Marks each flag, so that it is not broken across lines."""
        code = html.escape(tokens[index].content, quote=False)
        return "<code>{}</code>".format(re.sub(r"(?<!\S)--?\w[\w-]*", r'<span class="f">\g<0></span>', code))

    def text(self, tokens, index, options, env) -> str:
        address = self.context.tag_address

        def linked(tag: re.Match[str]) -> str:
            return f'<a href="{address(*tag.groups())}">{tag.group()}</a>'

        text = tokens[index].content
        if index > 0 and tokens[index - 1].type == "math":
            text = text[len(_point(tokens, index)) :]
        return TAG.sub(linked, html.escape(text, quote=False))

    def link_open(self, tokens, index, options, env) -> str:
        return '<a href="{}">'.format(html.escape(self.context.address(self.context.path, tokens[index].attrs["href"])))

    def image(self, tokens, index, options, env) -> str:
        source = html.escape(self.context.address(self.context.path, tokens[index].attrs["src"]))
        return f'<img src="{source}" alt="{html.escape(tokens[index].content)}">'

    def heading_open(self, tokens, index, options, env) -> str:
        return f'<{tokens[index].tag} id="{slug(tokens[index + 1].content)}">'

    def heading_close(self, tokens, index, options, env) -> str:
        return f"</{tokens[index].tag}>\n" + self.context.pictures.get(tokens[index - 1].content, "")

    def table_open(self, tokens, index, options, env) -> str:
        return '<div class="wide"><table>\n'

    def table_close(self, tokens, index, options, env) -> str:
        return "</table></div>\n"


def headings(text: str) -> list[str]:
    """The headings of a chapter."""
    return [match.group(1) for match in re.finditer(r"^#+ (.*?) *$", text, re.MULTILINE)]


def rendered(text: str, context: Context) -> str:
    """A chapter's HTML."""
    for heading in context.pictures:
        if heading not in headings(text):
            raise Fault(context.path, f"has no heading {heading!r} for a picture")
    if len(re.findall(r"^ *```", text, re.MULTILINE)) % 2:
        raise Fault(context.path, "a fence is not closed")
    for fold in re.finditer(r"^<details.*", text, re.MULTILINE):
        if not FOLD.match(text, fold.start()):
            line = text.count("\n", 0, fold.start()) + 1
            raise Fault(f"{context.path}:{line}", "a fold begins with <details>, a line with its summary and an empty line")
    markdown = MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable("table")
    markdown.inline.ruler.before("escape", "math", _inline_math)
    markdown.renderer.context = context
    return markdown.render(text)

