#!/usr/bin/env python3
"""tools/check_loops.py BUILD_DIR: checks that no loop of the CPU layers is compiled in two versions.

A compiler may choose a version at run time by an overlap of the arrays. The versions may round differently, so results
would depend on memory addresses (ABH_INDEPENDENT_TURNS in cpu/lanes.hpp). Compiles every file of these layers again,
for each instruction set of the build, and prints such loops. g++ reports them; the code of clang++ has a labelled block
before them."""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def layers(build):
    """Instruction set, file name, folder and command of every object of the CPU layers, except objects for tests
    only."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
        for entry in json.load(commands):
            words = shlex.split(entry["command"])
            at = words.index("-o")
            found = re.search(r"cpu_(\w+)\.dir/(?:cpu|extras)/", words[at + 1])
            if found and found[1] != "scalar":
                del words[at : at + 2]
                words.remove("-c")
                yield found[1], os.path.basename(entry["file"]), entry["directory"], words


def output_of(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tools/check_loops.py: {shlex.join(command)}: {done.stderr}")
    return done.stdout, done.stderr


def twice_compiled(layer):
    isa, name, folder, command = layer
    version, _ = output_of([*command, "--version"], folder)
    if "clang" in version:
        code, _ = output_of([*command, "-S", "-emit-llvm", "-fno-discard-value-names", "-o", "-"], folder)
        function, found = "", []
        for line in code.splitlines():
            function = line if line.startswith("define ") else function
            if re.match(r"(vector\.memcheck|\S*lver\.check)\S*:", line):
                found.append(re.search(r"@([^(]*)", function)[1])
    else:
        _, report = output_of([*command, "-S", "-o", "/dev/null", "-fopt-info-vec-optimized"], folder)
        found = [line for line in report.splitlines() if "loop versioned" in line]
    return [f"{isa}, {name}: {each}" for each in found]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(layers(sys.argv[1]))
    if not found:
        sys.exit(f"tools/check_loops.py: {sys.argv[1]}: no CPU layers in compile_commands.json")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        loops = sum(pool.map(twice_compiled, found), [])
    print("\n".join([*loops, f"{len(found)} files, {len(loops)} loops compiled twice"]))
    sys.exit(1 if loops else 0)


main()
