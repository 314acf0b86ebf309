"""The mixer lsh for tools/checkpoint.py and tools/reference_model.py (tools/features.py)."""

import math
from types import SimpleNamespace

from features import Feature, Mixer, Whole


def shapes(s):
    D, N, K = s.channels, s.heads, s.head_channels
    rotations = {"rotations_nukr": (N, s.lsh_rounds, K, s.lsh_buckets // 2)}
    return {"project_hd": (N * K, D), "value_hd": (N * K, D), "output_dh": (D, N * K), **rotations}


def check(s, fail):
    if "lsh" not in s.mixer:
        return
    for key in ("lsh_rounds", "lsh_piece"):
        if getattr(s, key) < 1:
            fail(key, "expected 1 at least where the mixer is lsh")
    if s.lsh_buckets < 2 or s.lsh_buckets % 2:
        fail("lsh_buckets", "expected an even number, 2 at least, where the mixer is lsh")


def meetings(query_bnck, rotations_nukr, piece, causal, real_bc=None, within_bucket=False):
    """In how many rounds each query meets each key: those of its piece of the sorted sequence, and of the one before.
    within_bucket: of these, those of its own bucket alone."""
    import torch

    B, N, C, K = query_bnck.shape
    rotated = torch.einsum("bnck,nukr->bnucr", query_bnck.detach(), rotations_nukr)
    bucket = torch.cat((rotated, -rotated), -1).argmax(-1)
    if real_bc is not None:  # what is masked stands behind all buckets
        bucket = torch.where(real_bc[:, None, None, :] != 0, bucket, 2 * rotated.shape[-1])
    place = bucket.argsort(dim=-1, stable=True).argsort(dim=-1)
    apart = (place // piece)[..., :, None] - (place // piece)[..., None, :]
    meets = (apart == 0) | (apart == 1)
    if within_bucket:
        meets = meets & (bucket[..., :, None] == bucket[..., None, :])
    meets = meets.sum(2)
    c, s = torch.arange(C)[:, None], torch.arange(C)[None, :]
    seen = (s < c) if causal else (s != c)
    if real_bc is not None:
        seen = seen & (real_bc[:, None, None, :] != 0)
    return torch.where(seen, meets, 0)


def lsh(h_bcd, weight, N, piece, attention_mask, counted=False, within_bucket=False):
    """Attention to the keys that a query meets; a query that meets none keeps its own value. counted: a key that is met
    in several rounds counts as often."""
    import torch
    from reference_model import heads_apart, heads_together
    from torch.nn.functional import linear

    q, v = (heads_apart(linear(h_bcd, weight(f"{x}_hd")), N) for x in ("project", "value"))
    key = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    score = q @ key.transpose(-1, -2) / math.sqrt(q.shape[-1])
    meets = meetings(q, weight("rotations_nukr"), piece, attention_mask.causal, attention_mask.mask, within_bucket)
    alone = (meets == 0).all(-1, keepdim=True)
    shown = torch.where(meets > 0, score + meets.clamp(min=1).log() if counted else score, -torch.inf)
    mean = torch.softmax(torch.where(alone, 0, shown), -1) @ v
    return linear(heads_together(torch.where(alone, v, mean)), weight("output_dh"))


def forward(h_bcd, weight, s, attention_mask, past_bcd):
    return lsh(h_bcd, weight, s.heads, s.lsh_piece, attention_mask)


def block_case(make, folder, name, C, N, K, rounds, buckets, piece, causal, duplicates="corrected", within_bucket=0):
    case = make.Case(name, "lsh_attention", heads=N, causal=causal, chunk=piece, duplicates=duplicates,
                     within_bucket=within_bucket)  # fmt: skip
    x = case.real("input.x_bcd", (3, C, 10))
    made = shapes(SimpleNamespace(channels=10, heads=N, head_channels=K, lsh_rounds=rounds, lsh_buckets=buckets))
    rotations = made.pop("rotations_nukr")
    weights = make.weights_of(case, made)
    weights["rotations_nukr"] = case.fixed("input.rotations_nukr", case.normal(rotations))
    attention_mask = make.AttentionMask(causal)
    y = lsh(x, weights.get, N, piece, attention_mask, duplicates == "counted", bool(within_bucket))
    case.finish(folder, {"y_bcd": y})


def golden(make, folder):
    for causal in (0, 1):
        for duplicates in ("corrected", "counted"):
            for within in (0, 1):
                name = f"lsh_causal{causal}_{duplicates}_within{within}"
                block_case(make, folder, name, 15, 2, 4, 3, 4, 4, causal, duplicates, within)
    block_case(make, folder, "lsh_one_round", 13, 1, 5, 1, 2, 3, 1)
    block_case(make, folder, "lsh_one_piece", 9, 2, 3, 2, 6, 20, 0)
    block_case(make, folder, "lsh_pieces_of_one", 10, 2, 3, 2, 4, 1, 1)
    make.language_model_case(folder, "lm_lsh", 2, "lsh", C=13, lsh_rounds=2, lsh_buckets=4, lsh_piece=3)
    make.language_model_case(folder, "lm_lsh_bidirectional", 2, "lsh,dot", C=12, causal=0, mask="holes", lsh_rounds=3,
                             lsh_buckets=2, lsh_piece=4)  # fmt: skip


FEATURE = Feature(
    mixers=(
        Mixer(
            "lsh",
            shapes,
            forward,
            any_head_width=True,
            flags="--lsh-rounds 2 --lsh-buckets 4 --lsh-piece 4",
            with_encoder=False,
        ),
    ),
    settings={"lsh_rounds": (Whole(0), "0"), "lsh_buckets": (Whole(0), "0"), "lsh_piece": (Whole(0), "0")},
    check=check,
    golden=golden,
    runs=tuple(
        f"--mixer lsh --lsh-rounds {rounds} --lsh-buckets {buckets} --lsh-piece {piece}"
        for rounds, buckets, piece in ((1, 2, 3), (3, 4, 2), (2, 6, 20))
    ),
)
