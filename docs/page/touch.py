"""The two pictures of the pooling that can be touched, and the script that computes them.

A reader without script sees them as touch_pictures.py draws them. Where clang can make WebAssembly (Debian: clang, lld,
wasi-libc, libc++-dev-wasm32) a script takes them over, which carries plain/pooling.cpp.
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
from touch_pictures import draw_logits, draw_window

HERE = Path(__file__).resolve().parent
SOURCES = ("docs/page/touch/pooling.cpp", "plain/pooling.cpp")
STANDARD_LIBRARY = Path("/usr/include/wasm32-wasi/c++")  # of libc++-dev-wasm32, which asks for wasi-libc
SCRIPT = "touch.js"
LARGEST_SCRIPT = 6_144  # as a reader gets it, without what is compiled

# ---- The script ----


def exported(source: str) -> list[str]:
    """Arrays and functions of the C interface, as they stand in its source."""
    interface = re.sub(r"//[^\n]*", "", source[source.index('extern "C" {') :])
    arrays = [
        name
        for line in re.findall(r"^double (.*?);", interface, re.MULTILINE | re.DOTALL)
        for name in re.findall(r"(\w+)\[", line)
    ]
    return arrays + re.findall(r"^void (\w+)\(", interface, re.MULTILINE)


def compiled(root: Path) -> bytes | None:
    """The pooling as WebAssembly without imports; None where the tools for it are missing."""
    if not (shutil.which("clang++") and shutil.which("wasm-ld") and STANDARD_LIBRARY.is_dir()):
        return None
    exports = exported((root / SOURCES[0]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pooling.wasm"
        command = ["clang++", "--target=wasm32-wasi", "-mcpu=mvp", "-std=c++20", "-Os", "-Isrc", "-I."]
        command += ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdlib", *SOURCES, "-lc"]
        command += ["-Wl,--no-entry,--strip-all", *(f"-Wl,--export={name}" for name in exports), "-o", str(out)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise Fault(SOURCES[0], f"does not become WebAssembly: {done.stderr.strip()}")
        return out.read_bytes()


def without_comments(source: str) -> str:
    """A script as it is sent: without lines of comment, and without indentation."""
    return re.sub(r"^\s*(?://.*\n)?", "", source, flags=re.MULTILINE)


def script(root: Path) -> str | None:
    """touch.js with the compiled pooling inside, as a page from a file may not fetch it; None without the tools."""
    wasm = compiled(root)
    if wasm is None:
        return None
    source = (HERE / "touch.js").read_text(encoding="utf-8")
    text = without_comments(source)
    if len(text.encode()) > LARGEST_SCRIPT:
        raise Fault("docs/page/touch.js", f"{len(text.encode())} bytes, more than {LARGEST_SCRIPT}")
    if text.count("@WASM@") != 1:
        raise Fault("docs/page/touch.js", "has no place for the compiled pooling, or more than one")
    return text.replace("@WASM@", base64.b64encode(wasm).decode())


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
    """Both pictures, which the script takes over where there is one."""
    script = SCRIPT if scripted else ""
    return [
        Figure(
            "touch-logit",
            "layers/pooling",
            "A worked example",
            "Eight positions of one head, K = 1. A logit that rises pulls every later average towards its position and "
            "takes weight from all others there. At the bottom d_logit of all positions, for the d_out above it.",
            draw_logits,
            script,
        ),
        Figure(
            "touch-window",
            "layers/pooling",
            "The window: merge, do not subtract",
            "A window anywhere: its suffix, its prefix, and what merging the two gives. Where it is one whole block, "
            "there is no suffix to merge.",
            draw_window,
            script,
        ),
    ]
