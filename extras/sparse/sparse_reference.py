"""Sparse patterns for tools/checkpoint.py and tools/reference_model.py (tools/features.py)."""

from types import SimpleNamespace

from features import Feature, OneOf, Whole


def check(s, fail):
    if s.pattern != "none" and s.stride < 1:
        fail("stride", f"expected at least 1, where pattern is {s.pattern}, found {s.stride}")
    if s.pattern == "fixed" and not 1 <= s.summary <= s.stride:
        fail("summary", f"expected 1 to {s.stride}, found {s.summary}")


def sparse(score_bncs, form, stride, summary, part):
    """Scores without those that the pattern hides, of which no position sees one behind. part: merged, first, second or
    heads."""
    import torch

    N, C, S = score_bncs.shape[1:]
    c, s = torch.arange(C)[:, None], torch.arange(S)[None, :]
    first = c - s < stride if form == "strided" else c // stride == s // stride
    second = (c - s) % stride == 0 if form == "strided" else (s % stride >= stride - summary).expand(C, S)
    seen = {"merged": first | second, "first": first, "second": second}.get(part)
    if part == "heads":
        seen = torch.stack([second if n % 2 else first for n in range(N)])
    return torch.where(seen, score_bncs, -torch.inf)


def scores(mixer, layer, weight, s):
    if mixer != "dot" or s.pattern == "none":
        return None
    part = ("first", "second")[layer % 2] if s.part == "layers" else s.part
    return lambda score_bncs: sparse(score_bncs, s.pattern, s.stride, s.summary, part)


def block_case(make, folder, name, C, N, K, mask, **settings):
    from reference_model import dot

    case = make.Case(name, "sparse_attention", heads=N, **settings)
    x = case.real("input.x_bcd", (3, C, 10))
    sizes = SimpleNamespace(channels=10, heads=N, head_channels=K)
    weight = make.weights_of(case, make.dot_shapes(sizes, ())).get
    if settings["pattern"] == "window":
        pattern = "strided", settings["window"], 0, "first"
    else:
        pattern = settings["pattern"], settings["stride"], settings.get("summary"), settings.get("part", "merged")
    hide = lambda score_bncs: sparse(score_bncs, *pattern)
    attention_mask = make.AttentionMask(mask=case.mask(3, C, mask), scores=(hide,))
    case.finish(folder, {"y_bcd": dot(x, weight, N, attention_mask)})


def golden(make, folder):
    def block(*sizes, **settings):
        block_case(make, folder, *sizes, **settings)

    for part in ("merged", "first", "second", "heads"):
        for mask in ("none", "left", "holes"):
            block(f"sparse_strided_{part}_{mask}", 13, 3, 4, mask, pattern="strided", stride=4, part=part)
            block(f"sparse_fixed_{part}_{mask}", 14, 3, 4, mask, pattern="fixed", stride=4, summary=2, part=part)
        block(f"sparse_far_{part}", 9, 2, 3, "right", pattern="strided", stride=20, part=part)
        block(f"sparse_one_block_{part}", 9, 2, 3, "right", pattern="fixed", stride=20, summary=15, part=part)
        block(f"sparse_all_summary_{part}", 12, 1, 5, "holes", pattern="fixed", stride=3, summary=3, part=part)
    block("sparse_window", 15, 2, 3, "left", pattern="window", window=4)
    model = make.language_model_case
    model(folder, "lm_strided", 3, "dot,leap,dot", C=13, pattern="strided", stride=4, mask="left")
    model(folder, "lm_fixed", 2, "dot", C=13, pattern="fixed", stride=4, summary=1, part="layers", positions="rotary")
    model(folder, "lm_fixed_heads", 2, "dot", C=12, N=3, pattern="fixed", stride=4, summary=2, part="heads")


FEATURE = Feature(
    settings={
        "pattern": (OneOf("none", "strided", "fixed"), "none"),
        "stride": (Whole(0), "0"),
        "summary": (Whole(0), "0"),
        "part": (OneOf("merged", "layers", "heads"), "merged"),
    },
    check=check,
    scores=scores,
    golden=golden,
    runs=tuple(
        f"--mixer dot,additive,dot --layers 3 --pattern {pattern} --part {part} --positions rotary"
        for pattern in ("strided --stride 3", "fixed --stride 4 --summary 2")
        for part in ("merged", "layers", "heads")
    ),
)
