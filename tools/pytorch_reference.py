#!/usr/bin/env python3
"""The same network in PyTorch: time and memory of a training step, compared with this project.

tools/pytorch_reference.py [--bench build-cuda/bench] [--mixer additive,metric,dot] [--json FILE]
tools/pytorch_reference.py --attention --bench build-cuda/bench [--json FILE]
tools/pytorch_reference.py --golden FILE --mixer metric

The first command measures training steps (forward, backward, clipping, AdamW) at the sizes of a preset: in PyTorch
eagerly, with torch.compile, and with torch.compile and CUDA graphs. With --bench it alternates with the program bench,
round after round, so that other load on the machine affects all of them. On a CPU it then prints the peak memory of
each way, from a separate process with three warm-up steps and five measured steps. The second command measures causal
attention alone, on a GPU in bf16 with six heads of 64 channels, compared with the kernels of
scaled_dot_product_attention. The third command compares this model with the equations (tools/reference_model.py) at a
tiny size and writes a golden file (docs/golden.md) with the loss and the gradients. `build/golden FILE` then checks
that both projects compute the same. Needs torch; runs on a CPU as well.

PyTorch gets its fastest settings: all CPUs (--threads), bf16 autocast, the fused AdamW, scaled_dot_product_attention,
one matrix for query, key and value, and no wait for the GPU between steps (bench reads the loss after each step).
PyTorch has no function for additive pooling, which is measured in two forms: running sums (scan), and attention with
one query (attention).
"""

import argparse
import gc
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

if importlib.util.find_spec("torch") is None:
    sys.exit("tools/pytorch_reference.py: PyTorch is missing; install it with: python3 -m pip install torch")

import torch
import torch.nn.functional as F
from torch import nn

# Sizes of src/settings/config.cpp: layers, channels, heads, context, batch, dropout; with a depthwise convolution of
# kernel 4.
PRESETS = {
    "tiny": {"layers": 4, "channels": 128, "heads": 4, "context": 64, "batch": 12, "dropout": 0.0},
    "baby": {"layers": 6, "channels": 384, "heads": 6, "context": 256, "batch": 64, "dropout": 0.2},
}
CONV_KERNEL = 4
VOCABULARY = 65  # Tiny Shakespeare's
MODES = ("eager", "compile", "graphs")


# ---- the model ------------------------------------------------------------------------------------------------------


def matrix(*shape, std=0.02):
    return nn.Parameter(std * torch.randn(*shape))


class Norm(nn.Module):
    def __init__(self, D):
        super().__init__()
        self.weight_d = nn.Parameter(torch.ones(D))
        self.bias_d = nn.Parameter(torch.zeros(D))

    def forward(self, x_bcd):
        return F.layer_norm(x_bcd, x_bcd.shape[-1:], self.weight_d, self.bias_d, 1e-5)


class Conv(nn.Module):
    def __init__(self, D, kernel):
        super().__init__()
        self.norm = Norm(D)
        self.weight_dgj = matrix(D, 1, kernel, std=1 / math.sqrt(3 * kernel))

    def forward(self, x_bcd):
        D, _, kernel = self.weight_dgj.shape
        h_bdc = F.pad(self.norm(x_bcd).transpose(1, 2), (kernel - 1, 0))
        return F.conv1d(h_bdc, self.weight_dgj, groups=D).transpose(1, 2)


class Ffn(nn.Module):
    def __init__(self, D):
        super().__init__()
        self.norm = Norm(D)
        self.up_fd, self.up_bias_f = matrix(4 * D, D), nn.Parameter(torch.zeros(4 * D))
        self.down_df, self.down_bias_d = matrix(D, 4 * D), nn.Parameter(torch.zeros(D))

    def forward(self, x_bcd):
        hidden_bcf = F.gelu(F.linear(self.norm(x_bcd), self.up_fd, self.up_bias_f))
        return F.linear(hidden_bcf, self.down_df, self.down_bias_d)


def heads_apart(x_bch, N):
    return x_bch.unflatten(-1, (N, -1)).transpose(1, 2)


def heads_together(x_bnck):
    return x_bnck.transpose(1, 2).flatten(-2)


class Dot(nn.Module):
    def __init__(self, D, N, dropout, pooling):
        super().__init__()
        self.N, self.dropout = N, dropout
        self.norm = Norm(D)
        self.qkv_qd, self.output_dh = matrix(3 * D, D), matrix(D, D)

    def forward(self, x_bcd):
        q, k, v = (heads_apart(x, self.N) for x in F.linear(self.norm(x_bcd), self.qkv_qd).chunk(3, -1))
        t_bnck = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.dropout(F.linear(heads_together(t_bnck), self.output_dh), self.dropout, self.training)

    SLICES = {"qkv_qd": ("query_hd", "key_hd", "value_hd")}


class Metric(nn.Module):
    def __init__(self, D, N, dropout, pooling):
        super().__init__()
        self.N, self.dropout = N, dropout
        self.norm = Norm(D)
        K = D // N
        self.project_hd, self.output_dh = matrix(D, D), matrix(D, D)
        # Index of the element (k, k') of M in the packed upper triangle.
        rows, columns = torch.triu_indices(K, K)
        place_kk = torch.empty(K, K, dtype=torch.long)
        place_kk[rows, columns] = place_kk[columns, rows] = torch.arange(len(rows))
        self.register_buffer("place_kk", place_kk, persistent=False)
        self.metric_nl = nn.Parameter((rows == columns).to(torch.get_default_dtype()).repeat(N, 1))

    def forward(self, x_bcd):
        p_bnck = heads_apart(F.linear(self.norm(x_bcd), self.project_hd), self.N)
        k_bnck = p_bnck @ self.metric_nl[:, self.place_kk]
        t_bnck = F.scaled_dot_product_attention(p_bnck, k_bnck, p_bnck, is_causal=True)
        return F.dropout(F.linear(heads_together(t_bnck), self.output_dh), self.dropout, self.training)

    SLICES = {}


def pool_by_scan(x_bnck, pool_nk):
    """Averages of earlier positions with weights e^a, a = x . pool / sqrt(K), as running sums relative to the largest
    logit of the row. Exact if the logits of a row are within about 80 of each other, as in the first steps."""
    precise = torch.promote_types(x_bnck.dtype, torch.float32)
    a_bnc = torch.einsum("bnck,nk->bnc", x_bnck, pool_nk).to(precise) / math.sqrt(x_bnck.shape[-1])
    a_bnc = a_bnc - a_bnc.amax(-1, keepdim=True).detach()
    weighted_bnck = (a_bnc.exp()[..., None] * x_bnck).cumsum(2)
    return (weighted_bnck * torch.exp(-torch.logcumsumexp(a_bnc, -1))[..., None]).to(x_bnck.dtype)


def pool_by_attention(x_bnck, pool_nk):
    """The same by attention: the pooling vector is the query of every position."""
    query_bnck = pool_nk.to(x_bnck.dtype)[None, :, None, :].expand_as(x_bnck)
    return F.scaled_dot_product_attention(query_bnck, x_bnck, x_bnck, is_causal=True)


class Additive(nn.Module):
    def __init__(self, D, N, dropout, pooling):
        super().__init__()
        self.N, self.dropout = N, dropout
        self.pool = {"scan": pool_by_scan, "attention": pool_by_attention}[pooling]
        self.norm, self.mid_norm = Norm(D), Norm(D)
        self.qk_qd = matrix(2 * D, D)
        self.query_pool_nk = nn.Parameter(torch.zeros(N, D // N))
        self.key_pool_nk = nn.Parameter(torch.zeros(N, D // N))

    def pooled(self, x_bcd, pool_nk):
        p_bcd = heads_together(self.pool(heads_apart(x_bcd, self.N), pool_nk))
        return F.dropout(p_bcd, self.dropout, self.training)

    def forward(self, x_bcd):
        h_bcd = self.norm(x_bcd)
        q_bcd, k_bcd = F.linear(h_bcd, self.qk_qd).chunk(2, -1)
        r_bcd = h_bcd + self.pooled(q_bcd, self.query_pool_nk) * k_bcd
        t_bcd = self.mid_norm(r_bcd).to(q_bcd.dtype)
        return self.pooled(t_bcd, self.key_pool_nk) * q_bcd

    SLICES = {"qk_qd": ("query_dd", "key_dd")}


MIXERS = {"additive": Additive, "metric": Metric, "dot": Dot}


class Layer(nn.Module):
    def __init__(self, mixer, D, N, dropout, pooling):
        super().__init__()
        self.dropout = dropout
        self.conv, self.mixer, self.ffn = Conv(D, CONV_KERNEL), MIXERS[mixer](D, N, dropout, pooling), Ffn(D)

    def forward(self, x_bcd):
        x_bcd = x_bcd + F.dropout(self.conv(x_bcd), self.dropout, self.training)
        x_bcd = x_bcd + self.mixer(x_bcd)
        return x_bcd + F.dropout(self.ffn(x_bcd), self.dropout, self.training)


class Embedding(nn.Module):
    def __init__(self, V, C, D):
        super().__init__()
        self.token_vd, self.position_cd = matrix(V, D), matrix(C, D)

    def forward(self, tokens_bc):
        return F.embedding(tokens_bc, self.token_vd) + self.position_cd[: tokens_bc.shape[1]]


class Network(nn.Module):
    """src/network/network.hpp: tied weights, learned positions, a final norm."""

    def __init__(self, mixer, layers, channels, heads, context, dropout, pooling="scan", vocabulary=VOCABULARY):
        super().__init__()
        self.dropout = dropout
        self.embedding = Embedding(vocabulary, context, channels)
        self.blocks = nn.ModuleList(Layer(mixer, channels, heads, dropout, pooling) for _ in range(layers))
        self.final_norm = Norm(channels)

    def forward(self, tokens_bc, targets_bc):
        x_bcd = F.dropout(self.embedding(tokens_bc), self.dropout, self.training)
        for block in self.blocks:
            x_bcd = block(x_bcd)
        logits_bcv = F.linear(self.final_norm(x_bcd), self.embedding.token_vd)
        return F.cross_entropy(logits_bcv.flatten(0, 1), targets_bc.flatten()), logits_bcv


def named_tensors(model):
    """Name in a checkpoint of this project, weight, gradient."""
    for name, weight in model.named_parameters():
        *path, last = name.split(".")
        # A block contains its norms: blocks.0.mixer.norm.weight_d here is blocks.0.mixer.norm_weight_d in a checkpoint.
        if path[-1] in ("norm", "mid_norm"):
            path, last = path[:-1], f"{path[-1]}_{last}"
        owner = model.get_submodule(".".join(path))
        slices = getattr(owner, "SLICES", {}).get(last, (last,))
        for part, value, gradient in zip(slices, weight.chunk(len(slices)), weight.grad.chunk(len(slices))):
            yield ".".join([*path, part]), value, gradient


# ---- measurement ----------------------------------------------------------------------------------------------------


def memory_of_process(line):
    """Memory in bytes. VmRSS: current; VmHWM: peak so far."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(next(words[1] for words in map(str.split, status.splitlines()) if words[0] == line + ":"))


class Contestant:
    """One way to run training steps in PyTorch."""

    def __init__(self, arguments, mixer, mode, pooling):
        self.name = f"PyTorch, {mode}" + (f", {pooling}" if mixer == "additive" else "")
        self.words = [sys.executable, __file__, "--memory-of", mode, "--mixer", mixer, "--pooling", pooling,
                      "--device", arguments.device, "--type", arguments.type, "--threads", str(arguments.threads)]
        self.words += [word for size, value in arguments.sizes.items() for word in (f"--{size}", str(value))]
        sizes = arguments.sizes
        device = self.device = arguments.device
        torch.manual_seed(1)
        self.model = Network(mixer, sizes["layers"], sizes["channels"], sizes["heads"], sizes["context"],
                             sizes["dropout"], pooling).to(device)
        groups = [{"params": [], "weight_decay": decay} for decay in (0.0, 0.1)]
        for name, parameter in self.model.named_parameters():
            decays = parameter.dim() > 1 and "pool" not in name and "position" not in name
            groups[decays]["params"].append(parameter)
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
        self.loss = lambda tokens, targets: self.model(tokens, targets)[0]
        if mode != "eager":
            self.loss = torch.compile(self.loss, mode="reduce-overhead" if mode == "graphs" else None)
        self.precision = arguments.type
        shape = (sizes["batch"], sizes["context"])
        self.tokens_bc = torch.randint(0, VOCABULARY, shape)
        if device == "cuda":
            self.tokens_bc = self.tokens_bc.pin_memory()

    def step(self):
        torch.compiler.cudagraph_mark_step_begin()
        tokens_bc = self.tokens_bc.to(self.device, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.loss(tokens_bc, tokens_bc)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def milliseconds(self, seconds):
        """Median over groups of ten steps (one on a CPU), each with one wait at its end."""
        steps = 10 if self.device == "cuda" else 1
        times = []
        stop = time.perf_counter() + seconds
        while not times or time.perf_counter() < stop:
            begin = time.perf_counter()
            for _ in range(steps):
                self.step()
            self.wait()
            times.append(1e3 * (time.perf_counter() - begin) / steps)
        return statistics.median(times)

    def memory(self):
        run = subprocess.run(self.words, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
        return json.loads(run.stdout.splitlines()[-1])


class Ours:
    """The program bench."""

    def __init__(self, arguments, mixer, _mode, _pooling):
        self.name = "ours"
        sizes = arguments.sizes
        flags = {"--mixer": mixer, "--type": arguments.type, "--each-layer": "0", "--device": arguments.bench_device,
                 "--threads": str(arguments.threads), "--recompute": str(arguments.recompute)}
        flags["--preset"] = arguments.preset
        for size in ("layers", "channels", "heads", "context", "batch", "dropout"):
            flags[f"--{size}"] = str(sizes[size])
        self.command = [arguments.bench, *(word for flag in flags.items() for word in flag)]

    def step(self):
        pass

    def wait(self):
        pass

    def milliseconds(self, seconds):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bench.json"
            command = [*self.command, "--seconds", str(seconds / 4), "--json", str(file)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
            self.row = json.loads(file.read_text())["training"][0]
            return self.row["ms"]

    def memory(self):
        """Peak memory of the last measurement, which was a separate process."""
        return {"peak_bytes": self.row["peak_bytes"]}


def contestants(arguments, mixer):
    """The ways that run here, after warm-up; prints the seconds until each is ready."""
    kinds = [(Ours, "", "")] if arguments.bench else []
    poolings = ("",)
    if mixer == "additive":
        poolings = (arguments.pooling,) if arguments.pooling else ("scan", "attention")
    kinds += [(Contestant, mode, pooling) for mode in arguments.modes.split(",") for pooling in poolings]
    for kind, mode, pooling in kinds:
        if time.perf_counter() > arguments.deadline:
            print(f"{mixer}, {mode} {pooling}: left out, out of time", flush=True)
            continue
        begin = time.perf_counter()
        try:
            one = kind(arguments, mixer, mode, pooling or "scan")
            for _ in range(3):  # compiles, records, fills caches
                one.step()
            one.wait()
        except Exception as error:  # a mode that fails here must not end the others
            print(f"{mixer}, {mode} {pooling}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{mixer}, {one.name}: ready after {time.perf_counter() - begin:.1f} s", flush=True)
        yield one


def tell_memory(arguments):
    """Memory of this process: with a minimal model, and at most in a step of the requested model."""
    def warm(sizes):
        one = Contestant(argparse.Namespace(**vars(arguments) | {"sizes": sizes}), arguments.mixer,
                         arguments.memory_of, arguments.pooling)
        for _ in range(3):
            one.step()
        return one

    sizes = arguments.sizes
    warm(sizes | {"layers": 1, "channels": 4 * sizes["heads"], "context": 4, "batch": 1})
    gc.collect()
    before = memory_of_process("VmRSS")
    one = warm(sizes)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: compilation does not count
    for _ in range(5):
        one.step()
    print(json.dumps({"peak_bytes": memory_of_process("VmHWM"), "pytorch_bytes": before}))


def compare_memory(mixer, ready, rows):
    """Adds the peak memory of each way to the rows, and prints it."""
    for one in ready:
        row = next((row for row in rows if row["name"] == one.name), None)
        if not row:
            continue
        try:
            row |= one.memory()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{mixer}, {one.name}: memory: {error}", flush=True)
            continue
        alone = row.get("pytorch_bytes")
        print(f"{mixer:10} {one.name:30} {row['peak_bytes'] / 2**20:10.1f} MiB at most" +
              (f", {alone / 2**20:.1f} of them for PyTorch itself" if alone else ""), flush=True)
    ours = [row["peak_bytes"] for row in rows if row["name"] == "ours" and row.get("peak_bytes")]
    theirs = [row for row in rows if "pytorch_bytes" in row]
    if ours and theirs:
        whole = min(row["peak_bytes"] for row in theirs)
        own = min(row["peak_bytes"] - row["pytorch_bytes"] for row in theirs)
        print(f"{mixer:10} ours takes {ours[0] / whole:.2f} of the memory of the leanest, {ours[0] / own:.2f} of what "
              "that takes beside PyTorch itself")


def bf16_units():
    """Units of this processor that multiply bf16 matrices, as detected by PyTorch."""
    units = {"AMX": "_is_amx_tile_supported", "AVX512_BF16": "_is_avx512_bf16_supported"}
    return [name for name, ask in units.items() if getattr(torch.cpu, ask, lambda: False)()]


def compare(arguments):
    result = {"torch": torch.__version__, "threads": arguments.threads, "device": arguments.device,
              "type": arguments.type, **arguments.sizes, "rounds": arguments.rounds, "steps": []}
    if arguments.device == "cuda":
        result["gpu"] = torch.cuda.get_device_name()
    print(f"PyTorch {torch.__version__}, {arguments.device}, {arguments.type}, {arguments.threads} threads", flush=True)
    if arguments.device == "cpu":
        result["bf16_units"] = bf16_units()
        print(f"bf16 units for PyTorch's products (oneDNN): {', '.join(result['bf16_units']) or 'none'}", flush=True)
    tokens = arguments.sizes["batch"] * arguments.sizes["context"]
    for mixer in arguments.mixer.split(","):
        torch.compiler.reset()
        ready = list(contestants(arguments, mixer))
        rows = [{"mixer": mixer, "name": one.name, "all_ms": []} for one in ready]
        for _ in range(arguments.rounds):
            for one, row in zip(ready, rows):
                try:
                    row["all_ms"].append(one.milliseconds(arguments.seconds))
                except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                    print(f"{mixer}, {one.name}: {error}", flush=True)
                    continue
                row["ms"] = statistics.median(row["all_ms"])
                row["tokens_per_s"] = round(1e3 * tokens / row["ms"])
            if arguments.json:  # after every round, so that an interrupted run keeps its results
                measured = [row for row in rows if row["all_ms"]]
                arguments.json.write_text(json.dumps(result | {"steps": result["steps"] + measured}, indent=1) + "\n")
        result["steps"] += [row for row in rows if row["all_ms"]]
        for row in rows:
            if row["all_ms"]:
                print(f"{mixer:10} {row['name']:30} {row['ms']:10.3f} ms {row['tokens_per_s']:12} tokens/s", flush=True)
        ours = [row["ms"] for row in rows if row["all_ms"] and row["name"] == "ours"]
        theirs = [row["ms"] for row in rows if row["all_ms"] and row["name"] != "ours"]
        if ours and theirs:
            print(f"{mixer:10} ours is {min(theirs) / ours[0]:.2f} times as fast as the best")
        if arguments.device == "cpu":
            compare_memory(mixer, ready, [row for row in result["steps"] if row["mixer"] == mixer])
            if arguments.json:
                arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def recorded_milliseconds(work):
    """Milliseconds per run of work on a GPU: the median of seven replays of a CUDA graph with ten runs."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            work()
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 10)
    return statistics.median(times)


def compare_attention(arguments):
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "attention": []}
    N, K, tokens = 6, 64, 16384
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
    for C in (256, 1024, 4096):
        B = tokens // C
        query, key, value, d_out = (torch.randn(B, C, N, K, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
                                    for _ in range(4))
        theirs = {"forward": recorded_milliseconds(lambda: flash(query, key, value, 0.0, True, False))}
        out, lse, starts_c, starts_s, most_c, most_s, seed, offset, _ = flash(query, key, value, 0.0, True, False)
        theirs["backward"] = recorded_milliseconds(lambda: flash_backward(
            d_out, query, key, value, out, lse, starts_c, starts_s, most_c, most_s, 0.0, True, seed, offset))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bench.json"
            subprocess.run([arguments.bench, "--device", arguments.bench_device, "--type", "bf16", "--mixer", "dot",
                            "--layers", "1", "--heads", str(N), "--channels", str(N * K), "--context", str(C),
                            "--batch", str(B), "--seconds", "0.02", "--json", str(file)],
                           check=True, stdout=subprocess.DEVNULL, timeout=600)
            layers = json.loads(file.read_text())["layers"]
        for way in ("forward", "backward"):
            ours = next(row["ms"] for row in layers if (row["layer"], row["pass"]) == ("attention", way))
            row = {"C": C, "B": B, "pass": way, "ours_ms": ours, "flash_ms": theirs[way]}
            result["attention"].append(row)
            print(f"attention, C {C:5}, B {B:3} {way:9} ours {ours:.4f} ms, flash {theirs[way]:.4f} ms: "
                  f"{theirs[way] / ours:.2f} times as fast", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


# ---- comparison with the equations ----------------------------------------------------------------------------------


def write_golden(arguments):
    """Writes a model with random weights and without dropout, in double, with all gradients. Its logits and gradients
    must equal those of the equations."""
    from reference_model import logits, parts_of  # it sets the default type to double, which this needs too
    from checkpoint import settings_of, write

    torch.manual_seed(1)
    B, C, V, layers, heads = 2, 9, 11, 2, 3
    model = Network(arguments.mixer, layers, 12, heads, C, 0.0, arguments.pooling or "scan", V)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.5)
    tokens_bc, targets_bc = torch.randint(0, V, (2, B, C))
    loss, logits_bcv = model(tokens_bc, targets_bc)
    loss.backward()
    weights, gradients = {}, {}
    for name, weight, gradient in named_tensors(model):
        weights[name], gradients[name] = weight.detach().clone().requires_grad_(), gradient
    settings = {"layers": layers, "mixer": arguments.mixer, "heads": heads, "ffn_bias": 1, "conv_kernel": CONV_KERNEL,
                "conv_groups": 12}
    settings = {key: str(value) for key, value in settings.items()}

    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    expected_bcv = logits(weights, settings_of(settings, shapes, "model"), tokens_bc)
    F.cross_entropy(expected_bcv.flatten(0, 1), targets_bc.flatten()).backward()
    pairs = [(logits_bcv, expected_bcv)] + [(gradients[name], weight.grad) for name, weight in weights.items()]
    worst = max(((got - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item() for got, expected in pairs)
    if not worst <= 1e-9:
        sys.exit(f"tools/pytorch_reference.py: {arguments.mixer}: not the network of the equations, off by {worst:.1e}")

    tensors = {"input.tokens_bc": tokens_bc.int(), "input.targets_bc": targets_bc.int(), "output.loss": loss,
               "output.logits_bcv": logits_bcv}
    for name, weight in weights.items():
        tensors["weight." + name], tensors["grad_weight." + name] = weight, gradients[name]
    write(arguments.golden, parts_of(tensors),
          {**settings, "case": "language_model", "source": "tools/pytorch_reference.py, float64"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixer", default="additive,metric,dot", help="a comma list; one with --golden")
    parser.add_argument("--preset", default="baby", choices=PRESETS)
    for size in ("layers", "channels", "heads", "context", "batch"):
        parser.add_argument(f"--{size}", type=int, help="size instead of the preset's")
    parser.add_argument("--dropout", type=float, help="dropout instead of the preset's")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--type", default="bf16", choices=["bf16", "float"], help="bf16: autocast")
    parser.add_argument("--modes", default=",".join(MODES), help="some of eager, compile, graphs (CUDA graphs)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads of PyTorch and bench")
    parser.add_argument("--bench", help="path of the program bench, which is measured in turn")
    parser.add_argument("--bench-device", default="cuda", help="its --device")
    parser.add_argument("--recompute", type=int, default=0, choices=[0, 1], help="its --recompute")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="seconds for one measurement in one round")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds; after them no other mode is compiled")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file as well")
    parser.add_argument("--golden", type=pathlib.Path, help="write this golden file and do nothing else")
    parser.add_argument("--attention", action="store_true", help="measure attention alone")
    parser.add_argument("--memory-of", choices=MODES, help="print the memory of one mode as JSON and do nothing else")
    parser.add_argument("--pooling", choices=["scan", "attention"], help="form of additive pooling (golden file: scan)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.deadline = time.perf_counter() + arguments.limit
    arguments.sizes = {size: PRESETS[arguments.preset][size] if getattr(arguments, size) is None
                       else getattr(arguments, size) for size in PRESETS["tiny"]}
    for mixer in arguments.mixer.split(","):
        if mixer not in MIXERS:
            parser.error(f"--mixer: expected {', '.join(MIXERS)} or a comma list of them, found {mixer!r}")
    if unknown := set(arguments.modes.split(",")) - set(MODES):
        parser.error(f"--modes: expected {', '.join(MODES)}, found {', '.join(unknown)}")
    if arguments.golden:
        write_golden(arguments)
    elif arguments.attention:
        if arguments.device != "cuda" or not arguments.bench:
            parser.error("--attention: needs a GPU and --bench")
        compare_attention(arguments)
    elif arguments.memory_of:
        tell_memory(arguments)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
