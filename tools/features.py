"""The features in extras/ for tools/checkpoint.py and tools/reference_model.py. Each feature has one file,
extras/FEATURE/FEATURE_reference.py, which defines FEATURE, a Feature. Networks that need a missing file are refused.

The functions of such a file that compute import PyTorch and tools/reference_model.py themselves, since checkpoints are
read without PyTorch.
"""

import importlib
import math
import pathlib
import re
import sys
from dataclasses import dataclass, field
from typing import Callable

POSITIONS = ("learned", "none", "sinusoidal", "rotary", "alibi")  # position encodings of tokens
EXTRAS = pathlib.Path(__file__).resolve().parents[1] / "extras"


# ---- values of settings: text -> value, ValueError if it is invalid
# -----------------------------------------------------


class Whole:
    def __init__(self, low):
        self.low, self.expected = low, f"a whole number from {low} on"

    def __call__(self, text):
        if not re.fullmatch("[0-9]+", text) or int(text) < self.low:
            raise ValueError
        return int(text)


class Real:
    expected = "a finite number"

    def __call__(self, text):
        if not re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text) or not math.isfinite(float(text)):
            raise ValueError
        return float(text)


class OneOf:
    def __init__(self, *names):
        self.names, self.expected = names, " or ".join(names)

    def __call__(self, text):
        if text not in self.names:
            raise ValueError
        return text


class Toggle(OneOf):
    def __init__(self):
        super().__init__("0", "1")

    def __call__(self, text):
        return super().__call__(text) == "1"


class List:
    """One entry, or a comma-separated list with one per layer."""

    def __init__(self, entry):
        self.entry, self.expected = entry, entry.expected + ", or a comma list with one per layer"

    def __call__(self, text):
        return [self.entry(word) for word in text.split(",")]


# ---- mixers and features --------------------------------------------------------------------------------------------
# s: the settings of a network, as settings_of in tools/checkpoint.py reads them.


@dataclass(frozen=True)
class Mixer:
    name: str
    shapes: Callable  # shapes(s): name -> shape of its tensors, without the norm that every mixer begins with
    # forward(h_bcd, weight, s, attention_mask, past_bcd): y_bcd. past_bcd: h as a memory, without a gradient
    forward: Callable = None
    window: str = "window"  # the setting of its window
    any_head_width: bool = False  # heads of s.head_channels; otherwise they divide the channels
    flags: str = ""  # flags of train that a short run needs besides --mixer
    with_encoder: bool = True  # true: a network with an encoder may use it
    # For mixers that are also a cross-attention: the tensors besides the maps of query, key, value and output, and
    # cross(x_bcd, memory_bse, weight, s, attention_mask).
    cross_shapes: Callable = None
    cross: Callable = None


@dataclass(frozen=True)
class Feature:
    mixers: tuple = ()
    settings: dict = field(default_factory=dict)  # key: (how its value is read, the text of its default)
    check: Callable = lambda s, fail: None  # check(s, fail): calls fail(key, what is wrong)
    shapes: Callable = lambda mixer, s: {}  # shapes(mixer, s): tensors that the feature adds to a mixer
    # scores(mixer, layer, weight, s): a function score_bncs -> score_bncs that dot-product attention calls; None: none
    scores: Callable = lambda mixer, layer, weight, s: None
    # golden(make, folder): writes golden files with the functions of tests/golden_cases.py, make
    golden: Callable = lambda make, folder: None
    runs: tuple = ()  # flags of short runs, which tests/network/test_pytorch.py compares


def features():
    """The features that are present, ordered by name."""
    found = []
    for path in sorted(EXTRAS.glob("*/*_reference.py")):
        sys.path.append(str(path.parent))
        found.append(importlib.import_module(path.stem).FEATURE)
    return found
