"""The networks of this project in PyTorch, in the simplest form and in float64. Attention and pooling use dense C x C
matrices of weights; gradients come from automatic differentiation. The equations are those of the chapters, and no code
is shared with the C++ sources. Used by golden files (tests/golden_cases.py), the conversion to PyTorch
(tools/checkpoint_in_pytorch.py), tools/largest_scores.py and the check of tools/pytorch_reference.py.

`logits(weights, settings, tokens_bc)` computes the whole network; source_bs is the source of an encoder. Weights are
tensors under their names in a checkpoint (docs/checkpoints.md), settings those of tools/checkpoint.py. Mixers and
scores of features are in their folders (tools/features.py).
"""

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Callable

import torch
import torch.nn.functional as F

from checkpoint import FEATURES, MIXERS, own_prefix

torch.set_default_dtype(torch.float64)

EPSILON = 1e-5  # of layernorm, of the rescaled norm, and of leap
DTYPES = {"F64": torch.float64, "F32": torch.float32, "I32": torch.int32}


def tensors_of(parts):
    """Tensors in float64 from (dtype, shape, bytes) of a file."""
    return {
        name: torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).reshape(shape).double()
        for name, (dtype, shape, data) in parts.items()
    }


def parts_of(tensors):
    """The inverse, for F64, F32 and I32."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    parts = {}
    for name, tensor in tensors.items():
        whole = tensor.detach().contiguous()
        data = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
        parts[name] = names[whole.dtype], tuple(whole.shape), data
    return parts


# ---- the attention mask ---------------------------------------------------------------------------------------------


def slopes(N, interleaved=False):
    """ALiBi slopes of N heads. interleaved: if N is not a power of two, the slopes for P heads, P the largest power of
    two below N, and then every second slope for 2 P heads."""
    P = 2 ** int(math.log2(N))
    if not interleaved or P == N:
        return 2.0 ** (-8 * torch.arange(1.0, N + 1) / N)
    return torch.cat((slopes(P), slopes(2 * P)[0::2][: N - P]))


def no_inspection(name, tensor):
    """Inspector that ignores the intermediate results of a mixer."""


@dataclass
class AttentionMask:
    """The attention mask and the effect of the distance."""

    causal: bool = True
    window: int = 0  # in positions; 0: no window
    mask: torch.Tensor = None  # (B, positions), 1: real, 0: padding
    positions: str = "none"  # rotary and alibi change the scores
    interleaved: bool = False  # rule of the ALiBi slopes
    chunk: int = 0  # chunk length of truncated gradients; 0: no chunks
    inspect: Callable = no_inspection  # inspect(name, tensor)
    scores: tuple = ()  # functions of features, score_bncs -> score_bncs, in dot-product attention

    def visible(self, B, N, C, S):
        """(B, 1 or N, C, S): true if position c attends to s."""
        away = distance(C, S)
        seen = torch.ones(1, C, S, dtype=torch.bool)
        if self.causal:
            seen = seen & (away >= 0)
        if self.window:
            seen = seen & (away < self.window)
        seen = seen.expand(B, *seen.shape)
        return seen if self.mask is None else seen & (self.mask[:, None, None, :] == 1)

    def constant(self, C, S):
        """(C, S): true if s is in an earlier chunk than c, and so is a constant for c."""
        if not self.chunk:
            return torch.zeros(C, S, dtype=torch.bool)
        return (torch.arange(C) // self.chunk)[:, None] > (torch.arange(S) // self.chunk)[None, :]

    def slopes(self, N):
        """ALiBi slopes of the heads; None: no ALiBi."""
        return slopes(N, self.interleaved) if self.positions == "alibi" else None


def distance(C, S):
    return torch.arange(C)[:, None] - torch.arange(S)[None, :]


def weighted_average(score_bncs, x_bnsk, attention_mask, slope_n=None, epsilon=0):
    """Weighted average; 0 for a query without keys. epsilon: weight of an additional position with x = 0."""
    B, N, C, S = score_bncs.shape
    if slope_n is not None:
        score_bncs = score_bncs - slope_n[:, None, None] * distance(C, S).abs()
    seen = attention_mask.visible(B, N, C, S)
    top = torch.where(seen, score_bncs, -torch.inf).amax(-1, keepdim=True).detach()
    top = torch.where(top.isfinite(), top, 0)
    if epsilon:
        top = top.clamp(min=math.log(epsilon))
    weight = torch.where(seen, score_bncs - top, -torch.inf).exp()
    total = weight.sum(-1, keepdim=True) + epsilon * (-top).exp()
    constant = attention_mask.constant(C, S)
    mean = torch.where(constant, 0, weight) @ x_bnsk + torch.where(constant, weight, 0) @ x_bnsk.detach()
    return mean / torch.where(total > 0, total, 1)


def pool(a_bnc, x_bnck, attention_mask, slope_n=None, epsilon=0):
    B, N, C = a_bnc.shape
    score = a_bnc[:, :, None, :].expand(B, N, C, C)
    score = torch.where(attention_mask.constant(C, C), score.detach(), score)
    return weighted_average(score, x_bnck, attention_mask, slope_n, epsilon)


# ---- the parts of a block -------------------------------------------------------------------------------------------
# weight("query_dd") is the tensor of this name; None: no such tensor.


def heads_apart(x_bch, N):
    B, C, H = x_bch.shape
    return x_bch.reshape(B, C, N, H // N).transpose(1, 2)


def heads_together(x_bnck):
    B, N, C, K = x_bnck.shape
    return x_bnck.transpose(1, 2).reshape(B, C, N * K)


def turned(x_bnck):
    """Rotates channels 2i and 2i + 1 by the angle c 10000^(-2i/K); an odd last channel is unchanged."""
    C, K = x_bnck.shape[-2:]
    pairs = K // 2
    angle = torch.arange(C)[:, None] * 10000.0 ** (-2 * torch.arange(pairs) / K)
    even, odd = x_bnck[..., 0 : 2 * pairs : 2], x_bnck[..., 1 : 2 * pairs : 2]
    pair = torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), -1)
    return torch.cat((pair.flatten(-2), x_bnck[..., 2 * pairs :]), -1)


def sinusoids(C, D):
    """Sinusoidal positions: sines in even channels, cosines in odd channels."""
    angle = torch.arange(C)[:, None] * 10000.0 ** (-2 * (torch.arange(D) // 2) / D)
    return torch.where(torch.arange(D) % 2 == 0, angle.sin(), angle.cos())


def rescaled(x_bnck):
    """Heads with mean 0 and standard deviation 1."""
    away = x_bnck - x_bnck.mean(-1, keepdim=True)
    deviation = (away.square().sum(-1, keepdim=True) / (x_bnck.shape[-1] - 1)).sqrt()
    return away / (deviation + EPSILON)


def norm(x, weight, prefix="norm_"):
    return F.layer_norm(x, x.shape[-1:], weight(prefix + "weight_d"), weight(prefix + "bias_d"), EPSILON)


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def attention(query_bnck, key_bnsk, value_bnsk, attention_mask, scale):
    if attention_mask.positions == "rotary":
        query_bnck, key_bnsk = turned(query_bnck), turned(key_bnsk)
    score = query_bnck @ key_bnsk.transpose(-1, -2)
    constant = attention_mask.constant(*score.shape[-2:])
    score = scale * torch.where(constant, query_bnck @ key_bnsk.detach().transpose(-1, -2), score)
    attention_mask.inspect("score_bncs", score)
    for change in attention_mask.scores:
        score = change(score)
    return heads_together(weighted_average(score, value_bnsk, attention_mask, attention_mask.slopes(score.shape[1])))


# ---- blocks, without norm and residual ------------------------------------------------------------------------------


def conv(h_bcd, weight, groups, attention_mask=AttentionMask()):
    """One convolution per tap, because rows of an earlier chunk may be constants."""
    h_bdc = h_bcd.transpose(1, 2)
    taps_dgj = weight("weight_dgj")
    C, J = h_bdc.shape[-1], taps_dgj.shape[-1]
    y_bdc = 0
    for j in range(J):
        back = J - 1 - j
        constant = attention_mask.constant(C, C).diagonal(-back) if back < C else torch.zeros(0, dtype=torch.bool)
        seen = h_bdc[..., : max(0, C - back)]
        seen = F.pad(torch.where(constant, seen.detach(), seen), (min(back, C), 0))
        y_bdc = y_bdc + F.conv1d(seen, taps_dgj[..., j : j + 1], groups=groups)
    return y_bdc.transpose(1, 2)


def gelu_tanh(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {"gelu": gelu, "relu": F.relu, "gelu_tanh": gelu_tanh}


def ffn(h_bcd, weight, activation="gelu"):
    hidden = ACTIVATIONS[activation](F.linear(h_bcd, weight("up_fd"), weight("up_bias_f")))
    return F.linear(hidden, weight("down_df"), weight("down_bias_d"))


def additive(h_bcd, weight, N, attention_mask, skip):
    def pooled(x_bcd, vector_nk):
        x = heads_apart(x_bcd, N)
        a = (x * vector_nk[None, :, None, :]).sum(-1) / math.sqrt(x.shape[-1])
        return heads_together(pool(a, x, attention_mask, attention_mask.slopes(N)))

    q, k = F.linear(h_bcd, weight("query_dd")), F.linear(h_bcd, weight("key_dd"))
    v = q if weight("value_dd") is None else F.linear(h_bcd, weight("value_dd"))
    p = pooled(q, weight("query_pool_nk"))
    if weight("mix_dd") is not None:
        p = F.linear(p, weight("mix_dd"))
    r = h_bcd + p * k
    u = pooled(norm(r, weight, "mid_norm_"), weight("key_pool_nk"))
    return u * v + (r if skip == "normed" else 0)


def dot(h_bcd, weight, N, attention_mask, rescale=0):
    q, k, v = (
        heads_apart(F.linear(h_bcd, weight(f"{x}_hd"), weight(f"{x}_bias_h")), N) for x in ("query", "key", "value")
    )
    scale = 1 / math.sqrt(q.shape[-1])
    if rescale:
        q, k, scale = rescaled(q), rescaled(k), rescale / q.shape[-1]
    out = attention(q, k, v, attention_mask, scale)
    return F.linear(out, weight("output_dh"), weight("output_bias_d"))


def cross(x_bcd, memory_bse, weight, N, attention_mask):
    q = heads_apart(F.linear(x_bcd, weight("query_hd"), weight("query_bias_h")), N)
    k, v = (
        heads_apart(F.linear(memory_bse, weight(f"{x}_he"), weight(f"{x}_bias_h")), N) for x in ("key", "value")
    )
    out = attention(q, k, v, attention_mask, 1 / math.sqrt(q.shape[-1]))
    return F.linear(out, weight("output_dh"), weight("output_bias_d"))


def bilinear(h_bcd, weight, N, attention_mask):
    """Metric and quadratic attention, with the full matrix: score = p_c^T M p_c' / sqrt(K)."""
    p = heads_apart(F.linear(h_bcd, weight("project_hd")), N)
    K = p.shape[-1]
    metric = weight("metric_nkk")
    if metric is None:
        rows, columns = torch.triu_indices(K, K)
        upper = torch.zeros(N, K, K).index_put(
            (torch.arange(N)[:, None], rows[None, :], columns[None, :]), weight("metric_nl")
        )
        metric = upper + upper.transpose(1, 2) - torch.diag_embed(torch.diagonal(upper, dim1=1, dim2=2))
    out = attention(p, p @ metric.transpose(-1, -2), p, attention_mask, 1 / math.sqrt(K))
    return F.linear(out, weight("output_dh"))


def average(h_bcd, attention_mask):
    return pool(torch.zeros(h_bcd.shape[0], 1, h_bcd.shape[1]), h_bcd[:, None], attention_mask)[:, 0]


# ---- the network ----------------------------------------------------------------------------------------------------


# The mixers of the core: forward(h_bcd, weight, settings, attention_mask, past_bcd), as in tools/features.py.
FORWARD = {
    "additive": lambda h, weight, s, mask, past: additive(h, weight, s.heads, mask, s.skip),
    "metric": lambda h, weight, s, mask, past: bilinear(h, weight, s.heads, mask),
    "quadratic": lambda h, weight, s, mask, past: bilinear(h, weight, s.heads, mask),
    "dot": lambda h, weight, s, mask, past: dot(h, weight, s.heads, mask, s.rescale),
    "average": lambda h, weight, s, mask, past: average(h, mask),
    "identity": lambda h, weight, s, mask, past: h,
}


def mix(mixer, h_bcd, weight, settings, attention_mask, past_bcd=None):
    """settings: heads, and those of the mixer. past_bcd: h as a memory, into which no gradient flows."""
    forward = FORWARD.get(mixer, MIXERS[mixer].forward)
    return forward(h_bcd, weight, settings, attention_mask, h_bcd.detach() if past_bcd is None else past_bcd)


def patch_rows(image_bgyx, weights, patch):
    """(B, P, D): one row per patch of an image, by a convolution with the stride of a patch."""
    kernel_dgyx = weights["embedding.patch_di"].unflatten(1, (image_bgyx.shape[1], patch, patch))
    return F.conv2d(image_bgyx, kernel_dgyx, weights["embedding.patch_bias_d"], patch).flatten(2).transpose(1, 2)


def token_table(weights, prefix):
    """Table of tokens of a stack: its own, or the shared table."""
    own = weights.get(prefix + "embedding.token_vd")
    return weights["embedding.token_vd"] if own is None else own


def entry(inputs, weights, settings, prefix="", position="position_cd"):
    """Input rows of a stack. inputs: tokens_bc, or rows of patches (patch_rows). If the weights have embedding.cls_d,
    this vector precedes the rows."""
    x = inputs
    if not inputs.is_floating_point():
        x = settings.embedding_scale * token_table(weights, prefix)[inputs.long()]
    if "embedding.cls_d" in weights:
        x = torch.cat((weights["embedding.cls_d"].expand(len(x), 1, -1), x), 1)
    C, D = x.shape[1:]
    if settings.positions == "learned":
        x = x + weights[f"{prefix}embedding.{position}"][:C]
    if settings.positions == "sinusoidal":
        x = x + sinusoids(C, D)
    return norm(x, weights.get, prefix + "embedding.norm_") if settings.embedding_norm else x


def stack(x, weights, settings, layers, attention_mask, prefix="", memory=None, inspect=no_inspection):
    """Blocks in order, and the final norm. layers: numbers of the layers in the settings. attention_mask: mask of all
    mixers, without their windows. memory: rows for cross-attention, and their mask."""
    other = x  # in a reversible network: the stream to which the next block adds

    def block(name, compute, adds=True):
        """Stream after a block; the norm is before the block or, with norm=post, after the residual sum."""
        nonlocal x, other
        before = settings.norm == "pre"

        def weight(tensor):
            return weights.get(f"{name}.{tensor}")

        if settings.reversible:
            other, x = x, other + compute(norm(x, weight), weight)
            return
        y = compute(norm(x, weight) if before else x, weight)
        y = x + y if adds else y
        x = y if before else norm(y, weight)

    for i, layer in enumerate(layers):
        name, mixer = f"{prefix}blocks.{i}", settings.mixer[layer]
        own = replace(
            attention_mask,
            window=getattr(settings, MIXERS[mixer].window)[layer],
            inspect=lambda what, tensor: inspect(f"{name}.mixer.{what}", tensor),
        )
        if settings.conv_kernel:
            block(f"{name}.conv", lambda h, weight: conv(h, weight, settings.conv_groups, own))
        adds = mixer != "additive" or settings.skip != "normed"
        constant = x.detach()

        def mixed(h, weight):
            past = norm(constant, weight) if settings.norm == "pre" else constant
            changes = (feature.scores(mixer, layer, weight, settings) for feature in FEATURES)
            mask = replace(own, scores=tuple(change for change in changes if change))
            return mix(mixer, h, weight, settings, mask, past)

        block(f"{name}.mixer", mixed, adds)
        if memory is not None:
            block(f"{name}.cross", lambda h, weight: ask(h, *memory, weight, settings))
        block(f"{name}.ffn", lambda h, weight: ffn(h, weight, settings.activation))
    if settings.reversible:
        x = (other + x) / 2
    has_norm = settings.final_norm and settings.norm == "pre"
    return norm(x, weights.get, prefix + "final_norm.") if has_norm else x


def ask(h_bcd, memory_bse, mask_bs, weight, settings):
    """Cross-attention to all rows of the memory that are not padding."""
    attention_mask = AttentionMask(causal=False, mask=mask_bs)
    if settings.cross == "dot":
        return cross(h_bcd, memory_bse, weight, settings.heads, attention_mask)
    return MIXERS[settings.cross].cross(h_bcd, memory_bse, weight, settings, attention_mask)


def mask_of_stack(settings, causal, mask_bc, chunk=0):
    return AttentionMask(causal, 0, mask_bc, settings.positions, settings.alibi_slopes == "interleaved", chunk)


def final_state(weights, settings, inputs, mask_bc=None, chunk=0, inspect=no_inspection, source_bs=None, source_mask_bs=None):
    """Output rows of the last block. inputs: as in entry. mask_bc: padding mask. chunk: as in AttentionMask.
    inspect(name, tensor): inspector of mixers; names such as blocks.0.mixer.score_bncs. source_bs: encoder input."""
    memory, prefix, E = None, own_prefix(settings), settings.encoder_layers
    if E:
        attention_mask = mask_of_stack(settings, False, source_mask_bs)
        rows = entry(source_bs, weights, settings, "encoder.", "position_sd")
        memory = stack(rows, weights, settings, range(E), attention_mask, "encoder.", inspect=inspect), source_mask_bs
    if "embedding.cls_d" in weights and mask_bc is not None:
        mask_bc = F.pad(mask_bc, (1, 0), value=1)
    attention_mask = mask_of_stack(settings, settings.causal, mask_bc, chunk)
    x = entry(inputs, weights, settings, prefix)
    return stack(x, weights, settings, range(E, settings.layers), attention_mask, prefix, memory, inspect)


def logits_of(x_bcd, weights, settings):
    """Logits of the output rows of the last block."""
    own_table = weights.get("decoder.logit_vd")
    table = token_table(weights, own_prefix(settings)) if own_table is None else own_table
    return settings.logit_scale * F.linear(x_bcd, table, weights.get("logit_bias_v"))


def logits(weights, settings, tokens_bc, inspect=no_inspection, source_bs=None, source_mask_bs=None):
    x = final_state(weights, settings, tokens_bc, inspect=inspect, source_bs=source_bs, source_mask_bs=source_mask_bs)
    return logits_of(x, weights, settings)


def cross_entropy(logits, targets, smoothing=0):
    """Mean loss, and the loss of every row; rows with target -100 are not counted."""
    V = logits.shape[-1]
    counts = targets != -100
    wanted = F.one_hot(torch.where(counts, targets, 0).long(), V) * (1 - smoothing) + smoothing / V
    loss_bc = torch.where(counts, torch.logsumexp(logits, -1) - (wanted * logits).sum(-1), 0)
    return loss_bc.sum() / max(1, int(counts.sum())), loss_bc
