"""The mixer transformer_xl for tools/checkpoint.py and tools/reference_model.py (tools/features.py)."""

import math

from features import Feature, Mixer, Whole


def shapes(s):
    D, N, K = s.channels, s.heads, s.head_channels
    maps = {name + "_hd": (N * K, D) for name in ("query", "key", "value", "position")}
    return {**maps, "content_bias_nk": (N, K), "position_bias_nk": (N, K), "output_dh": (D, N * K)}


def check(s, fail):
    if "transformer_xl" in s.mixer and s.segment < 1:
        fail("segment", "expected 1 at least where the mixer is transformer_xl")


def segment(h_bcd, rows_bsd, weight, N, clamp, mask_bs=None):
    """The positions of a segment, the last of `rows`; what stands before them is memory."""
    import torch
    from reference_model import distance, heads_apart, heads_together
    from torch.nn.functional import linear

    (B, C, D), S = h_bcd.shape, rows_bsd.shape[1]
    q = heads_apart(linear(h_bcd, weight("query_hd")), N)
    k, v = (heads_apart(linear(rows_bsd, weight(f"{x}_hd")), N) for x in ("key", "value"))
    angle = torch.arange(S)[:, None] * 10000.0 ** (-2 * torch.arange(D // 2) / D)
    rho = heads_apart(linear(torch.cat((angle.sin(), angle.cos()), -1)[None], weight("position_hd")), N)
    content, position = (q + weight(f"{x}_bias_nk")[None, :, None] for x in ("content", "position"))
    away = distance(C, S) + S - C
    by_distance = (position @ rho.transpose(-1, -2)).gather(-1, away.clamp(0, clamp or S).expand(B, N, C, S))
    score = (content @ k.transpose(-1, -2) + by_distance) / math.sqrt(q.shape[-1])
    seen = (away >= 0) if mask_bs is None else (away >= 0) & (mask_bs[:, None, None, :] == 1)
    top = torch.where(seen, score, -torch.inf).amax(-1, keepdim=True).detach()
    power = torch.where(seen, score - torch.where(top.isfinite(), top, 0), -torch.inf).exp()
    total = power.sum(-1, keepdim=True)
    return linear(heads_together(power @ v / torch.where(total > 0, total, 1)), weight("output_dh"))


def forward(h_bcd, weight, s, attention_mask, past_bcd):
    """Segments, each with a memory: earlier rows, into which no gradient flows."""
    import torch

    parts = []
    for begin in range(0, h_bcd.shape[1], s.segment):
        first, end = max(0, begin - s.memory), begin + s.segment
        rows = torch.cat((past_bcd[:, first:begin], h_bcd[:, begin:end]), 1)
        mask = None if attention_mask.mask is None else attention_mask.mask[:, first:end]
        parts.append(segment(h_bcd[:, begin:end], rows, weight, s.heads, s.clamp, mask))
    return torch.cat(parts, 1)


def segment_case(make, folder, name, C, M, D, N, K, clamp=0):
    """One segment behind a memory of M positions."""
    import torch

    case = make.Case(name, "transformer_xl_attention", heads=N, clamp=clamp)
    rows = x = case.real("input.x_bcd", (3, C, D))
    if M:
        rows = torch.cat((case.fixed("input.memory_bsd", case.normal((3, M, D))), x), 1)
    read = make.block_settings(case, "transformer_xl", D, N, K, C, segment=C)
    weight = make.weights_of(case, shapes(read)).get
    case.finish(folder, {"y_bcd": segment(x, rows, weight, N, clamp)})


def golden(make, folder):
    for M in (0, 1, 4, 7, 9):
        segment_case(make, folder, f"transformer_xl_memory{M}", 7, M, 10, 3, 4)
        segment_case(make, folder, f"transformer_xl_memory{M}_clamped", 7, M, 8, 2, 5, clamp=3)
    segment_case(make, folder, "transformer_xl_one_position", 1, 1, 6, 1, 3)
    make.language_model_case(folder, "lm_transformer_xl", 2, "transformer_xl", C=13, rows=0, segment=4, memory=6,
                             mask="left", ffn_bias=1)  # fmt: skip
    make.language_model_case(folder, "lm_transformer_xl_clamped", 2, "transformer_xl", N=3, K=5, C=12, rows=0,
                             segment=5, memory=2, clamp=3)  # fmt: skip


FEATURE = Feature(
    mixers=(
        Mixer(
            "transformer_xl",
            shapes,
            forward,
            any_head_width=True,
            flags="--positions none --segment 4 --memory 4 --clamp 6",
            with_encoder=False,
        ),
    ),
    settings={"segment": (Whole(0), "0"), "memory": (Whole(0), "0"), "clamp": (Whole(0), "0")},
    check=check,
    golden=golden,
    runs=(
        *(
            f"--mixer transformer_xl --positions none --segment 5 --memory {memory} --clamp {clamp}"
            for memory in (0, 3, 9)
            for clamp in (0, 4)
        ),
        "--mixer transformer_xl --positions none --segment 7 --memory 4 --norm post --layers 2 --conv-kernel 2",
    ),
)
