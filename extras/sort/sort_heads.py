#!/usr/bin/env python3
"""extras/sort/sort_heads.py DRAW RUN...: does a head of a network that sorts encode the order of the digits?

Draws every eighth of the 168 test arrays for each run (build/train --task sort) and reads from the pictures, head by
head, two rank correlations: of the digit said with the mean digit looked at, and, in metric attention, of distances by M
with how far digits are apart. Prints their means over the arrays, a line a run, and then for each head in how many runs
it is within 0.05 of the most that these arrays allow: equal digits are ties, which a number that differs cannot follow.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import mean

EXAMPLES = range(0, 168, 8)
NEAR = 0.05
PATTERNS = {
    "looks": re.compile(r"the predicted digit have a rank correlation of (-?\d+\.\d+)"),
    "distances": re.compile(r"differences of digits have a rank correlation of (-?\d+\.\d+)"),
}


def most(values: list[int]) -> float:
    """The rank correlation of these with what ascends as they do, without a tie."""
    count = len(values)
    return sqrt(1 - sum(n**3 - n for n in Counter(values).values()) / (count**3 - count))


def drawn(draw: str, run: str) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Of each kind, the mean of every head; and the most that there could be."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in PATTERNS}
    allowed: dict[str, list[float]] = {kind: [] for kind in PATTERNS}
    with tempfile.TemporaryDirectory() as folder:
        for example in EXAMPLES:
            command = [draw, "--checkpoint", run, "--example", str(example), "--threads", "1", "--out", folder]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            digits = [int(digit) for digit in re.search(r"the array ([\d ]+),", said).group(1).split()]
            allowed["looks"].append(most(digits))
            allowed["distances"].append(most([abs(a - b) for a, b in combinations(digits, 2)]))
            for picture in sorted(Path(folder).glob("way-*.svg")):
                text = re.search(r"<desc[^>]*>(.*)</desc>", picture.read_text(encoding="utf-8")).group(1)
                for kind, pattern in PATTERNS.items():
                    if number := pattern.search(text):
                        found[kind].setdefault(picture.stem[4:], []).append(float(number.group(1)))
    means = {kind: {head: mean(numbers) for head, numbers in of_head.items()} for kind, of_head in found.items()}
    return means, {kind: mean(numbers) for kind, numbers in allowed.items()}


def main() -> None:
    draw, *runs = sys.argv[1:]
    near: dict[str, Counter[str]] = {kind: Counter() for kind in PATTERNS}
    for run in runs:
        means, allowed = drawn(draw, run)
        for kind, of_head in means.items():
            if not of_head:
                continue
            print(run, kind, " ".join(f"{head}:{number:.2f}" for head, number in of_head.items()), flush=True)
            heads = [head for head, number in of_head.items() if number >= allowed[kind] - NEAR]
            near[kind].update({head: 0 for head in of_head} | {head: 1 for head in heads} | {"any": bool(heads)})
    for kind, of_head in near.items():
        if of_head:
            counts = " ".join(f"{head}:{count}" for head, count in of_head.items())
            print(f"{kind}: the most is {allowed[kind]:.2f}; runs of {len(runs)} within {NEAR}: {counts}")


if __name__ == "__main__":
    main()
