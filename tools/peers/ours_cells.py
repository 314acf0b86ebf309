"""This project: the layers of plain/ in float, compiled from ours.cpp. The cells of beam search use the program golden
of the build folder BUILD, which compares them with tools/reference_model.py (needs PyTorch)."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import rows
from rows import MIXED, cell, main

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
from checkpoint import write

FOLDER = tempfile.TemporaryDirectory()


def compiled():
    library = pathlib.Path(FOLDER.name) / "ours.so"
    layers = ["attention", "cross_entropy", "gelu", "global_norm", "layernorm", "muon", "linear"]
    sources = [SOURCE / "tools/peers/ours.cpp", SOURCE / "extras/positions/rotary_plain.cpp"]
    sources += [SOURCE / f"plain/{layer}.cpp" for layer in layers]
    sources += [*(SOURCE / "src/base").glob("*.cpp"), SOURCE / "src/device/memory.cpp", SOURCE / "src/device/pages.cpp"]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", "-DABH_EXTRAS=1", "-I", SOURCE, "-I", SOURCE / "src"]
    subprocess.run([*map(str, command), *map(str, sources), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


PROGRAMS = SOURCE / os.environ.get("BUILD", "build")


def golden(file, *options, isa=""):
    command = [PROGRAMS / "golden", f"{FOLDER.name}/{file}", *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"ATTENTION_ISA": isa})


OURS = compiled()
OURS.slope.restype = OURS.norm.restype = ctypes.c_double
OURS.cross_entropy.restype = ctypes.c_float


def floats(array):
    return np.ascontiguousarray(array, np.float32)


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def size(*numbers):
    return [ctypes.c_int64(number) for number in numbers]


def attend_all(query, key, value, mask=None, causal=False, window=0):
    """The output and the three gradients. The last query is at the position of the last key, as with a KV cache."""
    query, key, value = floats(query), floats(key), floats(value)
    found = [np.zeros_like(array) for array in (query, query, key, value)]
    C, S = len(query), len(key)
    OURS.attend(*map(at, found), at(query), at(key), at(value), mask if mask is None else at(mask), ctypes.c_bool(causal),
                *size(S - C, window, C, S, query.shape[1]))  # fmt: skip
    return found


def attend(query, key, value, **options):
    return attend_all(query, key, value, **options)[0]


def without_keys(query, key, value, _):
    """All queries share one mask of keys here: it masks every key."""
    return attend_all(query, key, value, mask=np.zeros(3, np.int32))


@cell("masked_bool")
def _():
    return rows.masked_row(lambda *arrays: without_keys(*arrays)[0], MIXED)


@cell("masked_gradient")
def _():
    return rows.masked_gradient(without_keys)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, causal=True))


@cell("window_4")
def _():
    out = attend(np.zeros((16, 16)), np.zeros((16, 16)), np.eye(16), causal=True, window=4)
    return str(int((out[-1] > 0).sum()))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, causal=True))


@cell("alibi")
def _():
    found = [rows.slopes([OURS.slope(*size(n, 6), ctypes.c_bool(interleaved)) for n in range(6)]) for interleaved in (False, True)]
    return f"{found[0]}; `--alibi-slopes interleaved`: {found[1]}"


@cell("rotary")
def _():
    def turn(x):
        angle = np.arange(3)[:, None] * 10000.0 ** (-np.arange(8) / 8)
        table = floats(np.stack([np.cos(angle), np.sin(angle)], -1).reshape(3, 16))
        out = np.zeros_like(x)
        OURS.turn(at(out), at(x), at(table), *size(3, 16))
        return out

    return rows.rotary(turn, 16)


@cell("gelu")
def _():
    def of_form(tanh):
        def function(x):
            out = np.zeros_like(x)
            OURS.gelu(at(out), at(x), *size(len(x)), ctypes.c_bool(tanh))
            return out

        return rows.gelu(function)

    return f"{of_form(False)}; `--activation gelu_tanh`: {of_form(True)}"


@cell("layernorm")
def _():
    def norm(x):
        out = np.zeros_like(x)
        OURS.layernorm(at(out), at(x), *size(*x.shape))
        return out

    return rows.layernorm(norm)


def cross_entropy(logits, targets, a=0.0):
    logits, targets = floats(logits), np.ascontiguousarray(targets, np.int32)
    return OURS.cross_entropy(at(logits), at(targets), ctypes.c_double(a), *size(*logits.shape))


@cell("label_smoothing")
def _():
    return rows.smoothing(cross_entropy)


@cell("ignored_targets")
def _():
    return rows.ignored(lambda logits, targets, ignored: cross_entropy(logits, np.where(ignored, -100, targets)))


@cell("norm")
def _():
    x = np.full(rows.COUNT, 0.1, np.float32)
    return rows.off("norm", OURS.norm(at(x), *size(rows.COUNT)))


@cell("mean")
def _():
    """Mean of 2^20 losses of log 2 each: with --device cpu, and with the loops of plain/. The CPU uses the baseline
    instruction set, because the order of summation depends on the number of lanes."""

    def text(error):
        return "exact" if error == 0 else f"{error:.0e}"

    loss = float(np.float32(np.log(2)))
    plain = abs(cross_entropy(np.zeros((rows.COUNT, 2)), np.zeros(rows.COUNT)) / loss - 1)
    tensors = {"input.logits_bcv": ("F64", (1, rows.COUNT, 2), bytes(16 * rows.COUNT)),
               "input.targets_bc": ("I32", (1, rows.COUNT), bytes(4 * rows.COUNT)),
               "output.loss": ("F64", (), np.float64(loss).tobytes())}  # fmt: skip
    write(f"{FOLDER.name}/mean.safetensors", tensors, {"case": "cross_entropy"})
    line = golden("mean.safetensors", "--type", "float", isa="baseline").stdout.splitlines()[0]
    cpu = float(re.search(r"\] +([^ ]+)", line)[1])
    return f"`ATTENTION_ISA=baseline`: {text(cpu)}; plain: {text(plain)}"


@cell("to_bf16")
def _():
    def convert(x):
        out = np.zeros_like(x)
        OURS.to_bf16(at(out), at(x), *size(len(x)))
        return out

    return rows.narrowed(convert)


def steps(gradients):
    weight, moment = (np.zeros(gradients[0].shape, np.float32) for _ in range(2))
    for gradient in gradients:
        before, gradient = weight.copy(), floats(gradient)
        OURS.muon(at(weight), at(moment), at(gradient), *size(*gradient.shape))
        yield before - weight


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


@cell("beam_penalty", "beam_default")
def beams(row):
    """golden compares the scores with tests/golden_cases.py, whose penalty is ((5 + n) / 6)^a; n includes the end."""
    sys.path.insert(0, str(SOURCE / "tests"))
    import golden_cases

    golden_cases.beam_case(pathlib.Path(FOLDER.name), "beam", 2, 0.6 if row == "beam_penalty" else 0.0, logit_bias=1)
    run = golden("beam.safetensors")
    if run.returncode != 0:
        return f"other: {run.stdout.splitlines()[-1]}"
    if row == "beam_penalty":
        return "log P / ((5 + n) / 6)^p, n with the end"
    help_text = subprocess.run([PROGRAMS / "generate", "--help"], stdout=subprocess.PIPE, text=True).stdout
    default = re.search(r"--length-penalty.*?default: ([^)]+)", help_text, re.DOTALL)[1]
    return f"penalty {default}, the beam narrows"


main()
