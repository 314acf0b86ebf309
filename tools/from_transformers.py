#!/usr/bin/env python3
"""Converts a GPT-2 of transformers to a model file of this project (docs/checkpoints.md), in plain Python.

    tools/from_transformers.py MODEL --out FILE [--characters TEXT]

MODEL is a folder written by GPT2LMHeadModel.save_pretrained, with weights in float32. Its vocabulary must be characters
or bytes. With --characters its rows are the characters of the file TEXT in the order of their code points. Without it,
256 rows are bytes, and at most 128 rows are ASCII characters. tools/to_transformers.py converts in the other direction.
"""

import argparse
import array
import json
import math
import pathlib
import sys

from checkpoint import FileError, check_tensors, read, settings_of, write

# Prefix of tensor names in files of GPT2LMHeadModel. Files of GPT2Model have no prefix.
PREFIX = "transformer."

# Names in GPT-2 and here. Matrices of GPT-2's blocks are (in, out), so they are transposed.
OUTSIDE = {"wte.weight": "embedding.token_vd", "wpe.weight": "embedding.position_cd", "ln_f.weight": "final_norm.weight_d",
           "ln_f.bias": "final_norm.bias_d"}  # fmt: skip
OF_BLOCK = {
    "ln_1.weight": "mixer.norm_weight_d", "ln_1.bias": "mixer.norm_bias_d", "attn.c_proj.weight": "mixer.output_dh",
    "attn.c_proj.bias": "mixer.output_bias_d", "ln_2.weight": "ffn.norm_weight_d", "ln_2.bias": "ffn.norm_bias_d",
    "mlp.c_fc.weight": "ffn.up_fd", "mlp.c_fc.bias": "ffn.up_bias_f", "mlp.c_proj.weight": "ffn.down_df",
    "mlp.c_proj.bias": "ffn.down_bias_d",
}  # fmt: skip
# GPT-2 has one matrix for the three input projections of attention: columns of query, key and value.
JOINED = {"attn.c_attn.weight": ("query_hd", "key_hd", "value_hd"),
          "attn.c_attn.bias": ("query_bias_h", "key_bias_h", "value_bias_h")}  # fmt: skip
BUFFERS = (".attn.bias", ".attn.masked_bias")  # masks in older files

ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}

# Options of GPT-2 that change its results, with the only value that a network here supports.
FIXED = {"layer_norm_epsilon": 1e-5, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
         "add_cross_attention": False, "tie_word_embeddings": True}  # fmt: skip


def transposed(part):
    """Transposes a matrix (dtype, shape, bytes)."""
    dtype, (rows, columns), data = part
    numbers, turned = array.array("I", data), array.array("I")
    for column in range(columns):
        turned.extend(numbers[column::columns])
    return dtype, (columns, rows), turned.tobytes()


def pieces(part, count):
    """Splits a tensor into `count` equal parts along its first dimension."""
    dtype, (first, *rest), data = part
    size = len(data) // count
    return [(dtype, (first // count, *rest), data[i * size : (i + 1) * size]) for i in range(count)]


def read_config(folder):
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise FileError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict) or config.get("model_type") != "gpt2":
        raise FileError(f"{path}: expected the configuration of a gpt2")
    for key, expected in FIXED.items():
        if config.get(key, expected) != expected:
            raise FileError(f"{path}: {key} is {config[key]}, expected {expected}")
    for key in ("n_layer", "n_head"):
        if type(config.get(key)) is not int or config[key] < 1:
            raise FileError(f"{path}: {key} is {config.get(key)}, expected a whole number from 1 on")
    activation = config.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise FileError(f"{path}: activation_function is {activation}, expected one of {', '.join(ACTIVATIONS)}")
    return config, ACTIVATIONS[activation]


def vocabulary_of(folder, size, characters):
    """The metadata that describe the rows of the token table."""
    if characters:
        try:
            text = "".join(sorted(set(characters.read_bytes().decode("utf-8-sig"))))
        except OSError as error:
            raise FileError(f"{characters}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise FileError(f"{characters}: not UTF-8 at byte {error.start}") from None
        if len(text) != size:
            raise FileError(f"{characters}: holds {len(text)} different characters, expected {size}, the model's vocabulary")
        return {"tokenizer": "char", "vocabulary": text}
    if any((folder / name).exists() for name in ("tokenizer.json", "vocab.json")):
        raise FileError(f"{folder}: has a tokenizer, whose order of tokens is not known here; expected --characters")
    if size == 256:
        return {"tokenizer": "byte"}
    if size > 128:
        raise FileError(f"{folder}: a vocabulary of {size} entries, expected 256 bytes, characters of ASCII or --characters")
    return {"tokenizer": "char", "vocabulary": "".join(map(chr, range(size)))}


def converted(folder, characters):
    """The tensors and metadata of a model file."""
    config, activation = read_config(folder)
    weights = folder / "model.safetensors"
    left, _ = read(weights)
    left = {name.removeprefix(PREFIX): part for name, part in left.items() if not name.endswith(BUFFERS)}
    if "lm_head.weight" in left and left.pop("lm_head.weight") != left.get("wte.weight"):
        raise FileError(f"{weights}: lm_head.weight is not wte.weight, expected tied embeddings")
    tensors = {}

    def take(name, here, turn=False):
        if name not in left:
            raise FileError(f"{weights}: tensor {name} is missing")
        part = left.pop(name)
        if part[0] != "F32":
            raise FileError(f"{weights}: tensor {name} is {part[0]}, expected F32: save model.float()")
        if turn and len(part[1]) != 2:
            raise FileError(f"{weights}: tensor {name} has {len(part[1])} dimensions, expected 2")
        part = transposed(part) if turn else part
        tensors.update(zip(here, pieces(part, len(here)) if len(here) > 1 else [part]))

    for name, here in OUTSIDE.items():
        take(name, (here,))
    layers = config["n_layer"]
    for layer in range(layers):
        there, block = f"h.{layer}.", f"blocks.{layer}."
        for name, here in OF_BLOCK.items():
            take(there + name, (block + here,), "ln_" not in name and name.endswith(".weight"))
        for name, here in JOINED.items():
            take(there + name, [f"{block}mixer.{each}" for each in here], name.endswith(".weight"))
    if left:
        raise FileError(f"{weights}: tensor {sorted(left)[0]} does not belong to a gpt2 of {layers} layers")
    metadata = {"layers": str(layers), "heads": str(config["n_head"]), "mixer": "dot", "activation": activation,
                "attention_bias": "1", "ffn_bias": "1"}  # fmt: skip
    settings = settings_of(metadata, {name: shape for name, (_, shape, _) in tensors.items()}, weights)
    check_tensors(tensors, settings, weights)
    return tensors, metadata | vocabulary_of(folder, settings.vocabulary_size, characters)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--characters", type=pathlib.Path)
    arguments = parser.parse_args(words)
    try:
        tensors, metadata = converted(arguments.model, arguments.characters)
        write(arguments.out, tensors, metadata)
    except FileError as error:
        sys.exit(f"tools/from_transformers.py: {error}")
    print(f"{arguments.out}: {sum(math.prod(shape) for _, shape, _ in tensors.values())} numbers")


if __name__ == "__main__":
    main()
