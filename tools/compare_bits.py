#!/usr/bin/env python3
"""tools/compare_bits.py OLD [EMULATOR:]NEW [ROW...]: compares short training runs of two build folders, bit by bit.

Runs OLD/train and NEW/train with the flags of each row. The rows cover every mixer, position encoding, task, optimizer
and device. Compares model.safetensors, the tensors of resume.safetensors, log.csv without its column tokens_per_s, and
sample.txt. Prints a line for every row that differs, and a summary; the status is 1 if a row differs. The new build
must refuse the same rows as the old build. EMULATOR: a program that runs NEW/train, such as qemu-aarch64. ROW: only
rows whose text contains one of these words; "--steps 30" selects four rows for comparing compilers and machines.
ATTENTION_ISA in the environment applies to every row without --isa.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoint import MIXERS, POSITIONS

BASE = ("--layers 2 --channels 16 --heads 2 --context 16 --batch 4 --steps 4 --warmup 2 --eval-every 2 --log-every 1 "
        "--checkpoint-every 2 --threads 2 --learning-rate 0.01").split()


def rows():
    """The flags of every row, one string per row. They override flags of BASE."""
    for name, mixer in MIXERS.items():
        if "--positions" in mixer.flags:
            yield f"--mixer {name} {mixer.flags}"
            continue
        for positions in POSITIONS:
            yield f"--mixer {name} --positions {positions} {mixer.flags}".strip()
    for mixer in ("additive", "leap", "average"):
        yield f"--mixer {mixer} --window 5"
        yield f"--mixer {mixer} --chunk 6"
        yield f"--mixer {mixer} --window 3,0 --chunk 5 --truncated 1"
    yield from (
        "--mixer additive --additive-values own --additive-projection 1 --dropout 0.1",
        "--mixer additive --additive-skip normed --conv-kernel 0",
        "--mixer additive --recompute 1 --shards 2 --dropout 0.2",
        "--mixer leap --leap-focus exp --rescale 4 --normed-values 1",
        "--mixer dot --rescale 2 --conv-groups 4 --conv-kernel 3",
        "--mixer dot --conv-groups 1 --ffn-bias 0 --embedding-norm 1 --logit-bias 1",
        "--mixer dot,metric --attention-window 5,0",
        "--mixer dot --span 9 --ramp 4 --penalty 0.001",
        "--mixer dot --pattern strided --stride 4",
        "--mixer dot --pattern fixed --stride 4 --summary 1",
        "--mixer dot --pattern strided --stride 4 --part heads",
        "--mixer dot --pattern fixed --stride 4 --summary 1 --part layers",
        "--mixer dot --norm post --activation relu --embedding-scale 4",
        "--mixer dot --reversible 1",
        "--mixer additive --reversible 1 --chunk 8",
        "--mixer dot --chunk 8 --positions rotary",
        "--mixer additive,leap,average,identity --layers 4 --final-norm 0",
        "--mixer quadratic --dropout 0.3 --label-smoothing 0.1",
        "--heads 3 --channels 12 --positions alibi --mixer dot --alibi-slopes interleaved",
        "--optimizer muon --mixer metric",
        "--optimizer muon --muon-rounds 2 --mixer dot --weight-decay 0.5",
        "--schedule linear --clip 0.1 --beta1 0.8 --beta2 0.9",
        "--schedule inverse-sqrt --weight-average 3",
        "--tokenizer byte --eval-tokens 100",
        "--preset shakespeare --layers 2 --channels 32 --heads 2 --context 24",
        "--preset fastformer --layers 2 --channels 32 --heads 2 --context 24",
        "--preset baby --layers 2 --channels 32 --heads 2 --context 24",
    )
    for task in ("sort", "recall", "dates", "pairs", "reviews", "digits"):
        for mixer in ("additive", "dot"):
            yield f"--task {task} --mixer {mixer}"
    yield from (
        "--task sort --mixer leap --length 4 --digits 5 --optimizer muon",
        "--task recall --mixer average --reach 5 --dropout 0.1",
        "--task dates --mixer metric --cross bahdanau --norm post",
        "--task pairs --mixer bahdanau --embeddings shared --tokenizer byte",
        "--task pairs --mixer leap --embeddings separate --weight-average 2 --shards 2",
        "--task reviews --mixer identity --labels tone --causal 1",
        "--task reviews --mixer dot --class-pooling cls",
        "--task digits --mixer metric --patch 8",
        "--task digits --mixer dot --class-pooling cls --optimizer muon",
    )
    for mixer in ("additive", "metric", "dot", "leap"):
        yield f"--mixer {mixer} --device plain"
        yield f"--mixer {mixer} --isa baseline --dropout 0.1"
        yield f"--mixer {mixer} --isa avx2 --optimizer muon"
    # Every mixer with a few optimizers, position encodings and tasks: rows for comparing compilers and machines.
    yield "--steps 30 --mixer additive,metric --conv-kernel 4 --dropout 0.1"
    yield "--steps 30 --mixer leap,dot --positions rotary --heads 3 --channels 39 --optimizer muon"
    yield "--steps 30 --mixer bahdanau,quadratic --positions alibi --norm post --label-smoothing 0.1"
    yield "--steps 30 --task sort --mixer identity,average --clip 0.1"
    small = "--layers 1 --channels 8 --context 6 --batch 2 --steps 2 --eval-every 0 --device emulated"
    for mixer in ("additive", "metric", "dot"):
        yield f"{small} --mixer {mixer}"
        yield f"{small} --mixer {mixer} --type bf16"
    yield f"{small} --mixer dot --optimizer muon --type bf16"


def flags_of(row, data):
    """The flags of BASE, without flags that the row's task refuses, overridden by the row's flags; and its instruction
    set."""
    words = row.split()
    given = dict(zip(words[::2], words[1::2]))
    flags = dict(zip(BASE[::2], BASE[1::2]))
    task = given.get("--task", "text")
    if task not in ("text", "recall", "pairs"):
        del flags["--context"]
    if task in ("dates", "pairs"):
        del flags["--layers"]
        flags |= {"--encoder-layers": "1", "--decoder-layers": "1"}
    if task == "pairs":
        flags["--context"] = "40"
    if task in ("text", "pairs"):
        flags["--data"] = str(data / f"{task}.txt")
    if task == "recall":
        flags["--eval-tokens"] = "400"
    elif task not in ("text", "pairs"):
        flags["--eval-tokens"] = "50"
    isa = given.pop("--isa", None)
    return [word for pair in (flags | given).items() for word in pair], isa


def write_data(folder):
    """Writes a text with some regularity, and pairs of a number and its square."""
    dice = random.Random(1)
    words = ["".join(dice.choice("abdeilmnorstu") for _ in range(dice.randint(1, 7))) for _ in range(60)]
    lines = [" ".join(dice.choice(words) for _ in range(dice.randint(3, 9))) for _ in range(150)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / "pairs.txt").write_text("".join(f"{n}\t{n * n}\n" for n in range(17, 137)))


def tensors(path):
    """The header of a safetensors file without its metadata, and the data."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    return header, content[end:]


def outcome(train, row, data, folder):
    """The files of a run by name; or its status, if train refuses the flags."""
    flags, isa = flags_of(row, data)
    command = [*train, *flags, "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, env={"ATTENTION_ISA": isa} if isa else None)
    if done.returncode:
        return {"status": done.returncode}, done.stderr.strip()
    log = [line.rsplit(",", 1)[0] for line in (folder / "log.csv").read_text().splitlines()]
    return {"model.safetensors": (folder / "model.safetensors").read_bytes(),
            "resume.safetensors": tensors(folder / "resume.safetensors"),
            "log.csv": log,
            "sample.txt": (folder / "sample.txt").read_bytes()}, ""


def train_of(build):
    """The command of train in a build: FOLDER or EMULATOR:FOLDER."""
    *emulator, folder = build.split(":")
    return [*emulator, Path(folder).resolve() / "train"]


def main():
    old, new = (train_of(build) for build in sys.argv[1:3])
    wanted = sys.argv[3:]
    same = refused = different = 0
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        write_data(place)
        for number, row in enumerate(rows()):
            if wanted and not any(word in row for word in wanted):
                continue
            before, why = outcome(old, row, place, place / f"old{number}")
            after, why_now = outcome(new, row, place, place / f"new{number}")
            differing = [name for name in before | after if before.get(name) != after.get(name)]
            if differing:
                different += 1
                print(f"differs in {', '.join(differing)}: {row} {why_now}", flush=True)
            elif "status" in before:
                refused += 1
            else:
                same += 1
    print(f"{same} runs have the same bits, {different} differ, {refused} are refused by both")
    sys.exit(different > 0)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
