#!/usr/bin/env python3
"""tools/gpu_report.py OUT_DIR: writes OUT_DIR/report.md and report.json from the results of tools/gpu_report.sh in
OUT_DIR/raw.

Missing results are left out, so the script can be run at any time.
"""

import csv
import json
import pathlib
import re
import sys

from kernel_registers import kernels_in, readable

TARGET = 1.4697  # nats per character on the whole validation split


def lines_of(path):
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def table(head, rows, left=1):
    """Markdown; the first `left` columns are text, the others numbers."""
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "--:|" * (len(head) - left)]
    return "\n".join(text + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):  # missing or incomplete
        return None


# ---- results of the sections ----------------------------------------------------------------------------------------


def sections_of(raw):
    result = []
    for line in lines_of(raw / "sections.tsv"):
        name, status, seconds = line.split("\t")
        notes = lines_of(raw / f"notes.{name}")
        result.append({"section": name, "result": status, "seconds": int(seconds), "notes": notes})
    return result


def machine_of(raw):
    return dict(line.split(": ", 1) for line in lines_of(raw / "machine.txt") if ": " in line)


def kernels_of(raw):
    """Output of ptxas for every kernel, from the log of the build."""
    found = {row[0]: row for row in kernels_in(lines_of(raw / "build.txt"))}
    kernels = []
    for (key, registers, shared, spilled), name in zip(found.values(), readable(found)):
        file = re.search(r"_\d+_(\w+?)_cu_", key)  # in the mangled name of a kernel in an unnamed namespace
        kernels.append({"file": f"{file[1]}.cu" if file else "", "kernel": name, "registers": registers,
                        "spilled_bytes": spilled, "shared_bytes": shared})
    return sorted(kernels, key=lambda kernel: (kernel["file"], kernel["kernel"]))


def tests_of(raw):
    lines = lines_of(raw / "tests.txt")
    count = next((re.fullmatch(r"(\d+) passed, (\d+) failed", line) for line in lines[-1:]), None)
    rows = []
    for line in lines:
        # Format of tests/harness/main.cpp; names of cases and devices may contain spaces.
        names, numbers = r"(\S+)\s+(.*?)\s+(forward|backward)\s+(\S+)\s+(\S.*?)", r"(float|bf16)\s+(\S+)\s+(\S+)"
        match = re.match(names + r"\s+" + numbers + r"(\s+FAIL)?$", line)
        if match:
            keys = ("layer", "case", "pass", "tensor", "device", "type")
            row = dict(zip(keys, (cell.strip() for cell in match.groups()[:6])))
            rows.append({**row, "error": match[7], "bar": match[8], "failed": bool(match[9])})
    golden = [line for line in lines_of(raw / "golden.txt") if " tensors within " in line]
    bad = [line for line in golden if not line.endswith(": ok")]
    result = {"gradcheck": rows, "golden_files": len(golden), "golden_failed": bad}
    if count:
        result.update(passed=int(count[1]), failed=int(count[2]))
    elif lines:
        result["cut_off"] = True
    return result


def trainings_of(raw):
    result = []
    for path in sorted(raw.glob("training_*.txt")):
        run = {"run": path.stem.removeprefix("training_").replace("_", ", "), "validation": []}
        for line in lines_of(path):
            milliseconds, _, text = line.partition(" ")
            if match := re.match(r"step (\d+)/(\d+), train \S+, val ([0-9.]+)", text):
                loss = float(match[3])
                run["validation"].append({"step": int(match[1]), "seconds": int(milliseconds) / 1e3, "loss": loss})
                if not loss > TARGET and "target_seconds" not in run:
                    run["target_seconds"], run["target_step"] = int(milliseconds) / 1e3, int(match[1])
            if match := re.match(r"final: .*, (\d+) tokens/s", text):
                run.update(seconds=int(milliseconds) / 1e3, tokens_per_s=int(match[1]), final=text)
        result.append(run)
    return result


def profile_of(path):
    """Launches, microseconds and gigabytes of each kernel of a training step, as measured one by one with ncu."""
    rows = list(csv.reader(line for line in lines_of(path) if line.startswith('"')))
    if len(rows) < 3:
        return []
    column = {name: rows[0].index(name) for name in rows[0]}
    number = lambda row, name: float(row[column[name]].replace(",", ""))
    kernels = {}
    updated = False  # a step ends with AdamW's kernels
    for row in rows[2:]:  # rows[1] has the units
        if updated and "update_kernel" not in row[column["Kernel Name"]]:
            break
        updated = "update_kernel" in row[column["Kernel Name"]]
        name = re.sub(r"\(.*|^void |abh::|<unnamed>::|\(anonymous namespace\)::|cuda::", "", row[column["Kernel Name"]])
        kernel = kernels.setdefault(name, {"kernel": name, "launches": 0, "us": 0.0, "gigabytes": 0.0})
        kernel["launches"] += 1
        kernel["us"] += number(row, "gpu__time_duration.sum") / 1e3
        kernel["gigabytes"] += (number(row, "dram__bytes_read.sum") + number(row, "dram__bytes_write.sum")) / 1e9
    return sorted(kernels.values(), key=lambda kernel: -kernel["us"])


# ---- the page -------------------------------------------------------------------------------------------------------


def kernel_page(kernels):
    yield "## Kernels\n"
    yield f"{len(kernels)} kernels; resources allocated by ptxas:\n"
    rows = [(k["file"], f"`{k['kernel']}`", k["registers"], k["shared_bytes"], k["spilled_bytes"]) for k in kernels]
    yield table(["file", "kernel", "registers", "shared bytes", "spilled bytes"], rows, 2) + "\n"


def test_page(tests):
    yield "## Tests\n"
    if "passed" in tests:
        yield f"Test cases that run kernels: {tests['passed']} passed, {tests['failed']} failed.\n"
    if "cut_off" in tests:
        yield "The tests did not finish.\n"
    if tests["golden_files"]:
        good = tests["golden_files"] - len(tests["golden_failed"])
        yield f"Golden files, computed by PyTorch in float64: {good} of {tests['golden_files']} within tolerance.\n"
        yield from (f"    {line}" for line in tests["golden_failed"])
    if tests["gradcheck"]:
        worst = {}
        for row in tests["gradcheck"]:
            key = (row["layer"], row["device"], row["type"])
            share = float(row["error"]) / float(row["bar"])
            if key not in worst or not share <= worst[key][0]:
                worst[key] = (share, row)
        rows = [(*key, f"{row['pass']}, {row['tensor']}", row["error"], row["bar"], "FAIL" if row["failed"] else "ok")
                for key, (_, row) in sorted(worst.items())]
        yield f"{len(tests['gradcheck'])} tensors compared with the CPU in double; the largest error of each layer:\n"
        yield table(["layer", "device", "type", "tensor", "error", "bar", ""], rows, 4) + "\n"


def sanitizer_page(rows):
    yield "## compute-sanitizer\n"
    yield "The tests of each layer. Memcheck checks for accesses outside of arrays, racecheck for races in shared"
    yield "memory.\n"
    yield table(["tool", "layer", "result"], sorted(row.split("\t") for row in rows), 3) + "\n"


def bench_page(raw):
    names = [path.stem for path in sorted(raw.glob("bench_*.txt")) if "training step" in path.read_text()]
    if names:
        yield "## Layers compared with the peak rates\n"
        yield "Output of `bench`. Layers cycle through several arrays, so that no cache holds them.\n"
    for name in names:
        yield f"### {name.removeprefix('bench_').replace('_', ', ')}\n"
        yield "```text\n" + (raw / f"{name}.txt").read_text().rstrip() + "\n```\n"


def profile_page(profiles):
    yield "## Kernels of the first training step\n"
    yield "`ncu` measures kernels one by one, each with cold caches, so their sum is longer than a step. The"
    yield "preset `baby` in bf16; GB/s is the traffic of the GPU's memory.\n"
    for mixer, kernels in profiles.items():
        total = sum(kernel["us"] for kernel in kernels)
        yield f"### {mixer}: {sum(kernel['launches'] for kernel in kernels)} launches\n"
        rows = [(f"`{k['kernel']}`", k["launches"], f"{k['us'] / k['launches']:.1f}", f"{k['us'] / total:.1%}",
                 f"{1e6 * k['gigabytes'] / k['us']:.0f}") for k in kernels]
        yield table(["kernel", "launches", "us each", "of all", "GB/s"], rows) + "\n"


def attention_page(result):
    yield "## Attention compared with PyTorch's\n"
    yield f"Causal, six heads of 64 channels, bf16; PyTorch {result['torch']}'s flash backend, both in CUDA graphs.\n"
    rows = [(row["C"], row["B"], row["pass"], f"{1e3 * row['ours_ms']:.1f}", f"{1e3 * row['flash_ms']:.1f}",
             f"{row['flash_ms'] / row['ours_ms']:.2f}") for row in result["attention"]]
    yield table(["C", "B", "pass", "ours, us", "flash, us", "times as fast"], rows, 3) + "\n"


def pytorch_page(result):
    yield "## Training steps compared with PyTorch\n"
    sizes = ", ".join(f"{key} {result[key]}" for key in ("layers", "channels", "heads", "context", "batch", "dropout"))
    where = result.get("gpu", "CPU")
    yield f"{sizes}; PyTorch {result['torch']} on {where}, {result['type']}."
    yield f"Medians of {result['rounds']} rounds in turn.\n"
    fastest = {}
    for row in result["steps"]:
        if row["name"] != "ours":
            fastest[row["mixer"]] = min(row["ms"], fastest.get(row["mixer"], row["ms"]))
    rows = []
    for row in result["steps"]:
        ours = row["name"] == "ours" and row["mixer"] in fastest
        versus = f"{fastest[row['mixer']] / row['ms']:.2f} times the fastest PyTorch" if ours else ""
        rows.append((row["mixer"], row["name"], versus, f"{row['ms']:.3f}", f"{min(row['all_ms']):.3f}",
                     f"{max(row['all_ms']):.3f}", f"{row['tokens_per_s']:,}"))
    yield table(["mixer", "who", "", "ms", "lowest", "highest", "tokens/s"], rows, 3) + "\n"


def training_page(runs):
    yield "## Training\n"
    yield "Seconds since the start of the program. The aim is a loss on the whole validation split of"
    yield f"{TARGET} nats per character.\n"
    rows = []
    for run in runs:
        best = min((v["loss"] for v in run["validation"]), default=None)
        reached = f"{run['target_seconds']:.1f} s, step {run['target_step']}" if "target_step" in run else "not reached"
        rows.append((run["run"], reached, f"{best:.4f}" if best else "-",
                     f"{run['seconds']:.1f}" if "seconds" in run else "cut off", f"{run.get('tokens_per_s', 0):,}"))
    yield table(["run", f"{TARGET} after", "best loss", "seconds in all", "tokens/s"], rows, 2) + "\n"


def page(raw, report):
    if report["device"] == ["emulated"]:
        yield "# A run on the emulator\n"
        yield "The times on this page are not those of a GPU.\n"
    else:
        yield "# Measured on a GPU\n"
    yield "Made by `tools/gpu_report.sh`; everything on this page comes from one run on one machine.\n"
    if report["machine"]:
        yield table(["", ""], report["machine"].items(), 2) + "\n"
    if report["sections"]:
        rows = [(s["section"], s["result"], "; ".join(s["notes"]).replace("|", "/"), s["seconds"])
                for s in report["sections"]]
        yield table(["section", "result", "notes", "seconds"], rows, 3) + "\n"
    if report["trainings"]:
        yield from training_page(report["trainings"])
    if report["pytorch"]:
        yield from pytorch_page(report["pytorch"])
    if report["attention"]:
        yield from attention_page(report["attention"])
    yield from bench_page(raw)
    if report["profile"]:
        yield from profile_page(report["profile"])
    if report["tests"]["gradcheck"] or "passed" in report["tests"] or report["tests"]["golden_files"]:
        yield from test_page(report["tests"])
    if report["sanitizer"]:
        yield from sanitizer_page(report["sanitizer"])
    if report["kernels"]:
        yield from kernel_page(report["kernels"])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tools/gpu_report.py OUT_DIR")
    out = pathlib.Path(sys.argv[1])
    raw = out / "raw"
    if not raw.is_dir():
        sys.exit(f"tools/gpu_report.py: {raw}: no such folder; tools/gpu_report.sh makes it")
    report = {
        "device": lines_of(raw / "device.txt"),
        "machine": machine_of(raw),
        "sections": sections_of(raw),
        "trainings": trainings_of(raw),
        "pytorch": read_json(raw / "pytorch.json"),
        "attention": read_json(raw / "attention.json"),
        "bench": {p.stem.removeprefix("bench_"): read_json(p) for p in sorted(raw.glob("bench_*.json"))},
        "profile": {p.stem.removeprefix("profile_"): profile_of(p) for p in sorted(raw.glob("profile_*.csv"))},
        "tests": tests_of(raw),
        "sanitizer": lines_of(raw / "sanitizer.txt"),
        "kernels": kernels_of(raw),
    }
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "report.md").write_text("\n".join(page(raw, report)))


if __name__ == "__main__":
    main()
