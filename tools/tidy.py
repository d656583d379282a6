#!/usr/bin/env python3
"""Runs clang-tidy over the compiled sources of every component.

Usage: tools/tidy.py BUILD_FOLDER [JOBS]

Joined sources are checked as compiled. A source of checkpoints/mpi is checked if the build has MPI. Headers are checked
through the sources that include them (.clang-tidy: HeaderFilterRegex).

Most of the time goes to the headers, which clang-tidy checks again in each unit. So up to ten units with the same
options are included by one source. If that fails, its halves are tried: the names of two units may clash.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("src", "precision", "transforms", "encodings", "training", "graph", "dl4j", "recorders", "remote", "deltas", "device", "checkpoints",
           "ir", "tools/facts", "tools/stele")
# The kernels include themselves, once for each processor.
ALONE = ("precision",)
BATCH = 10
TIDY = ["clang-tidy-14", "--quiet", f"--config-file={ROOT}/.clang-tidy", "--checks=-bugprone-suspicious-include"]


def below(path, folders):
    return path.startswith(tuple(folder + "/" for folder in folders))


def batches(build):
    """Yield (folder and command of a compilation, paths) for each batch."""
    groups = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        path = os.path.join(entry["directory"], entry["file"])
        source = os.path.relpath(path, build if re.search(r"/stele_\w+_\d+\.cpp$", path) else ROOT)
        if below(source, FOLDERS):
            command = re.sub(r" -o \S+ -c \S+$", "", entry["command"])
            groups.setdefault((entry["directory"], command, path if below(source, ALONE) else None), []).append(path)
    for (folder, command, _), paths in groups.items():
        paths.sort()
        # Names clash mostly in components of a kind, which are neighbours.
        count = -(-len(paths) // BATCH)
        for first in range(count):
            yield folder, command, paths[first::count]


def check(work, folder, command, paths):
    """Return whether clang-tidy has no complaints; print them."""
    name = os.path.join(work, re.sub(r"\W", "_", os.path.relpath(paths[0], ROOT)) + f"_{len(paths)}")
    source = name + ".cpp"
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{path}"\n' for path in paths)
    os.makedirs(name)
    if len(paths) == 1:
        source = paths[0]
    with open(os.path.join(name, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump([{"directory": folder, "command": f"{command} -c {source}", "file": source}], file)
    done = subprocess.run([*TIDY, "-p", name, source], capture_output=True, text=True, check=False)
    if done.returncode and len(paths) > 1:
        half = len(paths) // 2
        return all([check(work, folder, command, part) for part in (paths[:half], paths[half:])])
    errors = "".join(line for line in done.stderr.splitlines(True) if not re.search(r"warnings? generated\.$", line))
    sys.stdout.write(done.stdout + errors)
    sys.stdout.flush()
    return done.returncode == 0


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = os.path.abspath(sys.argv[1])
    work = os.path.join(build, "tidy")
    subprocess.run(["rm", "-rf", work], check=True)
    os.makedirs(work)
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2]) if len(sys.argv) > 2 else 2) as pool:
        results = list(pool.map(lambda batch: check(work, *batch), batches(build)))
    if not results:
        sys.exit(f"tidy: no sources in {build}/compile_commands.json")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
