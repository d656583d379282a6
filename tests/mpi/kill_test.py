#!/usr/bin/env python3
"""Kill a random process of a distributed run at a random moment, many times: kill_test.py PROGRAM [KILLS].

After each kill the other processes must end with an error within their time limit, and the next run must resume from a
step that verifies. The last run, with another number of processes, must end like a run without interruption (the
program compares every element), and leave no litter.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM, KILLS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 25
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(processes, *arguments, limit):
    command = ["mpirun", "-n", str(processes), "--oversubscribe", "--enable-recovery", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=limit)


def main():
    random.seed(2)
    folder = tempfile.mkdtemp(prefix="stele-mpi-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    resumed, errors, longest = 0, 0, 0.0
    try:
        for i in range(KILLS):
            processes = random.choice([2, 3, 4])
            victim = random.randrange(processes)
            start = time.monotonic()
            done = run(processes, folder, 10**9, victim, random.randrange(20_000, 400_000), limit=60)
            longest = max(longest, time.monotonic() - start)
            lines = done.stdout.splitlines()
            if any("checksum" in line or "malformed" in line or "truncated" in line for line in lines):
                sys.exit(f"kill {i}: a kill broke a step:\n{done.stdout}{done.stderr}")
            errors += sum("timed_out" in line or "io:" in line or "not_found" in line for line in lines)
            for line in lines:
                if line.startswith("resumed"):
                    step = int(line.split()[1])
                    if step < resumed:
                        sys.exit(f"kill {i}: resumed from {step}, after {resumed}")
                    resumed = step
        if resumed == 0:
            sys.exit("no run made progress")
        done = run(1, folder, resumed + 2000, limit=120)
        if done.returncode != 0 or "done" not in done.stdout:
            sys.exit(f"the last run failed: {done.returncode}\n{done.stdout}{done.stderr}")
        names = sorted(os.listdir(folder))
        if len(names) != 2 or any(not name.startswith("step-") for name in names):
            sys.exit(f"litter: {names}")
        print(f"kills of a process: {KILLS}; resumed at last from step {resumed}; errors of the others: {errors}; "
              f"longest run {longest:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
