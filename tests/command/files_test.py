"""Every golden file, and the real files of ../shared/fixtures, through the subcommands."""

import os
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import DIGITS, FIXTURES, data, data_files, document, run


def models(paths):
    """Return those of `paths` that the command opens."""
    many = {data("onnx") / name for name in ("idioms", "package")}  # files of a few tensors, of one kind
    paths = sorted(p for p in paths if p.name != "README.md" and p.parent not in many)
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
    def check(self, paths, at_least):
        found = models(paths)
        self.assertGreaterEqual(len(found), at_least, "few files were opened")
        with ThreadPoolExecutor(3) as pool:
            self.assertEqual([text for text in pool.map(through, found) if text], [])

    def test_golden_files(self):
        # The tar files have members of many kinds, and no model.
        self.check((path for path in data_files() if path.parent.name != "tar"), 300)

    def test_examples(self):
        self.check(DIGITS.rglob("*"), 2)

    def test_fixtures(self):
        if not FIXTURES.is_dir():
            self.assertFalse(os.environ.get("STELE_NEVER_SKIP"), f"{FIXTURES} is not there")
            self.skipTest(f"{FIXTURES} is not there")
        self.check(FIXTURES.rglob("*"), 10)


if __name__ == "__main__":
    unittest.main()
