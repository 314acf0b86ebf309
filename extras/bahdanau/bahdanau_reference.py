"""The mixer bahdanau for tools/checkpoint.py and tools/reference_model.py (tools/features.py)."""

from features import Feature, Mixer


def shapes(s):
    D, H = s.channels, s.heads * s.head_channels
    maps = {name + "_hd": (H, D) for name in ("query", "key", "value")}
    return {**maps, "score_nk": (s.heads, s.head_channels), "output_dh": (D, H)}


def cross_shapes(s):
    return {"score_nk": (s.heads, s.head_channels)}


def bahdanau_attention(query_bnck, key_bnsk, value_bnsk, score_nk, attention_mask):
    import torch
    from reference_model import heads_together, weighted_average

    def compared(key_bnsk):
        hidden = torch.tanh(query_bnck[:, :, :, None] + key_bnsk[:, :, None])
        return (score_nk[:, None, None] * hidden).sum(-1)

    score = compared(key_bnsk)
    if attention_mask.chunk:
        score = torch.where(attention_mask.constant(*score.shape[-2:]), compared(key_bnsk.detach()), score)
    attention_mask.inspect("score_bncs", score)
    return heads_together(weighted_average(score, value_bnsk, attention_mask, attention_mask.slopes(score.shape[1])))


def bahdanau(h_bcd, weight, N, attention_mask, memory_bse=None):
    """Keys and values from h itself, or from a memory."""
    from reference_model import heads_apart
    from torch.nn.functional import linear

    letter, source = ("d", h_bcd) if memory_bse is None else ("e", memory_bse)
    q = heads_apart(linear(h_bcd, weight("query_hd")), N)
    k, v = (heads_apart(linear(source, weight(f"{x}_h{letter}")), N) for x in ("key", "value"))
    return linear(bahdanau_attention(q, k, v, weight("score_nk"), attention_mask), weight("output_dh"))


def forward(h_bcd, weight, s, attention_mask, past_bcd):
    return bahdanau(h_bcd, weight, s.heads, attention_mask)


def cross(x_bcd, memory_bse, weight, s, attention_mask):
    return bahdanau(x_bcd, weight, s.heads, attention_mask, memory_bse)


def memory_case(make, folder, name, C, S, D, E, N, K, mask, std=1.0):
    import torch

    case = make.Case(name, "bahdanau_attention", heads=N)
    H = N * K
    x = case.real("input.x_bcd", (3, C, D))
    memory = case.real("input.memory_bse", (3, S, E))
    shapes = {"query_hd": (H, D), "key_he": (H, E), "value_he": (H, E), "score_nk": (N, K), "output_dh": (D, H)}
    weight = make.weights_of(case, shapes).get
    with torch.no_grad():  # so large that a tanh is 1
        weight("query_hd").mul_(std)
    attention_mask = make.AttentionMask(causal=False, mask=case.mask(3, S, mask, "input.mask_bs"))
    case.finish(folder, {"y_bcd": bahdanau(x, weight, N, attention_mask, memory)})


def golden(make, folder):
    for causal in (0, 1):
        for mask in ("none", "right", "left", "holes"):
            kind = ("causal" if causal else "bidirectional") + "_" + mask
            make.attention_case(folder, f"bahdanau_{kind}", "bahdanau", 12, 10, 3, 4, causal, mask)
    for mask in ("none", "right", "left", "holes"):
        memory_case(make, folder, f"bahdanau_memory_{mask}", 7, 10, 8, 6, 2, 5, mask)
    make.attention_case(folder, "bahdanau_alibi", "bahdanau", 19, 9, 2, 5, 1, "right", positions="alibi")
    memory_case(make, folder, "bahdanau_memory_saturated", 9, 5, 6, 7, 1, 3, "right", 40.0)
    make.language_model_case(folder, "lm_bahdanau", 2, "bahdanau,additive", ffn_bias=1, conv_kernel=3)
    make.language_model_case(folder, "lm_bahdanau_narrow", 2, "bahdanau", N=3, K=5, mask="right", rows=20,
                             positions="alibi")  # fmt: skip


FEATURE = Feature(
    mixers=(
        Mixer(
            "bahdanau",
            shapes,
            forward,
            window="attention_window",
            any_head_width=True,
            cross_shapes=cross_shapes,
            cross=cross,
        ),
    ),
    golden=golden,
)
