"""The worked example of additive attention: two queries, two keys, one channel; forward and backward."""

from fractions import Fraction

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing

WIDTH = 360
# tanh of each query and each key; values; gradients of the outputs; score, in units of log 2.
QUERY, KEY, VALUE, D_OUT = (Fraction(0), Fraction(1, 2)), (Fraction(0), Fraction(-1, 2)), (0, 3), (3, 9)
SCORE = 2
CELL, HEIGHT = 46, 26
NAMES = {"0": "0", "1/2": "½ log 3", "-1/2": "−½ log 3"}  # names of queries and keys, by their tanh
LEFTS = (58, 160, 262)  # left edges of three tables
Table = list[list[Fraction]]


def table(element) -> Table:
    return [[Fraction(element(c, s)) for s in range(2)] for c in range(2)]


def hidden(c: int, s: int) -> Fraction:
    """tanh(query + key), by the addition theorem."""
    return (QUERY[c] + KEY[s]) / (1 + QUERY[c] * KEY[s])


def logit(c: int, s: int) -> Fraction:
    return SCORE * hidden(c, s)


def weight(c: int, s: int) -> Fraction:
    powers = [Fraction(2) ** int(logit(c, other)) for other in range(2)]
    return powers[s] / sum(powers)


def out(c: int) -> Fraction:
    return sum(weight(c, s) * VALUE[s] for s in range(2))


def d_logit(c: int, s: int) -> Fraction:
    return weight(c, s) * D_OUT[c] * (VALUE[s] - out(c))


def slope(c: int, s: int) -> Fraction:
    return 1 - hidden(c, s) ** 2


def pair(c: int, s: int) -> Fraction:
    """Term of a pair in the gradients of its query and its key, without the factor score."""
    return d_logit(c, s) * slope(c, s)


def d_query(c: int) -> Fraction:
    return SCORE * sum(pair(c, s) for s in range(2))


def d_key(s: int) -> Fraction:
    return SCORE * sum(pair(c, s) for c in range(2))


def d_value(s: int) -> Fraction:
    return sum(weight(c, s) * D_OUT[c] for c in range(2))


def logs(count: Fraction) -> str:
    """A multiple of log 2."""
    names = {Fraction(0): "0", Fraction(1): "log 2", Fraction(-1): "-log 2"}
    return names.get(count, f"{count} log 2")


def shown(text: str) -> str:
    return text.replace("-", "−")


def paint_table(d: Drawing, left: float, top: float, name: str, texts: list[list[str]], fill: str) -> None:
    d.text(left + CELL, top - 8, name, fill="ink", bold=True)
    for c, row in enumerate(texts):
        d.cells(left, top + c * HEIGHT, CELL, HEIGHT, [shown(text) for text in row], [fill] * 2)


def paint_rows(d: Drawing, top: float) -> None:
    for c in range(2):
        d.text(LEFTS[0] - 6, top + (c + 0.5) * HEIGHT + 4, f"*c* = {c}", SMALL, "end", "faint")


def paint_columns(d: Drawing, left: float, y: float, labels: list[str], fill: str) -> None:
    for s, label in enumerate(labels):
        d.text(left + (s + 0.5) * CELL, y, shown(label), SMALL, fill=fill)


def paint(d: Drawing) -> None:
    d.text(8, 16, "forward", anchor="start", fill="forward", bold=True)
    for x, label in zip((92, 180, 268), ("query", "key", "value")):
        d.text(x, 16, label, anchor="start", bold=True)
    for i in range(2):
        y = 34 + 16 * i
        d.text(8, y, f"row {i}", SMALL, "start", "faint")
        for x, text in zip((92, 180, 268), (NAMES[str(QUERY[i])], NAMES[str(KEY[i])], str(VALUE[i]))):
            d.text(x, y, text, anchor="start")
    top = 92
    paint_rows(d, top)
    paint_table(d, LEFTS[0], top, "tanh(*q* + *k*)", [[str(x) for x in row] for row in table(hidden)], "a")
    paint_table(d, LEFTS[1], top, "logit", [[logs(x) for x in row] for row in table(logit)], "a")
    paint_table(d, LEFTS[2], top, "weight", [[str(x) for x in row] for row in table(weight)], "a")
    for left, label in zip(LEFTS, ("", "score times tanh", "softmax of a row")):
        if label:
            d.text(left + CELL, top + 2 * HEIGHT + 15, label, SMALL, fill="faint")
    paint_columns(d, LEFTS[0], top + 2 * HEIGHT + 15, ["*s* = 0", "*s* = 1"], "faint")
    d.text(WIDTH / 2, top + 2 * HEIGHT + 38, "out: weights times values, " + " and ".join(str(out(c)) for c in range(2)))

    d.line([(4, 198), (WIDTH - 4, 198)], "rule")
    d.text(8, 218, "backward", anchor="start", fill="backward", bold=True)
    d.text(92, 218, "d_out = " + " and ".join(map(str, D_OUT)) + ", d_value = " + " and ".join(str(d_value(s)) for s in range(2)),
           anchor="start")  # fmt: skip
    top = 260
    paint_rows(d, top)
    paint_table(d, LEFTS[0], top, "d_logit", [[str(x) for x in row] for row in table(d_logit)], "b")
    paint_table(d, LEFTS[1], top, "1 − tanh²", [[str(x) for x in row] for row in table(slope)], "b")
    paint_table(d, LEFTS[2], top, "product", [[str(x) for x in row] for row in table(pair)], "b")
    paint_columns(d, LEFTS[0], top + 2 * HEIGHT + 15, ["*s* = 0", "*s* = 1"], "faint")
    y = top + 2 * HEIGHT + 42
    rows, columns = [logs(d_query(c)) for c in range(2)], [logs(d_key(s)) for s in range(2)]
    d.text(WIDTH / 2, y, shown(f"d_query: score times row sums, {rows[0]} and {rows[1]}"), SMALL)
    d.text(WIDTH / 2, y + 18, shown(f"d_key: score times column sums, {columns[0]} and {columns[1]}"), SMALL)


def written(tables: Table, text=str) -> str:
    """Rows of a table in the form of the chapter, in two cells."""
    return " | ".join(", ".join(text(x) for x in row) for row in tables)


FILE = "extras/bahdanau/bahdanau_attention.md"
PICTURES = [
    Picture(
        name="bahdanau-attention-pairs",
        page="layers/bahdanau_attention",
        after="Forward",
        title="Additive attention of two queries and two keys, forward and backward",
        description=(
            "Six tables with a row for each query and a column for each key. Forward: tanh of query plus key is "
            f"{written(table(hidden)).replace(' | ', '; ')}; the logit, score times tanh, is "
            f"{written(table(logit), logs).replace(' | ', '; ')}; the softmax of each row gives the weights "
            f"{written(table(weight)).replace(' | ', '; ')}. Backward: d_logit is "
            f"{written(table(d_logit)).replace(' | ', '; ')}, the slope of tanh {written(table(slope)).replace(' | ', '; ')}, "
            f"and their product {written(table(pair)).replace(' | ', '; ')}. Its row sums times score are d_query, its "
            "column sums times score d_key."
        ),
        caption=(
            "The worked example of this chapter: one channel, score = 2 log 2. Every pair has its own hidden layer. "
            "Backward, a pair adds the same product to its query and to its key."
        ),
        width=WIDTH,
        height=380,
        paint=paint,
        constants=(
            Constant(FILE, r"\n\| tanh, [^|]* \| ([^\n]*) \|\n", written(table(hidden))),
            Constant(FILE, r"\n\| logit \| ([^\n]*) \|\n", written(table(logit), logs)),
            Constant(FILE, r"\n\| weight \| ([^\n]*) \|\n", written(table(weight))),
            Constant(FILE, r"\n\| \*\*out\*\* \| ([^\n]*) \|\n", " | ".join(str(out(c)) for c in range(2))),
            Constant(FILE, r"\n\| d_logit \| ([^\n]*) \|\n", written(table(d_logit))),
            Constant(FILE, r"\n\| 1 - tanh² \| ([^\n]*) \|\n", written(table(slope))),
            Constant(FILE, r"\n\| \*\*d_query\*\* \| ([^\n]*) \|\n", " | ".join(logs(d_query(c)) for c in range(2))),
            Constant(FILE, r"\n\| \*\*d_key\*\* \| ([^\n]*) \|\n", " | ".join(logs(d_key(s)) for s in range(2))),
            Constant(FILE, r"\n\| \*\*d_value\*\* \| ([^\n]*) \|\n", " | ".join(str(d_value(s)) for s in range(2))),
        ),
    )
]
