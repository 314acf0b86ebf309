#!/usr/bin/env python3
"""Trains the recipe of preset `shakespeare` with one ingredient changed at a time, and prints a Markdown table.

    tools/ablate_recipe.py BUILD_DIR TEXT OUT_DIR [--seeds 1,2] [--jobs 2]

Uses only the training split of `train`, the first nine tenths of TEXT, and compares losses on the last tenth of this
split. The validation split is not used. Runs that OUT_DIR already contains are not repeated. Each run uses one thread,
and --jobs runs are active at a time; their speed is not measured.
"""

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare_mixers import train
from experiments import first, folder_name, print_table

# A third of the recipe's steps; a run this short needs less dropout.
RECIPE = {"--preset": "shakespeare", "--steps": "2000", "--dropout": "0.1"}
CHANGES = [
    ("the recipe", {}),
    ("learned positions", {"--positions": "learned"}),
    ("AdamW, learning rate 2e-3", {"--optimizer": "adamw", "--learning-rate": "2e-3"}),
    ("8 x 256 characters a step", {"--batch": "8", "--context": "256"}),
    ("no convolution", {"--conv-kernel": "0"}),
    ("cosine to a tenth", {"--schedule": "cosine"}),
    ("no dropout", {"--dropout": "0"}),
    ("no weight decay", {"--weight-decay": "0"}),
    ("windows of 16, 32, 64, then global", {"--window": "16,32,64,0,0"}),
    ("leap", {"--mixer": "leap"}),
]


def run(arguments, name, change, seed):
    """Loss on the part of the training split that is held back."""
    flags = [word for pair in (RECIPE | change | {"--seed": seed}).items() for word in pair]
    text = train(arguments, Path(arguments.out) / folder_name(name, seed), [], flags)
    return first(r"val ([0-9.]+) nats/", text, float)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("flags", nargs="*", help="further flags of train, after --")
    arguments = parser.parse_args()
    whole = Path(arguments.text).read_text(encoding="utf-8")
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    arguments.text = Path(arguments.out) / "training_part.txt"
    arguments.text.write_text(whole[: len(whole) * 9 // 10], encoding="utf-8")
    seeds = arguments.seeds.split(",")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        # The first seed of all rows, then the next seed: an interrupted run leaves a table with fewer seeds.
        started = {(name, seed): pool.submit(run, arguments, name, change, seed)
                   for seed in seeds for name, change in CHANGES}
    losses = {name: [started[name, seed].result() for seed in seeds] for name, _ in CHANGES}
    recipe = statistics.mean(losses["the recipe"])
    print_table(["change", "nats/char: mean", "to the recipe", *(f"seed {seed}" for seed in seeds)],
                [[name, f"{statistics.mean(values):.3f}", f"{statistics.mean(values) - recipe:+.3f}",
                  *(f"{value:.3f}" for value in values)] for name, values in losses.items()])


if __name__ == "__main__":
    main()
