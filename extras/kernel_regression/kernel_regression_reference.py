"""Kernel regression in PyTorch, and its golden files (tools/features.py)."""

from features import Feature


def kernel_regression(query_c, key_s, value_s, width, leave_one_out):
    """A query that sees no key yields 0. width: a number or a tensor without dimensions."""
    import torch

    score_cs = -0.5 * (width * (query_c[:, None] - key_s)) ** 2
    hidden = torch.eye(*score_cs.shape, dtype=torch.bool) & leave_one_out
    weight_cs = torch.where(hidden, -torch.inf, score_cs).softmax(-1)
    return torch.where(hidden.all(-1, keepdim=True), 0, weight_cs) @ value_s


def golden(make, folder):
    def case(name, kernel, C, S, offset=0.0, std=1.0, leave_one_out=0, **settings):
        """offset: how far the queries are from the keys; std: the standard deviation of both."""
        case = make.Case(name, "kernel_regression", kernel=kernel, leave_one_out=leave_one_out, **settings)
        query, key = case.real("input.query_c", (C,), std, offset), case.real("input.key_s", (S,), std)
        value = case.real("input.value_s", (S,))
        width = {"average": 0.0, "gaussian": 1.0}.get(kernel)
        if width is None:
            width = case.real("weight.width", (), 0.3, 1.5)
        case.finish(folder, {"y_c": kernel_regression(query, key, value, width, bool(leave_one_out))})

    for kernel in ("average", "gaussian", "parametric"):
        case(f"kernel_{kernel}", kernel, 9, 21)
        case(f"kernel_{kernel}_leave_one_out", kernel, 17, 17, leave_one_out=1)
    case("kernel_more_queries", "parametric", 30, 7, leave_one_out=1)
    # Inputs that are rounded to float are others, by more than the largest gap is known.
    case("kernel_far", "parametric", 12, 19, -40.0, 0.02, tolerance_float=1e-4)


FEATURE = Feature(golden=golden)
