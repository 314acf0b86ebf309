#!/usr/bin/env python3
"""tools/check_sass.py [BUILD_DIR]: the machine code of every kernel, in the objects of a build with BUILD_CUDA.

What lies side by side in global memory and is read or written number by number, in a kernel that has no wide instruction
for any of it, is a pack that the compiler has taken apart: up to eight requests in the place of one. (Beside wide ones it
is the end of an array, or rows that are not aligned.) What goes through local memory costs a way to the cache each time.
Status 1 where a kernel does either, but for `accepted`. Needs cuobjdump, of the CUDA Toolkit or of Triton, which comes
with PyTorch; without it the script says so and succeeds. Default: build-cuda.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_registers import readable  # noqa: E402

fewest_neighbours = 4  # fewer may lie side by side by accident
accepted = [re.compile(words) for words in (
    # Made for arrays that are not aligned.
    r"dropout: \w+_kernel<\w+, false>: STG",
    # A thread has some positions of one number each, any of which may lie behind the end of the sequence.
    r"pooling\w*: \w+_kernel<.*>: (LDG|STG): \d+ neighbours of 4 bytes",
    # Positions or channels whose number is not known, on the way to shared memory.
    r"(bahdanau|relative)_attention: \w+_kernel<.*>: LDG: 4 neighbours",
    # One column of a matrix, of inference.
    r"metric_key: query_kernel<.*>: LDG",
    # Registers that do not suffice: heads of 128 channels, sights with biases on sm_80, relative attention.
    r"attention: backward_key_kernel<bf16, 128, .*>: \d+ accesses to local memory",
    r"attention: forward_kernel<bf16, 64, true, true>: [1-9] accesses to local memory",
    r"relative_attention: backward_key_kernel<.*>: [1-9] accesses to local memory",
)]


def cuobjdump():
    """The program, or None."""
    places = ["/usr/local/cuda/bin"]
    triton = importlib.util.find_spec("triton")
    if triton and triton.submodule_search_locations:
        places += [str(pathlib.Path(place) / "backends/nvidia/bin") for place in triton.submodule_search_locations]
    return shutil.which("cuobjdump") or next(filter(None, (shutil.which("cuobjdump", path=p) for p in places)), None)


def kernels_in(lines):
    """(architecture, name, instructions) of each function of what cuobjdump -sass says."""
    kernels, architecture = [], ""
    for line in lines:
        if found := re.match(r"\s+code for (sm_\d+)", line):
            architecture = found[1]
        elif found := re.match(r"\s+Function : (\S+)", line):
            kernels.append((architecture, found[1], []))
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
    """What is wrong with a kernel's instructions, in words."""
    local = sum(bool(re.search(r"\b(LDL|STL)\b", instruction)) for instruction in code)
    faults = [f"{local} accesses to local memory"] if local else []
    block, wide, accesses = 0, set(), {}  # accesses: offsets from each base in each piece of code without a jump
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


def main(build):
    program = cuobjdump()
    if not program:
        print("tools/check_sass.py: skipped, no cuobjdump here")
        return 0
    objects = sorted(pathlib.Path(build).glob("cuda/CMakeFiles/cuda_layers.dir/*.cu.o"))
    if not objects:
        print(f"tools/check_sass.py: {build}: no objects of cuda/*.cu; expected what tools/cuda_build.sh builds",
              file=sys.stderr)
        return 1
    count = faulty = 0
    for path in objects:
        dump = subprocess.run([program, "-sass", path], capture_output=True, text=True, check=True).stdout
        kernels = kernels_in(dump.splitlines())
        for (architecture, _, code), name in zip(kernels, readable([name for _, name, _ in kernels])):
            faults = [f"{path.name.split('.')[0]}: {name}: {fault}" for fault in faults_of(code)]
            faults = [fault for fault in faults if not any(words.match(fault) for words in accepted)]
            for fault in faults:
                print(f"{architecture}: {fault}")
            count += 1
            faulty += bool(faults)
    print(f"{count - faulty} kernels as they should be, {faulty} not")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["build-cuda"])))
