#!/usr/bin/env python3
"""Does the largest product of two heads grow in training, and does --rescale keep it small?

    tools/largest_scores.py BUILD_DIR TEXT OUT_DIR [--svg docs/results/largest_scores.svg]

Trains a network of one layer with leap and with dot, at several widths, with and without --rescale. At regular
intervals it stops, reads the weights of the run, computes the network on the whole validation split
(tools/reference_model.py), and finds the largest score. The loss must equal the loss that the program prints; otherwise
the script stops. Prints a Markdown table and draws a figure.

The schedule is inverse-sqrt, which does not depend on the number of steps: a run that is stopped and resumed has the
same bits as an uninterrupted run. Runs that OUT_DIR already contains are not repeated.
"""

import argparse
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

try:
    import torch
except ImportError:
    sys.exit("tools/largest_scores.py: torch is missing; install it with: python3 -m pip install torch")

from reference_model import cross_entropy, logits, tensors_of
from figures.largest_scores import drawn
from checkpoint import OF_MODELS, check_tensors, read, settings_of

HEADS, CONTEXT, RESCALE = 4, 64, 10


# ---- measurement ----------------------------------------------------------------------------------------------------


def read_run(path):
    """The weights of a run by name, their settings and the metadata, without the state of training."""
    parts, metadata = read(path)
    parts = {name: part for name, part in parts.items()
             if name != "recent_losses" and not name.startswith(("first_moment.", "second_moment.", "best."))}
    others = [key for key in metadata if key.startswith("training.")]
    others += [*OF_MODELS, "data", "log", "best_loss", "best_step", "last_loss"]
    settings = settings_of(metadata, {name: shape for name, (_, shape, _) in parts.items()}, path, others)
    check_tensors(parts, settings, path)
    return tensors_of(parts), settings, metadata


@torch.no_grad()
def measure(path, text):
    """The loss on the validation split, the last tenth, and the largest absolute score and logit."""
    weights, settings, metadata = read_run(path)
    ids = {character: i for i, character in enumerate(metadata["vocabulary"])}
    tokens = torch.tensor([ids[character] for character in text[len(text) - len(text) // 10 :]])
    largest = {"score": 0.0, "logit": 0.0}

    def inspect(name, value):
        """Inspector. dot: scores of every position with itself and earlier ones, as used in the exponent. leap:
        logits."""
        for kind in ("score", "logit") if name.endswith("_bncs") else [name.split(".")[-1].split("_")[0]]:
            seen = value.tril() if name.endswith("_bncs") else value
            largest[kind] = max(largest[kind], seen.abs().max().item())

    total = 0.0
    whole = (len(tokens) - 1) // CONTEXT * CONTEXT
    for first, last, C in ((0, whole, CONTEXT), (whole, len(tokens) - 1, len(tokens) - 1 - whole)):
        if first == last:
            continue
        tokens_bc, targets_bc = (tokens[first + i : last + i].reshape(-1, C) for i in (0, 1))
        total += cross_entropy(logits(weights, settings, tokens_bc, inspect), targets_bc)[1].sum().item()
    return {"step": int(metadata["step"]), "loss": total / (len(tokens) - 1), **largest}


# ---- the runs -------------------------------------------------------------------------------------------------------


def run(arguments, text_path, text, mixer, width, rescale, rate):
    """The measurements at every stop of a run."""
    folder = Path(arguments.out) / f"{mixer}_{width}_rescale{rescale}_rate{rate}"
    results = folder / "scores.json"
    if results.exists():
        return json.loads(results.read_text())
    start = ["--out", str(folder), "--overwrite", "--layers", "1", "--channels", str(width), "--heads", str(HEADS),
             "--context", str(CONTEXT), "--batch", str(arguments.batch), "--conv-kernel", "0", "--mixer", mixer,
             "--rescale", str(rescale), "--learning-rate", str(rate), "--schedule", "inverse-sqrt",
             # The variance of a map's rows is that of the preset at every width.
             "--init-std", f"{0.06 * math.sqrt(128 / width):.6f}", "--seed", str(arguments.seed)]
    points = []
    for step in range(0, arguments.steps + 1, arguments.every):
        flags = ["--resume", str(folder)] if points else start
        output = subprocess.run([f"{arguments.build}/train", "--data", str(text_path), "--threads", "1", "--steps",
                                 str(step), "--eval-every", "0", "--checkpoint-every", "0", *flags],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        points.append(measure(folder / "resume.safetensors", text))
        theirs = float(re.search(r"val ([0-9.]+) nats/", output)[1])
        if points[-1]["step"] != step or not abs(points[-1]["loss"] - theirs) <= 1e-4:
            sys.exit(f"{folder}: step {step}: the program's loss is {theirs}, found {points[-1]}")
    for file in ("resume.safetensors", "model.safetensors"):
        (folder / file).unlink()  # a quarter of a gigabyte at the largest width
    results.write_text(json.dumps(points, indent=1) + "\n")
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--characters", type=int, default=30000, help="length of the text used, from its beginning")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="steps between two measurements")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--widths", default="64,256,1024")
    parser.add_argument("--rates", default="3e-3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    text = Path(arguments.text).read_text(encoding="utf-8")[: arguments.characters]
    text_path = Path(arguments.out) / "text.txt"
    text_path.write_text(text, encoding="utf-8")

    widths, rates = ([kind(word) for word in words.split(",")] for kind, words in
                     ((int, arguments.widths), (str, arguments.rates)))
    found = {}
    for width, rate, mixer, rescale in itertools.product(widths, rates, ("leap", "dot"), (0, RESCALE)):
        found[mixer, rate, width, rescale] = run(arguments, text_path, text, mixer, width, rescale, rate)
        print(mixer, rate, width, rescale, found[mixer, rate, width, rescale][-1], file=sys.stderr, flush=True)

    print("| mixer | learning rate | width | rescale | largest score at the start | after " +
          f"{arguments.steps} steps | largest on the way | of a logit | loss |")
    print("|---|---|---|---|---|---|---|---|---|")
    for mixer, rate, width, rescale in itertools.product(("leap", "dot"), rates, widths, (0, RESCALE)):
        points = found[mixer, rate, width, rescale]
        print(f"| {mixer} | {rate} | {width:,} | {rescale or 'none'} | {points[0]['score']:.2f} | "
              f"{points[-1]['score']:.2f} | {max(p['score'] for p in points):.2f} | "
              f"{max(p['logit'] for p in points):.2f} | {points[-1]['loss']:.3f} |")
    if arguments.svg:
        arguments.svg.write_text(drawn(found, rates, widths, RESCALE), encoding="utf-8")


if __name__ == "__main__":
    main()
