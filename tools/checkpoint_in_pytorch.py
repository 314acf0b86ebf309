#!/usr/bin/env python3
"""A checkpoint of ours in PyTorch: the whole network as one function of its weights.

    tools/checkpoint_in_pytorch.py RUN|FILE TEXT [--copy FILE] [--golden FILE]

Reads a model.safetensors, computes the logits of the first context + 1 tokens of TEXT, and prints the mean loss of
their targets. --copy writes the weights again as PyTorch users do, with safetensors.torch.save_file and no more
metadata than our programs need to read them (docs/checkpoints.md); --golden writes a golden file (docs/golden.md) with
the logits, for `build/golden FILE --type float --tolerance 1e-5`. Needs torch, and --copy safetensors and NumPy.

The network is tools/equations.py. A key, a value or a tensor that it does not know is an error, as in
tools/model_file.py, which reads the file: nothing that decides what a network computes is passed over.
"""

import argparse
import pathlib
import sys

from model_file import SETTINGS, FileError, read_model, write


def encode(metadata, text, path):
    """Bytes to ids: of bytes, or of characters in the order of the vocabulary."""
    if metadata["tokenizer"] == "byte":
        return list(text)
    ids = {character: i for i, character in enumerate(metadata["vocabulary"])}
    try:
        return [ids[character] for character in text.decode("utf-8-sig")]
    except KeyError as error:
        raise FileError(f"{path}: the model does not know the character {error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 at byte {error.start}") from None


def needed(metadata, tensors):
    """What our programs need to know and cannot see: the rest has a default or stands in the shapes."""
    keys = ["tokenizer", "vocabulary"] + [
        key for key, (_, absent) in SETTINGS.items() if absent != "seen" and metadata.get(key, absent) != absent
    ]
    if "embedding.position_cd" not in tensors:
        keys += ["positions", "context"]
    return {key: metadata[key] for key in keys if key in metadata}


def compute(path, text_path):
    """The window of the text, its logits and its loss, and what was read."""
    tensors, settings, metadata = read_model(path)
    try:
        text = text_path.read_bytes()
    except OSError as error:
        raise FileError(f"{text_path}: {error.strerror}") from None
    ids = encode(metadata, text, text_path)[: settings.context + 1]
    if len(ids) < 2:
        raise FileError(f"{text_path}: expected two tokens or more, found {len(ids)}")
    try:
        import torch
    except ImportError:
        raise FileError("torch is missing; install it with: python3 -m pip install torch") from None
    from equations import cross_entropy, logits, tensors_of

    ids = torch.tensor(ids, dtype=torch.int32)
    tokens_bc, targets_bc, weights = ids[None, :-1], ids[None, 1:], tensors_of(tensors)
    logits_bcv = logits(weights, settings, tokens_bc)
    return tokens_bc, logits_bcv, cross_entropy(logits_bcv, targets_bc)[0].item(), weights, metadata


def write_copy(path, weights, metadata):
    try:
        from safetensors.torch import save_file

        save_file({name: tensor.float() for name, tensor in weights.items()}, path, needed(metadata, weights))
    except ImportError as error:
        raise FileError(f"{error.name} is missing; install it with: python3 -m pip install {error.name}") from None
    except Exception as error:  # of a kind of its own
        raise FileError(f"{path}: {error}") from None


def write_golden(path, tokens_bc, logits_bcv, weights, metadata):
    from equations import parts_of

    tensors = {"weight." + name: tensor for name, tensor in weights.items()}
    tensors |= {"input.tokens_bc": tokens_bc, "output.logits_bcv": logits_bcv}
    settings = {key: text for key, text in needed(metadata, weights).items() if key in SETTINGS}
    write(path, parts_of(tensors), {**settings, "case": "language_model", "source": "tools/checkpoint_in_pytorch.py"})


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--copy", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args(words)
    path = arguments.checkpoint
    try:
        tokens_bc, logits_bcv, loss, weights, metadata = compute(
            path / "model.safetensors" if path.is_dir() else path, arguments.text
        )
        print(f"{tokens_bc.numel()} targets, {loss:.6f} nats each")
        if arguments.copy:
            write_copy(arguments.copy, weights, metadata)
        if arguments.golden:
            write_golden(arguments.golden, tokens_bc, logits_bcv, weights, metadata)
    except FileError as error:
        sys.exit(f"tools/checkpoint_in_pytorch.py: {error}")


if __name__ == "__main__":
    main()
