"""The command's tests under Wine: `STELE=WRAPPER command_test.py` runs those of tests/command/behaviour_*_test.py and
the cases below, each in its own process with a time limit. command_skipped.txt lists the skipped ones, with reasons."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER.parent / "command"))
from support import STELE, InFolder, document, run, safetensors, succeed  # noqa: E402

TIME_LIMIT = 300  # seconds for a test; the slowest takes 13


class Windows(InFolder):
    def test_standard_streams_are_binary(self):
        content = bytes(range(256)) + b"\r\n\n\r\x1a\x1a\0"
        file = safetensors(self.path("s.safetensors"), {"x": ("U8", [len(content)], content)})
        expected = document("hash", file)["files"][0]["tensors"]
        done = subprocess.run([STELE, "hash", "-", "--json"], input=file.read_bytes(), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(expected[0]["digest"].encode(), done.stdout)
        for out in (done.stdout, run("inspect", file)[1], run("manual")[1], run("nothing")[2]):
            self.assertEqual((out.count(b"\n") > 0, out.count(b"\r")), (True, False))

    def test_names_and_words_in_unicode(self):
        name = "\u00e4\u6f22\U0001f600"
        file = safetensors(self.path(f"{name} a.safetensors"), {name: ("U8", [1], b"a")})
        self.assertEqual([t["name"] for t in document("inspect", file, name)["tensors"]], [name])
        self.assertIn(name, succeed("inspect", file))
        succeed("convert", file, self.path(f"{name}.stele"), "--only", name)
        self.assertEqual(run("diff", file, self.path(f"{name}.stele"))[0], 0)
        self.assertEqual(len(document("inspect", file, self.path(f"{name}.stele"))["files"]), 2)
        before = file.read_bytes()
        self.assertIn(b"would replace", run("report", file, "-o", self.path(f"./{name} a.safetensors"))[2])
        self.assertEqual(file.read_bytes(), before)

    def test_ctrl_c_leaves_the_old_file(self):
        file = safetensors(self.path("big.safetensors"), {f"w{i}": ("F32", [2 ** 18, 1024], None) for i in range(2)})
        out = self.path("out.json")  # base64: slow enough
        out.write_text("old")
        child, console = pty.fork()
        if child == 0:
            os.execv(STELE, [STELE, "convert", str(file), str(out)])
        deadline = time.monotonic() + 60
        while len(list(self.path("").iterdir())) < 3 and time.monotonic() < deadline:  # until it writes
            time.sleep(0.01)
        os.write(console, b"\x03")
        text = b""
        try:
            while piece := os.read(console, 65536):
                text += piece
        except OSError:  # the console is closed
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 130, text)
        os.close(console)
        self.assertEqual(sorted(p.name for p in self.path("").iterdir()), ["big.safetensors", "out.json"])
        self.assertEqual(out.read_text(), "old")


def names(suite):
    return [suite.id()] if isinstance(suite, unittest.TestCase) else [name for part in suite for name in names(part)]


def outcome(name):
    """Run one test; return its name, seconds, and output if it failed."""
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, "-B", "-m", "unittest", name], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, "PYTHONPATH": str(FOLDER.parent / "command")})
    try:
        out, _ = child.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out = child.communicate()[0] + b"ended after %d s\n" % TIME_LIMIT
    return name, time.monotonic() - start, "" if child.returncode == 0 else out.decode(errors="replace")


def main():
    modules = sorted(path.stem for path in (FOLDER.parent / "command").glob("behaviour_*_test.py"))
    everything = names(unittest.defaultTestLoader.loadTestsFromNames([*modules, "command_test"]))
    listed = re.findall(r'^"([^"]*)"', (FOLDER / "command_skipped.txt").read_text(), re.M)
    skipped = [name for name in everything if name.partition(".")[2] in listed]
    chosen = [name for name in everything if name not in skipped and all(word in name for word in sys.argv[1:])]
    failed = [] if len(skipped) == len(listed) else ["command_skipped.txt: a test has another name"]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, seconds, out in threads.map(outcome, chosen):
            print(f"{'FAILED' if out else 'ok':6} {seconds:4.0f} s  {name}\n{out}", end="", flush=True)
            failed += [name] if out else []
    print(f"command: {len(chosen) - len(failed)} of {len(everything)} tests passed, {len(skipped)} skipped", *failed, sep="\nFAILED: ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
