"""Figures of extras/transformer_xl/README.md: errors in float of the angle of a distance, as a table."""

from figures.rounding import to_float


def figures() -> None:
    """Largest error of an angle over the channels if frequency and product are rounded to float."""
    print("| distance | $D = 64$ | $D = 256$ |\n|---|---|---|")
    for exponent in (4, 5):
        distance = 10**exponent
        errors = []
        for D in (64, 256):
            frequencies = [10000 ** (-2 * t / D) for t in range(D // 2)]
            errors.append(max(abs(to_float(distance * to_float(f)) - distance * f) for f in frequencies))
        print(f"| $10^{exponent}$ | " + " | ".join(f"{error:.1e}".replace("e-0", "e-") for error in errors) + " |")
