"""What hashing finds and what it leaks: python3 extras/lsh/lsh_candidates.py

Neighbours that are correlated by a half, 1,024 of them, 64 channels, pieces of 64, 32 buckets: which share of all pairs
meet, which share of the weight of a softmax over all of them these hold, and how many of the 1,023 earlier positions
meet others when the last token alone becomes another one. Figures of extras/lsh/README.md."""

import math
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from lsh_reference import meetings  # noqa: E402

torch.set_default_dtype(torch.float64)

C, K, PIECE, BUCKETS, DRAWS = 1024, 64, 64, 32, 16


def sequence(generator):
    """(C, K), every row half of the one before it, and of deviation 1."""
    noise = torch.randn(C, K, generator=generator)
    rows = [noise[0]]
    for row in noise[1:]:
        rows.append(0.5 * rows[-1] + math.sqrt(0.75) * row)
    return torch.stack(rows)


def figures(generator, rounds):
    """Shares of pairs and of mass, and how many earlier positions meet others, of one draw."""
    query_ck = sequence(generator)
    other_ck = query_ck.clone()
    other_ck[-1] = torch.randn(K, generator=generator)
    key_ck = query_ck / (query_ck.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    earlier = torch.ones(C, C).tril(-1) > 0
    score_cs = torch.where(earlier, query_ck @ key_ck.T / math.sqrt(K), -torch.inf)
    rotations = torch.randn(1, rounds, K, BUCKETS // 2, generator=generator)
    met, others = (meetings(x[None, None], rotations, PIECE, True)[0, 0] > 0 for x in (query_ck, other_ck))
    mass = (torch.softmax(score_cs[1:], -1) * met[1:]).sum(-1).mean()
    moved = (met[:-1] != others[:-1]).any(-1).sum()
    return torch.stack((met.sum() / earlier.sum(), mass, moved.double()))


def main():
    generator = torch.Generator().manual_seed(0)
    print(f"means of {DRAWS} draws\nrounds  pairs    mass  rows that meet others, least to most")
    for rounds in (1, 2, 4, 8):
        drawn = torch.stack([figures(generator, rounds) for _ in range(DRAWS)])
        pairs, mass, moved = drawn.mean(0)
        least, most = drawn[:, 2].min(), drawn[:, 2].max()
        print(f"{rounds:6} {100 * pairs:4.0f} % {100 * mass:5.0f} % {moved:6.0f} of {C - 1}, {least:.0f} to {most:.0f}")


if __name__ == "__main__":
    main()
