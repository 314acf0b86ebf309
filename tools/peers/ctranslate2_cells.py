"""CTranslate2, on a CPU: beam search with a GPT-2 of transformers with random weights."""

import pathlib
import tempfile
import warnings

from rows import cell, main

warnings.simplefilter("ignore")
import ctranslate2
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers import logging as transformers_logging

transformers_logging.set_verbosity_error()
torch.manual_seed(1)
WORDS = [f"t{i}" for i in range(8)]
PROMPT, END = [1, 2, 3], 7
SIZES = {"vocab_size": 8, "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 32, "bos_token_id": 0, "eos_token_id": END}
MODEL = GPT2LMHeadModel(GPT2Config(**SIZES, initializer_range=0.8)).eval()


def best(length_penalty):
    """Best hypothesis with a beam of 2: score, log probability, number of tokens with the end, true: it ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        MODEL.save_pretrained(folder / "theirs")
        vocabulary = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="t0"))
        options = {"unk_token": "t0", "bos_token": "t0", "eos_token": WORDS[END]}
        PreTrainedTokenizerFast(tokenizer_object=vocabulary, **options).save_pretrained(folder / "theirs")
        ctranslate2.converters.TransformersConverter(str(folder / "theirs")).convert(str(folder / "model"))
        generator = ctranslate2.Generator(str(folder / "model"), device="cpu", intra_threads=1)
        result = generator.generate_batch([[WORDS[i] for i in PROMPT]], beam_size=2, length_penalty=length_penalty,
                                          max_length=12, return_scores=True, include_prompt_in_result=False, end_token=WORDS[END])[0]  # fmt: skip
    tokens = PROMPT + result.sequences_ids[0]
    ended = len(tokens) < len(PROMPT) + 12
    tokens += [END] * ended
    with torch.no_grad():
        log = MODEL(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return result.scores[0], sum(log[i - 1, tokens[i]].item() for i in range(3, len(tokens))), len(tokens) - 3, ended


@cell("beam_penalty")
def _():
    score, log, count, ended = best(2.0)
    ways = {"log P / n^p, n with the end": log / count**2, "log P / n^p, n without the end": log / max(1, count - ended) ** 2,
            "log P": log}  # fmt: skip
    way = next((way for way, value in ways.items() if abs(score - value) < 1e-3), f"other ({score:.3f} of {log:.3f}, {count})")
    return way if ended else way.partition(",")[0] + " (no end reached)"


@cell("beam_default")
def _():
    """The default length_penalty, derived from the score of a call without it."""
    score, log, count, ended = best(1)
    return "penalty 1, patience 1" if abs(score - log / (count if abs(score - log / count) < 1e-3 else count - ended)) < 1e-3 else "?"


main()
