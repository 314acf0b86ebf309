#!/usr/bin/env python3
"""Whether PyTorch computes what the programs compute, of every mixer with every position and option.

    tests/network/test_pytorch.py BUILD_DIR

Trains small models until their losses are far apart, and compares the loss of evaluate and the logits of golden with
tools/checkpoint_in_pytorch.py, of networks with an encoder those of pairs; then that each setting matters to it, that it refuses what it does not know, and that
the network which the benchmark measures (tools/pytorch_reference.py) is that of the equations. Needs torch. Prints
`N passed, N failed`; status 1 if one failed. tools/check_all.sh runs it.
"""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
try:
    import torch
except ImportError:
    sys.exit("tests/network/test_pytorch.py: torch is missing; install it with: python3 -m pip install torch")

import checkpoint_in_pytorch as bridge
from checkpoint import FEATURES, MARKS, MIXERS, POSITIONS, read, write

WINDOW = 13  # positions of a window
COMMON = {"layers": 1, "channels": 12, "heads": 3, "context": WINDOW, "batch": 4, "steps": 40, "warmup": 2,
          "learning-rate": 0.03, "init-std": 0.3, "threads": 1, "eval-every": 0, "conv-kernel": 0}

passed = failed = 0


def check(what, good, found=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED: {what}: {found}", flush=True)


def output_of(program, *words):
    command = [f"{sys.argv[1]}/{program}", *map(str, words)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run.returncode, run.stdout


def printed(*words):
    """What the tool prints for these arguments, or why it refuses."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            bridge.main([str(word) for word in words])
    except SystemExit as error:
        return str(error)
    return out.getvalue()


def every_case():
    """Flags of models, as one line."""
    for name, mixer in MIXERS.items():
        if mixer.flags:
            yield f"--mixer {name} {mixer.flags}"
            continue
        for positions in POSITIONS:
            yield f"--mixer {name} --positions {positions}"
        for heads in (3, 6):
            yield f"--mixer {name} --positions alibi --alibi-slopes interleaved --heads {heads}"
    for feature in FEATURES:
        yield from feature.runs
    for mixer in ("additive", "leap", "average"):
        for positions in POSITIONS:
            yield f"--mixer {mixer} --positions {positions} --window 3"
    for positions in POSITIONS:
        yield f"--mixer dot --positions {positions} --rescale 6"
    for values in ("shared", "own"):
        for projection in (0, 1):
            for skip in ("stream", "normed"):
                yield (f"--mixer additive --additive-values {values} --additive-projection {projection} "
                       f"--additive-skip {skip}")
    for switch in ("embedding-norm 1", "final-norm 0", "logit-bias 1", "ffn-bias 0"):
        yield f"--mixer dot --{switch}"
    for kernel in (1, 2, 5):
        for groups in (0, 1, 3):
            yield f"--mixer additive --conv-kernel {kernel} --conv-groups {groups}"
    yield "--mixer average,identity,leap,additive,dot --layers 5 --window 0,0,2,5,0 --positions alibi --conv-kernel 4"
    yield "--mixer additive,dot --layers 2 --norm post --activation relu --embedding-scale 2 --conv-kernel 3"
    yield "--mixer dot --activation gelu_tanh"
    yield "--mixer additive --norm post --additive-skip normed"
    yield "--mixer additive,dot,leap --layers 3 --reversible 1 --conv-kernel 3 --positions alibi --embedding-norm 1"
    yield "--mixer bahdanau,identity --layers 2 --reversible 1"
    yield "--mixer metric,quadratic --layers 2 --positions rotary --tokenizer byte --channels 15"


def every_case_of_pairs():
    """The same, of networks with an encoder."""
    for name, mixer in MIXERS.items():
        if mixer.with_encoder:
            yield f"--mixer {name} {mixer.flags}"
    for positions in POSITIONS:
        yield f"--mixer dot,metric,additive,leap --encoder-layers 2 --decoder-layers 2 --positions {positions}"
    for embeddings in ("separate", "target", "shared"):
        for norm in ("pre", "post"):
            yield f"--embeddings {embeddings} --norm {norm} --cross bahdanau --activation relu --embedding-scale 3.5"
    for switch in ("embedding-norm 1", "final-norm 0", "logit-bias 1", "ffn-bias 0", "conv-kernel 3"):
        yield f"--mixer dot --{switch}"
    yield "--tokenizer byte --encoder-layers 2 --mixer average,bahdanau,identity --window 0,0,3"


# Keys that change what a network computes while its tensors stay as they are, with another value for each.
SILENT_OF_PAIRS = {"norm": "post", "activation": "relu", "embedding_scale": "2"}
SILENT = {"window": "2", "skip": "normed", "focus": "exp", "rescale": "3", "normed_values": "1", "causal": "0",
          "positions": "none", "alibi_slopes": "interleaved", "logit_scale": "0.5", "heads": "1", "reversible": "1"}


def trained(flags, run, *what):
    """Whether a model of these flags was trained. With an encoder each stack has layers of its own."""
    given = flags + " --layers " if "--encoder-layers" in flags else flags
    words = [word for key, value in COMMON.items() for word in (f"--{key}", value) if f"--{key} " not in given]
    status, out = output_of("train", *what, "--out", run, "--overwrite", *words, *flags.split())
    check(f"{flags}: training", status == 0, out)
    return status == 0


def compare(flags, run, shown, golden, data, targets=None):
    """The loss of `shown` here and by evaluate on `data`, which is to be that of as many targets; then the logits."""
    status, out = output_of("evaluate", "--checkpoint", run, "--data", data)
    theirs = float(re.search(r"([0-9.]+) nats", out.splitlines()[-1])[1])
    line = printed(run, shown, "--golden", golden)
    ours = re.fullmatch(r"([0-9]+) targets, ([0-9.]+) nats each\n", line)
    good = ours and targets in (None, int(ours[1])) and abs(float(ours[2]) - theirs) <= 6e-5  # evaluate prints four decimals
    check(flags, good, f"evaluate {theirs}, PyTorch {line!r}")
    status, out = output_of("golden", golden, "--type", "float", "--tolerance", "2e-5")
    check(f"{flags}: logits", status == 0, out)


def check_case(flags, folder, text):
    run, window = folder / "run", folder / "window.txt"
    if trained(flags, run, "--data", text):
        window.write_bytes(text.read_bytes()[: WINDOW + 1])
        compare(flags, run, text, folder / "golden.safetensors", window, WINDOW)


def check_pairs(flags, folder, pairs):
    """What is held back, the last tenth of the lines, is what evaluate measures."""
    run, held_back = folder / "run", folder / "held_back.tsv"
    sizes = "" if "--encoder-layers" in flags else " --encoder-layers 1"
    sizes += "" if "--decoder-layers" in flags else " --decoder-layers 1"
    if trained(flags + sizes, run, "--task", "pairs", "--data", pairs):
        lines = pairs.read_text().splitlines(keepends=True)
        held_back.write_text("".join(lines[-(len(lines) // 10) :]))
        compare(flags, run, held_back, folder / "golden.safetensors", pairs)


def check_refusals_of_pairs(folder, pairs):
    run, changed = folder / "run", folder / "changed.safetensors"
    trained("--encoder-layers 1 --decoder-layers 1 --mixer dot,leap", run, "--task", "pairs", "--data", pairs)
    tensors, metadata = read(run / "model.safetensors")
    loss = printed(run, pairs)
    check("a model of pairs", "nats each" in loss, loss)

    def result(metadata):
        write(changed, tensors, metadata)
        return printed(changed, pairs)

    for key, value in SILENT_OF_PAIRS.items():
        line = result(metadata | {key: value})
        check(f"{key} {value}", line != loss, line)
    for key, value in {"encoder_layers": "2", "decoder_layers": "0", "source_vocabulary_size": "9", "cross": "leap",
                       "source_context": "7", "embeddings": "shared", "source_characters": "ab"}.items():
        line = result(metadata | {key: value})
        check(f"{key} {value}", changed.name in line and line.count("\n") == 0, line)
    for text, what in {"no tab\n": "line 1: expected SOURCE TAB TARGET", "\n": "found none",
                       "1\t" + 99 * "1" + "\n": "expected at most 13 and 12 tokens, found 1 and 99"}.items():
        (folder / "odd.tsv").write_text(text)
        line = printed(run, folder / "odd.tsv")
        check(f"pairs of {text[:9]!r}", what in line, line)


def check_refusals(folder, text):
    """A model of leap, dot and additive with alibi, changed key by key: another loss, or an error."""
    run, changed = folder / "run", folder / "changed.safetensors"
    flags = "--mixer leap,dot,additive --layers 3 --positions alibi --conv-kernel 2 --conv-groups 3 --window 0,0,4"
    trained(flags, run, "--data", text)
    tensors, metadata = read(run / "model.safetensors")
    loss = printed(run, text)
    check("a model of three mixers", "nats each" in loss, loss)

    def result(tensors, metadata):
        write(changed, tensors, metadata)
        return printed(changed, text)

    for key, value in SILENT.items():
        line = result(tensors, metadata | {key: value})
        check(f"{key} {value}", line != loss, line)
    for key in metadata:
        if key not in ("format", "step", "validation_loss", *MARKS):
            line = result(tensors, metadata | {key: "something else"})
            check(f"{key} of a value that is none", f"metadata {key}: " in line and line.count("\n") == 0, line)
    check("an unknown key", "rope_theta: not known" in result(tensors, metadata | {"rope_theta": "1e6"}))
    more = tensors | {"scale_d": tensors["final_norm.bias_d"]}
    check("a tensor too many", "scale_d does not belong" in result(more, metadata))
    for name in tensors:
        fewer = {other: tensor for other, tensor in tensors.items() if other != name}
        check(f"without {name}", f"{name} is missing" in result(fewer, metadata))


def check_peer(folder):
    for mixer in ("additive", "metric", "dot"):
        file = folder / f"{mixer}.safetensors"
        run = subprocess.run([sys.executable, SOURCE / "tools/pytorch_reference.py", "--mixer", mixer, "--golden", file])
        status, out = output_of("golden", file)
        check(f"the benchmark's {mixer}", run.returncode == 0 and status == 0, out)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: test_pytorch.py BUILD_DIR")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("".join(f"{i * i % 97} to {i * 7 % 89}, then {i % 13}.\n" for i in range(200)))
        for flags in every_case():
            check_case(flags, folder, text)
        check_refusals(folder, text)
        pairs = folder / "pairs.tsv"
        pairs.write_text("".join(f"{i * 37 % 1000}\t{i * 37 % 1000 // 7}b\n" for i in range(60)) + "\t1\n" + "7\t\n")
        for flags in every_case_of_pairs():
            check_pairs(flags, folder, pairs)
        check_refusals_of_pairs(folder, pairs)
        check_peer(folder)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
