#!/usr/bin/env python3
"""Runs a checkpoint of this project in PyTorch: the whole network as one function of its weights.

tools/checkpoint_in_pytorch.py RUN|FILE TEXT [--copy FILE] [--golden FILE]

Reads a model.safetensors, computes the logits of the first context + 1 tokens of TEXT, and prints the mean loss of
their targets. For a network with an encoder TEXT holds lines SOURCE TAB TARGET, and the loss is the mean over all
lines. --copy writes the weights with safetensors.torch.save_file, as PyTorch users do, and with only the metadata that
our programs need (docs/checkpoints.md). --golden writes a golden file (docs/golden.md) with the logits, for
`build/golden FILE --type float --tolerance 1e-5`. Needs torch; --copy also needs safetensors and NumPy.

The network is tools/reference_model.py. An unknown key, value or tensor is an error, as in tools/checkpoint.py, which
reads the file: no setting that affects the results is ignored.
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass

from checkpoint import BEGIN, END, FEATURES, FIRST_TARGET, PADDING, SETTINGS, FileError, first_source
from checkpoint import read_model, words_of, write

NOT_OF_CASES = ("task", "source_context")  # keys of a checkpoint that golden files do not have
IGNORED = -100  # target of positions without a loss


@dataclass
class Window:
    """Inputs of a network as lists of rows: tokens and targets; with an encoder also a source and its mask."""

    tokens_bc: list
    targets_bc: list
    source_bs: list = None
    mask_bs: list = None

    def tensors(self):
        """Tensors by their names in a golden file."""
        import torch

        rows = {name: rows for name, rows in vars(self).items() if rows is not None}
        return {name: torch.tensor(rows, dtype=torch.int32) for name, rows in rows.items()}


def encode(words, key, text, path, first=0):
    """Ids of bytes, or of characters in the order of the vocabulary; the first id is `first`."""
    if words["tokenizer"] == "byte":
        return [first + byte for byte in text]
    ids = {character: first + i for i, character in enumerate(words[key])}
    try:
        return [ids[character] for character in text.decode("utf-8-sig")]
    except KeyError as error:
        raise FileError(f"{path}: the model does not know the character {error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 at byte {error.start}") from None


def window_of_text(settings, words, text, path):
    ids = encode(words, "vocabulary", text, path)[: settings.context + 1]
    if len(ids) < 2:
        raise FileError(f"{path}: expected two tokens or more, found {len(ids)}")
    return Window([ids[:-1]], [ids[1:]])


def window_of_pairs(settings, words, text, path):
    """One row per line, padded to the longest: tokens begin with BEGIN, and targets end with END."""
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        source, tab, target = line.partition(b"\t")
        if not tab:
            raise FileError(f"{path}: line {number}: expected SOURCE TAB TARGET, found no tab")
        source = encode(words, "source_characters", source, path, first_source(settings))
        target = encode(words, "target_characters", target, path, FIRST_TARGET)
        if len(source) > settings.source_context or len(target) >= settings.context:
            most = f"{settings.source_context} and {settings.context - 1}"
            raise FileError(f"{path}: line {number}: expected at most {most} tokens, found {len(source)} and {len(target)}")
        pairs.append((source, target))
    if not pairs:
        raise FileError(f"{path}: expected lines SOURCE TAB TARGET, found none")
    S, C = max(1, *(len(source) for source, _ in pairs)), 1 + max(len(target) for _, target in pairs)

    def padded(row, width, behind=PADDING):
        return row + [behind] * (width - len(row))

    return Window(
        [padded([BEGIN] + target, C) for _, target in pairs],
        [padded(target + [END], C, IGNORED) for _, target in pairs],
        [padded(source, S) for source, _ in pairs],
        [padded([1] * len(source), S, 0) for source, _ in pairs],
    )


def needed(metadata, tensors):
    """Metadata that our programs cannot derive: other keys have default values or follow from the shapes."""
    keys = ["task", "tokenizer", "vocabulary", "source_characters", "target_characters"] + [
        key for key, (_, absent) in SETTINGS.items() if absent != "seen" and metadata.get(key, absent) != absent
    ]
    if not any(name.endswith("embedding.position_cd") for name in tensors):
        keys += ["positions", "context", "source_context"]
    return {key: metadata[key] for key in keys if key in metadata}


def compute(path, text_path):
    """The inputs of the network, its logits and loss, and the contents of the file."""
    tensors, settings, metadata = read_model(path)
    try:
        text = text_path.read_bytes()
    except OSError as error:
        raise FileError(f"{text_path}: {error.strerror}") from None
    window_of = window_of_pairs if settings.encoder_layers else window_of_text
    window = window_of(settings, words_of(settings, metadata), text, text_path)
    try:
        inputs = window.tensors()
    except ImportError:
        raise FileError("torch is missing; install it with: python3 -m pip install torch") from None
    from reference_model import cross_entropy, logits, tensors_of

    weights = tensors_of(tensors)
    source = {"source_bs": inputs["source_bs"], "source_mask_bs": inputs["mask_bs"]} if settings.encoder_layers else {}
    logits_bcv = logits(weights, settings, inputs["tokens_bc"], **source)
    return inputs, logits_bcv, cross_entropy(logits_bcv, inputs["targets_bc"])[0], weights, metadata


def write_copy(path, weights, metadata):
    try:
        from safetensors.torch import save_file

        save_file({name: tensor.float() for name, tensor in weights.items()}, path, needed(metadata, weights))
    except ImportError as error:
        raise FileError(f"{error.name} is missing; install it with: python3 -m pip install {error.name}") from None
    except Exception as error:  # of a class of the library's own
        raise FileError(f"{path}: {error}") from None


def write_golden(path, inputs, logits_bcv, loss, weights, metadata):
    from reference_model import parts_of

    tensors = {"weight." + name: tensor for name, tensor in weights.items()}
    tensors |= {"input." + name: tensor for name, tensor in inputs.items()}
    tensors |= {"output.logits_bcv": logits_bcv, "output.loss": loss}
    case = "seq2seq" if "source_bs" in inputs else "language_model"
    settings = {key: text for key, text in needed(metadata, weights).items() if key in SETTINGS and key not in NOT_OF_CASES}
    for feature in FEATURES:  # a golden file must have all settings of its mixers
        if any(mixer.name in metadata["mixer"].split(",") for mixer in feature.mixers):
            settings |= {key: metadata.get(key, absent) for key, (_, absent) in feature.settings.items()}
    write(path, parts_of(tensors), {**settings, "case": case, "source": "tools/checkpoint_in_pytorch.py"})


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--copy", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args(words)
    path = arguments.checkpoint
    try:
        inputs, logits_bcv, loss, weights, metadata = compute(
            path / "model.safetensors" if path.is_dir() else path, arguments.text
        )
        print(f"{int((inputs['targets_bc'] != IGNORED).sum())} targets, {loss.item():.6f} nats each")
        if arguments.copy:
            write_copy(arguments.copy, weights, metadata)
        if arguments.golden:
            write_golden(arguments.golden, inputs, logits_bcv, loss, weights, metadata)
    except FileError as error:
        sys.exit(f"tools/checkpoint_in_pytorch.py: {error}")


if __name__ == "__main__":
    main()
