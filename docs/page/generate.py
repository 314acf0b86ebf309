#!/usr/bin/env python3
"""python3 docs/page/generate.py [--out FOLDER]: writes the side-by-side page of this repository.

The page of a layer or block contains the chapter and the plain, CPU and GPU code, exactly as in the repository. Equal
files give equal bytes; nothing is downloaded. Stops with status 1 and a line per fault if something is wrong or
missing.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import check
import font
import kernel_pages
import lab
import lab_module
import tex
import touch
from fault import Fault
from pages import Site
from pictures import PICTURES, Picture, constants_faults
from sources import layout

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Renamed layers: the page at the old address redirects to the new address.
MOVED = {
    "layers/merge_parts.html": "merge_softmax.html",
    "layers/place.html": "copy_rows.html",
    "layers/pooling_of_all.html": "pooling_bidirectional.html",
    "layers/pooling_windowed.html": "pooling_sliding_window.html",
}


def style(largest: int, math_font: bytes) -> str:
    """The style sheet. The font is embedded: a page opened from a file may not load a separate font file. If there is
    no script, one rule per equation number highlights the places of the tag in the address."""
    lit = "\n".join(
        f'html:not(.js):has([data-t~="{n}"]:target) [data-t~="{n}"] {{ background: var(--mark); }}'
        for n in range(1, largest + 1)
    )
    data = base64.b64encode(math_font).decode()
    face = f'@font-face {{ font-family: "Page Math"; src: url(data:font/woff2;base64,{data}) format("woff2"); }}'
    return "\n".join([(HERE / "page.css").read_text(encoding="utf-8"), lit, face, ""])


def moved_page(new: str) -> str:
    """A page that redirects to the new address; with script it keeps the tag or line of the address."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
        f'<noscript><meta http-equiv="refresh" content="0; url={new}"></noscript>'
        f"<script>location.replace('{new}' + location.hash)</script>"
        f'<p>This page has moved: <a href="{new}">{new}</a></p></html>\n'
    )


def build(
    root: Path, pictures: list[Picture], math_font: Callable[[set[str]], bytes], scripts: dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the files of the site (path -> text), made from the files of a repository, and their faults. `scripts`:
    the scripts of the interactive pictures and the lab."""
    site = Site(root, pictures, lab_module.SCRIPT in scripts)
    faults = check.source_faults(root, site.rooms)
    files = {output.path: site.html(output) for output in site.outputs()}
    equations = re.findall(r"<math.*?</math>", "".join(files.values()), re.DOTALL)
    font = math_font(set().union(*map(tex.characters, equations)))
    largest = max(int(tag.split(".")[1]) for room in site.rooms.values() for tag in check.tags_of(room))
    files |= scripts | kernel_pages.scripts(root, site.rooms) | lab.scripts(root, lab_module.SCRIPT in scripts)
    if lab_module.SCRIPT in scripts:
        files[lab.EQUATIONS] = site.lab_equations()
    files["page.css"] = style(largest, font)
    files["page.js"] = touch.without_comments((HERE / "page.js").read_text(encoding="utf-8"))
    for image in site.images:
        files[image] = (root / image).read_text(encoding="utf-8")
    faults += kernel_pages.faults(root, files)
    faults += check.document_faults(layout.documents(root), site.written)
    return files, faults + check.site_faults(files, len(font))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", metavar="FOLDER")
    out = parser.parse_args().out
    try:
        font_file = font.find()
        scripts = touch.scripts(ROOT) | lab_module.scripts(ROOT)
        pictures = PICTURES + touch.figures(touch.has_tools())
        files, faults = build(ROOT, pictures, lambda characters: font.subset(characters, font_file), scripts)
        faults += constants_faults(ROOT)
        faults += [f"{old}: its new page is not there" for old, new in MOVED.items() if f"layers/{new}" not in files]
        files |= {old: moved_page(new) for old, new in MOVED.items()}
        shutil.rmtree(out, ignore_errors=True)
        for path, text in files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(text, encoding="utf-8")
    except (Fault, OSError) as error:
        faults = [str(error)]
    for fault in faults:
        print(f"page: {fault}", file=sys.stderr)
    if not faults:
        print(f"{out}/index.html")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
