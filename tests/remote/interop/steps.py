"""Kills training runs that save their steps on a store."""
import random
import subprocess
import time
from pathlib import Path

from common import ROOT, need, ok, skipped
from faults import SLOW, abort_uploads, store_behind

KILLS = 300
PYTHON, MODULE = ROOT / "build/python/venv/bin/python", ROOT / "build/release/python"
TRAINER = Path(__file__).with_name("trainer.py")


def run_and_kill(environment, deltas, committed, wait):
    """Runs the trainer, and kills it when wait(its output) ends. Returns the last step that it has saved."""
    words = [PYTHON, TRAINER, "s3://bucket/run", str(deltas), str(committed)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        saved = wait(process.stdout) if first else []
        process.kill()
        out, err = process.communicate()
    need(first.startswith("resumed") and not err, f"after step {committed}: {err}")
    return max(committed, *map(int, [first.split()[1], *saved, *out.split()]))


def check_steps(stele, work):
    """Every run resumes what the run before has saved, whole; steps that were not finished are never listed."""
    if not PYTHON.exists() or not any(MODULE.glob("stele/_stele*")):
        skipped("steps: needs the Python module (make python)")
        return
    generator = random.Random(7)
    for deltas in (0, 3):
        committed, unfinished = 0, 0
        with store_behind(work, rate=SLOW) as (s3, variables, _):
            environment = stele.environment | variables | {"PYTHONPATH": str(MODULE)}
            begun = time.monotonic()
            committed = run_and_kill(environment, deltas, 0, lambda out: [out.readline() for _ in range(5)])
            step = (time.monotonic() - begun) / 5  # seconds, with the start
            for _ in range(KILLS // 2):
                wait = generator.uniform(0, 2 * step)
                committed = run_and_kill(environment, deltas, committed, lambda _: time.sleep(wait) or [])
                unfinished += abort_uploads(s3, "bucket")
            names = [item["Key"] for item in s3.list_objects_v2(Bucket="bucket").get("Contents", [])]
        ok(f"{KILLS // 2} kills of runs that save steps" + (" as deltas" if deltas else "") +
           f": {committed} steps, each resumed whole; {unfinished} unfinished uploads, {len(names)} objects at the end")
