#!/usr/bin/env python3
"""extras/lsh/lsh_leak.py RUN TEXT [--windows 64]: what a network with the mixer lsh owes to tokens that come later.

Takes windows of TEXT as long as the context, spread over its last tenth. Of each it computes the loss at seven positions
twice: in one pass over the whole window, as training and evaluate do, and in a pass over no more than what stands up to
that position. Prints both means, and the standard error of their difference. Needs torch.
"""

import argparse
import pathlib
import sys

try:
    import torch
except ImportError:
    sys.exit("extras/lsh/lsh_leak.py: torch is missing; install it with: python3 -m pip install torch")

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from checkpoint_in_pytorch import encode  # noqa: E402
from reference_model import cross_entropy, logits, tensors_of  # noqa: E402
from checkpoint import FileError, read_model, words_of  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=64)
    arguments = parser.parse_args()
    try:
        tensors, settings, metadata = read_model(arguments.run / "model.safetensors")
        text = arguments.text.read_bytes()
        ids = encode(words_of(settings, metadata), "vocabulary", text, arguments.text)
    except (FileError, OSError) as error:
        sys.exit(f"extras/lsh/lsh_leak.py: {error}")
    weights, C = tensors_of(tensors), settings.context
    first, last = len(ids) * 9 // 10, len(ids) - C - 1
    if last <= first:
        sys.exit(f"extras/lsh/lsh_leak.py: {arguments.text}: a tenth of it is shorter than {C} tokens")

    def loss_c(tokens):
        return cross_entropy(logits(weights, settings, tokens[None, :-1]), tokens[None, 1:])[1][0]

    whole, prefix = [], []
    with torch.no_grad():
        for window in range(arguments.windows):
            begin = first + (last - first) * window // arguments.windows
            tokens = torch.tensor(ids[begin : begin + C + 1])
            loss_of_pass_c = loss_c(tokens)
            for c in range(C // 8 - 1, C - 1, C // 8):
                whole.append(loss_of_pass_c[c])
                prefix.append(loss_c(tokens[: c + 2])[c])
    whole, prefix = torch.stack(whole).double(), torch.stack(prefix).double()
    apart = prefix - whole
    print(f"{len(apart)} positions: {whole.mean():.4f} nats in the pass, {prefix.mean():.4f} of what stands before alone; "
          f"difference {apart.mean():.4f}, standard error {apart.std() / len(apart) ** 0.5:.4f}, "
          f"above 0.01 either way in {100 * (apart.abs() > 0.01).double().mean():.0f} %")


if __name__ == "__main__":
    main()
