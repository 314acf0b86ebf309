"""Converts the equations of the chapters from TeX to MathML or to a line of plain text.

Existing converters are not sufficient. katex converts nearly all of these equations, but it needs node, sets gaps into
`+=` and before the 1 of `( -1`, shrinks a large bracket that has an exponent, and makes six identifiers of the name
`weight`. latex2mathml silently drops the text of an unknown command, and prints `\\_` unchanged. pandoc fails at a
bracket with a size, and only warns. The chapters use few commands. This module converts these commands, and everything
else is an error: a misspelt command stops the build instead of reaching a reader. It also marks where a long equation
may break, and writes an equation as a line of plain text in the form of the headers. The other converters do neither.

The output is MathML Core. A browser sets an `<mi>` of one letter in italics and of several letters upright, and takes
the space around an operator from a dictionary; attributes are set only where TeX differs. No browser breaks a long
equation by itself. A displayed equation is therefore a row of rows: one row per equation, in it one row per operand,
and in a long operand one row per factor. Rows never break inside brackets. The style sheet must contain

    math[display=block], .wrap { display: flex; flex-wrap: wrap; align-items: baseline }
    .wrap > mrow { padding-block: 0.15em }
    mtd { text-align: left }

With the first rule Chromium breaks all these rows (Firefox only separates the equations, and a long equation scrolls).
The second rule keeps the lines apart. The third rule is for the columns of cases.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from html import escape
from xml.etree import ElementTree

from tex_reader import FENCES, FUNCTIONS, OPERATORS, Node, TexError, base, parse, size_and_bracket, split_tag

__all__ = ["TexError", "characters", "mathml", "parse", "plain", "split_tag"]

MARKS = {r"\hat": '<mo stretchy="false">^</mo>', r"\overline": "<mo>‾</mo>"}
SIZES = {
    "": ' stretchy="false"',
    "left": "",
    "big": ' minsize="1.2em" maxsize="1.2em"',
    "Big": ' minsize="1.8em" maxsize="1.8em"',
}
TIGHT = ' lspace="0" rspace="0"'
WIDE = ("1em", "2em")
NARROW = 32  # characters, about the width of a telephone
THIN = '<mspace width="0.1667em"/>'

# Letters with a code point of their own among the mathematical italics; h has its code point elsewhere.
ITALICS = {"h": "ℎ"} | {
    chr(int(unicodedata.decomposition(chr(code)).split()[1], 16)): chr(code)
    for code in (*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C))
    if unicodedata.decomposition(chr(code))
}


# ---- MathML ----


@lru_cache(maxsize=None)
def mathml(tex: str, display: bool) -> str:
    items = parse(tex).parts
    if not display:
        return f"<math>{_row(items, 'line')}</math>"
    equations = _cut(items, lambda before, item: before.text in WIDE and item.text not in WIDE)
    return f'<math display="block">{"".join(_wrapping(_cut(equation, _may_break)) for equation in equations)}</math>'


def _cut(items: tuple, between: Callable[[Node, Node], bool]) -> list:
    """Splits the items into groups. A new group begins where `between` is true for two neighbours."""
    cuts = [at for at in range(1, len(items)) if between(items[at - 1], items[at])]
    return [items[start:end] for start, end in zip([0, *cuts], [*cuts, len(items)])]


def _may_break(_: Node, item: Node) -> bool:
    """True: a line may break before this item, an operator or a term with a condition."""
    return item.kind in ("relation", "sign", "binary") or base(item).text == r"\{"


def _may_break_if_long(before: Node, item: Node) -> bool:
    """True: a long line may break here: after a gap or a comma, or before a sum. Brackets are one item and do not
    break."""
    return item.kind != "space" and (
        before.kind in ("space", "punctuation") or base(item).kind == "sum" and base(before).kind not in OPERATORS
    )


def _wrapping(groups: list) -> str:
    """A row that breaks between its groups. A group that is too wide for a narrow screen also breaks between
    factors."""
    shown = ""
    for group in groups:
        parts = _cut(group, _may_break_if_long) if len(_line(group)) > NARROW else []
        shown += _wrapping(parts) if len(parts) > 1 else f"<mrow>{_row(group, 'display')}</mrow>"
    return f'<mrow class="wrap">{shown}</mrow>'


def _row(items: tuple, style: str) -> str:
    """Elements side by side. `style` is `display`, `line` (inside a line of text) or `script`."""
    shown = ""
    before = None
    for at, item in enumerate(items):
        if at and style != "script" and _apart(items[at - 1], item):
            shown += THIN
        element = _element(item, style, before)
        if item.kind != "space":
            if base(item).kind in FUNCTIONS:
                element = _applied(element, before, items[at + 1 :])
            before = base(item).kind
        shown += element
    return shown


def _apart(left: Node, right: Node) -> bool:
    """True: TeX adds space here, beside a fraction or a growing bracket."""
    pair = (base(left), base(right))
    grown = any(node.kind == "fraction" or node.text.startswith(r"\left") for node in pair)
    return grown and not any(node.kind in ("space", "text", *OPERATORS) for node in pair)


def _applied(function: str, before: str | None, after: tuple) -> str:
    """A function with TeX's thin spaces and the invisible sign for function application."""
    if before not in (None, *OPERATORS):
        function = THIN + function
    follows = next((base(item).kind for item in after if item.kind != "space"), "text")
    if follows in ("relation", "punctuation", "text"):
        return function
    return function + ("<mo>" if follows == "fence" else '<mo rspace="0.1667em">') + "&#x2061;</mo>"


def _element(node: Node, style: str, before: str | None = None) -> str:
    """`before` is the kind of the preceding item in the row."""
    text = escape(node.text, quote=False)
    match node.kind:
        case "number":
            return f"<mn>{text}</mn>"
        case "letter" | "function" | "limit":
            return f"<mi>{text}</mi>"
        case "upright" | "name":
            return f"<mi>{text}</mi>" if len(text) > 1 else f'<mi mathvariant="normal">{text}</mi>'
        case "text":
            return f"<mtext>{re.sub('^ | $', chr(0xA0), text)}</mtext>"
        case "space":
            return text and f'<mspace width="{text}"/>'
        case "sum":
            return f'<mo lspace="0">{text}</mo>' if before in (None, *OPERATORS) else f"<mo>{text}</mo>"
        case "prefix":
            return f'<mo form="prefix">{text}</mo>'
        case "sign" | "binary" | "relation" | "slash" | "punctuation":
            form = ' form="infix"' if before is None and node.kind == "sign" else ""
            tight = node.text in "/:" or style == "script"
            return f"<mo{form}{TIGHT if tight else ''}>{text}</mo>"
        case "row":
            return f"<mrow>{_row(node.parts, style)}</mrow>" if node.parts else ""
        case "script":
            return _script(node, style, before)
        case "fraction":
            small = ' displaystyle="false"' if node.text == r"\tfrac" and style == "display" else ""
            inner = "line" if style == "display" and not small else "script"
            return f"<mfrac{small}>{''.join(_element(part, inner) for part in node.parts)}</mfrac>"
        case "root":
            body, degree = node.parts
            if degree:
                return f"<mroot>{_element(body, style)}{_element(degree, 'script')}</mroot>"
            return f"<msqrt>{_row(_items(body), style)}</msqrt>"
        case "mark":
            return f'<mover accent="true">{_element(node.parts[0], style)}{MARKS[node.text]}</mover>'
        case "fence":
            left, right = _bracket(node.text, 1), _bracket(node.text, 2)
            return f"<mrow>{left}{_row(node.parts[0].parts, style)}{right}</mrow>"
        case "cases":
            cells = (f"<mtd>{_row(cell.parts, 'line')}</mtd>" for row in node.parts for cell in row)
            rows = "".join(f"<mtr>{value}{condition}</mtr>" for value, condition in zip(cells, cells))
            return f"<mrow><mo>{{</mo><mtable>{rows}</mtable></mrow>"


def _bracket(token: str, side: int) -> str:
    size, bracket = size_and_bracket(token)
    return f"<mo{SIZES[size]}>{FENCES[bracket][side]}</mo>"


def _script(node: Node, style: str, before: str | None) -> str:
    of, sub, sup = node.parts
    limits = style == "display" and of.kind in ("sum", "limit")
    below, above, both = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
    low = _element(sub, "script") if sub else ""
    high = _element(sup, "script") if sup else ""
    if node.text:
        prime = f"<mo>{node.text}</mo>"
        high = f"<mrow>{prime}{high}</mrow>" if high else prime
    tag = both if low and high else below if low else above
    return f"<{tag}>{_element(of, style, before)}{low}{high}</{tag}>"


def characters(element: str) -> set[str]:
    """The characters of a `<math>` that a font must have: a browser takes a single letter from the mathematical
    italics."""
    found = set()
    for node in ElementTree.fromstring(element).iter():
        text = node.text or ""
        found.update(ITALICS.get(text, text) if node.tag == "mi" and not node.attrib else text)
        found.update("√" if node.tag in ("msqrt", "mroot") else "")
    return found - {"\u2061"}


# ---- Plain text ----


def plain(tex: str) -> str:
    r"""Text in the form of the headers: `\frac1D \sum_d \mathrm{in}_{bcd}` is `1/D sum_d in_bcd`."""
    return _line(parse(tex).parts)


def _items(node: Node) -> tuple:
    return node.parts if node.kind == "row" else (node,)


def _line(items: tuple, gap: str = " ") -> str:
    """`gap` separates factors; the indices of an array have no gap."""
    line = ""
    joined = True
    for item in items:
        kind = base(item).kind
        joins = kind in ("space", "text", "prefix", "sign", "binary", "relation", "slash", "punctuation")
        if not joins and not joined:
            line += base(item).plain if kind == "fence" else gap
        line += _text(item)
        joined = joins
    return re.sub(" +", " ", line).strip()


def _text(node: Node) -> str:
    match node.kind:
        case "row":
            return _line(node.parts)
        case "script":
            return _scripted(node)
        case "fraction":
            top, bottom = node.parts
            return _operand(top) + ("/" if top.kind == "number" and bottom.kind != "row" else " / ") + _operand(bottom)
        case "root":
            body, degree = node.parts
            return f"({_text(body)})^(1/{_text(degree)})" if degree else f"sqrt({_text(body)})"
        case "mark":
            (body,) = node.parts
            if node.text == r"\hat":
                return f"{_operand(body)}_hat"
            return f"mean({_text(body.parts[0] if body.kind == 'fence' else body)})"
        case "fence":
            _, bracket = size_and_bracket(node.text)
            return FENCES[bracket][3] + _text(node.parts[0]) + FENCES[bracket][4]
        case "cases":
            return ", ".join(f"{_text(value)} {_condition(condition)}" for value, condition in node.parts)
    return node.plain


def _operand(node: Node) -> str:
    return f"({_text(node)})" if node.kind in ("row", "fraction") else _text(node)


def _condition(row: Node) -> str:
    said = row.parts[0].kind == "text" or not any(item.kind == "relation" for item in row.parts)
    return _text(row) if said else f"if {_text(row)}"


def _scripted(node: Node) -> str:
    of, sub, sup = node.parts
    if of.text == r"\{" and sub:  # a term with its condition
        return f"{{{_text(of.parts[0])} | {_text(sub)}}}"
    text = _operand(of) + (_index("_", sub) if sub else "") + node.plain
    if not sup:
        return text
    return text + (_index("^", sup) if of.kind == "sum" else f"^{_operand(sup)}")


def _index(mark: str, node: Node) -> str:
    index = _line(_items(node), gap="")
    return mark + index if re.fullmatch(r"[\w']+", index) else f"{mark}{{{index}}}"
