#!/usr/bin/env python3
"""Converts a model of this project to a GPT-2 of transformers, in plain Python: the reverse of
tools/from_transformers.py.

    tools/to_transformers.py RUN|FILE --out FOLDER

Writes config.json and model.safetensors for GPT2LMHeadModel.from_pretrained(FOLDER), and vocabulary.json with the
characters of the tokens in their order (no file for bytes). The mixer must be dot with learned positions in every
layer. A network that GPT-2 cannot compute is refused.
"""

import argparse
import json
import pathlib
import sys

from from_transformers import ACTIVATIONS, JOINED, OF_BLOCK, OUTSIDE, PREFIX, transposed
from checkpoint import FileError, read_model, write

# Settings with the only value that GPT-2 supports.
FIXED = {"task": "text", "positions": "learned", "norm": "pre", "causal": True, "conv_kernel": 0, "reversible": False,
         "embedding_norm": False, "final_norm": True, "logit_bias": False, "logit_scale": 1, "embedding_scale": 1,
         "rescale": 0, "span": 0, "pattern": "none", "encoder_layers": 0, "patch_inputs": 0}  # fmt: skip


def check_settings(s, path):
    for key, expected in FIXED.items():
        if getattr(s, key) != expected:
            raise FileError(f"{path}: metadata {key}: expected {expected} for GPT-2, found {getattr(s, key)}")
    if set(s.mixer) != {"dot"} or any(s.attention_window):
        raise FileError(f"{path}: expected the mixer dot without a window in every layer, for GPT-2")
    if s.heads * s.head_channels != s.channels:
        raise FileError(f"{path}: expected heads that share the {s.channels} channels, for GPT-2")


def config_of(s):
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "float32",
        "activation_function": next(there for there, here in ACTIVATIONS.items() if here == s.activation),
        "n_embd": s.channels, "n_head": s.heads, "n_layer": s.layers, "n_positions": s.context,
        "n_inner": s.hidden_channels, "vocab_size": s.vocabulary_size, "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0,
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip


def converted(tensors, s):
    """The tensors by their names in GPT-2. Absent biases are zeros."""

    def part(name, extent):
        return tensors.get(name, ("F32", (extent,), bytes(4 * extent)))

    D, found = s.channels, {PREFIX + there: tensors[here] for there, here in OUTSIDE.items()}
    for layer in range(s.layers):
        block, there = f"blocks.{layer}.", f"{PREFIX}h.{layer}."
        for name, here in OF_BLOCK.items():
            one = part(block + here, s.hidden_channels if here.endswith("_f") else D)
            found[there + name] = transposed(one) if len(one[1]) == 2 else one
        for name, here in JOINED.items():
            three = [part(f"{block}mixer.{each}", D) for each in here]
            joined = ("F32", (3 * D, *three[0][1][1:]), b"".join(data for _, _, data in three))
            found[there + name] = transposed(joined) if len(joined[1]) == 2 else joined
    return found


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args(words)
    path, folder = arguments.checkpoint, arguments.out
    path = path / "model.safetensors" if path.is_dir() else path
    try:
        tensors, settings, metadata = read_model(path)
        check_settings(settings, path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(json.dumps(config_of(settings), indent=2) + "\n")
            if metadata["tokenizer"] == "char":
                (folder / "vocabulary.json").write_text(json.dumps(list(metadata["vocabulary"])) + "\n")
        except OSError as error:
            raise FileError(f"{folder}: {error.strerror}") from None
        write(folder / "model.safetensors", converted(tensors, settings), {"format": "pt"})
    except FileError as error:
        sys.exit(f"tools/to_transformers.py: {error}")


if __name__ == "__main__":
    main()
