#!/usr/bin/env python3
"""Whether files are exchanged with PyTorch, safetensors and transformers as docs/checkpoints.md says.

    tests/network/test_interchange.py BUILD_DIR

Tied weights in both directions, files that are saved again, numpy arrays, and GPT-2 of transformers in both directions.
Needs torch, safetensors, numpy and transformers; a part whose packages are missing is skipped with a line. Prints
`N passed, N failed`; status 1 if one failed.
"""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
from checkpoint import read, write

TEXT = "".join(f"{i * i % 97} to {i * 7 % 89}, then {i % 13}.\n" for i in range(200))
CHARACTERS = "".join(sorted(set(TEXT)))
CONTEXT = 16

passed = failed = 0


def check(what, good, found=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED: {what}: {found}", flush=True)


def output_of(*command):
    run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run.returncode, run.stdout.strip()


def tool(name, *words):
    return output_of(sys.executable, SOURCE / "tools" / name, *words)


class Place:
    """A folder with a text, its first window, and a small trained model."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        self.text, self.window = folder / "text.txt", folder / "window.txt"
        self.text.write_text(TEXT)
        self.window.write_text(TEXT[: CONTEXT + 1])

    def __truediv__(self, name):
        return self.folder / name

    def program(self, name, *words):
        return output_of(f"{self.build}/{name}", *words)

    def trained(self, name, *flags):
        sizes = ("--layers", 2, "--channels", 12, "--heads", 3, "--context", CONTEXT, "--batch", 4, "--steps", 60,
                 "--warmup", 2, "--learning-rate", 0.03, "--conv-kernel", 0)  # fmt: skip
        sizes += () if "--mixer" in flags else ("--mixer", "dot")
        status, out = self.program("train", "--data", self.text, "--out", self / name, *sizes, *flags)
        check(f"training of {name}", status == 0, out)
        return self / name / "model.safetensors"

    def evaluation(self, checkpoint, data=None):
        return self.program("evaluate", "--checkpoint", checkpoint, "--data", data or self.text)[1].splitlines()[-1]


def check_refusals(place):
    """Damage of a file of ours is an error for the programs and for the Python tools, with the same words."""
    ours = place.trained("ours")
    whole, damaged = ours.read_bytes(), place / "damaged.safetensors"
    flipped = bytearray(whole)
    flipped[-5] ^= 4
    for what, content, words in (("a flipped bit", bytes(flipped), "damaged or was saved again: CRC-32"),
                                 ("four bytes more", whole + bytes(4), "belong to no tensor")):
        damaged.write_bytes(content)
        for line in (place.evaluation(damaged), tool("to_transformers.py", damaged, "--out", place / "none")[1]):
            check(what, words in line, line)
    return ours


def check_saved_again(place, ours):
    """The snippets of docs/checkpoints.md."""
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.numpy import load_file as load_numpy
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import load_file, load_model, save_file, save_model

    again = place / "again.safetensors"
    with safe_open(ours, "pt") as file:
        save_file({name: file.get_tensor(name).float() for name in file.keys()}, again, file.metadata())
    line = place.evaluation(again)
    check("with the marks", "drop abh_version and abh_crc32 from the metadata" in line, line)
    section = (SOURCE / "docs/checkpoints.md").read_text().partition("## From PyTorch")[2]
    snippets = re.findall(r"\n\n((?:    .*\n|\n)*    .*\n)\n", section)
    conversion = next(snippet for snippet in snippets if "half.safetensors" in snippet)
    load_half = {name: tensor.half() for name, tensor in load_file(ours).items()}
    save_file(load_half, place / "half.safetensors", safe_open(ours, "pt").metadata())
    code = "\n".join(line[4:] for line in conversion.splitlines())
    run = subprocess.run([sys.executable, "-c", code], cwd=place.folder, stderr=subprocess.PIPE, text=True)
    line = place.evaluation(place / "theirs.safetensors")
    check("the snippet half -> float", run.returncode == 0 and "nats/char" in line, run.stderr + line)

    class Tied(torch.nn.Module):
        """The weights of the file, with a logit matrix that is the token table."""

        def __init__(self, tensors):
            super().__init__()
            for name, tensor in tensors.items():
                *path, last = name.split(".")
                module = self
                for part in path:
                    if not hasattr(module, part):
                        module.add_module(part, torch.nn.Module())
                    module = getattr(module, part)
                module.register_parameter(last, torch.nn.Parameter(tensor))
            self.lm_head = torch.nn.Linear(1, 1, bias=False)
            self.lm_head.weight = self.embedding.token_vd

    tensors, metadata = load_file(ours), read(ours)[1]
    least = {key: metadata[key] for key in ("tokenizer", "vocabulary", "layers", "heads", "mixer", "ffn_bias")}
    model, copy = Tied(tensors), place / "tied.safetensors"
    try:
        save_file(model.state_dict(), copy)
        check("save_file of tied tensors", False)
    except RuntimeError as error:
        check("save_file of tied tensors", "share memory" in str(error), error)
    expected = place.evaluation(ours).partition(": ")[2].partition(",")[2]
    state = model.state_dict()
    del state["lm_head.weight"]
    save_file(state, copy, least)
    check("tied, save_file", place.evaluation(copy).endswith(expected), place.evaluation(copy))
    save_model(model, copy, least)
    names, entries = read(copy)
    check("save_model", entries["lm_head.weight"] == "embedding.token_vd" and "lm_head.weight" not in names, entries)
    check("tied, save_model", place.evaluation(copy).endswith(expected), place.evaluation(copy))
    status, line = tool("checkpoint_in_pytorch.py", copy, place.window)
    check("tied, save_model, in Python", "nats each" in line, line)
    empty = Tied({name: torch.zeros_like(tensor) for name, tensor in tensors.items()})
    load_model(empty, ours)
    same = all(torch.equal(a, b) for a, b in zip(empty.state_dict().values(), model.state_dict().values()))
    check("a tied model loads a file of ours", same and empty.lm_head.weight is empty.embedding.token_vd)

    turned = {name: numpy.asfortranarray(array) for name, array in load_numpy(ours).items()}
    save_numpy({name: numpy.ascontiguousarray(array) for name, array in turned.items()}, copy, least)
    check("numpy.ascontiguousarray", place.evaluation(copy).endswith(expected), place.evaluation(copy))


def check_gpt2(place):
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    window = torch.tensor([[CHARACTERS.index(character) for character in TEXT[: CONTEXT + 1]]])

    def model_of(**changes):
        torch.manual_seed(3)
        sizes = {"vocab_size": len(CHARACTERS), "n_positions": CONTEXT, "n_embd": 24, "n_layer": 2, "n_head": 3,
                 "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None}  # fmt: skip
        model = GPT2LMHeadModel(GPT2Config(**(sizes | changes))).eval()
        with torch.no_grad():  # biases are 0 and norms 1 at first
            for weight in model.parameters():
                if weight.dim() == 1:
                    weight.add_(torch.randn_like(weight) / 5)
        return model

    file, golden = place / "gpt2.safetensors", place / "golden.safetensors"

    def convert(model, *characters):
        model.save_pretrained(place / "gpt2")
        return tool("from_transformers.py", place / "gpt2", "--out", file, *characters)

    characters = ("--characters", place.text)
    for changes in ({}, {"activation_function": "gelu"}, {"activation_function": "relu", "n_inner": 40}):
        model = model_of(**changes)
        status, line = convert(model, *characters)
        check(f"conversion of {changes}", status == 0, line)
        with torch.no_grad():
            logits = model(window[:, :-1]).logits
            theirs = torch.nn.functional.cross_entropy(logits[0], window[0, 1:]).item()
        line = place.evaluation(file, place.window)
        ours = float(re.search(r"([0-9.]+) nats", line)[1])
        check(f"evaluate of {changes}", abs(ours - theirs) <= 6e-5, f"{ours}, transformers {theirs}")  # of four decimals
        status, line = tool("checkpoint_in_pytorch.py", file, place.window, "--golden", golden)
        check(f"the loss of {changes}", abs(float(re.search(r"([0-9.]+) nats", line)[1]) - theirs) <= 1e-5, line)
        # The logits and the loss of transformers, in the place of those of tools/reference_model.py.
        tensors, metadata = read(golden)
        for name, value in (("output.logits_bcv", logits), ("output.loss", torch.tensor(theirs))):
            value = value.double().contiguous()
            tensors[name] = "F64", tuple(value.shape), value.numpy().tobytes()
        write(golden, tensors, metadata)
        status, line = place.program("golden", golden, "--type", "float", "--tolerance", "1e-5")
        check(f"golden of {changes}", status == 0, line)

    for changes, words in (({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06, expected 1e-05"),
                           ({"activation_function": "silu"}, "activation_function is silu"),
                           ({"scale_attn_by_inverse_layer_idx": True}, "expected False"),
                           ({"vocab_size": 200}, f"holds {len(CHARACTERS)} different characters, expected 200")):
        status, line = convert(model_of(**changes), *characters)
        check(f"{changes}", status == 1 and words in line and "\n" not in line, line)
    status, line = convert(model_of(vocab_size=200))
    check("200 entries", status == 1 and "expected 256 bytes" in line, line)
    status, line = convert(model_of(vocab_size=256))
    check("256 entries are bytes", status == 0 and read(file)[1]["tokenizer"] == "byte", line)
    (place / "gpt2/tokenizer.json").write_text("{}")
    status, line = convert(model_of(vocab_size=256))
    check("with a tokenizer", status == 1 and "has a tokenizer" in line, line)
    (place / "gpt2/tokenizer.json").unlink()
    status, line = convert(model_of().half(), *characters)
    check("half precision", status == 1 and "is F16, expected F32" in line, line)

    for flags in (("--activation", "gelu_tanh"), ("--ffn-bias", 0)):
        run = place.trained(f"tanh{flags[1]}", *flags)
        status, line = tool("to_transformers.py", run, "--out", place / "exported")
        check(f"export of {flags}", status == 0, line)
        letters = read(run)[1]["vocabulary"]
        check("its vocabulary", "".join(json.loads((place / "exported/vocabulary.json").read_text())) == letters)
        model = GPT2LMHeadModel.from_pretrained(place / "exported").eval()
        prompt, count = TEXT[:4], CONTEXT - 4
        tokens = torch.tensor([[letters.index(character) for character in prompt]])
        generated = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False)
        theirs = "".join(letters[token] for token in generated[0])
        ours = place.program("generate", "--checkpoint", run, "--prompt", prompt, "--tokens", count, "--temperature", 0)[1]
        check(f"the greedy text of {flags}", ours == theirs.strip(), f"{ours!r}, transformers {theirs!r}")
        status, line = tool("from_transformers.py", place / "exported", "--out", file, *characters)
        check(f"back again {flags}", place.evaluation(file).partition(",")[2] == place.evaluation(run).partition(",")[2], line)
    for flags, words in ((("--positions", "rotary"), "positions"), (("--mixer", "leap"), "the mixer dot"),
                         (("--norm", "post"), "norm"), (("--attention-window", 3), "window")):
        status, line = tool("to_transformers.py", place.trained("-".join(map(str, flags)), *flags), "--out", place / "none")
        check(f"export of {flags}", status == 1 and words in line and "\n" not in line, line)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: test_interchange.py BUILD_DIR")
    with tempfile.TemporaryDirectory() as name:
        place = Place(pathlib.Path(name), sys.argv[1])
        ours = check_refusals(place)
        for part, packages in ((lambda: check_saved_again(place, ours), "torch safetensors numpy"),
                               (lambda: check_gpt2(place), "torch transformers safetensors")):
            missing = [package for package in packages.split() if importlib.util.find_spec(package) is None]
            if missing:
                print(f"skipped: exchange with {packages}; not installed: {' '.join(missing)}")
            else:
                part()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
