"""Golden files of chunks (tools/features.py)."""

from features import Feature


def pooling_chunk_case(make, folder, name, C, std, mean=0.0, slopes=None):
    """The past before the chunk is one position more, with the logarithm of its weights and its average."""
    import torch

    case = make.Case(name, "additive_pooling_chunk")
    B, N, K = 2, 3, 4
    zeta = case.real("input.zeta_bn", (B, N), 2.0, mean)
    first = case.real("input.average_bnk", (B, N, K))
    a = torch.cat((zeta[..., None], case.real("input.a_bnc", (B, N, C), std, mean)), -1)
    x = torch.cat((first[:, :, None], case.real("input.x_bnck", (B, N, C, K))), 2)
    slope_n = torch.zeros(N) if slopes is None else case.fixed("input.slope_n", torch.tensor(slopes))
    g = make.pool(a, x, make.AttentionMask(), slope_n)
    aged = a - slope_n[:, None] * torch.arange(C, -1, -1)
    outputs = {"g_bnck": g[:, :, 1:], "zeta_bn": torch.logsumexp(aged, -1), "average_bnk": g[:, :, -1]}
    case.finish(folder, outputs)


def golden(make, folder):
    pooling_chunk_case(make, folder, "pooling_chunk", 11, 2.0)
    pooling_chunk_case(make, folder, "pooling_chunk_one", 1, 1.0, slopes=(0.0, 0.25, 4.0))
    pooling_chunk_case(make, folder, "pooling_chunk_mean-90", 30, 3.0, -90.0, slopes=(0.7, 0.01, 2.0))
    model = make.language_model_case
    every = "leap,average,identity,additive,dot,metric"
    for chunk in (1, 4, 20):
        model(folder, f"lm_chunk{chunk}", 3, "additive,leap,dot", C=13, chunk=chunk, window="6,0,0", conv_kernel=4,
              mask="holes", label_smoothing=0.1)
    model(folder, "lm_chunk_every_mixer", 6, every, C=14, chunk=5, window="0,3,0,7,0,0", positions="none", mask="left")
    model(folder, "lm_chunk_alibi", 4, "additive,dot,leap,quadratic", C=12, chunk=5, window="0,0,4,0",
          positions="alibi")
    model(folder, "lm_chunk_rotary", 2, "dot,metric", C=11, chunk=3, positions="rotary", embedding_norm=1)
    model(folder, "lm_truncated", 3, "additive,leap,average", C=13, chunk=4, truncated=1, window="0,6,0", conv_kernel=6)
    model(folder, "lm_truncated_dot", 2, "dot,identity", C=12, chunk=5, truncated=1, positions="rotary", conv_kernel=2,
          mask="left", biases=make.ATTENTION_BIASES)
    model(folder, "lm_truncated_alibi", 3, "additive,leap,dot", C=13, chunk=3, truncated=1, window="5,0,0",
          positions="alibi")


FEATURE = Feature(golden=golden)
