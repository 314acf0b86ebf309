"""The cost model of extras/distributed/README.md, as a table."""

from math import log2

FLOPS = 0.4 * 989e12  # per second and GPU: an assumed 40 % of the peak in bf16
BOX, NET = 370e9, 47e9  # bytes per second, GPU and direction: inside a box, and to another box
LATENCY = 19e-6  # seconds per message
GPUS = 8  # per box

# mixer: number of its weight matrices of size D^2. batch: number of sequences.
baby = dict(name="baby", weights=9_015_168, layers=6, D=384, C=256, V=65, mixer=2, batch=64)
gpt2 = dict(name="124M", weights=124_000_000, layers=12, D=768, C=1024, V=50257, mixer=4, batch=512)


def pieces_on_cpus(m):
    """Number of pieces of a sum on CPUs: at most 2^20 numbers each, and a piece ends at the end of a block."""
    of = lambda numbers: -(-numbers // 2**20)
    blocks = m["layers"] * (of(m["mixer"] * m["D"] ** 2) + of(8 * m["D"] ** 2))
    return blocks + of(m["V"] * m["D"]) + 1


def pieces_on_gpus(m):
    """Number of pieces on GPUs: 2^22 numbers each, from several blocks."""
    return -(-m["weights"] // 2**22)


def flops_a_token(m):
    attention = 12 * m["layers"] * m["C"] * m["D"] / 2 if m["mixer"] == 4 else 0
    return 6 * m["weights"] + attention


def sum_seconds(m, processes, messages):
    """Seconds of an all-reduce by halving and doubling, first within a box: each GPU sends an eighth of the gradient
    out."""
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
            # Two thirds of a step are its backward pass. Pieces are summed during it; a single piece is summed after
            # it.
            times = [compute + max(0, sum - compute * 2 / 3) for sum in sums[:2]] + [compute + sums[2]]
            print(
                f"| {m['name']} | {processes} | {m['batch'] // processes} | {1e3 * compute:.2f} | "
                + ", ".join(f"{1e3 * sum:.2f}" for sum in sums)
                + " | "
                + ", ".join(f"{whole / time:.1f}" for time in times)
                + " |"
            )
