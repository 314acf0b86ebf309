#!/usr/bin/env python3
"""tools/neon_registers.py [COMPILER...]: checks the inner loops of NEON products in the compiler's assembly.

Prints a Markdown table for the loop of every whole tile: sums, multiply-adds, loads (a pair counts as two), and
multiply-adds per load. Status 1 if a sum leaves its register in a loop, or if there are too few multiply-adds per load:
`linear`, with nearly all of the arithmetic, must have two. Needs a compiler for 64-bit ARM, but no such machine.
Default: Debian's cross compiler. A compiler is a program with its flags, in one argument.
"""
import collections
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
flags = ["-std=c++20", "-O3", "-fno-math-errno", "-ffp-contract=off", "-DABH_NEON=1", "-DABH_NEON_LANES", "-I.", "-Isrc",
         "-S", "-o", "-"]

Product = collections.namedtuple("Product", "source function sums least")
products = [
    Product("cpu/linear.cpp", r"tile_productILi6ELi4E", 24, 2.0),
    Product("cpu/attention.cpp", r"multiply_vectorsILb[01]ELi2E", 22, 1.6),
]

Loop = collections.namedtuple("Loop", "function sums multiplications loads faults")


def assembly(compiler, source):
    run = subprocess.run(compiler.split() + flags + [source], cwd=root, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{source}: {run.stderr}")
    return run.stdout.splitlines()


def operands_of(text):
    """Splits "v1.4s, v2.4s, [x1, 16]" at commas outside of square brackets; a register list is split, too."""
    return [part.strip(" {}") for part in re.split(r",(?![^\[]*\])", text)]


def vector(operand):
    """The number of the vector register in an operand; None for any other operand."""
    found = re.fullmatch(r"[vqdshb](\d+)(\.\w+)?(\[\d+\])?", operand)
    return int(found[1]) if found else None


def values_loaded(name, operands):
    """Number of registers before the address; a list may be written as a range."""
    if not name.startswith("ld"):
        return 0
    if found := re.fullmatch(r"v(\d+)\.\w+\s*-\s*v(\d+)\.\w+", operands[0]):
        return int(found[2]) - int(found[1]) + 1
    return next(i for i, operand in enumerate(operands) if operand.startswith("["))


def examine(function, body):
    """A loop of these instructions. Faults: other instructions that use a sum, and vectors on the stack."""
    sums = {vector(operands[0]) for name, operands in body if name == "fmla"}
    faults = []
    for name, operands in body:
        vectors = {vector(operand) for operand in operands} - {None}
        on_stack = vectors and any(operand.startswith("[sp") for operand in operands)
        if name != "fmla" and (vectors & sums or on_stack):
            faults.append(f"{name} {', '.join(operands)}")
    return Loop(function, len(sums), sum(name == "fmla" for name, _ in body),
                sum(values_loaded(*instruction) for instruction in body), faults)


def innermost_loops(lines):
    """Innermost loops of every function: the code between a label and a branch back to it."""
    function, instructions, labels, last_end, found = "", [], {}, 0, []
    for line in lines:
        if label := re.match(r"([.\w$]+):", line):
            if not label[1].startswith(".L"):
                function, instructions, labels, last_end = label[1], [], {}, 0
            labels[label[1]] = len(instructions)
        elif instruction := re.match(r"\s+([a-z][\w.]*)\s*([^;/]*)", line):
            name, operands = instruction[1], operands_of(instruction[2].strip())
            instructions.append((name, operands))
            begin = labels.get(operands[-1], -1) if name.startswith(("b", "cb", "tb")) else -1
            if begin >= last_end:
                found.append(examine(function, instructions[begin:]))
            if begin >= 0:
                last_end = len(instructions)
    return found


def readable(name):
    run = subprocess.run(["c++filt", name], capture_output=True, text=True)
    name = re.sub(r"abh::|neon::|\(anonymous namespace\)::|^void ", "", run.stdout.strip())
    return re.sub(r">\(.*", ">", re.sub(r"\(Order\)", "", name))


def check(compiler, product):
    """Prints the loops of a product. Returns true if there is no fault."""
    loops = collections.defaultdict(list)
    for loop in innermost_loops(assembly(compiler, product.source)):
        if re.search(product.function, loop.function):
            loops[loop.function].append(loop)
    complaints = [] if loops else [f"no {product.function}"]
    for function, all_of_it in loops.items():
        name = readable(function)
        for loop in (loop for loop in all_of_it if loop.sums >= product.sums):
            each = loop.multiplications / max(loop.loads, 1)
            print(f"| {product.source} | `{name}` | {loop.sums} | {loop.multiplications} | {loop.loads} | {each:.2f} |")
            complaints += [f"{name}: not left in its register: {fault}" for fault in loop.faults]
            if each < product.least:
                complaints.append(f"{name}: {each:.2f} multiply-adds per load, expected {product.least}")
        if max(loop.sums for loop in all_of_it) != product.sums:
            complaints.append(f"{name}: expected a loop with {product.sums} sums")
    for complaint in complaints:
        print(f"{product.source}: {complaint}", file=sys.stderr)
    return not complaints


def main(compilers):
    well = True
    for compiler in compilers:
        print(f"{compiler}:\n\n| file | function | sums | multiply-adds | loads | multiply-adds per load |")
        print("|---|---|--:|--:|--:|--:|")
        for product in products:
            well &= check(compiler, product)
        print()
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["aarch64-linux-gnu-g++"]))
