#!/bin/sh
# Package: x-transformers 2.31.10 on torch 2.15.0, AutoregressiveWrapper.generate, on a CPU (downloads about 5 GB).
# Expectation: greedy decoding generates the same tokens with the KV cache, which is the default, and without it.
# Behaviour: this holds for plain, rotary, ALiBi and windowed decoders. With shift_tokens=1 the cache does not contain
#   the last token that is shifted in: the errors of the logits are as large as the logits, and the tokens differ. With
#   attn_data_dependent_alibi=True the logits have errors in the first or second digit.
# Consequence: tests here compare prefill with decoding token by token, for every mixer and option.
set -u
exec "$(dirname "$0")/python_with.sh" x-transformers==2.31.10 torch==2.15.0 numpy==2.4.6 <<'PROGRAM'
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from loguru import logger

logger.remove()
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.set_num_threads(1)
print("torch", torch.__version__)
OPTIONS = {"plain": {}, "alibi": {"alibi_pos_bias": True}, "rotary": {"rotary_pos_emb": True}, "window": {"attn_max_attend_past": 4},
           "shifted tokens": {"shift_tokens": 1}, "data-dependent alibi": {"attn_data_dependent_alibi": True}}
error, same_tokens = {}, {}
for name, options in OPTIONS.items():
    torch.manual_seed(1)
    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=16, **options)
    model = TransformerWrapper(num_tokens=20, max_seq_len=64, attn_layers=layers).eval()
    tokens = torch.randint(0, 20, (1, 12))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(2)
        whole = model(tokens)
        logits, cache = model(tokens[:, :5], return_intermediates=True)
        steps = [logits]
        for end in range(6, 13):
            logits, cache = model(tokens[:, :end], cache=cache, return_intermediates=True)
            steps.append(logits[:, -1:])
    error[name] = ((torch.cat(steps, 1) - whole).abs().max() / whole.abs().max()).item()
    wrapper = AutoregressiveWrapper(model)
    written = [wrapper.generate(tokens[:, :4], 20, temperature=0.0, cache_kv=cached) for cached in (True, False)]
    same_tokens[name] = torch.equal(*written)
    print(f"{name:20} logits off by {error[name]:.1e} of the largest; tokens with and without the cache:", "the same" if same_tokens[name] else "different")
right = ("plain", "alibi", "rotary", "window")
described = all(error[name] < 1e-5 and same_tokens[name] for name in right)
described &= error["shifted tokens"] > 0.1 and not same_tokens["shifted tokens"] and error["data-dependent alibi"] > 1e-3
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
