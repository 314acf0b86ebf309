#!/usr/bin/env python3
"""Trains every mixer at the same size and steps, with and without convolution, and prints Markdown tables.

    tools/compare_mixers.py BUILD_DIR TEXT OUT_DIR [--steps 1000] [--seeds 1,2,3] [--jobs 2]
    tools/compare_mixers.py BUILD_DIR TEXT OUT_DIR --speed 3

The first table has the mean and the range of the losses of every mixer. The second table compares position encodings
inside a mixer with learned positions, for the first seed only. Runs that OUT_DIR already contains are not repeated.
Each run uses one thread, and --jobs runs are active at a time; their speed is not measured.

--speed ROUNDS measures tokens/s on an idle machine: in each round, a short run of each row of the first table, one at a
time. OUT_DIR/tokens_per_s.json receives the medians, and later tables contain them.
"""

import argparse
import json
import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments import first, folder_name, print_table, trained

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
# Position encodings inside a mixer; learned positions are in the first table.
POSITIONS = [("learned", ""), ("rotary", "--positions rotary"), ("ALiBi", "--positions alibi")]
TURNED = ("metric", "quadratic", "dot")
FADING = ("additive", "leap, focus elu", "bahdanau", *TURNED)


def train(arguments, folder, parts, more):
    """Output of train for several (name, flags)."""
    flags = [flag for part in parts for flag in part[1].split()]
    return trained(arguments.build, folder, "--data", str(arguments.text), "--threads", "1", "--eval-every", "0",
                   "--checkpoint-every", "0", *more, *flags, *arguments.flags)  # fmt: skip


def run(arguments, parts, seed):
    """Loss, parameters, and bytes of the inference state."""
    folder = Path(arguments.out) / folder_name(*(part[0] for part in parts), str(arguments.steps), seed)
    text = train(arguments, folder, parts, ["--steps", str(arguments.steps), "--seed", seed])
    return (first(r"val ([0-9.]+) nats/", text, float), first(r"parameters: (\d+)", text, int),
            first(r"inference: (\d+) bytes", text, int))  # fmt: skip


def measure_speed(arguments, speeds):
    """Median tokens/s of every row of the first table, by its name."""
    rows = {folder_name(m[0], c[0]): (m, c) for c in CONVOLUTIONS for m in MIXERS}
    rates = {name: [] for name in rows}
    for _ in range(arguments.speed):
        for name, parts in rows.items():
            folder = Path(arguments.out) / f"speed_{name}"
            (folder / "output.txt").unlink(missing_ok=True)
            text = train(arguments, folder, parts, ["--steps", str(arguments.speed_steps), "--seed", "1"])
            rates[name].append(first(r" (\d+) tokens/s", text.splitlines()[-1], int))
            print(f"{name}: {rates[name][-1]:,} tokens/s", flush=True)
    speeds.write_text(json.dumps({name: statistics.median(values) for name, values in rates.items()}, indent=1) + "\n")


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
    parser.add_argument("--speed-steps", type=int, default=200, help="steps of a timed run")
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
        # The first seed of all rows, then the next seed: an interrupted run leaves a table with fewer seeds.
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
