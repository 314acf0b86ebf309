#!/usr/bin/env python3
"""tools/check_sass.py [--update] [BUILD_DIR]: the machine code of every kernel in the objects of a build with
BUILD_CUDA.

A kernel without wide accesses that reads or writes neighbouring elements of global memory one by one has lost a pack:
the compiler has split it into up to eight requests. (Beside wide accesses, single ones are normal at the end of an
array and in unaligned rows.) Each access to local memory goes to the cache. Status 1 if a kernel does either and is not
in `accepted`. Needs cuobjdump from the CUDA Toolkit or from Triton, which comes with PyTorch; without it the script
prints a message and succeeds. Default: build-cuda.

tests/kernel_sizes.txt has the number of instructions and registers of the kernels that the presets launch, for sm_90
and one version of nvcc. Status 1 also if a kernel has other numbers in a build by this version; --update writes the new
numbers. To add a kernel, add a line with its name alone.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_registers import readable  # noqa: E402

root = pathlib.Path(__file__).resolve().parent.parent
sizes_file = root / "tests/kernel_sizes.txt"
sizes_title = "Kernels that a training step of a preset launches in bf16, for sm_90"

fewest_neighbours = 4  # a smaller number may be neighbours by accident
accepted = [re.compile(words) for words in (
    # Versions for unaligned arrays.
    r"dropout: \w+_kernel<\w+, false>: STG",
    # A thread has several positions with one element each, and each position may be after the end of the sequence.
    r"pooling\w*: \w+_kernel<.*>: (LDG|STG): \d+ neighbours of 4 bytes",
    # A variable number of positions or channels is copied to shared memory.
    r"(bahdanau|relative)_attention: \w+_kernel<.*>: LDG: 4 neighbours",
    # Positions with one element each, in the order of their buckets.
    r"lsh_attention: copy_rows_kernel.*: (LDG|STG): 4 neighbours of 4 bytes",
    # One column of a matrix, in inference.
    r"metric_key: query_kernel<.*>: LDG",
    # Too few registers: heads of 128 channels, masks with biases on sm_80, relative attention.
    r"attention: backward_key_kernel<bf16, 128, .*>: \d+ accesses to local memory",
    r"attention: forward_kernel<bf16, 64, true, true>: [1-9] accesses to local memory",
    r"relative_attention: backward_key_kernel<.*>: [1-9] accesses to local memory",
)]


def cuobjdump():
    """Path of cuobjdump, or None."""
    places = ["/usr/local/cuda/bin"]
    triton = importlib.util.find_spec("triton")
    if triton and triton.submodule_search_locations:
        places += [str(pathlib.Path(place) / "backends/nvidia/bin") for place in triton.submodule_search_locations]
    return shutil.which("cuobjdump") or next(filter(None, (shutil.which("cuobjdump", path=p) for p in places)), None)


def kernels_in(lines):
    """(architecture, name, instructions, registers) of each function in the output of cuobjdump -sass -res-usage."""
    kernels, architecture, registers, name = [], "", {}, ""
    for line in lines:
        if found := re.match(r"\s+code for (sm_\d+)", line):
            architecture = found[1]
        elif found := re.match(r" Function (\S+):$", line):
            name = found[1]
        elif found := re.match(r"\s+REG:(\d+)", line):
            registers[name] = int(found[1])  # printed before the code
        elif found := re.match(r"\s+Function : (\S+)", line):
            kernels.append((architecture, found[1], [], registers[found[1]]))
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            kernels[-1][2].append(found[1])
    return kernels


def access_of(instruction):
    """(LDG or STG, bytes, base register, offset) of an access to global memory, or None."""
    found = re.search(r"\b(LDG|STG)(\S*) .*?(?<!desc)\[([^\]]*?)\+?(-?0x[0-9a-f]+)?\]", instruction)
    if not found:
        return None
    width = re.search(r"\.[US]?(8|16|64|128)(?![0-9])", found[2])
    return found[1], int(width[1]) // 8 if width else 4, found[3], int(found[4] or "0", 16)


def most_neighbours(offsets, size):
    most = run = 1
    for before, offset in zip(sorted(offsets), sorted(offsets)[1:]):
        run = run + 1 if offset - before == size else 1
        most = max(most, run)
    return most


def faults_of(code):
    """Faults of a kernel's instructions, as texts."""
    local = sum(bool(re.search(r"\b(LDL|STL)\b", instruction)) for instruction in code)
    faults = [f"{local} accesses to local memory"] if local else []
    block, wide, accesses = 0, set(), {}  # accesses: (straight-line piece of code, ..., base register) -> offsets
    for instruction in code:
        block += bool(re.match(r"(@!?U?P\w+ )?(BRA|BRX|EXIT|BSYNC|BSSY|BAR|RET|CALL)", instruction))
        if access := access_of(instruction):
            kind, size, base, offset = access
            if size >= 8:
                wide.add(kind)
            else:
                accesses.setdefault((block, kind, size, base), set()).add(offset)
    for (_, kind, size, _), offsets in accesses.items():
        neighbours = most_neighbours(offsets, size)
        if neighbours >= fewest_neighbours and kind not in wide:
            faults.append(f"{kind}: {neighbours} neighbours of {size} bytes, one by one")
    return sorted(set(faults))


def read_sizes():
    """The version of nvcc, and {kernel: (instructions, registers)}; None for kernels without numbers."""
    version, sizes = "", {}
    for line in sizes_file.read_text().splitlines():
        if found := re.match(r"# .*nvcc (\S+):", line):
            version = found[1]
        elif found := re.fullmatch(r"(.*?)(?: (\d+) (\d+))?", line):
            sizes[found[1]] = (int(found[2]), int(found[3])) if found[2] else None
    return version, sizes


def compare_sizes(sizes, version, update):
    """Number of preset kernels whose size has changed; with update, writes the sizes and returns 0."""
    known_version, known = read_sizes()
    if not update and version != known_version:
        print(f"sizes of kernels: not compared, nvcc {version} is not {known_version}")
        return 0
    for name in sorted(known):
        if name not in sizes:
            print(f"{name}: is gone")
        elif sizes[name] != known[name]:
            before = "%d instructions, %d registers" % known[name] if known[name] else "not known"
            print(f"{name}: %d instructions, %d registers; before {before}" % sizes[name])
    if update:
        lines = [f"# {sizes_title}, nvcc {version}: kernel, instructions, registers"]
        lines += [f"{name} %d %d" % sizes[name] for name in sorted(known) if name in sizes]
        sizes_file.write_text("\n".join(lines) + "\n")
        return 0
    as_before = sum(name in sizes and sizes[name] == known[name] for name in known)
    print(f"{as_before} of {len(known)} kernels of presets as large as before")
    return len(known) - as_before


def main(build, update):
    program = cuobjdump()
    if not program:
        print("tools/check_sass.py: skipped, no cuobjdump here")
        return 0
    objects = sorted(pathlib.Path(build).glob("cuda/CMakeFiles/cuda_layers.dir/**/*.cu.o"))
    if not objects:
        print(f"tools/check_sass.py: {build}: no objects of kernels; expected what tools/cuda_build.sh builds",
              file=sys.stderr)
        return 1
    count = faulty = 0
    sizes, version = {}, ""
    for path in objects:
        if found := re.search(rb"Cuda compilation tools, release \S+ (V[\d.]+)", path.read_bytes()):
            version = found[1].decode()
        dump = subprocess.run([program, "-sass", "-res-usage", path], capture_output=True, text=True, check=True).stdout
        kernels = kernels_in(dump.splitlines())
        layer = path.name.split(".")[0].removesuffix("_cuda")  # names of files in features
        for (architecture, _, code, registers), name in zip(kernels, readable([kernel[1] for kernel in kernels])):
            if architecture == "sm_90":
                used = [instruction for instruction in code if not instruction.startswith("NOP")]
                sizes[f"{layer}: {name}"] = (len(used), registers)
            faults = [f"{layer}: {name}: {fault}" for fault in faults_of(code)]
            faults = [fault for fault in faults if not any(words.match(fault) for words in accepted)]
            for fault in faults:
                print(f"{architecture}: {fault}")
            count += 1
            faulty += bool(faults)
    print(f"{count - faulty} kernels as they should be, {faulty} not")
    return 1 if compare_sizes(sizes, version, update) or faulty else 0


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    sys.exit(main(*(arguments or ["build-cuda"]), update="--update" in sys.argv))
