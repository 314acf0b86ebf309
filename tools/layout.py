"""Places of the files of layers and blocks, for the tools and for the generator of the site.

The core has folders by kind: src/layers/NAME.hpp, plain/NAME.cpp, tests/layers/test_NAME.cpp, docs/layers/NAME.md. A
feature has all of its files in extras/FEATURE: NAME.hpp, NAME_plain.cpp, test_NAME.cpp, and NAME.md or else README.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TAG = re.compile(r"\(([a-z][a-z_]*)\.(\d+)\)")
BLOCK = re.compile(r"^class \w+Block\b", re.MULTILINE)
DEVICES = ("plain", "cpu", "cuda")


@dataclass(frozen=True)
class Files:
    """The files of a layer or a block, except its device files. All paths begin at the root of the repository."""

    kind: str  # "layers" or "blocks"
    name: str
    header: str
    chapter: str
    test: str


def layers_and_blocks(root: Path) -> list[Files]:
    """Layers by name, then blocks. A header with the class of a block is a block; any other header with a tag is a
    layer."""
    found = []
    for path in [*root.glob("src/layers/*.hpp"), *root.glob("src/blocks/*.hpp"), *root.glob("extras/*/*.hpp")]:
        text, folder = path.read_text(encoding="utf-8"), path.parent.relative_to(root).as_posix()
        is_block, is_layer = folder != "src/layers" and BLOCK.search(text), folder != "src/blocks" and TAG.search(text)
        if is_block or is_layer:
            found.append(_files(root, "blocks" if is_block else "layers", path.stem, folder))
    return sorted(found, key=lambda files: (files.kind == "blocks", files.name, files.header))


def _files(root: Path, kind: str, name: str, folder: str) -> Files:
    chapter, test = f"docs/{kind}/{name}.md", f"tests/{kind}/test_{name}.cpp"
    if folder.startswith("extras/"):
        has_own = (root / folder / f"{name}.md").is_file()
        chapter, test = f"{folder}/{name if has_own else 'README'}.md", f"{folder}/test_{name}.cpp"
    return Files(kind, name, f"{folder}/{name}.hpp", chapter, test)


def device_files(root: Path, device: str) -> list[str]:
    """The files of all layers for a device, with the files that layers share."""
    files = [*root.glob(f"{device}/*"), *root.glob(f"extras/*/*_{device}.*")]
    return sorted(path.relative_to(root).as_posix() for path in files if path.suffix in {".cpp", ".cu", ".hpp"})


def stem(path: str) -> str:
    """The name of a device's file without the device: pooling_step of cpu/pooling_step.cpp, relu of
    extras/seq2seq/relu_cpu.cpp."""
    name = Path(path).stem
    return re.sub(rf"_({'|'.join(DEVICES)})$", "", name) if path.startswith("extras/") else name


def documents(root: Path) -> dict[str, str]:
    """The path and the name of every document. A feature's README.md has the name of the layer or block whose chapter
    it is; otherwise it has the feature's name."""
    names = {files.chapter: files.name for files in layers_and_blocks(root)}
    paths = [path.relative_to(root) for path in sorted([*root.glob("docs/**/*.md"), *root.glob("extras/**/*.md")])]
    of_folder = {path: path.parent.name if path.name == "README.md" else path.stem for path in paths}
    return {path.as_posix(): names.get(path.as_posix(), name) for path, name in of_folder.items()}
