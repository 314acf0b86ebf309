"""The model of costs of extras/distributed/README.md, as a table."""

from math import log2

FLOPS = 0.4 * 989e12  # of a GPU: an assumed 40 % of the peak in bf16
BOX, NET = 370e9, 47e9  # bytes a second, in one direction, of a GPU: within its box, to another one
LATENCY = 19e-6  # seconds of an exchange
GPUS = 8  # in a box

# mixer: its matrices, of D^2 weights each. batch: sequences.
baby = dict(name="baby", weights=9_015_168, layers=6, D=384, C=256, V=65, mixer=2, batch=64)
gpt2 = dict(name="124M", weights=124_000_000, layers=12, D=768, C=1024, V=50257, mixer=4, batch=512)


def pieces_on_cpus(m):
    """Of a sum: 2^20 numbers at most, and they end where a block does."""
    of = lambda numbers: -(-numbers // 2**20)
    blocks = m["layers"] * (of(m["mixer"] * m["D"] ** 2) + of(8 * m["D"] ** 2))
    return blocks + of(m["V"] * m["D"]) + 1


def pieces_on_gpus(m):
    """2^22 numbers, of as many blocks as it takes."""
    return -(-m["weights"] // 2**22)


def flops_a_token(m):
    attention = 12 * m["layers"] * m["C"] * m["D"] / 2 if m["mixer"] == 4 else 0
    return 6 * m["weights"] + attention


def sum_seconds(m, processes, messages):
    """Halving and doubling, neighbours first: what leaves a box is an eighth of the gradient a GPU."""
    inside = min(processes, GPUS)
    boxes = processes / inside
    moved = (1 - 1 / inside) / BOX + (1 / inside) * (1 - 1 / boxes) / NET
    return 2 * 4 * m["weights"] * moved + 2 * log2(processes) * LATENCY * messages


def figures():
    print(
        "| model | GPUs | sequences per GPU | computation, ms "
        "| sum, ms: CPU pieces, GPU pieces, one piece | speed relative to one GPU |"
    )
    print("|---|---|---|---|---|---|")
    for m in (baby, gpt2):
        whole = flops_a_token(m) * m["batch"] * m["C"] / FLOPS
        for processes in (8, 64, 512):
            if processes > m["batch"]:
                continue
            compute = whole / processes
            sums = [sum_seconds(m, processes, n) for n in (pieces_on_cpus(m), pieces_on_gpus(m), 1)]
            # Two thirds of a step are its backward pass. Pieces go on beside it, a single one begins at its end.
            times = [compute + max(0, sum - compute * 2 / 3) for sum in sums[:2]] + [compute + sums[2]]
            print(
                f"| {m['name']} | {processes} | {m['batch'] // processes} | {1e3 * compute:.2f} | "
                + ", ".join(f"{1e3 * sum:.2f}" for sum in sums)
                + " | "
                + ", ".join(f"{whole / time:.1f}" for time in times)
                + " |"
            )
