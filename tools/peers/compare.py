"""Runs the program of a library for measure.sh, and compares its output with the column in docs/peers.md."""

import os
import pathlib
import re
import subprocess
import sys

folder, library = pathlib.Path(os.environ["PEERS_FOLDER"]), os.environ["PEERS_LIBRARY"]
program, *options = os.environ["PEERS_PROGRAM"].split()
table = {}  # (row, library) -> cell
columns = []
for line in (folder.parents[1] / "docs/peers.md").read_text().splitlines():
    cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
    names = [re.search("`([a-z0-9_]+)`", cell) for cell in cells]
    if cells and cells[0] == "row":
        columns = cells
    elif cells and names[0]:
        table.update({(names[0][1], name): cell for name, cell in zip(columns[1:], cells[1:])})
asked = os.environ["PEERS_ROWS"].split()
command = [sys.executable, folder / program, *options, *asked]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
known = {row for row, _ in table}  # packages may print other lines
found = {row: value for row, value in re.findall("^([a-z0-9_]+) (.+)$", run.stdout, re.MULTILINE) if row in known}
differ = 0
for row, value in found.items():
    same = table.get((row, library)) == value
    differ += not same
    print(f"{library} {row}: {value}" + ("" if same else f" (docs/peers.md: {table.get((row, library))})"), flush=True)
if run.returncode != 0 or not found:
    sys.exit(run.stderr or "no cell was measured")
for (row, name), value in table.items():
    if name == library and value != "–" and row not in found and (row in asked or not asked):
        differ += 1
        print(f"{library} {row}: not measured (docs/peers.md: {value})")
sys.exit(differ > 0)
