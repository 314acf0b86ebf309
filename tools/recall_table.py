#!/usr/bin/env python3
"""tools/recall_table.py BUILD RUNS [FLAG VALUE...]: who recalls a symbol from how far back?

Trains every mixer with three seeds on build/train --task recall, into folders of RUNS, and prints a table of the share of
test examples that are right, by distance: the mean of the seeds and, behind it, every seed's of all distances. Flags are
handed on to train. A run that is there is not repeated.
"""

import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

MIXERS = ("additive", "leap", "average", "dot", "quadratic", "metric", "identity")
SEEDS = (1, 2, 3)
RECIPE = {"--batch": "32", "--steps": "500", "--eval-every": "0", "--threads": "1"}


def output_of(*words: str) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def scores(build: str, run: Path, flags: dict[str, str]) -> dict[str, float]:
    """Percent that are right, of each bin of distances and, under "all", of all."""
    if not (run / "model.safetensors").exists():
        output_of(f"{build}/train", "--task", "recall", "--out", str(run), *(word for flag in flags.items() for word in flag))
    text = output_of(f"{build}/evaluate", "--checkpoint", str(run), "--threads", "1")
    found = {bin: float(share) for bin, share in re.findall(r"distance (.*): \d+ examples, accuracy ([\d.]+) %", text)}
    return found | {"all": float(re.search(r"accuracy ([\d.]+) %$", text.strip())[1])}


def main() -> None:
    if len(sys.argv) < 3 or len(sys.argv) % 2 == 0:
        sys.exit(__doc__.splitlines()[0])
    build, runs = sys.argv[1], Path(sys.argv[2])
    given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    runs.mkdir(parents=True, exist_ok=True)
    for mixer in MIXERS:
        flags = RECIPE | given | {"--mixer": mixer}
        found = [scores(build, runs / f"{mixer}-{seed}", flags | {"--seed": str(seed)}) for seed in SEEDS]
        if mixer == MIXERS[0]:
            bins = [bin.replace(" to ", "–") for bin in found[0] if bin != "all"]
            print("| mixer | " + " | ".join(bins) + " | all, seed by seed |")
            print("|---|" + "--:|" * len(bins) + "---|", flush=True)
        cells = [f"{mean(one[bin] for one in found):.1f}" for bin in found[0] if bin != "all"]
        print(f"| {mixer} | " + " | ".join(cells) + " | " + ", ".join(f"{one['all']:.1f}" for one in found) + " |", flush=True)


if __name__ == "__main__":
    main()
