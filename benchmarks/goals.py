#!/usr/bin/env python3
"""Prints the tables of docs/performance.md from the benchmarks' results.

Usage: benchmarks/goals.py FOLDER

Reads the results of `make bench`, `make memory` and `make growth` in FOLDER; missing results have no figures. Always
exits with 0, even if goals are not met, because it only reports.
"""
import json
import os
import sys

from tables import table

RECORDERS = ("binary", "safetensors")

# Operation, workload, benchmark, counter, goal, unit of the goal.
GOALS = [
    ("save f32", "W1", "save", "ratio", 1.10, "of write"),
    ("save f32", "W2", "save", "ratio", 1.40, "of write"),
    ("durable save", "W1", "save, durable", "ratio", 0.70, "of write + fsync"),
    ("open + first tensor", "W1", "open", "ms", 0.08, "ms"),
    ("open + first tensor", "W2", "open", "ms", 1.00, "ms"),
    ("load, 1 thread", "W1", "load, 1 thread", "ratio", 1.10, "of read"),
    ("load, 1 thread", "W2", "load, 1 thread", "ratio", 1.50, "of read"),
    ("load, 2 threads", "W1", "load, 2 threads", "ratio", 0.70, "of read, 1 thread"),
    ("save f32 as f16", "W1", "save f16", "ratio", 1.15, "of convert + write"),
    ("save f32 as bf16", "W1", "save bf16", "ratio", 1.15, "of convert + write"),
    ("load f16 as f32", "W1", "load f16, 1 thread", "ratio", 1.15, "of read + convert"),
    ("to bytes", "W1", "to bytes", "ratio", 1.10, "of copy, fresh memory"),
    ("to own memory", "W1", "to span", "ratio", 1.15, "of copy, warm"),
]
# Goals for the files of PyTorch, NumPy and llama.cpp.
FOREIGN = [
    ("save f32", "W1", "save", "ratio", 1.10, "of write"),
    ("load, 1 thread", "W1", "load, 1 thread", "ratio", 1.15, "of read"),
    ("open + first tensor", "W1", "open", "ms", 0.3, "ms"),
    ("save f32", "W2", "save", "ratio", 2.50, "of write"),
    ("load, 1 thread", "W2", "load, 1 thread", "ratio", 4.00, "of read"),
]
# Operations without a goal, which may explain a figure above.
OTHERS = ["save, 1 thread", "save, replacing", "save f16, 1 thread", "save bf16, 1 thread", "load f16, 2 threads",
          "open, not mapped"]
COMPRESSED = [
    ("compressed f32: saved", "save<float>/1", "saved_%", 15, "%"),
    ("compressed bf16: saved", "save<stele::bfloat16>/1", "saved_%", 30, "%"),
    ("compressed f32: save, 1 thread", "save<float>/1", "bytes_per_second", 0.45, "GB/s"),
    ("compressed f32: load, 1 thread", "load<float>/1", "bytes_per_second", 1.5, "GB/s"),
    ("compressed bf16: save, 1 thread", "save<stele::bfloat16>/1", "bytes_per_second", 0.45, "GB/s"),
    ("compressed bf16: load, 1 thread", "load<stele::bfloat16>/1", "bytes_per_second", 1.5, "GB/s"),
]


def read(path):
    """Returns the runs by name, without the suffixes that Google Benchmark adds."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    return {run["name"].split("/iterations:")[0].split("/real_time")[0]: run for run in runs}


def memory_rows(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        figures = json.load(file)
    rows = []
    for model in figures["save"]:
        cells = [figures[save][model] / 2**20 for save in ("save", "save safetensors")]
        index = figures["open"][model] / 2**20 if model.startswith("20,000") else 0
        goal = "≤ 4 MiB" + (f" + {index:.1f}, the index" if index else "")
        rows.append(["extra memory of a save", model, goal, *(f"{cell:.1f}" for cell in cells),
                     verdict(zip(RECORDERS, cells), lambda value, most=4 + index: value <= most)])
    return rows


def growth_rows(runs):
    rows = []
    for operation in ("save", "open", "load"):
        spread = []
        for recorder in RECORDERS:
            times = [run["ns/tensor"] for name, run in runs.items() if name.startswith(f"{recorder}/{operation}/")]
            spread.append(max(times) / min(times) if times else None)
        rows.append([f"growth: {operation}, time per tensor", "10^2 to 10^6", "flat: most ≤ 2 × least",
                     *("-" if value is None else f"{value:.1f}" for value in spread),
                     verdict(zip(RECORDERS, spread), lambda value: value <= 2)])
    return rows


def json_rows(runs):
    rows = []
    for way in ("save", "load"):
        ours, cereals = runs.get(f"{way}/0"), runs.get(f"{way}_cereal")
        speed = ours and ours["bytes_per_second"]
        times = ours and cereals and speed / cereals["bytes_per_second"]
        for text, value, goal, unit in ((f"JSON, base64: {way}, relative to cereal's JSON", times, 5, "×"),
                                        (f"JSON, base64: {way}", speed and speed / 1e9, 1, "GB/s")):
            rows.append([text, "100 MB normal", f"≥ {goal} {unit}", "-" if value is None else f"{value:.1f}", "",
                         verdict([("json", value)], lambda value, goal=goal: value >= goal)])
    return rows


def figure(run, counter):
    if run is None:
        return "-"
    if counter == "ms":
        return f"{run['ms']:.3f}"
    return f"{run['ratio']:.2f} ({run['low']:.2f} to {run['high']:.2f})"


def verdict(values, good):
    values = list(values)
    missed = [name for name, value in values if value is not None and not good(value)]
    if all(value is None for _, value in values):
        return "not measured"
    return "no: " + ", ".join(missed) if missed else "yes"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    runs = read(os.path.join(sys.argv[1], "goals.json"))
    packed = read(os.path.join(sys.argv[1], "compression.json"))

    rows = []
    for operation, workload, benchmark, counter, goal, unit in GOALS:
        found = [runs.get(f"{workload}/{benchmark}/{recorder}") for recorder in RECORDERS]
        values = [(name, run and run[counter]) for name, run in zip(RECORDERS, found)]
        rows.append([operation, workload, f"≤ {goal:.2f} {unit}", *(figure(run, counter) for run in found),
                     verdict(values, lambda value, goal=goal: value <= goal)])
    for kind in ("f16", "bf16"):
        pairs = [(name, runs.get(f"W1/save {kind}/{name}"), runs.get(f"W1/save/{name}")) for name in RECORDERS]
        values = [(name, small and full and small["ms"] / full["ms"]) for name, small, full in pairs]
        rows.append([f"save {kind}, relative to save f32", "W1", "≤ 1.00",
                     *("-" if value is None else f"{value:.2f}" for _, value in values),
                     verdict(values, lambda value: value <= 1)])
    for operation, benchmark, counter, goal, unit in COMPRESSED:
        run = packed.get(benchmark)
        value = run and run[counter]
        if run and counter == "bytes_per_second":  # processor time: that of one thread, which does only this work
            value *= run["real_time"] / run["cpu_time"] / 1e9
        rows.append([operation, "normal", f"≥ {goal} {unit}", "-" if value is None else f"{value:.2f}", "",
                     verdict([("binary", value)], lambda value, goal=goal: value >= goal)])
    for operation, workload, benchmark, counter, goal, unit in FOREIGN:
        for name, recorder in (("PyTorch's zip", "pytorch"), ("NumPy's zip", "npz"), ("GGUF", "gguf")):
            run = runs.get(f"{workload}/{benchmark}/{recorder}")
            rows.append([f"{name}: {operation}", workload, f"≤ {goal:.2f} {unit}", figure(run, counter), "",
                         verdict([(recorder, run and run[counter])], lambda value, goal=goal: value <= goal)])
    rows += memory_rows(os.path.join(sys.argv[1], "memory.json"))
    rows += growth_rows(read(os.path.join(sys.argv[1], "growth.json")))
    rows += json_rows(read(os.path.join(sys.argv[1], "json.json")))
    print("Goals: medians of the rounds' ratios, quartiles in brackets.\n")
    table(["operation", "workload", "goal", *RECORDERS, "met"], rows)

    workloads = sorted({name.split("/")[0] for name in runs if "/limit/" in name})
    kinds = list(dict.fromkeys(name.split("/", 2)[2] for name in runs if "/limit/" in name))
    rows = []
    for kind in kinds:
        row = [kind]
        for workload in workloads:
            run = runs.get(f"{workload}/limit/{kind}")
            moves = run and run["GB/s"] < 1000  # not for limits that only touch a page
            row += [f"{run['ms']:.3f}" if run else "-", f"{run['GB/s']:.1f}" if moves else ""]
        rows.append(row)
    if rows:
        print("Limits of this machine, in this run.\n")
        table(["limit"] + [head for workload in workloads for head in (f"{workload} ms", "GB/s")], rows)

    rows = []
    for workload in workloads:
        stated = {benchmark for _, w, benchmark, *_ in GOALS if w == workload}
        for benchmark in dict.fromkeys([benchmark for _, _, benchmark, *_ in GOALS] + OTHERS):
            found = [runs.get(f"{workload}/{benchmark}/{recorder}") for recorder in RECORDERS]
            if benchmark not in stated and any(found):
                cells = [cell for run in found for cell in (figure(run, "ratio"), f"{run['ms']:.3f}" if run else "-")]
                rows.append([benchmark, workload, *cells])
    if rows:
        print("Other ratios.\n")
        table(["operation", "workload"] + [head for recorder in RECORDERS for head in (recorder, "ms")], rows)

    rows = [[name, f"{runs[key]['cpu_time']:.1f} µs"] for name, key in (
        ("to bytes", "W4/to bytes/binary"), ("from bytes", "W4/from bytes/binary"), ("copy of the object", "W4/copy"))
        if key in runs]
    if rows:
        print("W4, 200 values.\n")
        table(["operation", "time"], rows)


if __name__ == "__main__":
    main()
