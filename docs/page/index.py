"""The first page, docs/index.md: its lists are the reading order, with a sentence for each chapter."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

PAGE = "docs/index.md"
ITEM = re.compile(r"^(?:[-*]|\d+\.) +\[[^\]]+\]\(([^)#]+\.md)\)(.*(?:\n +\S.*)*)", re.MULTILINE)


def items(root: Path) -> list[tuple[str, str]]:
    """Maps the path of each chapter and document in the lists to its sentence, or to "" without a sentence."""
    found = []
    for link, text in ITEM.findall((root / PAGE).read_text(encoding="utf-8")):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(PAGE), link))
        has_sentence = re.fullmatch(r":\s+\S.*\.", text.strip(), re.DOTALL)
        found.append((path, " ".join(text.strip(": \n").split()) if has_sentence else ""))
    return found
