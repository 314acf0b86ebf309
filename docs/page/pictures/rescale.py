"""Effect of rescaling on the length of a head and on its gradient, in the plane of all heads with mean 0."""

from math import sqrt

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing, Point, decimal

WIDTH, HEIGHT = 360, 246
EPSILON = "1e-5"
HEAD, TWICE = (1.0, 3.0, 5.0), (-1.0, 3.0, 7.0)  # the worked example, and a head with twice the deviation
OTHERS = ((5.0, 2.0, 2.0), (3.0, 4.0, 3.0), (1.0, 5.0, 3.0))
D_OUT = (4.0, 1.0, 1.0)
K = len(HEAD)
CENTRE, UNIT = (112, 112), 39

Head = tuple[float, ...]


def centred(x: Head) -> Head:
    return tuple(value - sum(x) / K for value in x)


def deviation(x: Head) -> float:
    return sqrt(sum(value**2 for value in centred(x)) / (K - 1))


def forward(x: Head) -> Head:
    return tuple(value / (deviation(x) + float(EPSILON)) for value in centred(x))


def backward(x: Head, d_out: Head) -> Head:
    out = forward(x)
    along = sum(d * o for d, o in zip(d_out, out)) / ((K - 1) * deviation(x))
    return tuple(d / (deviation(x) + float(EPSILON)) - along * o for d, o in zip(centred(d_out), out))


def at(x: Head) -> Point:
    """Coordinates of a head with mean 0: K = 3 numbers with sum 0 are a point in a plane."""
    right, up = (x[2] - x[0]) / sqrt(2), (x[0] - 2 * x[1] + x[2]) / sqrt(6)
    return CENTRE[0] + UNIT * right, CENTRE[1] - UNIT * up


def plus(x: Head, y: Head) -> Head:
    return tuple(a + b for a, b in zip(x, y))


def written(x: Head) -> str:
    return ", ".join(decimal(value, 2).rstrip("0").rstrip(".") for value in x)


def paint(d: Drawing) -> None:
    origin, out = at((0, 0, 0)), at(forward(HEAD))
    d.circle(*origin, UNIT * sqrt(K - 1), "panel", "faint")
    d.line([origin, at(centred(TWICE))], "rule")
    d.circle(*origin, 2, "ink")
    d.text(origin[0] - 6, origin[1] - 6, "all equal", SMALL, "end", "faint")
    for x in OTHERS:
        px, py = at(centred(x))
        d.arrow([(px, py), at(forward(x))], "faint")
        d.circle(px, py, 3.5, "paper", "faint")
        if deviation(x) < 1:
            d.text(px - 8, py + 4, written(x), SMALL, "end", "faint")
        else:
            d.text(px, py + (16 if py > CENTRE[1] else -9), written(x), SMALL, fill="faint")
    for x in (HEAD, TWICE):
        px, py = at(centred(x))
        d.arrow([(px, py), at(plus(centred(x), backward(x, D_OUT)))], "backward", THICK)
        d.circle(px, py, 4, "paper", "forward")
        d.text(px, py + 18, written(x), SMALL)
    kept = tuple(value * deviation(HEAD) for value in backward(HEAD, D_OUT))  # before the division
    given, left = at(plus(forward(HEAD), centred(D_OUT))), at(plus(forward(HEAD), kept))
    d.line([given, left], "faint", dashed=True)
    d.arrow([out, given], "backward", dashed=True)
    d.arrow([out, left], "backward", THICK)
    d.circle(*out, 4, "forward", "forward")
    d.text(out[0] - 4, out[1] + 18, written(forward(HEAD)), SMALL, "end", "forward", bold=True)
    d.text(given[0], given[1] - 8, "d_out", SMALL, fill="backward")
    d.text((given[0] + left[0]) / 2 + 12, given[1] - 8, "lost", SMALL, fill="faint")
    d.text(left[0], left[1] - 8, "kept", SMALL, "start", "backward")
    d.text(at(centred(HEAD))[0] + 6, out[1] - 22, "d_in", SMALL, "start", "backward")


PICTURES = [
    Picture(
        name="rescale-length",
        page="layers/rescale",
        after="A worked example",
        title="Rescaling heads of different lengths, and the gradient",
        description=(
            f"Heads of {K} channels, minus their mean, as points of a plane. Rescaling moves each along its ray to a circle "
            f"of radius √{K - 1}: {written(HEAD)} to {written(forward(HEAD))}, and likewise {written(TWICE)}, which is twice "
            "as long. The gradient at the output loses its component along the ray. The rest, divided by the standard deviation, "
            f"is the gradient of the input: {written(backward(HEAD, D_OUT))}, and half as much, "
            f"{written(backward(TWICE, D_OUT))}, for the head of twice the length."
        ),
        caption=(
            f"Heads of K = {K} channels without their mean lie in a plane, rescaled heads on a circle: the length is lost, "
            "the direction stays. The component of d_out (dashed, minus its mean) along the ray is lost, too. The rest, divided "
            "by the standard deviation, is d_in. A longer head has a smaller gradient."
        ),
        width=WIDTH,
        height=HEIGHT,
        paint=paint,
        constants=(
            Constant("extras/positions/rescale.hpp", r"rescale_epsilon = ([^;]+);", EPSILON),
            Constant("extras/positions/rescale.md", r"\n\| in \| ([-\d. |]+) \| mean", " | ".join(f"{x:g}" for x in HEAD)),
            Constant("extras/positions/rescale.md", r"\n\| d_out \| ([-\d. |]+) \| mean", " | ".join(f"{x:g}" for x in D_OUT)),
            Constant(
                "extras/positions/rescale.md",
                r"\n\| \*\*d_in\*\* \| ([-\d. |]+) \| \|",
                " | ".join(f"{x:.3g}" for x in backward(HEAD, D_OUT)),
            ),
        ),
    )
]
