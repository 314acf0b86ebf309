#!/usr/bin/env python3
"""Prints the figures that chapters quote, if neither a test nor bench prints them.

tools/chapter_figures.py [CHAPTER...]

Each chapter has a module in tools/figures; without a name all modules run. Seeds are fixed. The modules print or
describe sizes and the order of summation, because the figures depend on them.
"""

import importlib
import sys

CHAPTERS = (
    "adamw", "attention", "gelu", "kernel_regression", "layernorm", "metric_key", "muon", "pooling", "rotary", "scale",
    "transformer_xl",
)  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or CHAPTERS:
        if name not in CHAPTERS:
            sys.exit(f"chapter_figures.py: {name}: no such chapter, expected one of: {', '.join(CHAPTERS)}")
        print(f"{name}:")
        try:
            importlib.import_module(f"figures.{name}").figures()
        except ModuleNotFoundError as error:
            sys.exit(f"chapter_figures.py: {name}: {error}; Debian has it as python3-{error.name}")


if __name__ == "__main__":
    main()
