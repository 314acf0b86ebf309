"""Spans for tools/checkpoint.py and tools/reference_model.py (tools/features.py)."""

from features import Feature, Real, Whole

MIXERS = ("dot", "metric", "quadratic")


def shapes(mixer, s):
    return {"span_n": (s.heads,)} if s.span and mixer in MIXERS else {}


def in_span(score_bncs, span_n, ramp):
    """Scores with the logarithm of the mask of each distance, which is 0 beyond the span and its ramp."""
    import torch
    from reference_model import distance

    mask = ((ramp + span_n[:, None, None] - distance(*score_bncs.shape[-2:])) / ramp).clamp(0, 1)
    return torch.where(mask > 0, score_bncs + torch.where(mask > 0, mask, 1).log(), -torch.inf)


def scores(mixer, layer, weight, s):
    return (lambda score_bncs: in_span(score_bncs, weight("span_n"), s.ramp)) if s.span and mixer in MIXERS else None


def block_case(make, folder, name, C, N, K, ramp, mask, **settings):
    import torch
    from reference_model import dot

    case = make.Case(name, "adaptive_span_attention", heads=N, ramp=ramp, **settings)
    x = case.real("input.x_bcd", (3, C, 10))
    read = make.block_settings(case, "dot", 10, N, K, C, span=C)
    weight = make.weights_of(case, make.dot_shapes(read) | shapes("dot", read)).get
    with torch.no_grad():  # of heads near and far
        weight("span_n").copy_(torch.linspace(0.3, C - 0.3, N))
    attention_mask = make.AttentionMask(mask=case.mask(3, C, mask), scores=(scores("dot", 0, weight, read),))
    outputs = {"y_bcd": dot(x, weight, N, attention_mask)}
    if "penalty" in settings:
        outputs["penalty"] = settings["penalty"] * weight("span_n").mean()
    case.finish(folder, outputs)


def golden(make, folder):
    for mask in ("none", "right", "left", "holes"):
        block_case(make, folder, f"span_{mask}", 14, 3, 4, 4.0, mask)
    block_case(make, folder, "span_penalty", 11, 2, 5, 2.5, "none", penalty=0.25)
    block_case(make, folder, "span_long_ramp", 9, 2, 3, 40.0, "none", penalty=2.0)
    block_case(make, folder, "span_one_position", 1, 1, 2, 1.0, "none")
    make.language_model_case(folder, "lm_span", 3, "dot,metric,quadratic", C=12, span=9, ramp=4, positions="none",
                             mask="left")  # fmt: skip


FEATURE = Feature(
    settings={"span": (Whole(0), "0"), "ramp": (Real(), "32"), "penalty": (Real(), "0")},
    shapes=shapes,
    scores=scores,
    golden=golden,
    runs=("--mixer dot,metric,quadratic --layers 3 --positions none --span 8 --ramp 4 --penalty 0.001",),
)
