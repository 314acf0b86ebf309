#!/usr/bin/env python3
"""Trains every mixer at the same size and steps, with and without convolution, and prints Markdown tables.

    tools/compare_mixers.py BUILD_DIR TEXT OUT_DIR [--steps 1000] [--seeds 1,2,3] [--jobs 2]
    tools/compare_mixers.py BUILD_DIR TEXT OUT_DIR --speed 3

The first table has every mixer with the mean and the range of its losses, the second the positions that act within a
mixer beside the learned ones, the first seed each. Runs that OUT_DIR already holds are not repeated. Each run uses one
thread; --jobs of them go on at a time, and nobody times them.

--speed ROUNDS measures tokens/s, on a machine that does nothing else: a short run of each row of the first table in
turn, round after round, one at a time. The medians go into OUT_DIR/tokens_per_s.json, and from then on into the table.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The name of each row, and its flags.
MIXERS = [
    ("additive", "--mixer additive"),
    ("additive, windows 4, 8, 16, global", "--mixer additive --window 4,8,16,0"),
    ("leap, focus elu", "--mixer leap"),
    ("leap, focus exp", "--mixer leap --leap-focus exp"),
    ("metric", "--mixer metric"),
    ("quadratic", "--mixer quadratic"),
    ("dot", "--mixer dot"),
    ("bahdanau", "--mixer bahdanau"),
    ("average", "--mixer average"),
    ("identity", "--mixer identity"),
]
CONVOLUTIONS = [("none", "--conv-kernel 0"), ("depthwise, kernel 4", "--conv-kernel 4 --conv-groups 0")]
# Positions that a mixer itself sees; the learned ones are those of the first table.
POSITIONS = [("learned", ""), ("rotary", "--positions rotary"), ("ALiBi", "--positions alibi")]
TURNED = ("metric", "quadratic", "dot")
FADING = ("additive", "leap, focus elu", "bahdanau", *TURNED)


def train(arguments, folder, parts, more):
    """What train prints for the flags of some (name, flags), and writes into the folder's output.txt."""
    output = folder / "output.txt"
    if not output.exists() or "final:" not in output.read_text():
        folder.mkdir(parents=True, exist_ok=True)
        command = [f"{arguments.build}/train", "--data", arguments.text, "--out", str(folder), "--overwrite",
                   "--threads", "1", "--eval-every", "0", "--checkpoint-every", "0", *more,
                   *(flag for part in parts for flag in part[1].split()), *arguments.flags]
        with output.open("w") as file:
            subprocess.run(command, stdout=file, check=True)
    return output.read_text()


def folder_name(*words):
    return re.sub(r"[^a-z0-9]+", "_", " ".join(words).lower())


def run(arguments, parts, seed):
    """Loss, parameters and the bytes that inference keeps."""
    folder = Path(arguments.out) / folder_name(*(part[0] for part in parts), str(arguments.steps), seed)
    text = train(arguments, folder, parts, ["--steps", str(arguments.steps), "--seed", seed])
    return tuple(kind(re.search(pattern, text)[1]) for kind, pattern in (
        (float, r"val ([0-9.]+) nats/"), (int, r"parameters: (\d+)"), (int, r"inference: (\d+) bytes")))


def measure_speed(arguments, speeds):
    """Median tokens/s of every row of the first table, by its name."""
    rows = {folder_name(m[0], c[0]): (m, c) for c in CONVOLUTIONS for m in MIXERS}
    rates = {name: [] for name in rows}
    for _ in range(arguments.speed):
        for name, parts in rows.items():
            folder = Path(arguments.out) / f"speed_{name}"
            (folder / "output.txt").unlink(missing_ok=True)
            text = train(arguments, folder, parts, ["--steps", str(arguments.speed_steps), "--seed", "1"])
            rates[name].append(int(re.search(r" (\d+) tokens/s", text.splitlines()[-1])[1]))
            print(f"{name}: {rates[name][-1]:,} tokens/s", flush=True)
    speeds.write_text(json.dumps({name: statistics.median(values) for name, values in rates.items()}, indent=1) + "\n")


def print_row(cells):
    print("| " + " | ".join(cells) + " |")


def print_table(heads, rows):
    print_row(heads)
    print("|" + "---|" * len(heads))
    for row in rows:
        print_row(row)


def mixer_row(mixer, convolution, results, rates):
    losses = sorted(loss for loss, _, _ in results)
    mean = sum(losses) / len(losses)
    _, parameters, state = results[0]
    cells = [mixer[0], convolution[0], f"{mean:.3f} ({losses[0]:.3f} to {losses[-1]:.3f})", f"{mean / math.log(2):.3f}",
             f"{parameters:,}", f"{state:,}"]
    return cells + ([f"{rates[folder_name(mixer[0], convolution[0])]:,.0f}"] if rates else [])


def positions_row(mixer, convolution, cells):
    """cells: (loss, parameters, state) by the positions' name."""
    _, _, learned_state = cells["learned"]
    words = []
    for name, _ in POSITIONS:
        loss, _, state = cells.get(name, (None, None, learned_state))
        words.append(("" if loss is None else f"{loss:.3f}") + (f", state {state:,}" if state != learned_state else ""))
    return [mixer[0], convolution[0], *words]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--speed", type=int, metavar="ROUNDS", help="measure tokens/s, nothing else")
    parser.add_argument("--speed-steps", type=int, default=200, help="of a run that is timed")
    parser.add_argument("flags", nargs="*", help="further flags of train, after --")
    arguments = parser.parse_args()
    seeds = arguments.seeds.split(",")
    speeds = Path(arguments.out) / "tokens_per_s.json"
    if arguments.speed:
        measure_speed(arguments, speeds)
        return
    rates = json.loads(speeds.read_text()) if speeds.exists() else {}
    rows = [(m, c) for c in CONVOLUTIONS for m in MIXERS]
    placed = [(m, c, p) for m, c in rows for p in POSITIONS[1:] if m[0] in (TURNED if p[0] == "rotary" else FADING)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        # The first seed of everything, then the next: whoever stops early has a table of fewer seeds.
        started = {}
        for seed in seeds:
            for parts in rows + (placed if seed == seeds[0] else []):
                started[parts, seed] = pool.submit(run, arguments, parts, seed)
    results = {key: future.result() for key, future in started.items()}
    print_table(["mixer", "convolution", "nats/char: mean (lowest to highest)", "bits/char", "parameters",
                 "inference state, bytes"] + (["tokens/s, one thread"] if rates else []),
                [mixer_row(m, c, [results[(m, c), seed] for seed in seeds], rates) for m, c in rows])
    print()
    print_table(["mixer", "convolution", *(name for name, _ in POSITIONS)],
                [positions_row(m, c, {"learned": results[(m, c), seeds[0]]} |
                               {p[0]: results[(m, c, p), seeds[0]] for p in POSITIONS[1:] if (m, c, p) in placed})
                 for m, c in rows if m[0] in FADING])


if __name__ == "__main__":
    main()
