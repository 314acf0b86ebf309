"""The lab: a page that trains a network in the browser and shows its arrays, with this project's own code (extras/lab).

Text and layout are in extras/lab/lab.html. Without script, or without the module (if the site is written without the
tools for WebAssembly), the page shows pictures of a network that was trained in a terminal, and the commands.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import tex
import touch
from fault import Fault
from sources import Room, mixers

FOLDER = "extras/lab"
TEMPLATE = f"{FOLDER}/lab.html"
PAGE, SCRIPT, EQUATIONS, STYLE = "lab.html", "lab.js", "lab-equations.js", "lab.css"
TEXT = f"{FOLDER}/clarence.txt"  # training text by default
SAME_BITS = "docs/same_bits.md"
STILLS = {
    "docs/results/lab.svg": "The sorter after 50 steps: test arrays and their answers, loss and accuracy, and attention maps.",
    "docs/results/sort_first_head.svg": "Attention map of the first head in the first layer of a sorter, after 500 steps.",
    "docs/results/sort_last_layer.svg": "Attention map of a head in its last layer.",
}
# In the order of dependence: a part uses only earlier parts.
PARTS = (
    "make", "colours", "heat", "curve", "settings", "seen", "equation", "arcs", "patches", "maps", "head", "outputs", "inside",
    "memory", "known", "backward", "answers", "digit", "follow", "model", "experiments", "present", "works", "lab",
)  # fmt: skip
# LAYERS: layers whose equations are shown beside those of the blocks. LOOPS: equations whose plain loops are shown.
LAYERS = (
    "attention", "pooling", "bahdanau_attention", "relative_attention", "lsh_attention", "cross_entropy", "layernorm", "embedding",
)  # fmt: skip
LOOPS = ("attention.5", "pooling.1", "bahdanau_attention.1")
# Arrays that are not on the left of any equation under their own names.
MAKES = {"layernorm": {"normed": "layernorm.3"}}


def present(root: Path) -> bool:
    return (root / TEMPLATE).is_file()


# ---- Equations ----


def makes(room: Room) -> dict[str, str]:
    """Maps an array's name to the tag of the equation that computes it, by the names on the left of = and += in the
    header. A name without its shape stands for all arrays of this name that have no entry of their own."""
    comment = " ".join(line.text.strip().removeprefix("//").strip() for line in room.header.lines if line.text.startswith("//"))
    found: dict[str, str] = {}
    stems: dict[str, str] = {}
    parts = re.split(rf"\(({room.name}\.\d+)\)", comment)
    for text, tag in zip(parts[::2], parts[1::2], strict=False):
        for left in re.findall(r"((?:[A-Za-z]\w*'*,\s+)*[A-Za-z]\w*'*)\s*(?:\+?=)", text):
            for name in re.split(r",\s+", left):
                name = name.replace("'", "")
                found.setdefault(name, tag)
                stems.setdefault(re.sub(r"_[a-z]+$", "", name), tag)
    return stems | found


def script_of_equations(root: Path, rooms: dict[str, Room], loop: Callable[[Room, str], str]) -> str:
    """lab-equations.js: the equations of blocks and of some layers by tag, as in the chapters."""
    shown = [room for room in rooms.values() if room.kind == "blocks" or room.name in LAYERS]
    equations = {}
    for room in shown:
        chapter = (root / room.chapter).read_text(encoding="utf-8")
        for content in re.findall(r"^ *```math\n(.*?)^ *```", chapter, re.MULTILINE | re.DOTALL):
            equation, tag = tex.split_tag(content.strip())
            if not tag or tag.split(".")[0] != room.name:
                continue
            equations[tag] = {"math": tex.mathml(equation, True), "href": f"{room.page}.html#{tag}"}
            if tag in LOOPS:
                equations[tag]["loop"] = loop(room, tag)
    made = {room.name: makes(room) for room in shown}
    for name, more in MAKES.items():
        if name in made:
            made[name] |= more
    told = {"equations": equations, "makes": made}
    return f"const labEquations = {json.dumps(told, ensure_ascii=False, sort_keys=True)};\n"


# ---- Scripts ----


def scripts(root: Path, trains: bool) -> dict[str, str]:
    """Files that the page loads besides the equations and the engine (lab_module.py); only the style if not
    `trains`."""
    if not present(root):
        return {}
    files = {STYLE: re.sub(r"/\*.*?\*/\n?", "", (root / FOLDER / STYLE).read_text(encoding="utf-8"), flags=re.DOTALL)}
    if trains:
        parts = "".join(_script(root, part) for part in PARTS)
        files[SCRIPT] = f"(() => {{\n{parts}}})();\n"
    return files


def _script(root: Path, name: str) -> str:
    return touch.without_comments((root / FOLDER / f"{name}.js").read_text(encoding="utf-8"))


# ---- The page ----


def body(root: Path, *, address: Callable[[str], str], sentences: dict[str, str], chapters: dict[str, str], bell: str) -> str:
    """The main part of the page. address(file): address of a repository file. sentences: sentence of each chapter in
    the index. chapters: chapter of each block. bell: picture of a kernel regression."""
    known = mixers(root)
    text = (root / TEXT).read_text(encoding="utf-8")
    order = sorted(known, key=lambda name: (list(chapters).index(known[name]), name))
    listed = "\n".join(
        f'<li id="mixer={name}"><a href="{address(chapters[known[name]])}">{name}</a>: {sentences[chapters[known[name]]]}</li>'
        for name in order
    )
    has_bits = (root / SAME_BITS).is_file()
    same = "with <code>ATTENTION_ISA=baseline</code> prints the same losses, digit by digit"
    same = f'{same}: <a href="{address(SAME_BITS)}">why</a>' if has_bits else same
    pictures = "".join(
        f'<figure class="picture"><img src="{address(path)}" alt="{html.escape(caption)}"><figcaption>{caption}</figcaption></figure>\n'
        for path, caption in STILLS.items()
    )
    given = {
        "LOSSES": "The losses equal the losses of the program in a terminal, digit by digit.",
        "MIXERS": "".join(f'<option value="{name}"{" selected" if name == "dot" else ""}>{name}</option>' for name in order),
        "TEXT": html.escape(text),
        "PICTURES": address("extras/figures/README.md") + "#attention-is-not-an-explanation",
        "SAME": same,
        "STILLS": f'<div class="stills">\n{pictures}</div>',
        "BELL": bell,
        "LIST": listed,
    }
    template = (root / TEMPLATE).read_text(encoding="utf-8")
    found = set(re.findall(r"@([A-Z]+)@", template))
    if found != set(given):
        raise Fault(TEMPLATE, f"has other placeholders than expected: {sorted(found ^ set(given))}")
    return re.sub(r"@([A-Z]+)@", lambda match: given[match.group(1)], template)
