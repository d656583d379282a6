"""A training run that saves its steps on a store until it is killed: trainer.py FOLDER DELTAS COMMITTED.

Ends with status 3 if it resumes another state than a step saved, or an older step than COMMITTED, the last one that a
run before has reported. Prints the number of each step that was saved.
"""
import sys

import numpy as np

import stele

SIZE = 300_000  # elements: a file of several parts


def weights_of(step):
    """The weights of a step: frozen ones, and ones of which some change with every step."""
    frozen = np.arange(SIZE, dtype=np.float32)
    trained = frozen * 0.5
    trained[step % 97::97] += step
    return {"frozen": frozen, "trained": trained}


def main(folder, deltas, committed):
    manager = stele.CheckpointManager(folder, keep={"latest": 2, "every_steps": 50}, deltas=deltas, compact=deltas > 0)
    found, step = manager.open(), 0
    if found is not None:
        step = found.info.step
        right = all(np.array_equal(found.model[name].numpy(), array) for name, array in weights_of(step).items())
        if not right or found.skipped or step < committed:
            print(f"resumed step {step} after {committed}, right: {right}, skipped: {found.skipped}", file=sys.stderr)
            return 3
    elif committed:
        print(f"no step, but {committed} was saved", file=sys.stderr)
        return 3
    print("resumed", step, flush=True)
    while True:
        step += 1
        manager.save(step, weights_of(step))
        print(step, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
