#!/usr/bin/env python3
"""Writes golden files (docs/golden.md) whose numbers come from PyTorch in float64.

    python3 tests/golden_cases.py OUT_DIR && build/golden OUT_DIR/*.safetensors

Everything is computed the naive way, straight from the equations: poolings and attention as dense C x C weights,
gradients by automatic differentiation. Needs torch; the files are written here, without the safetensors package.
The numbers depend on the seed alone (the name of the file). It is a tool for developers, no part of the tests.
"""

import json
import math
import pathlib
import struct
import sys
import zlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


# ---- the file -------------------------------------------------------------------------------------------------------


def write_safetensors(path, tensors, metadata):
    """tensors: name -> float64 or int32 tensor; metadata: str -> str."""
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].dtype != torch.float64, item[0])):
        part = tensor.detach().contiguous().numpy().tobytes()
        dtype = {torch.float64: "F64", torch.int32: "I32"}[tensor.dtype]
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Case:
    """Collects what goes into one file. Inputs and weights are created by name and shape, then `finish` runs backward."""

    def __init__(self, name, case, **settings):
        self.name = name
        self.metadata = {"case": case, "source": "tests/golden_cases.py, PyTorch, float64"}
        self.metadata.update({key: str(value) for key, value in settings.items()})
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.given, self.tensors = {}, {}

    def normal(self, shape, std=1.0, mean=0.0):
        return mean + std * torch.randn(shape, generator=self.generator)

    def integers(self, low, high, shape):
        return torch.randint(low, high, shape, generator=self.generator).to(torch.int32)

    def real(self, name, shape, std=1.0, mean=0.0):
        """An input.* or weight.* whose gradient is wanted."""
        self.given[name] = self.normal(shape, std, mean).requires_grad_()
        return self.given[name]

    def fixed(self, name, tensor):
        """An input without a gradient: tokens, targets, masks."""
        self.tensors[name] = tensor
        return tensor

    def mask(self, B, C, kind):
        """right: padding behind; left: before, so that the first positions see nothing; holes: anywhere; none."""
        if kind == "none":
            return None
        mask = torch.ones(B, C, dtype=torch.int32)
        for b in range(B):
            length = (b * C) // (B + 1)
            if kind == "right":
                mask[b, C - length :] = 0
            if kind == "left":
                mask[b, :length] = 0
        if kind == "holes":
            mask = self.integers(0, 2, (B, C))
        return self.fixed("input.mask_bc", mask)

    def finish(self, folder, outputs, loss=None):
        """outputs: name -> tensor. Without a loss, the upstream gradient of every output is random."""
        if loss is None:
            loss = 0
            for name, value in outputs.items():
                upstream = self.normal(value.shape)
                self.tensors["grad_output." + name] = upstream
                loss = loss + (upstream * value).sum()
        loss.backward()
        for name, value in outputs.items():
            self.tensors["output." + name] = value
        for name, value in self.given.items():
            self.tensors[name] = value
            self.tensors["grad_" + name] = value.grad if value.grad is not None else torch.zeros_like(value)
        write_safetensors(folder / (self.name + ".safetensors"), self.tensors, self.metadata)


# ---- the equations --------------------------------------------------------------------------------------------------


def softmax_average(score_bncc, visible_bncc, x_bnck):
    """Rows that see nothing yield 0."""
    top = torch.where(visible_bncc, score_bncc, -torch.inf).amax(-1, keepdim=True).detach()
    top = torch.where(top.isfinite(), top, 0)
    weight = torch.where(visible_bncc, score_bncc - top, -torch.inf).exp()
    total = weight.sum(-1, keepdim=True)
    return weight @ x_bnck / torch.where(total > 0, total, 1)


def visible(B, C, causal, window, mask):
    """(B, 1, C, C): whether position c sees c'."""
    distance = torch.arange(C)[:, None] - torch.arange(C)[None, :]
    seen = torch.ones(C, C, dtype=torch.bool)
    if causal:
        seen = seen & (distance >= 0)
    if window:
        seen = seen & (distance < window)
    seen = seen.expand(B, 1, C, C)
    return seen if mask is None else seen & (mask[:, None, None, :] == 1)


def pool(a_bnc, x_bnck, window, mask):
    B, N, C = a_bnc.shape
    return softmax_average(a_bnc[:, :, None, :].expand(B, N, C, C), visible(B, C, True, window, mask), x_bnck)


def heads_apart(x_bch, N):
    B, C, H = x_bch.shape
    return x_bch.reshape(B, C, N, H // N).transpose(1, 2)


def heads_together(x_bnck):
    B, N, C, K = x_bnck.shape
    return x_bnck.transpose(1, 2).reshape(B, C, N * K)


def attention(query_bch, key_bch, value_bch, N, causal, mask):
    q, k, v = (heads_apart(x, N) for x in (query_bch, key_bch, value_bch))
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return heads_together(softmax_average(score, visible(q.shape[0], q.shape[2], causal, 0, mask), v))


def norm(x, weight):
    return F.layer_norm(x, x.shape[-1:], weight("norm_weight_d"), weight("norm_bias_d"), 1e-5)


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def conv(x_bcd, weight, groups):
    h = norm(x_bcd, weight).transpose(1, 2)
    taps = weight("weight_dgj")
    return F.conv1d(F.pad(h, (taps.shape[-1] - 1, 0)), taps, groups=groups).transpose(1, 2)


def ffn(x_bcd, weight):
    up, down = weight("up_fd"), weight("down_df")
    hidden = F.linear(norm(x_bcd, weight), up, weight("up_bias_f"))
    return F.linear(gelu(hidden), down, weight("down_bias_d"))


def additive(h_bcd, weight, N, window, skip, mask):
    def pooled(x_bcd, vector_nk):
        x = heads_apart(x_bcd, N)
        a = (x * vector_nk[None, :, None, :]).sum(-1) / math.sqrt(x.shape[-1])
        return heads_together(pool(a, x, window, mask))

    q, k = F.linear(h_bcd, weight("query_dd")), F.linear(h_bcd, weight("key_dd"))
    v = q if weight("value_dd") is None else F.linear(h_bcd, weight("value_dd"))
    p = pooled(q, weight("query_pool_nk"))
    if weight("mix_dd") is not None:
        p = F.linear(p, weight("mix_dd"))
    r = h_bcd + p * k
    t = F.layer_norm(r, r.shape[-1:], weight("mid_norm_weight_d"), weight("mid_norm_bias_d"), 1e-5)
    u = pooled(t, weight("key_pool_nk"))
    return u * v + (r if skip == "normed" else 0)


def dot(h_bcd, weight, N, causal, mask):
    q, k, v = (F.linear(h_bcd, weight(f"{x}_hd"), weight(f"{x}_bias_h")) for x in ("query", "key", "value"))
    return F.linear(attention(q, k, v, N, causal, mask), weight("output_dh"), weight("output_bias_d"))


def bilinear(h_bcd, weight, N, causal, mask):
    """Metric and quadratic attention, with the full matrix: score = p_c^T M p_c' / sqrt(K)."""
    p = heads_apart(F.linear(h_bcd, weight("project_hd")), N)
    B, _, C, K = p.shape
    metric = weight("metric_nkk")
    if metric is None:
        rows, columns = torch.triu_indices(K, K)
        upper = torch.zeros(N, K, K).index_put(
            (torch.arange(N)[:, None], rows[None, :], columns[None, :]), weight("metric_nl")
        )
        metric = upper + upper.transpose(1, 2) - torch.diag_embed(torch.diagonal(upper, dim1=1, dim2=2))
    score = p @ metric @ p.transpose(-1, -2) / math.sqrt(K)
    return F.linear(heads_together(softmax_average(score, visible(B, C, causal, 0, mask), p)), weight("output_dh"))


def cross_entropy(logits, targets, smoothing):
    """Mean loss and the loss of every row; rows with target -100 take no part."""
    V = logits.shape[-1]
    counts = targets != -100
    wanted = F.one_hot(torch.where(counts, targets, 0).long(), V) * (1 - smoothing) + smoothing / V
    loss_bc = torch.where(counts, torch.logsumexp(logits, -1) - (wanted * logits).sum(-1), 0)
    return loss_bc.sum() / max(1, int(counts.sum())), loss_bc


# ---- weights --------------------------------------------------------------------------------------------------------


def weights_of(case, prefix, shapes):
    """Creates the weights `shapes` (name -> shape) under weight.PREFIX and returns a look-up, None where absent."""
    made = {}
    for name, shape in shapes.items():
        if "norm_weight" in name:
            made[name] = case.real("weight." + prefix + name, shape, 0.3, 1.0)
        elif len(shape) == 1 or "pool" in name:
            made[name] = case.real("weight." + prefix + name, shape, 0.5)
        else:
            made[name] = case.real("weight." + prefix + name, shape, 1 / math.sqrt(math.prod(shape[1:])))
    return made.get


def norm_shapes(D, prefix="norm_"):
    return {prefix + "weight_d": (D,), prefix + "bias_d": (D,)}


def conv_shapes(D, groups, kernel):
    return {**norm_shapes(D), "weight_dgj": (D, D // groups, kernel)}


def ffn_shapes(D, hidden, biases):
    shapes = {**norm_shapes(D), "up_fd": (hidden, D), "down_df": (D, hidden)}
    return {**shapes, **{bias: (hidden if bias == "up_bias_f" else D,) for bias in biases}}


def mixer_shapes(mixer, D, N, K, values="shared", projection=0, biases=()):
    H = N * K
    if mixer == "additive":
        shapes = {"query_dd": (D, D), "key_dd": (D, D), "query_pool_nk": (N, D // N), "key_pool_nk": (N, D // N)}
        if values == "own":
            shapes["value_dd"] = (D, D)
        if projection:
            shapes["mix_dd"] = (D, D)
        return {**shapes, **norm_shapes(D, "mid_norm_")}
    if mixer == "dot":
        shapes = {"query_hd": (H, D), "key_hd": (H, D), "value_hd": (H, D), "output_dh": (D, H)}
        return {**shapes, **{bias: (D if bias == "output_bias_d" else H,) for bias in biases}}
    metric = {"metric_nl": (N, K * (K + 1) // 2)} if mixer == "metric" else {"metric_nkk": (N, K, K)}
    return {"project_hd": (H, D), **metric, "output_dh": (D, H)}


def mix(mixer, h, weight, N, window, skip, causal, mask):
    if mixer == "additive":
        return additive(h, weight, N, window, skip, mask)
    return (dot if mixer == "dot" else bilinear)(h, weight, N, causal, mask)


# ---- the cases ------------------------------------------------------------------------------------------------------

ALL_BIASES = ("query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d")


def linear_case(folder, name, B, C, I, O):
    case = Case(name, "linear")
    x = case.real("input.x_bci", (B, C, I))
    y = F.linear(x, case.real("weight.weight_oi", (O, I)), case.real("weight.bias_o", (O,)))
    case.finish(folder, {"y_bco": y})


def gelu_case(folder, name, form, std):
    case = Case(name, "gelu", form=form)
    x = case.real("input.x_bcd", (2, 3, 37), std)
    inner = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    case.finish(folder, {"y_bcd": gelu(x) if form == "erf" else x / 2 * (1 + inner)})


def layernorm_case(folder, name, B, C, D, std, mean, **settings):
    case = Case(name, "layernorm", **settings)
    x = case.real("input.x_bcd", (B, C, D), std, mean)
    y = F.layer_norm(x, (D,), case.real("weight.weight_d", (D,)), case.real("weight.bias_d", (D,)), 1e-5)
    case.finish(folder, {"y_bcd": y})


def cross_entropy_case(folder, name, B, C, V, std, smoothing, ignored, **settings):
    case = Case(name, "cross_entropy", label_smoothing=smoothing, **settings)
    logits = case.real("input.logits_bcv", (B, C, V), std)
    targets = case.integers(0, V, (B, C))
    targets.view(-1)[:ignored] = -100
    loss, loss_bc = cross_entropy(logits, case.fixed("input.targets_bc", targets), smoothing)
    case.finish(folder, {"loss": loss, "loss_bc": loss_bc}, loss)


def conv_case(folder, name, B, C, D, groups, kernel):
    case = Case(name, "causal_conv", groups=groups, kernel=kernel)
    x = case.real("input.x_bcd", (B, C, D))
    case.finish(folder, {"y_bcd": conv(x, weights_of(case, "", conv_shapes(D, groups, kernel)), groups)})


def ffn_case(folder, name, D, hidden, biases, **settings):
    case = Case(name, "ffn", **settings)
    x = case.real("input.x_bcd", (3, 5, D))
    case.finish(folder, {"y_bcd": ffn(x, weights_of(case, "", ffn_shapes(D, hidden, biases)))})


def pooling_case(folder, name, C, window, std, mask, mean=0.0, **settings):
    case = Case(name, "additive_pooling", window=window, **settings)
    B, N, K = 3, 2, 5
    a = case.real("input.a_bnc", (B, N, C), std, mean)
    x = case.real("input.x_bnck", (B, N, C, K))
    case.finish(folder, {"g_bnck": pool(a, x, window, case.mask(B, C, mask))})


def additive_case(folder, name, C, D, N, values, projection, skip, window, mask, std=1.0, **settings):
    case = Case(
        name, "additive_attention", heads=N, values=values, projection=projection, skip=skip, window=window, **settings
    )
    x = case.real("input.x_bcd", (3, C, D))
    shapes = {**norm_shapes(D), **mixer_shapes("additive", D, N, D // N, values, projection)}
    weight = weights_of(case, "", shapes)
    with torch.no_grad():  # pooling vectors that make the logits large
        weight("query_pool_nk").mul_(std)
        weight("key_pool_nk").mul_(std)
    mask_bc = case.mask(3, C, mask)
    case.finish(folder, {"y_bcd": additive(norm(x, weight), weight, N, window, skip, mask_bc)})


def core_case(folder, name, mixer, C, D, N, K, causal, mask, biases=()):
    full_name = {"dot": "dot_product", "metric": "metric", "quadratic": "quadratic"}[mixer] + "_attention"
    case = Case(name, full_name, heads=N, causal=causal)
    x = case.real("input.x_bcd", (3, C, D))
    weight = weights_of(case, "", mixer_shapes(mixer, D, N, K, biases=biases))
    case.finish(folder, {"y_bcd": mix(mixer, x, weight, N, 0, "stream", causal, case.mask(3, C, mask))})


def one_a_layer(text, layers):
    entries = str(text).split(",")
    return entries * layers if len(entries) == 1 else entries


def language_model_case(
    folder, name, layers, mixer, D=12, N=2, K=None, C=9, V=11, positions=None, hidden=None, biases=(), mask="none",
    causal=None, **settings
):
    """positions: rows of the table, 0: none; settings: the metadata, absent keys left to their defaults."""
    if causal is not None:
        settings["causal"] = causal
    case = Case(name, "language_model", layers=layers, mixer=mixer, heads=N, **settings)
    B = 3
    value = lambda key, otherwise: settings.get(key, otherwise)
    token = case.real("weight.embedding.token_vd", (V, D), 0.7)
    tokens = case.fixed("input.tokens_bc", case.integers(0, V, (B, C)))
    targets = case.integers(0, V, (B, C))
    mask_bc = case.mask(B, C, mask)
    targets[0, -1] = -100
    if mask_bc is not None:
        targets[mask_bc == 0] = -100
    case.fixed("input.targets_bc", targets)

    x = token[tokens.long()]
    if positions != 0:
        x = x + case.real("weight.embedding.position_cd", (positions or C, D), 0.5)[:C]
    if value("embedding_norm", 0):
        x = norm(x, weights_of(case, "embedding.", norm_shapes(D)))
    mixers, windows = one_a_layer(mixer, layers), one_a_layer(value("window", 0), layers)
    for i in range(layers):
        prefix = f"blocks.{i}."
        if value("conv_kernel", 0):
            groups = value("conv_groups", 1)
            x = x + conv(x, weights_of(case, prefix + "conv.", conv_shapes(D, groups, value("conv_kernel", 0))), groups)
        shapes = mixer_shapes(mixers[i], D, N, K or D // N, value("values", "shared"), value("projection", 0), biases)
        weight = weights_of(case, prefix + "mixer.", {**norm_shapes(D), **shapes})
        skip = value("skip", "stream") if mixers[i] == "additive" else "stream"
        y = mix(mixers[i], norm(x, weight), weight, N, int(windows[i]), skip, causal != 0, mask_bc)
        x = y if skip == "normed" else x + y
        ffn_biases = ("up_bias_f", "down_bias_d") if value("ffn_bias", 0) else ()
        x = x + ffn(x, weights_of(case, prefix + "ffn.", ffn_shapes(D, hidden or 4 * D, ffn_biases)))
    if value("final_norm", 1):
        final = weights_of(case, "final_norm.", {"weight_d": (D,), "bias_d": (D,)})
        x = F.layer_norm(x, (D,), final("weight_d"), final("bias_d"), 1e-5)
    logits = x @ token.T
    if value("logit_bias", 0):
        logits = logits + case.real("weight.logit_bias_v", (V,))
    logits = logits * float(value("logit_scale", 1))
    loss, _ = cross_entropy(logits, targets, value("label_smoothing", 0))
    case.finish(folder, {"loss": loss, "logits_bcv": logits}, loss)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: golden_cases.py OUT_DIR")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    loose = {"tolerance_float": "2e-4"}  # logits of some hundred: float keeps 1e-5 of their exponential

    linear_case(folder, "linear_1", 1, 1, 1, 1)
    linear_case(folder, "linear_17_9", 3, 5, 17, 9)
    linear_case(folder, "linear_9_70", 2, 33, 9, 70)
    for form in ("erf", "tanh"):
        gelu_case(folder, f"gelu_{form}_std1", form, 1.0)
        gelu_case(folder, f"gelu_{form}_std9", form, 9.0)
    layernorm_case(folder, "layernorm_33", 2, 7, 33, 1.0, 0.0)
    layernorm_case(folder, "layernorm_mean50", 3, 4, 20, 3.0, 50.0, tolerance_float="1e-4")
    cross_entropy_case(folder, "cross_entropy_ls01", 2, 9, 21, 1.0, 0.1, 0)
    cross_entropy_case(folder, "cross_entropy_ignored", 3, 5, 13, 3.0, 0.1, 4)
    cross_entropy_case(folder, "cross_entropy_all_ignored", 1, 4, 5, 1.0, 0.0, 4)
    cross_entropy_case(folder, "cross_entropy_std240", 2, 6, 17, 240.0, 0.0, 1, **loose)
    for groups, kernel, C in ((1, 1, 7), (1, 2, 5), (2, 2, 1), (3, 3, 2), (4, 4, 9), (6, 5, 3), (12, 3, 8), (2, 4, 40)):
        conv_case(folder, f"conv_g{groups}_k{kernel}_c{C}", 2, C, 12, groups, kernel)
    ffn_case(folder, "ffn_no_bias", 9, 36, ())
    ffn_case(folder, "ffn_width", 10, 17, ("up_bias_f", "down_bias_d"), ffn_bias=1)
    ffn_case(folder, "ffn_one_bias", 8, 32, ("down_bias_d",))

    for window in (0, 1, 2, 5, 18, 19, 100):
        pooling_case(folder, f"pooling_w{window}", 19, window, 1.0, "none")
    for mask in ("right", "left", "holes"):
        pooling_case(folder, f"pooling_global_{mask}", 21, 0, 2.0, mask)
        pooling_case(folder, f"pooling_w3_{mask}", 21, 3, 2.0, mask)
        pooling_case(folder, f"pooling_w8_{mask}", 21, 8, 20.0, mask)
    pooling_case(folder, "pooling_one", 1, 0, 1.0, "none")
    pooling_case(folder, "pooling_global_std240", 130, 0, 240.0, "none", **loose)
    pooling_case(folder, "pooling_w16_std240", 130, 16, 240.0, "holes", **loose)
    pooling_case(folder, "pooling_global_mean240", 50, 0, 1.0, "none", 240.0, **loose)
    pooling_case(folder, "pooling_w7_mean-240", 50, 7, 1.0, "none", -240.0, **loose)

    additive_case(folder, "additive_shared", 17, 12, 3, "shared", 0, "stream", 0, "none")
    additive_case(folder, "additive_shared_projection_w4", 17, 12, 3, "shared", 1, "stream", 4, "holes")
    additive_case(folder, "additive_shared_normed_w1", 10, 12, 2, "shared", 0, "normed", 1, "none")
    additive_case(folder, "additive_own_stream_left", 13, 8, 2, "own", 0, "stream", 0, "left")
    additive_case(folder, "additive_own_normed_w5_right", 13, 8, 4, "own", 1, "normed", 5, "right")
    additive_case(folder, "additive_heads_d", 9, 6, 6, "own", 1, "stream", 3, "none")
    additive_case(folder, "additive_one_position", 1, 8, 2, "shared", 0, "stream", 0, "none")
    additive_case(folder, "additive_pm240", 33, 16, 2, "own", 1, "normed", 0, "none", 240.0, **loose)
    additive_case(folder, "additive_pm240_w6", 33, 16, 1, "shared", 0, "stream", 6, "left", 240.0, **loose)

    for causal in (0, 1):
        for mask in ("none", "right", "left", "holes"):
            kind = ("causal" if causal else "bidirectional") + "_" + mask
            core_case(folder, f"dot_{kind}", "dot", 13, 10, 2, 5, causal, mask, ALL_BIASES)
            core_case(folder, f"metric_{kind}", "metric", 12, 10, 3, 4, causal, mask)
            core_case(folder, f"quadratic_{kind}", "quadratic", 11, 9, 2, 7, causal, mask)
    core_case(folder, "dot_no_bias", "dot", 40, 12, 3, 6, 1, "none")
    core_case(folder, "dot_some_biases", "dot", 6, 12, 4, 3, 0, "none", ("value_bias_h", "output_bias_d"))
    core_case(folder, "metric_k1", "metric", 9, 5, 5, 1, 1, "none")
    core_case(folder, "metric_long", "metric", 70, 6, 1, 9, 1, "none")

    model = language_model_case
    model(folder, "lm_defaults", 1, "additive")
    model(folder, "lm_additive_window_list", 3, "additive", window="2,4,0", ffn_bias=1, embedding_norm=1, logit_bias=1)
    model(folder, "lm_additive_conv", 2, "additive", conv_kernel=3, conv_groups=12, ffn_bias=1, label_smoothing=0.1)
    model(folder, "lm_additive_normed", 2, "additive", values="own", projection=1, skip="normed", window=3,
          logit_scale=0.25, logit_bias=1, final_norm=0, mask="right")
    model(folder, "lm_additive_left_mask", 2, "additive", values="own", mask="left", ffn_bias=1, embedding_norm=1)
    model(folder, "lm_dot", 2, "dot", ffn_bias=1)
    model(folder, "lm_dot_bias_mask", 2, "dot", biases=ALL_BIASES, mask="left", conv_kernel=4, conv_groups=2)
    model(folder, "lm_dot_bidirectional", 2, "dot", causal=0, mask="holes", label_smoothing=0.1)
    model(folder, "lm_metric_narrow", 2, "metric", N=3, K=5, mask="right", positions=20)
    model(folder, "lm_quadratic", 2, "quadratic", conv_kernel=2, conv_groups=1, logit_scale=0.5, embedding_norm=1)
    model(folder, "lm_quadratic_bidirectional", 1, "quadratic", causal=0, ffn_bias=1)
    model(folder, "lm_mixer_list", 4, "metric,additive,quadratic,dot", window="0,3,0,0", ffn_bias=1,
          label_smoothing=0.1, mask="holes")
    model(folder, "lm_mixer_list_normed", 2, "dot,additive", K=4, skip="normed", values="own", conv_kernel=3,
          conv_groups=3)
    model(folder, "lm_no_positions", 2, "additive", positions=0, window=4)
    model(folder, "lm_one_position", 1, "metric", positions=64, C=1)
    model(folder, "lm_hidden_width", 1, "dot", hidden=20, ffn_bias=1)


if __name__ == "__main__":
    main()
