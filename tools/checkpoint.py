"""Reads and writes model files and golden files (docs/checkpoints.md, docs/golden.md) in plain Python: their bytes, the
allowed metadata, and the tensors of a network. tools/features.py adds mixers and settings of features.

An unknown key, value or tensor is an error: the file may hold another kind of network.
"""

import json
import re
import struct
import zlib
from types import SimpleNamespace

from features import POSITIONS, List, Mixer, OneOf, Real, Toggle, Whole, features

# Data types of the format, with bytes per element. Models hold only F32; golden files hold F64, F32 and I32.
DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
          "U8": 1, "BOOL": 1}  # fmt: skip
LARGEST_HEADER = 100_000_000
LARGEST_INTEGER = 2**63 - 1
MARKS = ("abh_version", "abh_crc32", "crc32")  # valid for the bytes of one file only; not copied to another file


class FileError(Exception):
    """One line: the file, the fault, and the expected content."""


# ---- bytes ----------------------------------------------------------------------------------------------------------


def object_of(pairs):
    """A JSON object; duplicate keys are an error."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in the header")
    return found


def no_number(text):
    raise ValueError(f"{text} in the header, expected a whole number")


def whole_number(text):
    if text.startswith("-") or len(text) > 19 or int(text) > LARGEST_INTEGER:
        raise ValueError(f"{text} in the header, expected a number from 0 to {LARGEST_INTEGER}")
    return int(text)


def is_list(value, kind, length=None):
    return isinstance(value, list) and all(type(entry) is kind for entry in value) and length in (None, len(value))


def header_of(text):
    """The header as JSON: its metadata, and name -> (dtype, shape, begin, end)."""
    header = json.loads(text.decode(), object_pairs_hook=object_of, parse_int=whole_number, parse_float=no_number,
                        parse_constant=no_number)  # fmt: skip
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    json.dumps(header, ensure_ascii=False).encode()  # fails for an unpaired surrogate
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("metadata that is no text")
    entries = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor {name}: expected dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(f"tensor {name} is {dtype}, expected one of {', '.join(DTYPES)}")
        if not is_list(shape, int) or not is_list(offsets, int, 2):
            raise ValueError(f"tensor {name}: expected whole numbers as shape, and two as data_offsets")
        entries[name] = dtype, tuple(shape), *offsets
    return metadata, entries


def check_layout(entries, size):
    """Checks that shapes and offsets agree, and that the tensors cover the data section without overlap or gap."""
    covered = 0
    for name, (dtype, shape, begin, end) in sorted(entries.items(), key=lambda item: (item[1][2:], item[0])):
        expected = DTYPES[dtype]
        for extent in shape:  # no partial product may exceed 64 bits, even if a later extent is 0
            expected *= extent
            if expected > LARGEST_INTEGER:
                raise ValueError(f"tensor {name}: the number of bytes overflows 64 bits")
        if end - begin != expected or end > size:
            raise ValueError(f"tensor {name}: data_offsets [{begin}, {end}] of {size} bytes, expected {dtype} {shape}")
        if begin != covered:
            raise ValueError(f"tensor {name} begins at byte {begin} of the data section, expected {covered}")
        covered = end
    if covered != size:
        raise ValueError(f"bytes {covered} to {size} of the data section belong to no tensor")


def check_marks(metadata, text, data, path):
    """Checks the checksums that our programs write. Another program may copy them to a changed file: then they are
    wrong."""

    def check(key, actual):
        if not re.fullmatch("[0-9a-f]{8}", metadata[key]):
            raise FileError(f"{path}: metadata {key}: expected 8 lower-case hexadecimal digits, found {metadata[key]!r}")
        if f"{actual:08x}" != metadata[key]:
            marks = "crc32" if key == "crc32" else "abh_crc32 and abh_version"
            raise FileError(
                f"{path}: the file is damaged or was saved again: CRC-32 {actual:08x}, expected {metadata[key]} (metadata);"
                f" a program that saves it again has to drop {marks} from the metadata (docs/checkpoints.md)"
            )

    if ("abh_version" in metadata) != ("abh_crc32" in metadata):
        raise FileError(f"{path}: the header is damaged: metadata has one of abh_version and abh_crc32")
    if "abh_crc32" in metadata:
        digits = list(re.finditer(rb'"abh_crc32"[ \t\n\r]*:[ \t\n\r]*"([^"\\]*)"', text))
        if len(digits) != 1:
            raise FileError(f"{path}: metadata abh_crc32: expected digits without escapes")
        blank = text[: digits[0].start(1)] + b"0" * 8 + text[digits[0].end(1) :]
        check("abh_crc32", zlib.crc32(data, zlib.crc32(blank)))
        version = metadata["abh_version"]
        if not re.fullmatch("[1-9][0-9]{0,8}", version) or int(version) > VERSION:
            raise FileError(f"{path}: metadata abh_version: expected at most {VERSION}, found {version!r}")
    if "crc32" in metadata:
        check("crc32", zlib.crc32(data))


def read(path):
    """Name -> (dtype, shape, bytes), and the metadata. Checks what src/files/safetensors.hpp checks."""
    try:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if not 0 < size <= LARGEST_HEADER:
                raise ValueError(f"a header of {size} bytes")
            text = file.read(size)
            if len(text) < size:
                raise ValueError(f"a header of {size} bytes, of which {len(text)} are there")
            data = file.read()
        metadata, entries = header_of(text)
        check_layout(entries, len(data))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    except (struct.error, ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a safetensors file: {error}") from None
    check_marks(metadata, text, data, path)
    return {name: (dtype, shape, data[begin:end]) for name, (dtype, shape, begin, end) in entries.items()}, metadata


def write(path, tensors, metadata):
    """tensors: name -> (dtype, shape, bytes). metadata: str -> str; checksums of another file are dropped. Tensors with
    the largest elements come first, so that all are aligned."""
    header, at, parts = {"__metadata__": {key: text for key, text in metadata.items() if key not in MARKS}}, 0, []
    for name, (dtype, shape, data) in sorted(tensors.items(), key=lambda item: (-DTYPES[item[1][0]], item[0])):
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None


# ---- blocks, and the tensors of each --------------------------------------------------------------------------------
# s: settings, as returned by settings_of. The norm at the beginning of every mixer is left out.

FEATURES = features()
ATTENTION_BIASES = ("query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d")


def norm_shapes(D, prefix="norm_"):
    return {prefix + "weight_d": (D,), prefix + "bias_d": (D,)}


def conv_shapes(D, groups, kernel):
    return {**norm_shapes(D), "weight_dgj": (D, D // groups, kernel)}


def ffn_shapes(D, F, biases=("up_bias_f", "down_bias_d")):
    shapes = {**norm_shapes(D), "up_fd": (F, D), "down_df": (D, F)}
    return {**shapes, **{bias: (F if bias == "up_bias_f" else D,) for bias in biases}}


def additive_shapes(s):
    D, N = s.channels, s.heads
    shapes = {"query_dd": (D, D), "key_dd": (D, D), "query_pool_nk": (N, D // N), "key_pool_nk": (N, D // N)}
    if s.values == "own":
        shapes["value_dd"] = (D, D)
    if s.projection:
        shapes["mix_dd"] = (D, D)
    return {**shapes, **norm_shapes(D, "mid_norm_")}


def bilinear_shapes(s, **metric):
    D, H = s.channels, s.heads * s.head_channels
    return {"project_hd": (H, D), **metric, "output_dh": (D, H)}


def metric_shapes(s):
    return bilinear_shapes(s, metric_nl=(s.heads, s.head_channels * (s.head_channels + 1) // 2))


def quadratic_shapes(s):
    return bilinear_shapes(s, metric_nkk=(s.heads, s.head_channels, s.head_channels))


def dot_shapes(s, biases=None):
    """biases: names of the biases; None: all or none, by the settings."""
    D, H = s.channels, s.heads * s.head_channels
    shapes = {"query_hd": (H, D), "key_hd": (H, D), "value_hd": (H, D), "output_dh": (D, H)}
    return {**shapes, **bias_shapes(s, biases)}


def bias_shapes(s, biases=None):
    if biases is None:
        biases = ATTENTION_BIASES if s.attention_bias else ()
    return {bias: (s.channels if bias == "output_bias_d" else s.heads * s.head_channels,) for bias in biases}


def cross_shapes(s):
    """Without its norm. The rows of the memory have the channels of the network."""
    D, H = s.channels, s.heads * s.head_channels
    shapes = {"query_hd": (H, D), "key_he": (H, D), "value_he": (H, D), "output_dh": (D, H)}
    compared = {} if s.cross == "dot" else MIXERS[s.cross].cross_shapes(s)
    return {**shapes, **compared, **bias_shapes(s)}


def of_attention(name, shapes):
    """A mixer that computes a score per pair of positions, and has its own window setting."""
    return Mixer(name, shapes, window="attention_window", any_head_width=True)


# By name: mixers of the core, whose forward pass is in tools/reference_model.py, and mixers of features.
MIXERS = {
    mixer.name: mixer
    for mixer in (
        Mixer("additive", additive_shapes),
        of_attention("metric", metric_shapes),
        of_attention("quadratic", quadratic_shapes),
        of_attention("dot", dot_shapes),
        Mixer("average", lambda s: {}),
        Mixer("identity", lambda s: {}),
        *(mixer for feature in FEATURES for mixer in feature.mixers),
    )
}


# ---- allowed metadata ------------------------------------------------------------------------------------------------

# Keys that determine the shape and the function of a network (src/settings/table.hpp), with their allowed values and
# the default of an absent key. None: the file must hold the key; "seen": the tensors of the file show the value.
# Features have keys of their own.
SETTINGS = {
    "layers": (Whole(1), None),
    "heads": (Whole(1), None),
    "channels": (Whole(1), "seen"),
    "context": (Whole(1), "seen"),
    "vocabulary_size": (Whole(0), "seen"),
    "patch_inputs": (Whole(0), "seen"),
    "hidden_channels": (Whole(0), "seen"),
    "head_channels": (Whole(0), "seen"),
    "mixer": (List(OneOf(*MIXERS)), None),
    "window": (List(Whole(0)), "0"),
    "attention_window": (List(Whole(0)), "0"),
    "values": (OneOf("shared", "own"), "shared"),
    "projection": (Toggle(), "0"),
    "skip": (OneOf("stream", "normed"), "stream"),
    "focus": (OneOf("elu", "exp"), "elu"),
    "rescale": (Real(), "0"),
    "normed_values": (Toggle(), "0"),
    "reversible": (Toggle(), "0"),
    "causal": (Toggle(), "1"),
    "attention_bias": (Toggle(), "seen"),
    "conv_kernel": (Whole(0), "0"),
    "conv_groups": (Whole(0), "1"),
    "ffn_bias": (Toggle(), "0"),
    "embedding_norm": (Toggle(), "0"),
    "final_norm": (Toggle(), "1"),
    "logit_bias": (Toggle(), "0"),
    "logit_scale": (Real(), "1"),
    "norm": (OneOf("pre", "post"), "pre"),
    "activation": (OneOf("gelu", "relu", "gelu_tanh"), "gelu"),
    "embedding_scale": (Real(), "1"),
    "positions": (OneOf(*POSITIONS), "seen"),
    "alibi_slopes": (OneOf("formula", "interleaved"), "formula"),
    "encoder_layers": (Whole(0), "0"),
    "decoder_layers": (Whole(0), "0"),
    "source_vocabulary_size": (Whole(0), "seen"),
    "source_context": (Whole(0), "seen"),
    "embeddings": (OneOf("separate", "target", "shared"), "separate"),
    "cross": (OneOf("dot", *(name for name, mixer in MIXERS.items() if mixer.cross)), "dot"),
    "task": (OneOf("text", "sort", "reviews", "digits", "dates", "pairs", "recall"), "text"),
}
for feature in FEATURES:
    SETTINGS |= feature.settings

# The newest file version known here (src/files/safetensors.hpp). A version tells which keys the writer knew.
VERSION = 3

# Other metadata keys of a model, which do not affect its function.
OF_MODELS = ("format", "tokenizer", "vocabulary", "source_characters", "target_characters", "length", "digits", "labels", "label_names", "words", "unit", "held_back", "patch", "reach",
             "height", "width", "step", "validation_loss", "validation_tokens", *MARKS)


def settings_of(metadata, shapes, path, others=OF_MODELS):
    """The settings of a network as numbers, names, True and False. `mixer` and both windows are lists with one entry
    per layer. shapes: name -> shape of its tensors. others: keys that are not settings of the network."""

    def fail(key, what):
        raise FileError(f"{path}: metadata {key}: {what}")

    for key, text in metadata.items():
        if text in shapes and key not in shapes:
            continue  # safetensors.torch.save_model maps a tied tensor that it left out to the tensor that it saved
        if key not in SETTINGS and key not in others:
            fail(key, "not known here, expected a key of tools/checkpoint.py")
    read = {}
    for key, (reader, absent) in SETTINGS.items():
        text = metadata.get(key, absent)
        if text == "seen":
            text = seen(key, metadata, shapes, path)
        if text is None:
            fail(key, f"is missing, expected {reader.expected}")
        try:
            read[key] = reader(text)
        except ValueError:
            fail(key, f"expected {reader.expected}, found {text!r}")
    for key in ("mixer", "window", "attention_window"):
        if len(read[key]) == 1:
            read[key] *= read["layers"]
        if len(read[key]) != read["layers"]:
            fail(key, f"expected 1 or {read['layers']} entries, found {len(read[key])}")
    s = SimpleNamespace(**read)
    s.hidden_channels = s.hidden_channels or 4 * s.channels
    s.head_channels = s.head_channels or s.channels // s.heads
    s.conv_groups = s.conv_groups or s.channels
    if bool(s.encoder_layers) != bool(s.source_vocabulary_size):
        fail("encoder_layers", f"expected {'at least 1' if s.source_vocabulary_size else '0 without a source'}")
    if s.encoder_layers and s.encoder_layers + s.decoder_layers != s.layers:
        fail("layers", f"expected {s.encoder_layers + s.decoder_layers}, of encoder and decoder, found {s.layers}")
    if bool(s.decoder_layers) != bool(s.encoder_layers):
        fail("decoder_layers", f"expected {'at least 1' if s.encoder_layers else '0 without an encoder'}")
    if s.embeddings == "shared" and s.source_vocabulary_size != s.vocabulary_size:
        fail("embeddings", "expected separate or target, because source and target have different vocabularies")
    if bool(s.vocabulary_size) == bool(s.patch_inputs):
        fail("vocabulary_size", f"expected {'none beside patch_inputs' if s.patch_inputs else 'at least 1'}")
    for feature in FEATURES:
        feature.check(s, fail)
    if not all(MIXERS[mixer].any_head_width for mixer in s.mixer) and s.channels % s.heads:
        fail("heads", f"{s.heads} does not divide the {s.channels} channels")
    if s.conv_kernel and s.channels % s.conv_groups:
        fail("conv_groups", f"{s.conv_groups} does not divide the {s.channels} channels")
    return s


def seen(key, metadata, shapes, path):
    """Value of an absent setting as text, derived from the tensors."""

    def shape(name):
        if len(shapes.get(name, ())) != 2:
            raise FileError(f"{path}: tensor {name} {'has not two dimensions' if name in shapes else 'is missing'}")
        return shapes[name]

    encodes = any(name.startswith("encoder.") for name in shapes)
    own, shared = "decoder." if encodes else "", "embedding.token_vd"
    tokens, table, patch = own + shared, own + "embedding.position_cd", "embedding.patch_di"
    source_tokens, source_table = "encoder." + shared, "encoder.embedding.position_sd"
    if shared in shapes:
        tokens = source_tokens = shared
    if key == "source_vocabulary_size":
        return str(shape(source_tokens)[0]) if encodes else "0"
    if key == "source_context":
        return str(shape(source_table)[0]) if source_table in shapes else None if encodes else "0"
    if key == "patch_inputs":
        return str(shape(patch)[1]) if patch in shapes else "0"
    if key in ("vocabulary_size", "channels") and patch in shapes:
        return str(shape(patch)[0]) if key == "channels" else "0"
    if key in ("vocabulary_size", "channels"):
        return str(shape(tokens)[key == "channels"])
    if key == "hidden_channels":
        return str(shape(own + "blocks.0.ffn.up_fd")[0])
    if key == "positions":
        return "learned" if table in shapes else "none"
    if key == "context":
        return str(shape(table)[0]) if table in shapes else None
    if key == "attention_bias":
        return str(int(any(name.endswith(".query_bias_h") for name in shapes)))
    # head_channels: rows of a projection divided by the number of heads. 0: the default, channels / heads.
    heads, projection = metadata.get("heads", ""), r"(decoder\.)?blocks\.[0-9]+\.(mixer|cross)\.(query|project)_hd"
    rows = [shape(name)[0] for name in shapes if re.fullmatch(projection, name)]
    return str(rows[0] // int(heads)) if rows and re.fullmatch("[1-9][0-9]*", heads) else "0"


# ---- the tensors of a network ---------------------------------------------------------------------------------------


def network_shapes(s):
    """Name -> shape of every tensor of a network with these settings, as docs/checkpoints.md lists them."""
    D, V = s.channels, s.vocabulary_size
    shapes = {}

    def add(prefix, block):
        shapes.update({prefix + name: shape for name, shape in block.items()})

    def add_stack(prefix, mixers, V, positions, asks=False):
        """Adds an entry, blocks, and the norm after them. positions: name and rows of the position table."""
        entry = {"token_vd": (V, D)}
        if s.patch_inputs:
            entry = {"patch_di": (D, s.patch_inputs), "patch_bias_d": (D,)}
        if s.embeddings == "shared":
            entry = {}
        if s.positions == "learned":
            entry[positions[0]] = (positions[1], D)
        if s.embedding_norm:
            entry |= norm_shapes(D)
        add(prefix + "embedding.", entry)
        for layer, mixer in enumerate(mixers):
            block = f"{prefix}blocks.{layer}."
            if s.conv_kernel:
                add(block + "conv.", conv_shapes(D, s.conv_groups, s.conv_kernel))
            add(block + "mixer.", {**norm_shapes(D), **MIXERS[mixer].shapes(s)})
            for feature in FEATURES:
                add(block + "mixer.", feature.shapes(mixer, s))
            if asks:
                add(block + "cross.", {**norm_shapes(D), **cross_shapes(s)})
            add(block + "ffn.", ffn_shapes(D, s.hidden_channels, ("up_bias_f", "down_bias_d") if s.ffn_bias else ()))
        if s.final_norm and s.norm == "pre":
            add(prefix + "final_norm.", norm_shapes(D, ""))

    if s.embeddings == "shared":
        shapes["embedding.token_vd"] = (V, D)
    encoder, decoder = s.mixer[: s.encoder_layers], s.mixer[s.encoder_layers :]
    if s.encoder_layers:
        add_stack("encoder.", encoder, s.source_vocabulary_size, ("position_sd", s.source_context))
    add_stack(own_prefix(s), decoder, V, ("position_cd", s.context), bool(s.encoder_layers))
    if s.encoder_layers and s.embeddings == "separate":
        shapes["decoder.logit_vd"] = (V, D)
    if s.logit_bias:
        shapes["logit_bias_v"] = (V,)
    return shapes


def own_prefix(s):
    """Prefix of the stack that predicts tokens."""
    return "decoder." if s.encoder_layers else ""


def check_tensors(tensors, settings, path):
    """Checks that a file holds all weights of the network, and no other tensors."""
    expected = network_shapes(settings)
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise FileError(f"{path}: tensor {name} is missing")
        if name not in expected:
            raise FileError(f"{path}: tensor {name} does not belong to this configuration")
        dtype, shape, _ = tensors[name]
        if dtype != "F32" or shape != expected[name]:
            raise FileError(f"{path}: tensor {name} is {dtype} {shape}, expected F32 {expected[name]}")


# The tokenizer and the characters of the dates task, whose files hold no metadata for them.
WORDS_OF_DATES = {"tokenizer": "char", "source_characters": " ,./0123456789abcdefghijklmnopqrstuvwxyz",
                  "target_characters": "-0123456789"}  # fmt: skip
PADDING, BEGIN, END, FIRST_TARGET = 0, 1, 2, 3  # tokens of sources and targets without a character


def words_of(settings, metadata):
    """The metadata that describe the tokens."""
    return WORDS_OF_DATES if settings.task == "dates" else metadata


def first_source(settings):
    """The token of the first character of a source."""
    return FIRST_TARGET if settings.embeddings == "shared" else PADDING + 1


# (key of the characters, key of the vocabulary size, token of the first character): without and with an encoder.
TOKENS = (
    lambda s: (("vocabulary", "vocabulary_size", 0),),
    lambda s: (("source_characters", "source_vocabulary_size", first_source(s)),
               ("target_characters", "vocabulary_size", FIRST_TARGET)),
)  # fmt: skip


def read_model(path):
    """The tensors, settings and metadata of a model. Unknown content is an error."""
    tensors, metadata = read(path)
    settings = settings_of(metadata, {name: shape for name, (_, shape, _) in tensors.items()}, path)
    check_tensors(tensors, settings, path)
    words = words_of(settings, metadata)
    if words.get("tokenizer") not in ("char", "byte"):
        raise FileError(f"{path}: metadata tokenizer: expected char or byte, found {words.get('tokenizer')!r}")
    for key, size, first in TOKENS[bool(settings.encoder_layers)](settings):
        tokens = first + (256 if words["tokenizer"] == "byte" else len(words.get(key, "")))
        if tokens != getattr(settings, size):
            raise FileError(f"{path}: metadata {key}: expected {getattr(settings, size)} tokens, found {tokens}")
    return tensors, settings, metadata
