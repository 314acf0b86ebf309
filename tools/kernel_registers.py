#!/usr/bin/env python3
"""tools/kernel_registers.py [ARCHITECTURE...]: registers and memory of every kernel, from ptxas, as a Markdown table.

Needs nvcc and c++filt, no GPU. Status 1 if a kernel spills more than a few registers. Default architectures: 80 90.
"""
import pathlib
import re
import shutil
import subprocess
import sys

accepted = 64  # bytes per thread of spill stores and loads in a kernel that no model's usual sizes use
root = pathlib.Path(__file__).resolve().parent.parent


def kernels_in(lines):
    """Rows (name, registers, shared bytes, spilled bytes) from the output of ptxas -v."""
    rows, name, spilled = [], "", 0
    for line in lines:
        if found := re.search(r"Function properties for (\S+)", line):
            name, spilled = found[1], 0
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            rows.append((name, int(found[1]), int(shared[1]) if shared else 0, spilled))
    return rows


def kernels_of(source, architecture):
    """The same rows for one file."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-arch=sm_{architecture}", "-I.", "-Isrc",
               "-Xptxas=-v", "-c", str(source), "-o", "/dev/null"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{source}: {run.stderr}")
    return kernels_in(run.stderr.splitlines())


def readable(names):
    """Kernel names without namespaces and parameters; unchanged without c++filt."""
    try:
        run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
        names = run.stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        pass
    short = []
    for name in names:
        name = re.sub(r"\(anonymous namespace\)::|abh::|cuda::|^void ", "", name)
        short.append(re.sub(r"\((int|bool|unsigned int)\)", "", name.split("(", 1)[0] if "<" not in name
                            else re.split(r">\(", name, maxsplit=1)[0] + ">"))
    return short


def main(architectures):
    worst = 0
    print("| file | kernel |" + "".join(f" sm_{a}: registers | shared | spilled |" for a in architectures))
    print("|---|---|" + "--:|--:|--:|" * len(architectures))
    for source in sorted([*root.glob("cuda/*.cu"), *root.glob("extras/*/*.cu")], key=lambda path: path.name):
        tables = [kernels_of(source.relative_to(root), a) for a in architectures]
        by_name = [{row[0]: row for row in table} for table in tables]
        names = sorted({re.sub(r"_[0-9a-f]{8}_\d+_", "_", row[0]): row[0] for row in tables[0]}.values())
        for name, short in sorted(zip(names, readable(names)), key=lambda pair: pair[1]):
            cells = ""
            for table in by_name:
                row = table.get(name) or next((r for n, r in table.items() if readable([n])[0] == short), None)
                cells += f" {row[1]} | {row[2]:,} | {row[3]} |" if row else " | | |"
                worst = max(worst, row[3]) if row else worst
            print(f"| {source.name} | `{short}` |{cells}")
    return 1 if worst > accepted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["80", "90"]))
