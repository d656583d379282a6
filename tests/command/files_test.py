"""Every golden file, and the real files of ../shared/fixtures, through the subcommands."""

import json
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
    files = json.loads(run("inspect", *paths, "--json")[1])["files"]
    return [path for path, found in zip(paths, files, strict=True) if "error" not in found]


def converted(path, copy):
    """Convert a file, and compare the copy; return what is wrong."""
    status, out, err = run("convert", path, copy, "--allow-loss")
    if status == 0:
        status, out, err = run("diff", path, copy, "--tensors")
    return f"{path}: {out.decode()}{err.decode()}" if status != 0 else None


class Files(unittest.TestCase):
    def check(self, paths, at_least):
        found = models(paths)
        self.assertGreaterEqual(len(found), at_least, "few files were opened")
        status, out, err = run("verify", *found, "--quiet")
        self.assertEqual((status, err), (0, b""), out)
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as pool:
            copies = [Path(folder) / f"{i}.stele" for i in range(len(found))]
            self.assertEqual([text for text in pool.map(converted, found, copies) if text], [])
            digests = [[file["digest"] for file in document("hash", *files, "--total")["files"]] for files in (found, copies)]
            self.assertEqual(*digests)

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
