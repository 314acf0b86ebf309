#!/usr/bin/env python3
"""A training step of the dates network beside PyTorch's nn.Transformer of the same size, in turns.

    extras/seq2seq/dates_in_pytorch.py [--train build/train] [--rounds 5] [--steps 300] [--threads 2]

One layer of encoder and decoder each, 64 channels, 4 heads, 256 hidden channels, norms in front, logits with the table of
the target; batches of 64 sources of 26 characters and targets of 11, on random tokens in PyTorch, on dates here. PyTorch
runs eagerly and through torch.compile, with the fused AdamW and clipping; the better of the two is compared. A token is
one of the target, as `train` counts them. Needs torch.
"""

import argparse
import importlib.util
import re
import statistics
import subprocess
import sys
import tempfile
import time

if importlib.util.find_spec("torch") is None:
    sys.exit("extras/seq2seq/dates_in_pytorch.py: PyTorch is missing; install it with: python3 -m pip install torch")

import torch
import torch.nn.functional as F

B, S, C, D, SOURCE, TARGET = 64, 26, 11, 64, 41, 14


class Dates(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = torch.nn.Embedding(SOURCE, D), torch.nn.Embedding(TARGET, D)
        self.source_position = torch.nn.Parameter(0.02 * torch.randn(S, D))
        self.target_position = torch.nn.Parameter(0.02 * torch.randn(C, D))
        self.transformer = torch.nn.Transformer(
            D, 4, 1, 1, 4 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.register_buffer("causal", torch.nn.Transformer.generate_square_subsequent_mask(C))

    def forward(self, source_bs, padding_bs, token_bc, target_bc):
        out_bcd = self.transformer(
            self.source(source_bs) + self.source_position,
            self.target(token_bc) + self.target_position,
            tgt_mask=self.causal,
            src_key_padding_mask=padding_bs,
            memory_key_padding_mask=padding_bs,
            tgt_is_causal=True,
        )
        logits_bcv = F.linear(out_bcd, self.target.weight)
        return F.cross_entropy(logits_bcv.flatten(0, 1), target_bc.flatten())


def batch():
    source_bs = torch.randint(1, SOURCE, (B, S))
    length_b = torch.randint(8, S + 1, (B, 1))
    padding = torch.zeros(B, S).masked_fill(torch.arange(S)[None, :] >= length_b, float("-inf"))
    token_bc = torch.randint(1, TARGET, (B, C + 1))
    return source_bs, padding, token_bc[:, :-1], token_bc[:, 1:]


class Theirs:
    def __init__(self, compiled):
        model = Dates()
        self.model = torch.compile(model) if compiled else model
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, 2e-3, (0.9, 0.98), fused=True)
        self.batches = [batch() for _ in range(16)]
        self.rate(20)

    def rate(self, steps):
        """Tokens a second."""
        begin = time.perf_counter()
        for step in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.model(*self.batches[step % 16]).backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
        return steps * B * C / (time.perf_counter() - begin)


def ours(train, steps, threads):
    with tempfile.TemporaryDirectory() as folder:
        words = [train, "--task", "dates", "--out", folder + "/run", "--steps", str(steps), "--eval-every", "0",
                 "--checkpoint-every", "0", "--log-every", "0", "--weight-average", "0", "--threads", str(threads)]
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"([0-9]+) tokens/s, best ", out)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/train")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    kinds = {"eager": Theirs(False), "torch.compile": Theirs(True)}
    rates = {"ours": [], **{kind: [] for kind in kinds}}
    for _ in range(settings.rounds):
        rates["ours"].append(ours(settings.train, settings.steps, settings.threads))
        for kind, theirs in kinds.items():
            rates[kind].append(theirs.rate(settings.steps))
    for kind, all_rates in rates.items():
        print(f"{kind}: {statistics.median(all_rates):.0f} tokens/s ({min(all_rates):.0f} to {max(all_rates):.0f})")
    better = [max(pair) for pair in zip(*(rates[kind] for kind in kinds))]
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], better))
    print(f"ours by the better of them: {ratio:.2f}")


if __name__ == "__main__":
    main()
