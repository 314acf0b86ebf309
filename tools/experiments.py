"""Functions for experiments: runs of train that are not repeated, and tables in Markdown."""

import re
import subprocess


def folder_name(*words):
    return re.sub(r"[^a-z0-9]+", "_", " ".join(map(str, words)).lower())


def trained(build, folder, *flags):
    """Output of build/train for these flags. train writes into the folder, and its output is kept in output.txt there.
    A finished run is not repeated."""
    output = folder / "output.txt"
    if not output.exists() or "final:" not in output.read_text():
        folder.mkdir(parents=True, exist_ok=True)
        with output.open("w") as file:
            subprocess.run([f"{build}/train", "--out", str(folder), "--overwrite", *flags], stdout=file, check=True)
    return output.read_text()


def first(pattern, text, kind=str):
    """The group of the first match, read as `kind`."""
    return kind(re.search(pattern, text, re.MULTILINE)[1])


def row(cells):
    return "| " + " | ".join(cells) + " |"


def print_table(heads, rows):
    """rows: an iterable; each row is printed as soon as it is available."""
    print(row(heads))
    print("|" + "---|" * len(heads))
    for cells in rows:
        print(row(cells), flush=True)
