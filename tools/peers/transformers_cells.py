"""transformers, with PyTorch on a CPU."""

import copy
import warnings

import numpy as np
import rows
from rows import MIXED, cell, main

warnings.simplefilter("ignore")
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, GPTJConfig, GPTNeoXConfig, LlamaConfig, MistralConfig, MistralModel
from transformers import logging as transformers_logging

transformers_logging.set_verbosity_error()
torch.manual_seed(1)
torch.set_num_threads(1)


def attend(implementation):
    """The attention function of GPT-2 with an additive mask, as its models make it from a boolean mask."""
    from transformers.models.gpt2 import modeling_gpt2

    functions = {"eager": modeling_gpt2.eager_attention_forward, **modeling_gpt2.ALL_ATTENTION_FUNCTIONS}
    module = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_embd=8, n_head=1, n_layer=1, n_positions=8)).eval().transformer.h[0].attn
    module.is_causal = False

    def attention(query, key, value, mask):
        parts = [torch.from_numpy(array)[None, None] for array in (query, key, value)]
        out, _ = functions[implementation](module, *parts, torch.from_numpy(mask)[None, None], scaling=8**-0.5)
        return out[0, :, 0].detach()

    return attention


@cell("masked_inf", "masked_finite")
def masked(row):
    low = -np.inf if row == "masked_inf" else np.finfo(np.float32).min
    found = [rows.masked_row(attend(name), rows.added(low)) for name in ("eager", "sdpa")]
    return found[0] if found[0] == found[1] else f"{found[0]} (eager), {found[1]} (sdpa)"


def gpt2(**changes):
    torch.manual_seed(1)
    sizes = {"vocab_size": 8, "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 32, "bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(**(sizes | changes))).eval()


@cell("masked_bool")
def _():
    """A sequence of padding only: a row of the first block's attention."""
    found = []
    for implementation in ("eager", "sdpa"):
        model = gpt2(attn_implementation=implementation)
        attention, seen = model.transformer.h[0].attn, {}
        attention.c_proj.register_forward_pre_hook(lambda _, inputs: seen.update(out=inputs[0]))
        attention.c_attn.register_forward_hook(lambda _, inputs, out: seen.update(value=out[..., 64:]))
        padding = torch.tensor([[0, 0, 1, 1, 1]])  # padding on the left: the first queries attend to no key
        with torch.no_grad():
            model(torch.tensor([[1, 2, 3, 4, 5]]), attention_mask=padding)
        found.append(rows.kind(seen["out"][0, 1], seen["value"][0].mean(0)))
    return found[0] if found[0] == found[1] else f"{found[0]} (eager), {found[1]} (sdpa)"


@cell("causal_alignment")
def _():
    """Two tokens after three tokens in the cache."""
    model, tokens = gpt2(), torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        whole = model(tokens).logits[:, 3:]
        cache = model(tokens[:, :3], use_cache=True).past_key_values
        parts = model(tokens[:, 3:], past_key_values=cache).logits
    return "bottom right" if torch.allclose(whole, parts, atol=1e-5) else "other"


@cell("window_4")
def _():
    sizes = {"vocab_size": 8, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = MistralModel(MistralConfig(num_hidden_layers=1, sliding_window=4, max_position_embeddings=64, **sizes)).eval()
    x = torch.randn(1, 16, 32, requires_grad=True)
    (model(inputs_embeds=x).last_hidden_state[0, -1] * torch.randn(32)).sum().backward()
    return str(int((x.grad[0].abs().sum(-1) > 1e-9).sum()))


@cell("later_tokens")
def _():
    model = gpt2()
    with torch.no_grad():
        return rows.later_tokens(lambda x: model(inputs_embeds=torch.from_numpy(x)[None]).logits[0])


@cell("alibi")
def _():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    return rows.slopes(build_alibi_tensor(torch.ones(1, 3), 6, torch.float32).reshape(6, 3)[:, 1])


@cell("rotary")
def _():
    from transformers.models.gpt_neox import modeling_gpt_neox as neox
    from transformers.models.gptj import modeling_gptj as gptj
    from transformers.models.llama import modeling_llama as llama

    positions = torch.arange(3)[None]

    def by_module(module, config):
        def turn(x):
            cos, sin = config[0](config[1])(torch.zeros(1, 3, 16), positions)
            one = torch.from_numpy(x)[None, None]
            return module.apply_rotary_pos_emb(one, one, cos, sin)[0][0, 0]

        return rows.rotary(turn, 16)

    sizes = {"hidden_size": 32, "num_attention_heads": 2}
    llamas = by_module(llama, (llama.LlamaRotaryEmbedding, LlamaConfig(**sizes)))
    config = GPTNeoXConfig(**sizes)
    share = neox.GPTNeoXRotaryEmbedding(config)(torch.zeros(1, 3, 16), positions)[0].shape[-1]
    table = gptj.create_sinusoidal_positions(3, 16)
    sin, cos = table[None, :, :8], table[None, :, 8:]
    gptjs = rows.rotary(lambda x: gptj.apply_rotary_pos_emb(torch.from_numpy(x)[None, :, None], sin, cos)[0, :, 0], 16)
    return f"Llama: {llamas}; GPT-NeoX: {share} of 16; GPT-J: {gptjs.partition(',')[0]}, {GPTJConfig().rotary_dim} of 256"


@cell("gelu")
def _():
    from transformers.activations import ACT2FN

    found = {name: rows.gelu(lambda x: ACT2FN[name](torch.from_numpy(x))) for name in (GPT2Config().activation_function, "gelu")}
    return "; ".join(f"{name} {form}" for name, form in found.items())


@cell("layernorm")
def _():
    from transformers import BertConfig

    norm = copy.deepcopy(gpt2(n_embd=4, n_head=1).transformer.ln_f)
    return f"GPT-2: {rows.layernorm(lambda x: norm(torch.from_numpy(x)).detach())}; BERT: {BertConfig().layer_norm_eps:g}"


@cell("label_smoothing")
def _():
    from transformers.trainer_pt_utils import LabelSmoother

    def loss(logits, target, a):
        return LabelSmoother(epsilon=a)({"logits": torch.from_numpy(logits)}, torch.from_numpy(target))

    return rows.smoothing(loss)


@cell("ignored_targets")
def _():
    from transformers.loss.loss_utils import fixed_cross_entropy

    return rows.ignored(lambda logits, targets, ignored: fixed_cross_entropy(torch.from_numpy(logits), torch.from_numpy(np.where(ignored, -100, targets))))


def beams(length_penalty, **options):
    """Best hypothesis with a beam of 2: its score, its log probability and the tokens after the prompt."""
    model = gpt2(initializer_range=0.8)
    out = model.generate(torch.tensor([[1, 2, 3]]), attention_mask=torch.ones(1, 3, dtype=torch.long), num_beams=2, max_new_tokens=12, do_sample=False,
                         length_penalty=length_penalty, eos_token_id=END, pad_token_id=0, output_scores=True,
                         return_dict_in_generate=True, **options)  # fmt: skip
    tokens = out.sequences[0]
    end = (tokens[3:] == END).nonzero()
    tokens = tokens[: 3 + int(end[0]) + 1] if len(end) else tokens
    with torch.no_grad():
        log = model(tokens[None]).logits[0].log_softmax(-1)
    log = sum(log[i - 1, tokens[i]].item() for i in range(3, len(tokens)))
    return out.sequences_scores[0].item(), log, len(tokens) - 3, bool(len(end))


END = 7


@cell("beam_penalty")
def _():
    score, log, count, ended = beams(2.0)
    ways = {"log P / n^p, n with the end": log / count**2, "log P / n^p, n without the end": log / (count - ended) ** 2,
            "log P / n^p, n with the prompt": log / (count + 3) ** 2}  # fmt: skip
    way = next((way for way, value in ways.items() if abs(score - value) < 1e-3), f"other ({score:.3f} of {log:.3f}, {count})")
    return way if ended else way.partition(",")[0] + " (no end reached)"


@cell("beam_default")
def _():
    from transformers import GenerationConfig

    config = GenerationConfig()
    plain = beams(1.0)[:2]
    return f"penalty {1.0 if config.length_penalty is None else config.length_penalty:g}, early_stopping {config.early_stopping or False}" if plain else ""


main()
