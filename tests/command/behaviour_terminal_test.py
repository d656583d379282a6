"""The manual, and the command on a terminal, in a pipe and when it is interrupted."""

import os
import pty
import shutil
import signal
import subprocess
import time
import unittest

from support import DIGITS_ST, STELE, InFolder, floats, run, safetensors, succeed


class Manual(InFolder):
    def options(self, command):
        words = succeed(*command, "--help").split("Examples:")[0].split()
        return {word.split(",")[-1].rstrip(":") for word in words if word.startswith("--") or ",--" in word}

    def test_the_manual_has_every_option(self):
        page = succeed("manual").replace("\\-", "-")
        for command in ("inspect", "convert", "verify", "repair", "hash", "diff", "merge", "split", "extract", "tags", "report", "embed"):
            section = page.split(f".SS stele {command}")[1].split(".SS")[0]
            self.assertIn("--json", self.options([command]))
            for option in self.options([command]):
                self.assertIn(option, section)
        if shutil.which("man"):
            file = self.path("stele.1")
            file.write_text(succeed("manual"))
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", file], capture_output=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                file = self.path(shell)
                file.write_text(succeed("completion", shell))
                self.assertEqual(subprocess.run([shell, "-n", file], capture_output=True).stderr, b"")
        script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _stele; echo "${COMPREPLY[*]}"'
        for words, expected in ((("in",), "inspect"), (("convert", "--pre"), "--precision"), (("hash", "x", "--alg"), "--algorithm"),
                                (("hash", "--algorithm", ""), "xxh3 xxh64 sha1 sha256"), (("completion", ""), "bash zsh fish"),
                                (("lora", "me"), "merge"), (("lora", "merge", ""), ""), (("help", "hel"), "help"),
                                (("convert", "x", "y", "--to", "safet"), "safetensors safetensors-sharded"),
                                (("convert", "--precision", "Q4_K_"), "Q4_K_S Q4_K_M"), (("convert", "--precision", "q4_K"), "q4_K"),
                                (("convert", "--quantize", "n"), "nvfp4 nf4")):
            done = subprocess.run(["bash", "-c", script, self.path("bash"), "stele", *words], capture_output=True, text=True)
            self.assertEqual(done.stdout.strip(), expected)

    def test_statuses(self):
        self.assertEqual(run("--help")[0], 0)
        self.assertEqual(run("--version")[1][:6], b"stele ")
        for wrong in ((), ("nothing",), ("inspect",), ("inspect", DIGITS_ST, "--wrong"), ("hash", DIGITS_ST, "-a", "md5")):
            status, out, err = run(*wrong)
            self.assertEqual((status, out), (2, b""))
            self.assertNotEqual(err, b"")


class Terminal(InFolder):
    def on_terminal(self, *arguments, **environment):
        """Run the command on a pseudo-terminal; return all that it prints."""
        pid, master = pty.fork()
        if pid == 0:
            os.environ.update({"TERM": "xterm", **environment})
            os.execv(STELE, [STELE, *map(str, arguments)])
        text = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(master)
        return text

    def test_colour(self):
        self.assertIn(b"\x1b[1m", self.on_terminal("inspect", DIGITS_ST))
        self.assertNotIn(b"\x1b", self.on_terminal("inspect", DIGITS_ST, NO_COLOR="1"))
        self.assertNotIn("\x1b", succeed("inspect", DIGITS_ST))
        self.assertIn("\x1b[1m", succeed("inspect", DIGITS_ST, "--color", "always"))

    def test_progress(self):
        for gibibytes in (2, 8, 32):  # until it takes more than a second
            file = safetensors(self.path("big.safetensors"), {"w": ("F32", [2 ** 18, gibibytes * 1024], None)})
            text = self.on_terminal("hash", file, "-a", "sha1")
            if b"hashing" in text:
                break
        self.assertIn(b"hashing [", text)
        self.assertIn(b"/s", text)
        self.assertNotIn(b"hashing", self.on_terminal("hash", file, "-a", "sha1", "--quiet"))

    def test_broken_pipe(self):
        tensors = {f"t{i:05}": ("F32", [1], floats(i)) for i in range(20000)}
        file = safetensors(self.path("many.safetensors"), tensors)
        for arguments in (("inspect", file), ("hash", file), ("inspect", file, "--json")):
            with subprocess.Popen([STELE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                child.stdout.readline()
                child.stdout.close()
                self.assertEqual(child.stderr.read(), b"")
                self.assertEqual(child.wait(60), 0)

    def test_interrupt_leaves_no_half_file(self):
        file = safetensors(self.path("big.safetensors"), {f"w{i}": ("F32", [2 ** 18, 1024], None) for i in range(2)})
        out = self.path("out.json")  # base64: slow enough
        with subprocess.Popen([STELE, "convert", file, out], stderr=subprocess.PIPE) as child:
            deadline = time.monotonic() + 60
            while len(list(self.path("").iterdir())) < 2 and time.monotonic() < deadline:  # until it writes
                time.sleep(0.002)
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.wait(60), 130, child.stderr.read())
        self.assertEqual([p.name for p in self.path("").iterdir()], ["big.safetensors"])


if __name__ == "__main__":
    unittest.main()
