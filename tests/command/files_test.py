"""Every golden file, and the real files of ../shared/fixtures, through the subcommands."""

import os
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import DATA, DIGITS, FIXTURES, run, document


def models(folder):
    """Return the paths of `folder` that the command opens."""
    many = {DATA / "onnx" / name for name in ("idioms", "package")}  # files of a few tensors, of one kind
    paths = sorted(p for p in folder.rglob("*") if p.name != "README.md" and p.parent not in many)
    with ThreadPoolExecutor(3) as pool:
        opened = list(pool.map(lambda path: run("inspect", path, "--json")[0] == 0, paths))
    return [path for path, ok in zip(paths, opened) if ok]


def through(path):
    """Inspect, hash, verify and convert a file; return what is wrong."""
    status, out, err = run("verify", path)
    if status != 0:
        return f"{path}: verify: {out.decode()}{err.decode()}"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.stele"
        status, out, err = run("convert", path, copy, "--allow-loss")
        if status != 0:
            return f"{path}: convert: {err.decode()}"
        status, out, err = run("diff", path, copy, "--tensors")
        if status != 0:
            return f"{path}: diff: {out.decode()}{err.decode()}"
        digests = [document("hash", f, "--total")["files"][0]["digest"] for f in (path, copy)]
        if digests[0] != digests[1]:
            return f"{path}: the digests differ"
    return None


class Files(unittest.TestCase):
    def check(self, folder, at_least):
        found = models(folder)
        self.assertGreaterEqual(len(found), at_least, f"few files of {folder} were opened")
        with ThreadPoolExecutor(3) as pool:
            self.assertEqual([text for text in pool.map(through, found) if text], [])

    def test_golden_files(self):
        self.check(DATA, 300)

    def test_examples(self):
        self.check(DIGITS, 2)

    def test_fixtures(self):
        if not FIXTURES.is_dir():
            self.assertFalse(os.environ.get("STELE_NEVER_SKIP"), f"{FIXTURES} is not there")
            self.skipTest(f"{FIXTURES} is not there")
        self.check(FIXTURES, 10)


if __name__ == "__main__":
    unittest.main()
