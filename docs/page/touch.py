"""The pictures that can be touched, two of the pooling, one of attention and one of a regression, and the script that
computes them.

A reader without script sees them as touch_pictures.py, touch_row.py and touch_bell.py draw them. Where clang can make
WebAssembly (Debian: clang, lld, wasi-libc, libc++-dev-wasm32) a script takes them over, which carries the layer of its
page: plain/pooling*.cpp, plain/attention.cpp or extras/kernel_regression/kernel_regression_plain.cpp.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault import Fault
from sources import layout
from touch_bell import draw_bell
from touch_pictures import draw_logits, draw_window
from touch_row import draw_row

HERE = Path(__file__).resolve().parent
LAYERS = ("pooling", "attention", "kernel_regression")
STANDARD_LIBRARY = Path("/usr/include/wasm32-wasi/c++")  # of libc++-dev-wasm32, which asks for wasi-libc
LARGEST_SCRIPT = 9_472  # as a reader gets it, without what is compiled

# ---- The scripts ----


def interface(layer: str) -> str:
    """What a page calls of a layer."""
    return f"docs/page/touch/{layer}.cpp"


def sources(layer: str) -> list[str]:
    """What is compiled for a layer: its plain loops, and those of what its name is the beginning of."""
    files = layout.device_files(HERE.parent.parent, "plain")
    plain = [path for path in files if path.endswith(".cpp") and layout.stem(path).startswith(layer)]
    return [interface(layer), "docs/page/touch/device.cpp", *plain]


def exported(source: str) -> list[str]:
    """Arrays and functions of the C interface, as they stand in its source."""
    interface = re.sub(r"//[^\n]*", "", source[source.index('extern "C" {') :])
    arrays = [
        name
        for line in re.findall(r"^double (.*?);", interface, re.MULTILINE | re.DOTALL)
        for name in re.findall(r"(\w+)\[", line)
    ]
    return arrays + re.findall(r"^void (\w+)\(", interface, re.MULTILINE)


def has_tools() -> bool:
    return bool(shutil.which("clang++") and shutil.which("wasm-ld") and STANDARD_LIBRARY.is_dir())


def compiled(root: Path, layer: str) -> bytes:
    """A layer as WebAssembly without imports."""
    exports = exported((root / interface(layer)).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"{layer}.wasm"
        command = ["clang++", "--target=wasm32-wasi", "-mcpu=mvp", "-std=c++20", "-Os", "-flto", "-DABH_EXTRAS=1", "-Isrc", "-I."]
        command += ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdlib", *sources(layer), "-lc"]
        command += ["-Wl,--no-entry,--strip-all", *(f"-Wl,--export={name}" for name in exports), "-o", str(out)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise Fault(interface(layer), f"does not become WebAssembly: {done.stderr.strip()}")
        return out.read_bytes()


def without_comments(source: str) -> str:
    """A script as it is sent: without lines of comment, and without indentation."""
    return re.sub(r"^\s*(?://.*\n)?", "", source, flags=re.MULTILINE)


def name_of_script(layer: str) -> str:
    return f"touch-{layer}.js"


def script(root: Path, layer: str) -> str:
    """touch.js with a compiled layer inside, as a page from a file may not fetch it."""
    source = (HERE / "touch.js").read_text(encoding="utf-8")
    text = without_comments(source)
    if len(text.encode()) > LARGEST_SCRIPT:
        raise Fault("docs/page/touch.js", f"{len(text.encode())} bytes, more than {LARGEST_SCRIPT}")
    if text.count("@WASM@") != 1:
        raise Fault("docs/page/touch.js", "has no place for a compiled layer, or more than one")
    return text.replace("@WASM@", base64.b64encode(compiled(root, layer)).decode())


def scripts(root: Path) -> dict[str, str]:
    """The scripts of all layers, by name; none without the tools."""
    return {name_of_script(layer): script(root, layer) for layer in LAYERS} if has_tools() else {}


# ---- The pictures ----


@dataclass(frozen=True)
class Figure:
    """What the generator uses of a picture."""

    name: str
    page: str
    after: str
    caption: str
    draw: Callable[[], str]
    script: str


def figures(scripted: bool) -> list[Figure]:
    """All of them, which the script takes over where there is one."""
    pooling, attention, regression = (name_of_script(layer) if scripted else "" for layer in LAYERS)
    return [
        Figure(
            "touch-logit",
            "layers/pooling",
            "A worked example",
            "Eight positions of one head, K = 1. A larger logit moves every later average towards the value of its position, and "
            "lowers the weights of all others. The bottom row shows d_logit of all positions for the given d_out.",
            draw_logits,
            pooling,
        ),
        Figure(
            "touch-window",
            "layers/pooling_sliding_window",
            "The window: merge, do not subtract",
            "A window, its suffix, its prefix, and the merge of both. A window of exactly one block has no suffix.",
            draw_window,
            pooling,
        ),
        Figure(
            "touch-row",
            "layers/attention",
            "A worked example",
            "One query and eight keys, K = 1. A larger score lowers the weights of all other keys and moves out towards its "
            "value. The gradient of a score is its weight times the difference of its value and out, times d_out. It is 0 "
            "if the weight is 0 or 1.",
            draw_row,
            attention,
        ),
        Figure(
            "touch-bell",
            "layers/kernel_regression",
            "A worked example",
            "Sixteen points, and a Gaussian around a query. Its height over a point is the weight of the point, and the "
            "prediction is the weighted mean. The curve shows the predictions for all queries. The loss predicts every "
            "point from the others; at the best width d_width is 0.",
            draw_bell,
            regression,
        ),
    ]
