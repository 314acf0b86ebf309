#!/usr/bin/env python3
"""Does the largest product of two heads grow in training, and does --rescale keep it small?

    tools/largest_scores.py BUILD_DIR TEXT OUT_DIR [--svg docs/results/largest_scores.svg]

Trains a network of one layer with leap and with dot, at several widths, with and without --rescale, and stops every so
often: reads the weights of the run, computes the network again on the whole validation split, with the equations of the
chapters in NumPy, and finds the largest score. That it is the program's network is seen by its loss, which has to be
what the program says; anything else ends it. Prints a Markdown table and draws a figure.

The schedule is inverse-sqrt, which does not depend on the number of steps: a run that is stopped and goes on has the
same bits as one that is not. Runs that OUT_DIR already holds are not repeated.
"""

import argparse
import itertools
import json
import math
import re
import struct
import subprocess
import sys
from pathlib import Path

try:
    import numpy
except ImportError:
    sys.exit("tools/largest_scores.py: NumPy is missing; Debian has it as python3-numpy")

from figures.largest_scores import drawn

HEADS, CONTEXT, RESCALE = 4, 64, 10


# ---- the network ----------------------------------------------------------------------------------------------------


def read_run(path):
    """The weights of a run, by name, and the metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start, metadata = file.tell(), header.pop("__metadata__")
        weights = {}
        for name, tensor in header.items():
            if tensor["dtype"] == "F32" and not name.startswith(("first_moment.", "second_moment.", "best.")):
                file.seek(start + tensor["data_offsets"][0])
                count = math.prod(tensor["shape"])
                weights[name] = numpy.frombuffer(file.read(4 * count), "<f4").reshape(tensor["shape"])
    return weights, metadata


ERF_X = numpy.linspace(-6, 6, 120001)
ERF = numpy.array([math.erf(x) for x in ERF_X])


def gelu(x):
    return 0.5 * x * (1 + numpy.interp(x / math.sqrt(2), ERF_X, ERF).astype(x.dtype))


def layernorm(x_bcd, weights, prefix):
    centred_bcd = x_bcd - x_bcd.mean(-1, keepdims=True)
    deviation_bc1 = numpy.sqrt((centred_bcd**2).mean(-1, keepdims=True) + 1e-5)
    return centred_bcd / deviation_bc1 * weights[prefix + "weight_d"] + weights[prefix + "bias_d"]


def rescaled(x_bnck):
    centred_bnck = x_bnck - x_bnck.mean(-1, keepdims=True)
    return centred_bnck / (x_bnck.std(-1, ddof=1, keepdims=True) + 1e-5)


def heads_apart(x_bch):
    B, C, H = x_bch.shape
    return x_bch.reshape(B, C, HEADS, H // HEADS).transpose(0, 2, 1, 3)


def heads_together(x_bnck):
    B, N, C, K = x_bnck.shape
    return x_bnck.transpose(0, 2, 1, 3).reshape(B, C, N * K)


def averaged(logit_bncc, value_bnck, more_bnc):
    """Averages of the values up to each position with weights e^logit; more: of one more weight that brings nothing."""
    C = value_bnck.shape[2]
    seen_bncc = numpy.where(numpy.tri(C, dtype=bool), logit_bncc, -numpy.inf)
    max_bnc1 = seen_bncc.max(-1, keepdims=True)
    weight_bncc = numpy.exp(seen_bncc - max_bnc1)
    total_bnc1 = weight_bncc.sum(-1, keepdims=True)
    if more_bnc:
        total_bnc1 = total_bnc1 + more_bnc * numpy.exp(-max_bnc1)
    return weight_bncc @ value_bnck / total_bnc1


def scale_of(config, K):
    rescale = float(config["rescale"])
    return rescale / K if rescale else 1 / math.sqrt(K)


def dot(h_bcd, weights, config):
    query, key, value = (heads_apart(h_bcd @ weights[f"blocks.0.mixer.{x}_hd"].T) for x in ("query", "key", "value"))
    if float(config["rescale"]):
        query, key = rescaled(query), rescaled(key)
    score_bncc = scale_of(config, key.shape[-1]) * (query @ key.swapaxes(-1, -2))
    y_bcd = heads_together(averaged(score_bncc, value, 0)) @ weights["blocks.0.mixer.output_dh"].T
    C = h_bcd.shape[1]
    seen = score_bncc[..., numpy.tri(C, dtype=bool)]
    return y_bcd, seen, seen


def leap(h_bcd, weights, config):
    query, focus, key, value = (heads_apart(h_bcd @ weights[f"blocks.0.mixer.{x}_dd"].T)
                                for x in ("query", "focus", "key", "value"))
    if float(config["rescale"]):
        query, focus, key = rescaled(query), rescaled(focus), rescaled(key)
    scale = scale_of(config, key.shape[-1])
    score_bnc = scale * (focus * key).sum(-1)
    logit_bnc = numpy.where(score_bnc > 0, numpy.log1p(numpy.maximum(score_bnc, 0)), score_bnc)
    pooled_key, pooled_value = (averaged(logit_bnc[:, :, None, :], x, 1e-5) for x in (key, value))
    gate_bnc1 = 1 / (1 + numpy.exp(-scale * (query * pooled_key).sum(-1, keepdims=True)))
    return heads_together(gate_bnc1 * pooled_value), score_bnc, logit_bnc


def forward(weights, config, tokens_bc):
    """Logits of the characters, and of the mixer the scores and what stands in the exponent of a weight."""
    x_bcd = weights["embedding.token_vd"][tokens_bc] + weights["embedding.position_cd"][: tokens_bc.shape[1]]
    mixer = {"dot": dot, "leap": leap}[config["mixer"]]
    y_bcd, score, logit = mixer(layernorm(x_bcd, weights, "blocks.0.mixer.norm_"), weights, config)
    x_bcd = x_bcd + y_bcd
    h_bcd = layernorm(x_bcd, weights, "blocks.0.ffn.norm_")
    hidden_bcf = gelu(h_bcd @ weights["blocks.0.ffn.up_fd"].T + weights["blocks.0.ffn.up_bias_f"])
    x_bcd = x_bcd + hidden_bcf @ weights["blocks.0.ffn.down_df"].T + weights["blocks.0.ffn.down_bias_d"]
    h_bcd = layernorm(x_bcd, weights, "final_norm.")
    return h_bcd @ weights["embedding.token_vd"].T, score, logit


def measure(path, text):
    """The validation split, the last tenth: its loss, and the largest score and logit by their absolute values."""
    weights, config = read_run(path)
    ids = {character: i for i, character in enumerate(config["vocabulary"])}
    tokens = numpy.array([ids[character] for character in text[len(text) - len(text) // 10 :]])
    total, largest_score, largest_logit = 0.0, 0.0, 0.0
    whole = (len(tokens) - 1) // CONTEXT * CONTEXT
    for first, last, C in ((0, whole, CONTEXT), (whole, len(tokens) - 1, len(tokens) - 1 - whole)):
        if first == last:
            continue
        tokens_bc, targets_bc = (tokens[first + i : last + i].reshape(-1, C) for i in (0, 1))
        logits_bcv, score, logit = forward(weights, config, tokens_bc)
        max_bc1 = logits_bcv.max(-1, keepdims=True)
        lse_bc = (max_bc1 + numpy.log(numpy.exp(logits_bcv - max_bc1).sum(-1, keepdims=True)))[..., 0]
        total += float((lse_bc - numpy.take_along_axis(logits_bcv, targets_bc[..., None], -1)[..., 0]).sum())
        largest_score = max(largest_score, float(numpy.abs(score).max()))
        largest_logit = max(largest_logit, float(numpy.abs(logit).max()))
    return {"step": int(config["step"]), "loss": total / (len(tokens) - 1), "score": largest_score,
            "logit": largest_logit}


# ---- the runs -------------------------------------------------------------------------------------------------------


def run(arguments, text_path, text, mixer, width, rescale, rate):
    """What was measured at every stop of one run."""
    folder = Path(arguments.out) / f"{mixer}_{width}_rescale{rescale}_rate{rate}"
    results = folder / "scores.json"
    if results.exists():
        return json.loads(results.read_text())
    start = ["--out", str(folder), "--overwrite", "--layers", "1", "--channels", str(width), "--heads", str(HEADS),
             "--context", str(CONTEXT), "--batch", str(arguments.batch), "--conv-kernel", "0", "--mixer", mixer,
             "--rescale", str(rescale), "--learning-rate", str(rate), "--schedule", "inverse-sqrt",
             # The same variance of a map's rows at every width, that of the preset.
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
        (folder / file).unlink()  # at the largest width a quarter of a gigabyte
    results.write_text(json.dumps(points, indent=1) + "\n")
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--characters", type=int, default=30000, help="so many of the text, the first")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="steps between two looks")
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
