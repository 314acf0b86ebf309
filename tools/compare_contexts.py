#!/usr/bin/env python3
"""Trains the mixers and methods for long contexts at several sequence lengths, and prints a Markdown table per length.

tools/compare_contexts.py BUILD_DIR TEXT OUT_DIR [--runs 1024:200,8192:40,65536:4] [--only dot,leap]
    [--svg docs/results/contexts.svg]

--runs: lengths, and steps per length. A step has 8,192 tokens, or one longer sequence. Runs that OUT_DIR already
contains are not repeated. Runs follow one another; to measure tokens/s the machine must be idle otherwise. --only: rows
whose names begin with these words. --svg: draws the time per token and the size of the inference state, for rows
without chunks and reversible blocks.
"""

import argparse
import re
from pathlib import Path

from experiments import folder_name, row, trained
from figures.contexts import drawn

# The name of each row, and its flags.
ROWS = [
    ("additive", "--mixer additive"),
    ("leap", "--mixer leap"),
    ("average", "--mixer average"),
    ("dot", "--mixer dot"),
    ("dot, window of 128", "--mixer dot --attention-window 128"),
    ("dot, spans", "--mixer dot --span 1024 --penalty 1e-5"),
    ("dot, strided", "--mixer dot --pattern strided --stride 128"),
    ("dot, fixed", "--mixer dot --pattern fixed --stride 128 --summary 8"),
    ("transformer_xl", "--mixer transformer_xl --segment 128 --memory 128"),
    ("lsh", "--mixer lsh --lsh-rounds 2 --lsh-buckets 64 --lsh-piece 64"),
    ("additive, reversible", "--mixer additive --reversible 1"),
    ("dot, window of 128, chunks of 1,024", "--mixer dot --attention-window 128 --chunk 1024"),
    ("additive, chunks of 1,024", "--mixer additive --chunk 1024"),
]
NETWORK = "--layers 2 --channels 64 --heads 2 --positions none --conv-kernel 4 --conv-groups 0"
TOKENS = 8192  # per step


def train(arguments, name, flags, length, steps):
    """Output of train."""
    folder = Path(arguments.out) / folder_name(name, length, steps)
    return trained(arguments.build, folder, "--data", arguments.text, "--context", str(length),
                   "--batch", str(max(1, TOKENS // length)), "--steps", str(steps), "--warmup", str(min(20, steps)),
                   "--eval-every", "0", "--checkpoint-every", "0", "--seed", "1", *NETWORK.split(),
                   *flags.split())  # fmt: skip


def cells(text):
    """Loss, tokens/s, memory of activations, scratch and borders, and the state of inference."""

    def found(pattern, flags=0):
        match = re.search(pattern, text, flags)
        return match[1] if match else "-"

    def grouped(number):
        return f"{int(number):,}" if number.isdigit() else number

    memory = sum(float(found(rf"{part} ([0-9.]+)").replace("-", "0")) for part in ("activations", "scratch", "borders of chunks"))
    return [found(r"val ([0-9.]+) nats/"), grouped(found(r"(\d+) tokens/s$", re.M)), f"{memory:,.1f}",
            grouped(found(r"inference: (\d+) bytes"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--runs", default="1024:200,8192:40,65536:4")
    parser.add_argument("--only", default="")
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    rows = [each for each in ROWS if each[0].startswith(tuple(arguments.only.split(",")))]
    time, state = {}, {}
    for run in arguments.runs.split(","):
        length, steps = map(int, run.split(":"))
        print(f"\n{length:,} positions, {steps} steps:\n")
        print("| | nats/char | tokens/s | memory, MiB | inference state, bytes |")
        print("|---|--:|--:|--:|--:|")
        for name, flags in rows:
            found = cells(train(arguments, name, flags, length, steps).strip())
            print(row([name, *found]), flush=True)
            if "--chunk" in flags or "--reversible" in flags:
                continue
            _, speed, _, kept = (cell.replace(",", "") for cell in found)
            if speed.isdigit():
                time.setdefault(name, []).append((length, 1e6 / int(speed)))
            if kept.isdigit():
                state.setdefault(name, []).append((length, int(kept)))
    if arguments.svg:
        arguments.svg.write_text(drawn(time, state), encoding="utf-8")


if __name__ == "__main__":
    main()
