#!/usr/bin/env python3
"""Writes golden files (docs/golden.md) whose numbers come from PyTorch in float64.

    python3 tests/golden_cases.py OUT_DIR && build/golden OUT_DIR/*.safetensors

Everything is computed the naive way, straight from the equations (tools/reference_model.py): poolings and attention as
dense C x C weights, gradients by automatic differentiation. Needs torch and nothing else.
The numbers depend on the seed alone (the name of the file). It is a tool for developers, no part of the tests.
"""

import math
import pathlib
import re
import sys
import zlib

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from reference_model import (
    AttentionMask,
    additive,
    conv,
    cross_entropy,
    ffn,
    final_state,
    gelu,
    gelu_tanh,
    logits_of,
    mix,
    norm,
    parts_of,
    patch_rows,
    pool,
)
from checkpoint import ATTENTION_BIASES, FEATURES, MIXERS, additive_shapes, conv_shapes, dot_shapes, ffn_shapes
from checkpoint import network_shapes, norm_shapes, settings_of
from checkpoint import write as write_file


# ---- the file -------------------------------------------------------------------------------------------------------


class Case:
    """Collects what goes into one file. Inputs and weights are created by name and shape, `finish` runs backward."""

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

    def mask(self, B, C, kind, name="input.mask_bc"):
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
        return self.fixed(name, mask)

    def finish(self, folder, outputs, loss=None):
        """outputs: name -> tensor. Without a loss, the upstream gradient of every output is random."""
        if loss is None:
            loss = 0
            for name, value in outputs.items():
                upstream = self.normal(value.shape)
                self.tensors["grad_output." + name] = upstream
                loss = loss + (upstream * value).sum()
        loss.backward()
        for name, value in self.given.items():
            self.tensors["grad_" + name] = value.grad if value.grad is not None else torch.zeros_like(value)
        self.write(folder, outputs)

    def write(self, folder, outputs):
        """Without gradients."""
        self.tensors |= self.given | {"output." + name: value for name, value in outputs.items()}
        write_file(folder / (self.name + ".safetensors"), parts_of(self.tensors), self.metadata)


# ---- weights --------------------------------------------------------------------------------------------------------

# Standard deviations; of other matrices (inputs)^(-1/2), of other vectors and of pooling vectors 0.5.
SPREADS = {
    "embedding.token_vd": 0.7,
    "embedding.cls_d": 0.7,
    "embedding.patch_di": 0.4,
    "embedding.position_cd": 0.5,
    "embedding.position_sd": 0.5,
    "logit_bias_v": 1.0,
    "classifier.weight_od": 0.5,
}


def weights_of(case, shapes):
    """Creates the weights `shapes` (name -> shape) and returns them by name."""
    made = {}
    for name, shape in shapes.items():
        if re.search("norm[_.]weight_d$", name):
            made[name] = case.real("weight." + name, shape, 0.3, 1.0)
        elif (own := re.sub("^(en|de)coder[.]", "", name)) in SPREADS:
            made[name] = case.real("weight." + name, shape, SPREADS[own])
        elif name.endswith("rotations_nukr"):  # which nobody learns
            made[name] = case.fixed("weight." + name, case.normal(shape))
        elif len(shape) == 1 or "pool" in name:
            made[name] = case.real("weight." + name, shape, 0.5)
        else:
            made[name] = case.real("weight." + name, shape, 1 / math.sqrt(math.prod(shape[1:])))
    return made


# Keys of golden files that are no setting of a network.
OF_CASES = ("case", "source", "tolerance_float", "label_smoothing", "chunk", "truncated", "pooling", "patch", "beam",
            "length_penalty", "max_length", "begin_token", "end_token")  # fmt: skip


def block_settings(case, mixer, D, N, K, C, **more):
    """The settings of one block, from the metadata of its case. more: settings that golden files do not have."""
    sizes = {"layers": 1, "mixer": mixer, "channels": D, "head_channels": K, "hidden_channels": 0, "vocabulary_size": 1}
    sizes |= {"heads": N, "context": C, "positions": "none", "attention_bias": 0}
    given = {key: str(value) for key, value in (sizes | case.metadata | more).items()}
    return settings_of(given, {}, case.name, OF_CASES)


def mask_of(settings, mask=None):
    return AttentionMask(
        settings.causal, settings.window[0], mask, settings.positions, settings.alibi_slopes == "interleaved"
    )


# ---- the cases ------------------------------------------------------------------------------------------------------

def linear_case(folder, name, B, C, I, O):
    case = Case(name, "linear")
    x = case.real("input.x_bci", (B, C, I))
    y = F.linear(x, case.real("weight.weight_oi", (O, I)), case.real("weight.bias_o", (O,)))
    case.finish(folder, {"y_bco": y})


def gelu_case(folder, name, form, std):
    case = Case(name, "gelu", form=form)
    x = case.real("input.x_bcd", (2, 3, 37), std)
    case.finish(folder, {"y_bcd": {"erf": gelu, "tanh": gelu_tanh}[form](x)})


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
    weights = weights_of(case, conv_shapes(D, groups, kernel)).get
    case.finish(folder, {"y_bcd": conv(norm(x, weights), weights, groups)})


def ffn_case(folder, name, D, hidden, biases, **settings):
    case = Case(name, "ffn", **settings)
    x = case.real("input.x_bcd", (3, 5, D))
    weights = weights_of(case, ffn_shapes(D, hidden, biases)).get
    case.finish(folder, {"y_bcd": ffn(norm(x, weights), weights)})


def pooling_case(folder, name, C, window, std, mask, mean=0.0, slopes=None, **settings):
    case = Case(name, "additive_pooling", window=window, **settings)
    B, N, K = 3, 2, 5
    a = case.real("input.a_bnc", (B, N, C), std, mean)
    x = case.real("input.x_bnck", (B, N, C, K))
    slope_n = None if slopes is None else case.fixed("input.slope_n", torch.tensor(slopes))
    attention_mask = AttentionMask(settings.get("causal", 1), window, case.mask(B, C, mask))
    case.finish(folder, {"g_bnck": pool(a, x, attention_mask, slope_n)})


def additive_case(folder, name, C, D, N, values, projection, skip, window, mask, std=1.0, **settings):
    case = Case(
        name, "additive_attention", heads=N, values=values, projection=projection, skip=skip, window=window, **settings
    )
    x = case.real("input.x_bcd", (3, C, D))
    read = block_settings(case, "additive", D, N, 0, C)
    weight = weights_of(case, {**norm_shapes(D), **additive_shapes(read)}).get
    with torch.no_grad():  # pooling vectors that make the logits large
        weight("query_pool_nk").mul_(std)
        weight("key_pool_nk").mul_(std)
    attention_mask = mask_of(read, case.mask(3, C, mask))
    case.finish(folder, {"y_bcd": additive(norm(x, weight), weight, N, attention_mask, skip)})


def attention_case(folder, name, mixer, C, D, N, K, causal, mask, biases=(), **settings):
    cases = {"dot": "dot_product_attention", "metric": "metric_attention", "quadratic": "quadratic_attention"}
    kind = cases.get(mixer, mixer + "_attention")  # else the case of a feature
    case = Case(name, kind, heads=N, causal=causal, **settings)
    x = case.real("input.x_bcd", (3, C, D))
    read = block_settings(case, mixer, D, N, K, C)
    weight = weights_of(case, dot_shapes(read, biases) if mixer == "dot" else MIXERS[mixer].shapes(read)).get
    case.finish(folder, {"y_bcd": mix(mixer, x, weight, read, mask_of(read, case.mask(3, C, mask)))})


def network(case, D, K, C, V, rows, hidden, biases, mask_bc, head=None, image=None):
    """From input.tokens_bc, which it draws, to the final state: that, the weights, and the settings. rows: of the table
    of positions, as many as there are if None; 0: none. head: shapes of weights that the caller wants beside. image:
    of (channels, rows, columns), instead of tokens: input.image_bgyx; V is then 0."""
    cls = case.metadata.get("pooling") == "cls"
    sizes = {"channels": D, "head_channels": K or 0, "hidden_channels": hidden or 0, "vocabulary_size": V}
    sizes |= {"context": rows or C + cls, "attention_bias": int(bool(biases))}
    sizes["positions"] = "none" if rows == 0 else "learned"
    if image:
        sizes["patch_inputs"] = image[0] * int(case.metadata["patch"]) ** 2
    settings = {key: str(value) for key, value in (sizes | case.metadata).items()}
    chunk = int(settings.get("chunk", 0)) if settings.get("truncated") == "1" else 0
    settings = settings_of(settings, {}, case.name, OF_CASES)
    shapes = {**network_shapes(settings), **(head or {})}
    weights = weights_of(case, shapes | {"embedding.cls_d": (D,)} if cls else shapes)
    if image:
        patch = int(case.metadata["patch"])
        inputs = patch_rows(case.fixed("input.image_bgyx", case.normal((3, *image))), weights, patch)
    else:
        inputs = case.fixed("input.tokens_bc", case.integers(0, V, (3, C)))
    return final_state(weights, settings, inputs, mask_bc, chunk), weights, settings


def language_model_case(
    folder, name, layers, mixer, D=12, N=2, K=None, C=9, V=11, rows=None, hidden=None, biases=(), mask="none",
    kind=None, **settings
):
    kind = kind or ("chunked_language_model" if "chunk" in settings else "language_model")
    case = Case(name, kind, layers=layers, mixer=mixer, heads=N, **settings)
    mask_bc = case.mask(3, C, mask)
    x, weights, read = network(case, D, K, C, V, rows, hidden, biases, mask_bc)
    targets = case.integers(0, V, (3, C))
    targets[0, -1] = -100
    if mask_bc is not None:
        targets[mask_bc == 0] = -100
    case.fixed("input.targets_bc", targets)
    logits = logits_of(x, weights, read)
    loss, _ = cross_entropy(logits, targets, settings.get("label_smoothing", 0))
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
            attention_case(folder, f"dot_{kind}", "dot", 13, 10, 2, 5, causal, mask, ATTENTION_BIASES)
            attention_case(folder, f"metric_{kind}", "metric", 12, 10, 3, 4, causal, mask)
            attention_case(folder, f"quadratic_{kind}", "quadratic", 11, 9, 2, 7, causal, mask)
    attention_case(folder, "dot_no_bias", "dot", 40, 12, 3, 6, 1, "none")
    attention_case(folder, "dot_some_biases", "dot", 6, 12, 4, 3, 0, "none", ("value_bias_h", "output_bias_d"))
    attention_case(folder, "metric_k1", "metric", 9, 5, 5, 1, 1, "none")
    attention_case(folder, "metric_long", "metric", 70, 6, 1, 9, 1, "none")

    model = language_model_case
    model(folder, "lm_defaults", 1, "additive")
    model(folder, "lm_additive_window_list", 3, "additive", window="2,4,0", ffn_bias=1, embedding_norm=1, logit_bias=1)
    model(folder, "lm_additive_conv", 2, "additive", conv_kernel=3, conv_groups=12, ffn_bias=1, label_smoothing=0.1)
    model(folder, "lm_additive_normed", 2, "additive", values="own", projection=1, skip="normed", window=3,
          logit_scale=0.25, logit_bias=1, final_norm=0, mask="right")
    model(folder, "lm_additive_left_mask", 2, "additive", values="own", mask="left", ffn_bias=1, embedding_norm=1)
    model(folder, "lm_dot", 2, "dot", ffn_bias=1)
    model(folder, "lm_dot_bias_mask", 2, "dot", biases=ATTENTION_BIASES, mask="left", conv_kernel=4, conv_groups=2)
    model(folder, "lm_dot_bidirectional", 2, "dot", causal=0, mask="holes", label_smoothing=0.1)
    model(folder, "lm_metric_narrow", 2, "metric", N=3, K=5, mask="right", rows=20)
    model(folder, "lm_quadratic", 2, "quadratic", conv_kernel=2, conv_groups=1, logit_scale=0.5, embedding_norm=1)
    model(folder, "lm_quadratic_bidirectional", 1, "quadratic", causal=0, ffn_bias=1)
    model(folder, "lm_mixer_list", 4, "metric,additive,quadratic,dot", window="0,3,0,0", ffn_bias=1,
          label_smoothing=0.1, mask="holes")
    model(folder, "lm_mixer_list_normed", 2, "dot,additive", K=4, skip="normed", values="own", conv_kernel=3,
          conv_groups=3)
    model(folder, "lm_no_positions", 2, "additive", rows=0, window=4)
    model(folder, "lm_one_position", 1, "metric", rows=64, C=1)
    model(folder, "lm_hidden_width", 1, "dot", hidden=20, ffn_bias=1)

    for window in (0, 4):
        pooling_case(folder, f"pooling_slope_w{window}", 23, window, 2.0, "holes", slopes=(0.5, 0.0625))
    pooling_case(folder, "pooling_slope_slow", 300, 0, 1.0, "none", -60.0, slopes=(0.003, 5.0))
    for mask in ("none", "left", "holes"):
        pooling_case(folder, f"pooling_bidirectional_{mask}", 14, 0, 2.0, mask, causal=0)

    additive_case(folder, "additive_alibi", 19, 12, 3, "shared", 1, "stream", 0, "holes", positions="alibi")
    additive_case(folder, "additive_alibi_w5", 14, 12, 2, "own", 0, "normed", 5, "left", positions="alibi")
    additive_case(folder, "additive_bidirectional", 12, 10, 5, "own", 1, "stream", 0, "holes", causal=0)
    for causal in (0, 1):
        kind = "causal" if causal else "bidirectional"
        for positions in ("rotary", "alibi"):
            attention_case(folder, f"dot_{positions}_{kind}", "dot", 13, 10, 3, 5, causal, "holes", ATTENTION_BIASES,
                           positions=positions)
            attention_case(folder, f"metric_{positions}_{kind}", "metric", 12, 9, 2, 6, causal, "left", positions=positions)
            attention_case(folder, f"quadratic_{positions}_{kind}", "quadratic", 11, 9, 3, 3, causal, "none",
                           positions=positions)
        attention_case(folder, f"dot_rescaled_{kind}", "dot", 12, 10, 2, 4, causal, "right", ATTENTION_BIASES, rescale=10)
    attention_case(folder, "dot_rescaled_rotary", "dot", 15, 10, 2, 7, 1, "none", positions="rotary", rescale=6.5)

    interleaved = {"positions": "alibi", "alibi_slopes": "interleaved"}
    additive_case(folder, "additive_interleaved", 15, 12, 6, "shared", 0, "stream", 0, "none", **interleaved)
    attention_case(folder, "dot_interleaved", "dot", 13, 10, 3, 5, 1, "holes", ATTENTION_BIASES, **interleaved)
    attention_case(folder, "metric_interleaved", "metric", 9, 12, 12, 2, 0, "none", **interleaved)
    attention_case(folder, "quadratic_interleaved", "quadratic", 11, 9, 5, 3, 1, "left", **interleaved)

    model(folder, "lm_gelu_tanh", 2, "dot", ffn_bias=1, activation="gelu_tanh")

    # Networks of several mixers, some of which are features.
    every = "leap,average,identity,additive,dot,metric"
    model(folder, "lm_average_identity", 2, "average,identity", window="4,0", mask="holes", conv_kernel=2,
          conv_groups=3)
    model(folder, "lm_every_mixer", 6, every, window="0,3,0,5,0,0", mask="left", positions="none")
    model(folder, "lm_sinusoidal", 2, "additive,dot", D=15, N=3, positions="sinusoidal", embedding_norm=1)
    model(folder, "lm_rotary", 4, "dot,metric,quadratic,leap", positions="rotary", mask="holes")
    model(folder, "lm_alibi", 6, every, N=3, positions="alibi", window="0,2,0,4,0,0", mask="holes", ffn_bias=1)
    model(folder, "lm_interleaved", 6, every, N=6, window="0,2,0,4,0,0", **interleaved)
    model(folder, "lm_bidirectional", 6, every, causal=0, mask="left", positions="none")
    model(folder, "lm_bidirectional_alibi", 2, "dot,quadratic", causal=0, positions="alibi")

    model(folder, "lm_attention_window", 4, "dot,metric,bahdanau,quadratic", C=12, attention_window="3,0,5,1", mask="holes",
          positions="alibi")

    for feature in FEATURES:
        feature.golden(sys.modules[__name__], folder)


if __name__ == "__main__":
    main()
