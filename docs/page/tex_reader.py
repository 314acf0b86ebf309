"""Parses the TeX of the chapters into a tree. tex.py makes MathML and plain text of the tree; its text explains why.

Everything outside the tables below and the few commands of `_Reader.atom` is an error with its cause and its place: an
unknown command, an unmatched brace or bracket, a second script in one place, an empty argument. A bracket must be
closed by its own kind, so a half-open interval is also an error; the chapters write `0 \\le x < 1`.
"""

import re
from typing import NamedTuple


class TexError(Exception):
    """An error in an equation, with the index of its character."""

    def __init__(self, text: str, offset: int):
        super().__init__(text, offset)
        self.text = text
        self.offset = offset

    def __str__(self) -> str:
        return self.text


class Node(NamedTuple):
    """A symbol of a kind in SYMBOLS, a `number`, a `name`, or a node of one of the following kinds with its parts:
    `row`, `script` (base, subscript, superscript), `fraction`, `root` (body, degree), `mark`, `fence`, `cases`."""

    kind: str
    text: str = ""  # as shown; for a node with parts, as written in TeX
    plain: str = ""  # in plain text
    parts: tuple = ()


# ---- Tables of commands ----

# Each command or character: the symbol shown, and its plain text (~ stands for a space).
SYMBOLS = {
    command: Node(kind, shown, plain.replace("~", " "))
    for kind, entries in {
        "letter": r"""
            \alpha α alpha  \beta β beta  \gamma γ gamma  \delta δ delta  \epsilon ϵ epsilon  \varepsilon ε epsilon
            \zeta ζ zeta  \eta η eta  \theta θ theta  \kappa κ kappa  \lambda λ lambda  \mu μ mu  \nu ν nu  \xi ξ xi
            \pi π pi  \rho ρ rho  \sigma σ sigma  \tau τ tau  \phi ϕ phi  \chi χ chi  \psi ψ psi  \omega ω omega
            \partial ∂ partial  \ell ℓ l  \infty ∞ infinity  \top ⊤ T
            \dots … ...  \ldots … ...  \cdots ⋯ ...""",
        "upright": r"""
            \Gamma Γ Gamma  \Delta Δ Delta  \Theta Θ Theta  \Lambda Λ Lambda  \Xi Ξ Xi  \Pi Π Pi  \Sigma Σ Sigma
            \Phi Φ Phi  \Psi Ψ Psi  \Omega Ω Omega""",
        "function": r"\log log log  \ln ln ln  \exp exp exp  \tanh tanh tanh",
        "limit": r"\max max max  \min min min",
        "sum": r"\sum ∑ sum  \prod ∏ product",
        "sign": r"+ + +  - − -  \pm ± +-",
        "binary": r"\cdot ⋅ ~.~  \times × ~x~  \bmod mod ~mod~",
        "relation": r"""
            = = =  < < <  > > >  \le ≤ <=  \ge ≥ >=  \ne ≠ !=  \in ∈ ~in~  \leftarrow ← ~<-~  \to → ~->~  \mapsto ↦ ~|->~""",
        "slash": r"/ / /",
        "punctuation": r", , ,~  : : :~",
        "text": r". . .",
        "space": r"\, 0.1667em ~  \; 0.2778em ~  \quad 1em ~  \qquad 2em ~",
    }.items()
    for command, shown, plain in re.findall(r"(\S+) (\S+) (\S+)", entries)
} | {
    "\\ ": Node("space", "0.25em", " "),
    "\\!": Node("space"),  # removes a space that TeX sets and MathML does not
}

# Each opening bracket: its closing bracket, both signs as shown, and both signs in plain text.
FENCES = {
    "(": (")", "(", ")", "(", ")"),
    "[": ("]", "[", "]", "[", "]"),
    r"\{": (r"\}", "{", "}", "{", "}"),
    "|": ("|", "|", "|", "|", "|"),
    r"\|": (r"\|", "‖", "‖", "||", "||"),
    r"\lceil": (r"\rceil", "⌈", "⌉", "ceil(", ")"),
    r"\lfloor": (r"\rfloor", "⌊", "⌋", "floor(", ")"),
    r"\langle": (r"\rangle", "⟨", "⟩", "<", ">"),
}

FUNCTIONS = ("function", "limit")
# A sign is a prefix operator, with one operand, at the beginning and after one of these kinds.
OPERATORS = FUNCTIONS + ("sum", "prefix", "sign", "binary", "relation", "slash", "punctuation")
SCRIPTED = FUNCTIONS + ("sum", "letter", "upright", "name", "number", "row", "fraction", "root", "mark", "fence")
# Separators of cells and lines, with the error message outside an environment.
BETWEEN = {"&": "& outside an environment", r"\\": r"\\ outside an environment", r"\end": r"\end without \begin"}

SIZED = r"\\(big|Big|left|right)(\\[A-Za-z]+|\\.|[^\sA-Za-z])"
TOKEN = re.compile(SIZED + r"|\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\S", re.DOTALL)
NAME = re.compile(r"\{((?:[A-Za-z0-9]|\\_)+)\}")
TEXT = re.compile(r"\{((?:[^{}\\$%&#~^_]|\\_)+)\}")
CASES = re.compile(r"\{(cases)\}")
ADDED = re.compile(r"\{([+-])\}\s*=")
TAG = re.compile(r"\s*\\qquad\s*\\text\{\(((?:[a-z]|\\_)+\.[0-9]+)\)\}\s*([.,]?)\s*$")


def split_tag(tex: str) -> tuple[str, str | None]:
    """Splits an equation into the equation and the tag at its end, such as `gelu.1`."""
    match = TAG.search(tex)
    return (tex[: match.start()] + match[2], match[1].replace("\\_", "_")) if match else (tex, None)


def size_and_bracket(token: str) -> tuple[str, str]:
    match = re.fullmatch(SIZED, token)
    return (match[1], match[2]) if match else ("", token)


def base(node: Node) -> Node:
    """A node without its scripts. The spacing around the node depends on the kind of this base."""
    return base(node.parts[0]) if node.kind == "script" else node


# ---- Reading ----


def parse(tex: str) -> Node:
    if not tex.strip():
        raise TexError("an equation without anything in it", 0)
    return _Reader(tex).row(("",))


class _Reader:
    """Recursive descent: each method parses the thing in its name, beginning at the token `at`."""

    def __init__(self, tex: str):
        self.tex = tex
        self.tokens = [(match[0], match.start()) for match in TOKEN.finditer(tex)] + [("", len(tex))]
        self.at = 0

    def take(self) -> tuple[str, int]:
        self.at += 1
        return self.tokens[self.at - 1]

    def raw(self, pattern: re.Pattern, expected: str) -> str:
        """Reads text that is not split into tokens."""
        start = self.tokens[self.at][1]
        match = pattern.match(self.tex, start)
        if not match:
            raise TexError(f"{self.tokens[self.at - 1][0]} wants {expected}", start)
        while self.tokens[self.at][1] < match.end():
            self.at += 1
        return match[1].replace("\\_", "_")

    def row(self, stops: tuple, opener: str = "", start: int = 0) -> Node:
        """Reads everything before one of `stops`; the caller reads the stop."""
        items = []
        while (token := self.tokens[self.at][0]) not in stops:
            if token == "" or token in BETWEEN or _closes(token):
                if opener:
                    raise TexError(f"{opener} is not closed" + (token and f" before {token}"), start)
                raise TexError(BETWEEN.get(token, f"{token} closes nothing"), self.tokens[self.at][1])
            items.append(self.item())
        return Node("row", parts=tuple(_with_prefixes(items)))

    def enclosed(self, closer: str, opener: str, start: int) -> Node:
        row = self.row((closer,), opener, start)
        self.at += 1
        return row

    def item(self) -> Node:
        """An atom and its scripts."""
        atom = self.atom()
        sub = sup = None
        primes = 0
        while self.tokens[self.at][0] in ("_", "^", "'"):
            token, offset = self.take()
            if atom.kind not in SCRIPTED or atom == Node("row"):
                raise TexError(f"nothing stands before {token}", offset)
            if token == "_" and sub or token != "_" and sup:
                raise TexError("double subscript" if token == "_" else "double superscript", offset)
            if token == "_":
                sub = self.argument(token)
            elif token == "^":
                sup = self.argument(token)
            else:
                primes += 1
        return Node("script", "′" * primes, "'" * primes, (atom, sub, sup)) if sub or sup or primes else atom

    def argument(self, command: str) -> Node:
        """A group in braces, a letter, a digit or a name."""
        token, offset = self.tokens[self.at]
        if token == "{":
            group = self.atom()
            if not group.parts:
                raise TexError(f"the argument of {command} is empty", offset)
            return group.parts[0] if len(group.parts) == 1 else group
        if token[:1].isdigit() and len(token) > 1:
            if command in "_^":
                raise TexError(f"{command}{token} wants braces: without them TeX takes one digit", offset)
            self.tokens[self.at : self.at + 1] = [(token[0], offset), (token[1:], offset + 1)]
        elif not (token == r"\mathrm" or token.isalnum() or SYMBOLS.get(token, Node("")).kind in ("letter", "upright")):
            raise TexError(f"the argument of {command} is missing, or wants braces", offset)
        return self.atom()

    def atom(self) -> Node:
        token, offset = self.take()
        spaced = self.tex[:offset][-1:].isspace()
        size, bracket = size_and_bracket(token)
        if symbol := SYMBOLS.get(token):
            loose = spaced or self.tex[offset + len(token) :][:1].isspace()
            padded = loose and symbol.kind in ("sign", "relation", "slash")
            return symbol._replace(plain=f" {symbol.plain} ") if padded else symbol
        if bracket in FENCES and size != "right":
            closer = token.removesuffix(bracket).replace("left", "right") + FENCES[bracket][0]
            return Node("fence", token, " " if spaced else "", (self.enclosed(closer, token, offset),))
        if token.isascii() and token.replace(".", "").isalnum():
            return Node("letter" if token.isalpha() else "number", token, token)
        match token:
            case "{":
                return self.enclosed("}", token, offset)
            case r"\frac" | r"\tfrac":
                return Node("fraction", token, parts=(self.argument(token), self.argument(token)))
            case r"\sqrt":
                degree = self.enclosed("]", *self.take()) if self.tokens[self.at][0] == "[" else None
                return Node("root", token, parts=(self.argument(token), degree))
            case r"\hat" | r"\overline":
                return Node("mark", token, parts=(self.argument(token),))
            case r"\mathrm":
                return _named("name", self.raw(NAME, r"a name of letters, digits and \_ in braces"))
            case r"\text":
                return _named("text", self.raw(TEXT, "text in braces"))
            case r"\mathrel":
                sign = SYMBOLS[self.raw(ADDED, "{+} and then =")]
                return Node("relation", f"{sign.text}=", f" {sign.plain}= ")
            case r"\begin":
                return self.cases(offset)
            case "_" | "^" | "'":
                raise TexError(f"nothing stands before {token}", offset)
            case "%":
                raise TexError("a lone %: TeX takes the rest of the line for a comment", offset)
        raise TexError(f"unknown {'command' if token.startswith(chr(92)) else 'character'} {token}", offset)

    def cases(self, start: int) -> Node:
        self.raw(CASES, "{cases}")
        rows, cells = [], []
        while True:
            cells.append(self.row(("&", r"\\", r"\end"), r"\begin{cases}", start))
            token, offset = self.take()
            if token == "&":
                continue
            if len(cells) != 2 or not all(cell.parts for cell in cells):
                raise TexError("a line of cases is a value, & and a condition", offset)
            rows.append(tuple(cells))
            cells = []
            if token == r"\end":
                self.raw(CASES, "{cases}")
                return Node("cases", parts=tuple(rows))


def _named(kind: str, name: str) -> Node:
    return Node(kind, name, name)


def _closes(token: str) -> bool:
    size, bracket = size_and_bracket(token)
    return size == "right" or bracket not in FENCES and bracket in ("}", *(fence[0] for fence in FENCES.values()))


def _with_prefixes(items: list):
    before = "prefix"
    for item in items:
        if item.kind == "sign" and before in OPERATORS:
            item = item._replace(kind="prefix", plain=item.plain.strip())
        yield item
        before = before if item.kind == "space" else base(item).kind
