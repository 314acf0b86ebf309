"""Builds the network of the lab as WebAssembly, with the scripts through which a page calls it (engine.js). Needs the
tools for WebAssembly (Debian: clang, lld, wasi-libc, libc++-dev-wasm32, libclang-rt-dev-wasm32, binaryen, cmake).

docs/same_bits.md describes the build, and why the module computes the same bits as a terminal.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import touch
from fault import Fault
from lab import FOLDER

LARGEST_MODULE = 900_000
SCRIPT = "lab-engine.js"


def has_tools() -> bool:
    if not (touch.has_tools() and shutil.which("cmake") and shutil.which("wasm-opt")):
        return False
    asked = ["clang++", "--target=wasm32-wasi", "-print-libgcc-file-name"]
    return Path(subprocess.run(asked, capture_output=True, text=True).stdout.strip()).is_file()


def version(root: Path) -> str:
    """Version of the programs."""
    found = re.search(r"project\(\w+ VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert found
    return found[1]


def compiled(root: Path) -> bytes:
    """Builds the module in build/lab; unchanged parts are not compiled again."""
    folder = root / "build/lab"
    configure = ["cmake", "-S", str(root / FOLDER), "-B", str(folder), "-DCMAKE_TOOLCHAIN_FILE=wasm.cmake"]
    configure.append(f"-DLAB_VERSION={version(root)}")
    if shutil.which("ccache"):  # which keeps nothing of sources with a precompiled header
        configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"]
    for command in (configure, ["cmake", "--build", str(folder), f"-j{os.cpu_count() or 1}"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Fault(FOLDER, f"cannot be compiled to WebAssembly: {(done.stdout + done.stderr).strip()[-4000:]}")
    module = (folder / "lab.wasm").read_bytes()
    if len(module) > LARGEST_MODULE:
        raise Fault(FOLDER, f"a module of {len(module)} bytes, more than {LARGEST_MODULE}")
    return module


def scripts(root: Path) -> dict[str, str]:
    """Scripts by name: the class Engine of engine.js with the worker and the module. Empty without the tools."""
    if not has_tools():
        return {}
    engine, worker = (
        touch.without_comments((root / FOLDER / name).read_text(encoding="utf-8")) for name in ("engine.js", "worker.js")
    )
    module = base64.b64encode(compiled(root)).decode()
    worker = json.dumps(worker).replace("</", "<\\/")
    return {SCRIPT: engine.replace("@WORKER@", worker).replace("@MODULE@", module)}
