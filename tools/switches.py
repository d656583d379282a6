#!/usr/bin/env python3
"""Compiles the library with each of STELE_EXCEPTIONS, STELE_RTTI, STELE_THREADS and STELE_MMAP off alone, and with all off.

Usage: tools/switches.py [--smoke] [JOBS]

Configures a build for each case in build/switches, and compiles its sources with -fsyntax-only: the core, six formats,
the components that they need, and the command; with --smoke only src/base and src/io, which depend most on the
switches. The preset bare builds and tests the library with all switches off.
"""
import glob
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

FORMATS = "gguf;json;numpy;pytorch;safetensors;stele"
SWITCHES = ("EXCEPTIONS", "RTTI", "THREADS", "MMAP")
# (compiler, switches that are off)
CASES = (("g++-12", ("EXCEPTIONS",)), ("clang++-14", ("RTTI",)), ("g++-12", ("THREADS",)), ("clang++-14", ("MMAP",)),
         ("clang++-14", SWITCHES))


def configured(case, smoke):
    """Returns the compile commands of a case."""
    compiler, off = case
    build = os.path.join("build", "switches", "smoke" if smoke else "all", "-".join(off).lower())
    options = {"CMAKE_CXX_COMPILER": compiler, "CMAKE_BUILD_TYPE": "Debug", "CMAKE_CXX_FLAGS": "-DHWY_COMPILE_ONLY_STATIC",
               "CMAKE_EXPORT_COMPILE_COMMANDS": "ON", "CMAKE_UNITY_BUILD": "ON", "CMAKE_UNITY_BUILD_BATCH_SIZE": "12",
               "STELE_WERROR": "ON", "STELE_INSTALL": "OFF", "STELE_FORMATS": "safetensors" if smoke else FORMATS,
               "STELE_COMMAND": "OFF" if smoke else "ON"}
    options.update((f"STELE_{name}", "OFF" if name in off else "ON") for name in SWITCHES)
    subprocess.run(["cmake", "--log-level=WARNING", "-G", "Ninja", "-S", ".", "-B", build]
                   + [f"-D{key}={value}" for key, value in options.items()], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    return [joined(build, commands)] if smoke else commands


def joined(build, commands):
    """Returns the command that compiles all sources of src/base and src/io as one."""
    lines = []
    for name in sorted(glob.glob(os.path.join(build, "src", "stele_core_*.cpp"))):
        with open(name, encoding="utf-8") as file:
            lines += re.findall(r'^#include ".*/src/(?:base|io)/.*"\n', file.read(), flags=re.M)
    with open(os.path.join(build, "src", "smoke.cpp"), "w", encoding="utf-8") as file:
        file.writelines(lines)
    first = next(command for command in commands if command["file"].endswith("/src/stele_core_0.cpp"))
    return dict(first, command=first["command"].replace("stele_core_0.cpp", "smoke.cpp"))


def compiled(command):
    """Compiles one file; returns what the compiler says if it fails, else an empty string."""
    words = shlex.split(command["command"])
    if "ccache" in os.path.basename(words[0]):
        del words[0]  # it has nothing to store
    for flag, count in (("-o", 2), ("-c", 1)):
        at = words.index(flag)
        del words[at:at + count]
    ran = subprocess.run(words + ["-fsyntax-only"], cwd=command["directory"], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, check=False)
    return "" if ran.returncode == 0 else f"{shlex.join(words)}\n{ran.stdout}"


def main():
    words = [word for word in sys.argv[1:] if word != "--smoke"]
    smoke = len(words) != len(sys.argv) - 1
    if len(words) > 1:
        sys.exit(__doc__)
    failed = False
    with ThreadPoolExecutor(int(words[0]) if words else os.cpu_count()) as pool:
        cases = [pool.submit(configured, case, smoke) for case in CASES]
        runs = [[pool.submit(compiled, command) for command in case.result()] for case in cases]
        for (compiler, off), files in zip(CASES, runs):
            errors = [run.result() for run in files if run.result()]
            failed = failed or bool(errors) or not files
            print(f"switches: {compiler}, without {', '.join(off)}: {len(files)} files, {len(errors)} failed", flush=True)
            for error in errors:
                print(error[:8000], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
