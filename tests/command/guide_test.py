"""The examples of docs/guide/command.md: what the page shows is what the command prints.

Each block ```console has lines `$ COMMAND` and the output that follows them. They run in one folder, in order.
`python3 guide_test.py --update` writes the present output into the page.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import os
import unittest
from pathlib import Path

from support import DIGITS, ROOT, STELE, data

PAGE = ROOT / "docs" / "guide" / "command.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.S | re.M)


def commands(block):
    """Return the pairs (command, output) of a block."""
    pairs = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append([line[2:].rstrip("\n"), ""])
        else:
            pairs[-1][1] += line
    return pairs


def prepare(folder):
    (folder / "bin").mkdir()
    (folder / "bin" / "stele").symlink_to(STELE)
    work = folder / "work"
    work.mkdir()
    for name in ("digits.safetensors", "digits.pth"):
        shutil.copy(DIGITS / name, work)
    shutil.copy(data("onnx") / "mlp.onnx", work)
    return work


def perform(command, work):
    environment = {**os.environ, "PATH": f"{work.parent / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", command], cwd=work, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, text=True)
    return done.stdout + (f"[status {done.returncode}]\n" if done.returncode else "")


def performed(text):
    """Return the page with the output that its commands print now."""
    with tempfile.TemporaryDirectory() as name:
        work = prepare(Path(name))

        def block(match):
            return "```console\n" + "".join(f"$ {c}\n{perform(c, work)}" for c, _ in commands(match[1])) + "```"
        return BLOCK.sub(block, text)


class Guide(unittest.TestCase):
    maxDiff = None

    def test_the_page_shows_what_is_printed(self):
        text = PAGE.read_text(encoding="utf-8")
        self.assertGreater(len(BLOCK.findall(text)), 8)
        self.assertEqual(text, performed(text))

    def test_every_subcommand_is_on_the_page(self):
        text = PAGE.read_text(encoding="utf-8")
        help_text = subprocess.run([STELE, "--help"], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^  (\w+) {2,}\S", help_text.split("Subcommands:")[1], re.M)
        self.assertGreater(len(found), 12)
        for command in found:
            self.assertIn(f"stele {command}", text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(performed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        unittest.main()
