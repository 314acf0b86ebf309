#!/usr/bin/env python3
"""A checkpoint of ours in PyTorch: the whole network as one function of its weights.

    tools/checkpoint_in_pytorch.py RUN|FILE TEXT [--copy FILE] [--golden FILE]

Reads a model.safetensors, computes the logits of the first context + 1 tokens of TEXT, and prints the mean loss of
their targets. --copy writes the weights again as PyTorch users do, with safetensors.torch.save_file and no more
metadata than our programs need to read them (docs/checkpoints.md); --golden writes a golden file (docs/golden.md) with
the logits, for `build/golden FILE --type float --tolerance 1e-5`. Needs torch and safetensors.

`logits(weights, config, tokens_bc)` is what to copy from here. Float64, and written from the equations of the chapters.
"""

import argparse
import math
import pathlib
import sys

try:
    import torch
    import torch.nn.functional as F
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    sys.exit(f"tools/checkpoint_in_pytorch.py: {error.name} is missing; install it with: pip install torch safetensors")


def read(path):
    """Weights as float64, by name, and the metadata."""
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).double() for name in file.keys()}, file.metadata()


# ---- the network ----------------------------------------------------------------------------------------------------


def entry(config, key, layer, default):
    """A setting that is one for all layers, or a list with one a layer."""
    entries = config.get(key, default).split(",")
    return entries[layer if len(entries) > 1 else 0]


def norm(x_bcd, weight, prefix=""):
    return F.layer_norm(x_bcd, x_bcd.shape[-1:], weight(prefix + "weight_d"), weight(prefix + "bias_d"), 1e-5)


def heads_apart(x_bch, N):
    return x_bch.unflatten(-1, (N, -1)).transpose(1, 2)


def heads_together(x_bnck):
    return x_bnck.transpose(1, 2).flatten(-2)


def attend(score_bncc, value_bnck, window=0):
    """Each position averages itself and those before it: all, or the last `window`."""
    hidden_cc = ~attended_cc(score_bncc.shape[-1], window)
    return score_bncc.masked_fill(hidden_cc, -math.inf).softmax(-1) @ value_bnck


def attended_cc(C, window):
    distance_cc = torch.arange(C)[:, None] - torch.arange(C)
    return (distance_cc >= 0) & (distance_cc < (window or C))


def additive(h_bcd, weight, config, N, window):
    def pooled(x_bcd, pool_nk):
        x_bnck = heads_apart(x_bcd, N)
        a_bnc = (x_bnck * pool_nk[:, None, :]).sum(-1) / math.sqrt(x_bnck.shape[-1])
        return heads_together(attend(a_bnc[:, :, None, :].expand(-1, -1, a_bnc.shape[-1], -1), x_bnck, window))

    q_bcd, k_bcd = F.linear(h_bcd, weight("query_dd")), F.linear(h_bcd, weight("key_dd"))
    v_bcd = F.linear(h_bcd, weight("value_dd")) if config.get("values") == "own" else q_bcd
    p_bcd = pooled(q_bcd, weight("query_pool_nk"))
    if config.get("projection") == "1":
        p_bcd = F.linear(p_bcd, weight("mix_dd"))
    r_bcd = h_bcd + p_bcd * k_bcd
    y_bcd = pooled(norm(r_bcd, weight, "mid_norm_"), weight("key_pool_nk")) * v_bcd
    return r_bcd + y_bcd if config.get("skip") == "normed" else y_bcd


def average(h_bcd, window):
    score_bncc = h_bcd.new_zeros(h_bcd.shape[0], 1, h_bcd.shape[1], h_bcd.shape[1])
    return attend(score_bncc, h_bcd[:, None], window)[:, 0]


def leap(h_bcd, weight, config, N, window):
    query, focus, key, value = (
        heads_apart(F.linear(h_bcd, weight(f"{x}_dd")), N) for x in ("query", "focus", "key", "value")
    )
    K, rescale = query.shape[-1], float(config.get("rescale", 0))
    if rescale > 0:
        query, focus, key = map(rescaled, (query, focus, key))
    if config.get("normed_values") == "1":
        value = rescaled(value)
    scale = rescale / K if rescale > 0 else 1 / math.sqrt(K)
    score_bnc = scale * (focus * key).sum(-1)
    elu = config.get("focus", "elu") == "elu"
    logit_bnc = torch.where(score_bnc > 0, score_bnc.clamp(min=0).log1p(), score_bnc) if elu else score_bnc
    # Epsilon is the weight of one more position, which all see, with nothing in it.
    C = key.shape[2]
    shown_cc = attended_cc(C, window)
    weight_bncc = (logit_bnc[:, :, None, :] - logit_bnc.amax(-1)[..., None, None]).exp() * shown_cc
    total_bnc = weight_bncc.sum(-1) + 1e-5 * (-logit_bnc.amax(-1)[..., None]).exp()
    pooled_key, pooled_value = (weight_bncc @ x / total_bnc[..., None] for x in (key, value))
    gate_bnc = torch.sigmoid(scale * (query * pooled_key).sum(-1))
    return heads_together(gate_bnc[..., None] * pooled_value)


def rescaled(x_bnck):
    from_mean = x_bnck - x_bnck.mean(-1, keepdim=True)
    return from_mean / (x_bnck.std(-1, keepdim=True) + 1e-5)


def dot(h_bcd, weight, N):
    q, k, v = (heads_apart(F.linear(h_bcd, weight(f"{x}_hd"), weight(f"{x}_bias_h")), N) for x in ("query", "key", "value"))
    t_bnck = attend(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), v)
    return F.linear(heads_together(t_bnck), weight("output_dh"), weight("output_bias_d"))


def bilinear(h_bcd, weight, N):
    """Metric attention, and quadratic: score = p_c^T M p_c' / sqrt(K)."""
    p_bnck = heads_apart(F.linear(h_bcd, weight("project_hd")), N)
    K = p_bnck.shape[-1]
    metric_nkk = weight("metric_nkk")
    if metric_nkk is None:  # the upper triangle, row by row
        place_kk = torch.zeros(K, K, dtype=torch.long)
        place_kk[tuple(torch.triu_indices(K, K))] = torch.arange(K * (K + 1) // 2)
        metric_nkk = weight("metric_nl")[:, torch.maximum(place_kk, place_kk.T)]
    t_bnck = attend(p_bnck @ metric_nkk @ p_bnck.transpose(-1, -2) / math.sqrt(K), p_bnck)
    return F.linear(heads_together(t_bnck), weight("output_dh"))


def mix(x_bcd, weight, config, layer):
    mixer, N = entry(config, "mixer", layer, None), int(config["heads"])
    h_bcd = norm(x_bcd, weight, "norm_")
    if mixer == "identity":
        return x_bcd + h_bcd
    window = int(entry(config, "window", layer, "0"))
    if mixer == "average":
        return x_bcd + average(h_bcd, window)
    if mixer == "leap":
        return x_bcd + leap(h_bcd, weight, config, N, window)
    if mixer == "additive":
        y_bcd = additive(h_bcd, weight, config, N, window)
        return y_bcd if config.get("skip") == "normed" else x_bcd + y_bcd
    return x_bcd + (dot if mixer == "dot" else bilinear)(h_bcd, weight, N)


def convolve(x_bcd, weight, groups):
    taps_dgj = weight("weight_dgj")
    h_bdc = F.pad(norm(x_bcd, weight, "norm_").transpose(1, 2), (taps_dgj.shape[-1] - 1, 0))
    return x_bcd + F.conv1d(h_bdc, taps_dgj, groups=groups).transpose(1, 2)


def feed_forward(x_bcd, weight):
    hidden_bcf = F.gelu(F.linear(norm(x_bcd, weight, "norm_"), weight("up_fd"), weight("up_bias_f")))
    return x_bcd + F.linear(hidden_bcf, weight("down_df"), weight("down_bias_d"))


def logits(weights, config, tokens_bc):
    """weights: name -> tensor; config: the metadata; tokens_bc: ids in the order of the vocabulary."""
    x_bcd = F.embedding(tokens_bc, weights["embedding.token_vd"])
    if "embedding.position_cd" in weights:
        x_bcd = x_bcd + weights["embedding.position_cd"][: tokens_bc.shape[1]]
    if config.get("embedding_norm") == "1":
        x_bcd = norm(x_bcd, weights.get, "embedding.norm_")
    for layer in range(int(config["layers"])):
        part = lambda block: lambda name: weights.get(f"blocks.{layer}.{block}.{name}")
        if config.get("conv_kernel", "0") != "0":
            x_bcd = convolve(x_bcd, part("conv"), int(config.get("conv_groups", "1")) or x_bcd.shape[-1])
        x_bcd = mix(x_bcd, part("mixer"), config, layer)
        x_bcd = feed_forward(x_bcd, part("ffn"))
    if config.get("final_norm", "1") == "1":
        x_bcd = norm(x_bcd, weights.get, "final_norm.")
    scale = float(config.get("logit_scale", "1"))
    return scale * F.linear(x_bcd, weights["embedding.token_vd"], weights.get("logit_bias_v"))


# ---- the text -------------------------------------------------------------------------------------------------------


def encode(config, text):
    """Bytes to ids: of bytes, or of characters in the order of the vocabulary."""
    if config["tokenizer"] == "byte":
        return list(text)
    ids = {character: i for i, character in enumerate(config["vocabulary"])}
    return [ids[character] for character in text.decode()]


# What our programs need to know and cannot see: the rest of a checkpoint's metadata has a default or stands in the shapes.
def needed(config):
    defaults = {"window": "0", "values": "shared", "projection": "0", "skip": "stream", "conv_kernel": "0",
                "conv_groups": "1", "ffn_bias": "0", "embedding_norm": "0", "final_norm": "1", "logit_bias": "0",
                "logit_scale": "1"}
    always = ["tokenizer", "vocabulary", "layers", "heads", "mixer"]
    always += [] if config.get("positions", "learned") == "learned" else ["context"]
    return {key: config[key] for key in always + [key for key in defaults if config.get(key, defaults[key]) != defaults[key]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--copy", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args()
    path = arguments.checkpoint
    weights, config = read(path / "model.safetensors" if path.is_dir() else path)
    context = len(weights["embedding.position_cd"]) if "embedding.position_cd" in weights else int(config["context"])
    ids = torch.tensor(encode(config, arguments.text.read_bytes())[: context + 1])
    tokens_bc, targets_bc = ids[None, :-1], ids[None, 1:]
    logits_bcv = logits(weights, config, tokens_bc)
    loss = F.cross_entropy(logits_bcv.flatten(0, 1), targets_bc.flatten())
    print(f"{targets_bc.numel()} targets, {loss.item():.6f} nats each")
    if arguments.copy:
        save_file({name: tensor.float() for name, tensor in weights.items()}, arguments.copy, needed(config))
    if arguments.golden:
        tensors = {"weight." + name: tensor for name, tensor in weights.items()}
        tensors |= {"input.tokens_bc": tokens_bc.int(), "output.logits_bcv": logits_bcv}
        save_file(tensors, arguments.golden, {**needed(config), "case": "language_model"})


if __name__ == "__main__":
    main()
