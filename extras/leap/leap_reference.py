"""The mixer leap for tools/checkpoint.py and tools/reference_model.py (tools/features.py). Its settings are in every
checkpoint, so tools/checkpoint.py has them."""

import math

from features import POSITIONS, Feature, Mixer


def shapes(s):
    return {name + "_dd": (s.channels, s.channels) for name in ("query", "focus", "key", "value")}


def forward(h_bcd, weight, s, attention_mask, past_bcd):
    import torch
    from reference_model import EPSILON, heads_apart, heads_together, pool, rescaled
    from torch.nn.functional import linear

    N = s.heads
    q, f, k, v = (heads_apart(linear(h_bcd, weight(f"{x}_dd")), N) for x in ("query", "focus", "key", "value"))
    K = q.shape[-1]
    scale = s.rescale / K if s.rescale else 1 / math.sqrt(K)
    if s.rescale:
        q, f, k = rescaled(q), rescaled(f), rescaled(k)
    if s.normed_values:
        v = rescaled(v)
    a = scale * (f * k).sum(-1)
    attention_mask.inspect("score_bnc", a)
    if s.focus == "elu":  # the weight e^a is elu(a) + 1
        a = torch.where(a > 0, a.clamp(min=0).log1p(), a)
    attention_mask.inspect("logit_bnc", a)
    pooled_k, pooled_v = pool(a, torch.cat((k, v), -1), attention_mask, attention_mask.slopes(N), EPSILON).chunk(2, -1)
    return heads_together(torch.sigmoid(scale * (q * pooled_k).sum(-1, keepdim=True)) * pooled_v)


def block_case(make, folder, name, C, D, N, mask, std=1.0, **settings):
    import torch

    case = make.Case(name, "leap_attention", heads=N, **settings)
    x = case.real("input.x_bcd", (3, C, D))
    read = make.block_settings(case, "leap", D, N, 0, C)
    weight = make.weights_of(case, shapes(read)).get
    with torch.no_grad():  # epsilon decides where logits are far below 0
        weight("focus_dd").mul_(std)
    attention_mask = make.mask_of(read, case.mask(3, C, mask))
    case.finish(folder, {"y_bcd": forward(x, weight, read, attention_mask, None)})


def golden(make, folder):
    def block(*sizes, **settings):
        block_case(make, folder, *sizes, **settings)

    block("leap_interleaved", 16, 10, 5, "none", window=6, positions="alibi", alibi_slopes="interleaved")
    for focus in ("elu", "exp"):
        block(f"leap_{focus}", 18, 12, 3, "none", focus=focus)
        block(f"leap_{focus}_w4_holes", 17, 12, 2, "holes", 3.0, focus=focus, window=4)
        block(f"leap_{focus}_alibi_left", 15, 12, 4, "left", 2.0, focus=focus, positions="alibi")
        block(f"leap_{focus}_bidirectional", 13, 8, 2, "holes", focus=focus, causal=0)
    block("leap_w3_alibi", 16, 10, 5, "none", window=3, positions="alibi")
    block("leap_rescaled", 16, 12, 3, "right", rescale=10)
    block("leap_rescaled_normed_w6", 16, 12, 4, "none", rescale=5, normed_values=1, window=6)
    block("leap_normed_values", 9, 12, 2, "none", normed_values=1)
    block("leap_epsilon_w2", 40, 10, 2, "none", 9.0, focus="exp", window=2)
    block("leap_one_position", 1, 8, 2, "none")
    make.language_model_case(folder, "lm_leap", 2, "leap", ffn_bias=1, window="0,3")
    make.language_model_case(folder, "lm_leap_rescaled", 2, "leap,dot", rescale=8, normed_values=1, focus="exp",
                             conv_kernel=3)  # fmt: skip


FEATURE = Feature(
    mixers=(Mixer("leap", shapes, forward),),
    golden=golden,
    runs=(
        "--mixer leap --leap-focus exp",
        "--mixer leap --normed-values 1",
        *(
            f"--mixer leap --positions {positions} --rescale 6 --leap-focus exp --normed-values 1"
            for positions in POSITIONS
        ),
    ),
)
