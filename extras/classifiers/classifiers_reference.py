"""Golden files of classifiers (tools/features.py)."""

from features import Feature


def classifier_case(
    make, folder, name, layers, mixer, D=12, N=2, K=None, C=9, V=11, O=5, rows=None, hidden=None, mask="none",
    unlabelled=0, image=None, **settings
):  # fmt: skip
    import torch

    kind = "vision_transformer" if image else "classifier"
    case = make.Case(name, kind, layers=layers, mixer=mixer, heads=N, **settings)
    if image:
        V, C = 0, image[1] * image[2] // settings["patch"] ** 2
    mask_bc = case.mask(3, C, mask)
    head = {"classifier.weight_od": (O, D), "classifier.bias_o": (O,)}
    x, weights, _ = make.network(case, D, K, C, V, rows, hidden, (), mask_bc, head, image)
    if settings.get("pooling", "mean") == "cls":
        h = x[:, 0]
    else:
        seen = torch.ones(3, C) if mask_bc is None else mask_bc.double()
        h = (seen[..., None] * x).sum(1) / seen.sum(1, keepdim=True).clamp(min=1)
    logits = torch.nn.functional.linear(h, weights["classifier.weight_od"], weights["classifier.bias_o"])
    labels = case.integers(0, O, (3,))
    labels[:unlabelled] = -100
    loss, _ = make.cross_entropy(logits, case.fixed("input.labels_b", labels), settings.get("label_smoothing", 0))
    case.finish(folder, {"loss": loss, "logits_bo": logits}, loss)


def golden(make, folder):
    def classify(*sizes, **settings):
        classifier_case(make, folder, *sizes, **settings)

    classify("classifier_mean", 2, "additive,leap", causal=0, mask="right", label_smoothing=0.1)
    classify("classifier_mean_causal", 2, "dot,average", mask="left", unlabelled=1, positions="rotary")
    classify("classifier_mean_none_seen", 1, "metric", causal=0, mask="holes", C=2, positions="none")
    classify("classifier_cls", 2, "dot,quadratic", causal=0, pooling="cls", mask="holes", rows=14)
    classify("classifier_cls_alibi", 2, "metric,identity", causal=0, pooling="cls", positions="alibi", O=1)
    classify("classifier_none_labelled", 1, "leap", causal=0, unlabelled=3, conv_kernel=3, ffn_bias=1)
    classify("vision_cls", 2, "dot,metric", causal=0, pooling="cls", image=(2, 6, 9), patch=3, ffn_bias=1)
    classify("vision_mean", 2, "additive,dot", causal=0, pooling="mean", image=(1, 4, 6), patch=2, rows=9,
             embedding_norm=1, label_smoothing=0.1)  # fmt: skip
    classify("vision_sinusoidal", 1, "dot", causal=0, pooling="cls", image=(3, 2, 5), patch=1,
             positions="sinusoidal", unlabelled=1)  # fmt: skip
    classify("vision_causal", 2, "leap,dot", pooling="mean", image=(1, 8, 4), patch=4, rows=0)


FEATURE = Feature(golden=golden)
