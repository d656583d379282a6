"""Damaged files and hostile names through every subcommand."""

import random
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import CONTROL, DIGITS_PT, DIGITS_ST, InFolder, data_files, floats, run, safetensors

# One small file of each format.
SEEDS = [DIGITS_ST, DIGITS_PT]


def seeds():
    found = {}
    for path in data_files():
        if path.is_file() and 0 < path.stat().st_size < 20000 and path.suffix not in ("", ".md", ".txt", ".py"):
            found.setdefault(path.suffix, path)
    return SEEDS + list(found.values())


def commands(file, folder):
    """Every subcommand on a file, as lists of arguments."""
    yield "inspect", file, "--stats"
    yield "inspect", file, "--tree"
    yield "inspect", file, "--json"
    yield "inspect", file, "--print", "a"
    yield "verify", file
    yield "hash", file
    yield "diff", file, file
    yield "convert", file, folder / "c.stele", "--allow-loss"
    yield "convert", file, folder / "c.safetensors", "--allow-loss", "--dry-run"
    yield "import", file, folder / "i.fb"
    yield "repair", file, folder / "r.stele", "--allow-loss"
    yield "merge", file, "-o", folder / "m.stele", "--allow-loss"
    yield "split", file, folder / "s.stele", "--allow-loss"
    yield "extract", file, "a", "-o", folder / "e.npy"
    yield "tags", file
    yield "report", file, "-o", folder / "page.html"
    yield "embed", file, "-o", folder / "e.hpp"


def problems(path):
    """Run every subcommand on a file; return what is wrong. A crash is an exception of run()."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for arguments in commands(path, Path(folder)):
            status, out, err = run(*arguments)
            if any(byte in CONTROL for byte in out + err):
                wrong.append(f"{arguments}: prints control characters: {out + err}")
            if status == 2 and not (b"stele: " in err or b'"error"' in out or any(word in out for word in (b"failed", b"unsupported", b"not checked"))):
                wrong.append(f"{arguments}: status 2 without a message")
    return wrong


class Hostile(InFolder):
    def test_damaged_files(self):
        dice = random.Random(7)
        files = []
        for number, seed in enumerate(seeds()):
            content = seed.read_bytes()
            for kind in ("cut", "flip", "noise"):
                damaged = bytearray(content)
                if kind == "cut":
                    damaged = damaged[:dice.randrange(len(damaged))]
                for _ in range({"cut": 0, "flip": 1, "noise": 20}[kind]):
                    damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
                file = self.path(f"{number}-{kind}{seed.suffix}")
                file.write_bytes(damaged)
                files.append(file)
        self.assertGreater(len(files), 60)
        with ThreadPoolExecutor(3) as pool:
            self.assertEqual([text for wrong in pool.map(problems, files) for text in wrong], [])

    def test_names_that_a_terminal_would_obey(self):
        names = ["\x1b[31mred", "\x1b]0;title\x07", "a\rb", "\x00", "\u009b31m", "\u202eevil", "tab\there", "new\nline",
                 "a", "<script>alert(1)</script>", "../../etc/passwd", "a b", "\\"]
        file = safetensors(self.path("\x1b[2Jnames.safetensors"), {n: ("F32", [1], floats(i)) for i, n in enumerate(names)},
                           {"\x1b[5m": "\x1b[6m\x08"})
        self.assertEqual(problems(file), [])
        self.assertEqual(run("inspect", file)[0], 0)
        for name in names:
            status, out, err = run("inspect", file, name.replace("\x00", "?"))
            self.assertFalse(any(byte in CONTROL for byte in out + err))

    def test_not_models(self):
        for content in (b"", b"\0", b"hello", b"PK\3\4", b"\x93NUMPY", b"{" * 5000, bytes(4096)):
            file = self.path("x.bin")
            file.write_bytes(content)
            self.assertEqual(problems(file), [])
            self.assertEqual(run("inspect", file)[0], 2)
        self.assertEqual(run("inspect", self.folder.name)[0], 2)


if __name__ == "__main__":
    unittest.main()
