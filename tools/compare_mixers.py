#!/usr/bin/env python3
"""Trains every mixer at the same size and steps, with and without convolution, and prints a Markdown table.

    tools/compare_mixers.py BUILD_DIR TEXT OUT_DIR [--steps 2000] [--seeds 1,2,3] [--jobs 2]

Runs that OUT_DIR already holds are not repeated. Each run uses one thread; --jobs of them go on at a time.
"""

import argparse
import math
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MIXERS = [
    ("additive", ["--mixer", "additive"]),
    ("additive, windows 4, 8, 16, global", ["--mixer", "additive", "--window", "4,8,16,0"]),
    ("metric", ["--mixer", "metric"]),
    ("quadratic", ["--mixer", "quadratic"]),
    ("dot", ["--mixer", "dot"]),
]
CONVOLUTIONS = [("none", ["--conv-kernel", "0"]), ("depthwise, kernel 4", ["--conv-kernel", "4", "--conv-groups", "0"])]


def run(arguments, mixer, convolution, seed):
    name = re.sub(r"[^a-z0-9]+", "_", f"{mixer[0]} {convolution[0]} {seed}")
    folder = Path(arguments.out) / name
    output = folder / "output.txt"
    if not output.exists() or "final:" not in output.read_text():
        folder.mkdir(parents=True, exist_ok=True)
        command = [f"{arguments.build}/train", "--data", arguments.text, "--out", str(folder), "--overwrite",
                   "--threads", "1", "--steps", str(arguments.steps), "--seed", str(seed), "--eval-every", "0", "--checkpoint-every", "0",
                   *mixer[1], *convolution[1], *arguments.flags]
        with output.open("w") as file:
            subprocess.run(command, stdout=file, check=True)
    text = output.read_text()
    final = re.search(r"val ([0-9.]+) nats/char .* (\d+) tokens/s", text)
    return float(final[1]), int(final[2]), int(re.search(r"parameters: (\d+)", text)[1])


def row(arguments, pool, mixer, convolution):
    return [pool.submit(run, arguments, mixer, convolution, seed) for seed in arguments.seeds.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("flags", nargs="*", help="further flags of train, after --")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = [(m[0], c[0], row(arguments, pool, m, c)) for c in CONVOLUTIONS for m in MIXERS]
    print("| mixer | convolution | nats/char: mean (lowest to highest) | bits/char | parameters | tokens/s, one core |")
    print("|---|---|---|---|---|---|")
    for mixer, convolution, futures in rows:
        results = [future.result() for future in futures]
        losses = sorted(loss for loss, _, _ in results)
        mean = sum(losses) / len(losses)
        rate = sorted(rate for _, rate, _ in results)[len(results) // 2]
        print(f"| {mixer} | {convolution} | {mean:.3f} ({losses[0]:.3f} to {losses[-1]:.3f}) | {mean / math.log(2):.3f} "
              f"| {results[0][2]:,} | {rate:,} |")


if __name__ == "__main__":
    main()
