"""The interactive pictures (two of pooling, one of attention, one of a kernel regression) and their scripts.

Without script a reader sees them as touch_pictures.py, touch_row.py and touch_bell.py draw them. If clang can compile
to WebAssembly (Debian: clang, lld, wasi-libc, libc++-dev-wasm32), a script makes them interactive. It contains the
compiled layer of its page: plain/pooling*.cpp, plain/attention.cpp or
extras/kernel_regression/kernel_regression_plain.cpp.
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
STANDARD_LIBRARY = Path("/usr/include/wasm32-wasi/c++")  # from libc++-dev-wasm32, which needs wasi-libc
HEADERS = ("algorithm", "cmath", "functional", "vector")  # of most sources
LARGEST_SCRIPT = 9_472  # size for a reader, without the compiled code

# ---- The scripts ----


def interface(layer: str) -> str:
    """Source file of the C interface that a page calls."""
    return f"docs/page/touch/{layer}.cpp"


def sources(layer: str) -> list[str]:
    """Source files that are compiled for a layer: the plain loops of all layers whose names begin with its name."""
    files = layout.device_files(HERE.parent.parent, "plain")
    plain = [path for path in files if path.endswith(".cpp") and layout.stem(path).startswith(layer)]
    return [interface(layer), "docs/page/touch/device.cpp", *plain]


def exported(source: str) -> list[str]:
    """Arrays and functions of the C interface, in the order of the source."""
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
    compiler = ["clang++", "--target=wasm32-wasi", "-mcpu=mvp", "-std=c++20", "-Os", "-flto", "-DABH_EXTRAS=1", "-Isrc", "-I."]
    compiler += ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
    with tempfile.TemporaryDirectory() as folder:
        # Parsed once, because most of the compile time is spent on these headers.
        headers, out = Path(folder) / "headers.pch", Path(folder) / f"{layer}.wasm"
        includes = "".join(f"#include <{name}>\n" for name in HEADERS)
        parse = ["-x", "c++-header", "-o", str(headers), "-"]
        link = ["-include-pch", str(headers), "-nostdlib", *sources(layer), "-lc", "-Wl,--no-entry,--strip-all"]
        link += [*(f"-Wl,--export={name}" for name in exports), "-o", str(out)]
        for arguments in (parse, link):
            done = subprocess.run([*compiler, *arguments], cwd=root, input=includes, capture_output=True, text=True)
            if done.returncode:
                raise Fault(interface(layer), f"cannot be compiled to WebAssembly: {done.stderr.strip()}")
        return out.read_bytes()


def without_comments(source: str) -> str:
    """A script as it is delivered: without comment lines and without indentation."""
    return re.sub(r"^\s*(?://.*\n)?", "", source, flags=re.MULTILINE)


def name_of_script(layer: str) -> str:
    return f"touch-{layer}.js"


def script(root: Path, layer: str) -> str:
    """touch.js with the compiled layer embedded, because a page opened from a file may not fetch it."""
    source = (HERE / "touch.js").read_text(encoding="utf-8")
    text = without_comments(source)
    if len(text.encode()) > LARGEST_SCRIPT:
        raise Fault("docs/page/touch.js", f"{len(text.encode())} bytes, more than {LARGEST_SCRIPT}")
    if text.count("@WASM@") != 1:
        raise Fault("docs/page/touch.js", "must have exactly one placeholder for the compiled layer")
    return text.replace("@WASM@", base64.b64encode(compiled(root, layer)).decode())


def scripts(root: Path) -> dict[str, str]:
    """The scripts of all layers, by name; empty without the tools."""
    return {name_of_script(layer): script(root, layer) for layer in LAYERS} if has_tools() else {}


# ---- The pictures ----


@dataclass(frozen=True)
class Figure:
    """Data of a picture that the generator uses."""

    name: str
    page: str
    after: str
    caption: str
    draw: Callable[[], str]
    script: str


def figures(scripted: bool) -> list[Figure]:
    """All interactive pictures. scripted: true if their scripts are available."""
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
