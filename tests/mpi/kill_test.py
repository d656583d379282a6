#!/usr/bin/env python3
"""Kill a random process of a distributed run at a random moment, many times: kill_test.py PROGRAM STORE [KILLS].

The steps are whole, then deltas. They are in a folder, then in a store of objects: that of the program STORE, or, if
STORE is "-", one that runs at AWS_ENDPOINT_URL and has a bucket named "bucket".

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

PROGRAM, STORE, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 25
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(processes, *arguments, limit):
    command = ["mpirun", "-n", str(processes), "--oversubscribe", "--enable-recovery", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=limit)


def kill(place):
    """Returns a description of the runs."""
    resumed, errors, longest = 0, 0, 0.0
    for i in range(KILLS):
        processes = random.choice([2, 3, 4])
        victim = random.randrange(processes)
        start = time.monotonic()
        done = run(processes, place, 10**9, victim, random.randrange(20_000, 400_000), limit=60)
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
    done = run(1, place, resumed + 100, limit=120)
    if done.returncode != 0 or "done" not in done.stdout:
        sys.exit(f"the last run failed: {done.returncode}\n{done.stdout}{done.stderr}")
    return (f"kills of a process: {KILLS}; resumed at last from step {resumed}; errors of the others: {errors}; "
            f"longest run {longest:.1f} s")


def in_folder():
    folder = tempfile.mkdtemp(prefix="stele-mpi-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        print(f"a folder: {kill(folder)}")
        names = sorted(os.listdir(folder))
        if not 2 <= len(names) <= 2 + DELTAS or any(not name.startswith("step-") for name in names):
            sys.exit(f"litter: {names}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def in_store():
    ENV.update(AWS_ACCESS_KEY_ID="K", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="us-east-1")
    if STORE == "-":
        print(f"a store: {kill(f's3://bucket/run{DELTAS}')}")
        return
    with subprocess.Popen([STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as store:
        ENV["AWS_ENDPOINT_URL"] = store.stdout.readline().strip()
        result = kill("s3://bucket/run")
        keys = store.communicate("")[0].split()
    manifests = [key for key in keys if key.endswith("/manifest.json")]
    if not 2 <= len(manifests) <= 2 + DELTAS:
        sys.exit(f"litter: {manifests}")
    # A process that is killed leaves its files. They are below a name that is not used again.
    saves = {key.rsplit("/", 2)[0] if "/parameters/" in key else key for key in keys} - set(manifests)
    print(f"a store: {result}; saves of which files are left: {len(saves) - len(manifests)}")


random.seed(2)
for DELTAS in (0, 5):
    ENV["DELTAS"] = str(DELTAS)
    print(f"at most {DELTAS} deltas in a row")
    in_folder()
    in_store()
