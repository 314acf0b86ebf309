#!/usr/bin/env python3
"""extras/recall/recall_table.py BUILD RUNS near|far [FLAG VALUE...]: who recalls a symbol from how far back?

Trains every mixer (near, up to 62 positions), or what is there for long contexts (far, up to 250), with three seeds on
build/train --task recall, into folders of RUNS, and prints a table of the share of test examples that are right, by
distance: the mean of the seeds and, behind it, every seed's of all distances. Flags are handed on to train. A run that is
there is not repeated.
"""

import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from experiments import first, folder_name, row, trained  # noqa: E402

# The name of each row, and its flags.
NEAR = {mixer: {"--mixer": mixer} for mixer in ("additive", "leap", "average", "dot", "quadratic", "metric", "identity")}
FAR = {
    "additive": {"--mixer": "additive"},
    "leap": {"--mixer": "leap"},
    "dot": {"--mixer": "dot"},
    "dot, window of 32": {"--mixer": "dot", "--attention-window": "32"},
    "dot, spans": {"--mixer": "dot", "--span": "256", "--ramp": "16", "--penalty": "1e-5"},
    "dot, strided": {"--mixer": "dot", "--pattern": "strided", "--stride": "16"},
    "dot, fixed": {"--mixer": "dot", "--pattern": "fixed", "--stride": "16", "--summary": "2"},
    "transformer_xl": {"--mixer": "transformer_xl", "--segment": "32", "--memory": "32", "--positions": "none"},
    "lsh": {"--mixer": "lsh", "--lsh-rounds": "2", "--lsh-buckets": "16", "--lsh-piece": "16"},
}
TABLES = {"near": (NEAR, {"--batch": "32", "--steps": "500"}),
          "far": (FAR, {"--context": "256", "--reach": "250", "--batch": "32", "--steps": "500"})}
SEEDS = (1, 2, 3)
ALWAYS = {"--eval-every": "0", "--threads": "1"}


def scores(build: str, run: Path, flags: dict[str, str]) -> dict[str, float]:
    """Percent that are right, of each bin of distances and, under "all", of all."""
    trained(build, run, "--task", "recall", *(word for flag in flags.items() for word in flag))
    command = [f"{build}/evaluate", "--checkpoint", str(run), "--threads", "1"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {bin: float(share) for bin, share in re.findall(r"distance (.*): \d+ examples, accuracy ([\d.]+) %", text)}
    return found | {"all": first(r"accuracy ([\d.]+) %\Z", text.strip(), float)}


def main() -> None:
    if len(sys.argv) < 4 or len(sys.argv) % 2 != 0 or sys.argv[3] not in TABLES:
        sys.exit(__doc__.splitlines()[0])
    build, runs = sys.argv[1], Path(sys.argv[2]) / sys.argv[3]
    rows, recipe = TABLES[sys.argv[3]]
    given = dict(zip(sys.argv[4::2], sys.argv[5::2]))
    runs.mkdir(parents=True, exist_ok=True)
    for name, own in rows.items():
        flags = ALWAYS | recipe | own | given
        found = [scores(build, runs / f"{folder_name(name)}-{seed}", flags | {"--seed": str(seed)}) for seed in SEEDS]
        if name == next(iter(rows)):
            bins = [bin.replace(" to ", "–") for bin in found[0] if bin != "all"]
            print(row(["mixer", *bins, "all, seed by seed"]))
            print("|---|" + "--:|" * len(bins) + "---|", flush=True)
        cells = [f"{mean(one[bin] for one in found):.1f}" for bin in found[0] if bin != "all"]
        print(row([name, *cells, ", ".join(f"{one['all']:.1f}" for one in found)]), flush=True)


if __name__ == "__main__":
    main()
