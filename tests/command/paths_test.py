"""Every form of a path, for every command that writes; and the files beside those that a command is told to write."""

import contextlib
import os
import resource
import shutil
import signal
import struct
import subprocess
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support import DIGITS_ST, STELE, InFolder, data, document, floats, run, safetensors, succeed



def version(path, number):
    """Write a version of a model whose changes lie in two blocks of a MiB."""
    count = 800_000
    values = bytearray(struct.pack("<f", 1.0) * count)
    for i in range(0, count, 1000):
        values[4 * i:4 * i + 4] = floats(number + i)
    return safetensors(path, {"a": ("F32", [count], bytes(values)), "b": ("F32", [2], floats(7, number))})


def interrupt(*words, cwd=None):
    """Run a change in place that fails after the first block, since the file may not grow beyond 2 MiB: a mixture remains."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
    done = subprocess.run([STELE, *map(str, words)], cwd=cwd, capture_output=True, preexec_fn=limit, restore_signals=False, timeout=60)
    assert done.returncode == 2, done
    return done.stderr


class Forms(InFolder):
    """Each command that writes, with each form of the paths that it reads and writes."""

    def setUp(self):
        super().setUp()
        self.inputs = self.path("inputs")
        (self.inputs / "sub").mkdir(parents=True)
        shutil.copy(DIGITS_ST, self.inputs / "m.safetensors")
        safetensors(self.inputs / "v1.safetensors", {"q.weight": ("F32", [4, 64], floats(*range(256)))})
        safetensors(self.inputs / "v2.safetensors", {"q.weight": ("F32", [4, 64], floats(*range(255), 9))})
        safetensors(self.inputs / "v3.safetensors", {"q.weight": ("F32", [4, 64], floats(*range(254), 8, 9))})
        safetensors(self.inputs / "other.safetensors", {"o": ("F32", [1], floats(1))})
        cut = safetensors(self.inputs / "cut.safetensors", {"a": ("F32", [2], floats(1, 2)), "b": ("F32", [2], floats(1, 2))})
        cut.write_bytes(cut.read_bytes()[:-4])
        for old, new in ((1, 2), (2, 3)):
            succeed("delta", self.inputs / f"v{old}.safetensors", self.inputs / f"v{new}.safetensors", "-o", self.inputs / f"d{new}.stele")
        adapter = self.inputs / "adapter"
        adapter.mkdir()
        safetensors(adapter / "adapter_model.safetensors",
                    {"base_model.model.q.lora_A.weight": ("F32", [1, 64], floats(*range(64))),
                     "base_model.model.q.lora_B.weight": ("F32", [4, 1], floats(1, 2, 3, 4))})
        (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1, "lora_alpha": 1}')
        hub = self.inputs / "hub"
        hub.mkdir()
        shutil.copy(self.inputs / "v1.safetensors", hub / "model.safetensors")
        (hub / "config.json").write_text('{"model_type": "mine"}')
        succeed("convert", self.inputs / "v1.safetensors", self.inputs / "tags.zip", "--to-tag", "one")
        succeed("convert", self.inputs / "v1.safetensors", self.inputs / "tags.zip", "--to-tag", "two", "--append")

    # Words that begin with < name an input, with > an output, with = a file that is changed.
    COMMANDS = (
        "convert <m.safetensors >o.stele", "convert <m.safetensors >o.gguf --precision q8_0", "convert <m.safetensors >o --to hub",
        "convert <m.safetensors >o.safetensors.index.json --shard 2k", "convert <hub >o --quantize int8", "convert <m.safetensors >o.zarr",
        "convert <m.safetensors >o.npz", "convert <m.safetensors =tags.zip --append --to-tag three", "tags =tags.zip --remove one",
        "extract <m.safetensors head.bias -o >o.npy", "extract <m.safetensors head.bias -o >o.bin", "extract <m.safetensors head.bias -o >o.stele",
        "delta <v1.safetensors <v2.safetensors -o >o.stele", "delta <v1.safetensors <v2.safetensors -o >o --to update",
        "apply <v1.safetensors <d2.stele -o >o.safetensors", "apply <v1.safetensors <d2.stele <d3.stele -o >o.gguf",
        "apply =v1.safetensors <d2.stele --in-place", "apply =v1.safetensors <d2.stele <d3.stele --in-place", "compact <d2.stele <d3.stele -o >o.stele",
        "merge <m.safetensors <other.safetensors -o >o.safetensors", "split <m.safetensors >o.safetensors", "split <m.safetensors >o.stele --size 4k",
        "repair <cut.safetensors >o.safetensors --allow-loss", "lora merge <v1.safetensors <adapter -o >o.safetensors",
        "lora unmerge <v1.safetensors <adapter -o >o.safetensors", "embed <m.safetensors -o >o.hpp", "embed <m.safetensors -o >o.hpp --object",
        "report <m.safetensors -o >o.html", "import <mlp.onnx >o.fb",
    )
    FORMS = {
        "bare": lambda folder, name: name,
        "dot": lambda folder, name: "./" + name,
        "parent": lambda folder, name: "sub/../" + name,
        "through a link": lambda folder, name: "here/" + name,
        "link": lambda folder, name: "links/" + name,
    }

    def fresh(self, name):
        """Return a new folder with the inputs, where here is a link to itself, and links/ has a link to each file."""
        folder = self.path(name)
        shutil.copytree(self.inputs, folder)
        mlp = data("onnx") / "mlp.onnx"
        if mlp.exists():
            shutil.copy(mlp, folder)
        (folder / "here").symlink_to(".")
        (folder / "links").mkdir()
        for file in folder.iterdir():
            if file.name not in ("here", "links", "sub"):
                (folder / "links" / file.name).symlink_to(f"../{file.name}")
        return folder

    @staticmethod
    def files(folder):
        """Return the bytes of all files, without what names the paths themselves."""
        found = {}
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or "here" in path.parts or not path.is_file():
                continue
            content = path.read_bytes()
            if path.suffix in (".hpp", ".html"):
                content = b""  # has the name of its input
            found[str(path.relative_to(folder))] = content
        return found

    def result(self, command, place, number):
        folder = self.fresh(f"{number}")
        words = [place(folder, word[1:]) if word[0] in "<>=" else word for word in command.split()]
        for word, name in zip(command.split(), words):
            if word[0] == ">" and name.startswith("links/"):  # a link to a file that is yet to be
                (folder / name).symlink_to("../" + word[1:])
        status, out, err = run(*words, cwd=folder)
        self.assertEqual(status, 1 if command.startswith("repair") else 0, (command, words, out, err))
        links = [path for path in (folder / "links").iterdir() if not path.is_symlink()]
        found = self.files(folder)
        shutil.rmtree(folder)
        return {name: content for name, content in found.items() if not name.startswith("links/")}, links

    def test_each_form_gives_the_same_files(self):
        number = 0
        for command in self.COMMANDS:
            if "mlp.onnx" in command and not (data("onnx") / "mlp.onnx").exists():
                continue
            expected, _ = self.result(command, lambda folder, name: str(folder / name), number)
            for form, place in self.FORMS.items():
                # Several files, or a folder, are written beside the name that is given: not beside the link's target.
                several = any(w in command for w in ("--shard", "split", "--object", ">o ", ">o.zarr")) or command.endswith(">o")
                if form == "link" and several:
                    continue
                number += 1
                with self.subTest(command=command, form=form):
                    found, links = self.result(command, place, number)
                    self.assertEqual(found.keys(), expected.keys())
                    for name, content in expected.items():
                        self.assertEqual(found[name] == content, True, name)
                    self.assertEqual(links, [], "a link was replaced")

    def test_the_list_has_every_command_that_writes(self):
        listed = {command.split()[0] for command in self.COMMANDS}
        help_text = succeed("--help")
        for name in listed:
            self.assertIn(name, help_text)
        reading = {"inspect", "formats", "verify", "hash", "diff", "completion", "manual", "help"}
        commands = {line.split()[0] for line in help_text.split("SUBCOMMANDS:")[-1].split("Subcommands:")[-1].splitlines()
                    if line.startswith("  ") and line.strip() and not line.startswith("   ")}
        self.assertEqual({c for c in commands if c.isalpha()} - reading - listed, set())

    def test_urls_are_read_and_never_changed_in_place(self):
        if b"STELE_REMOTE" in run("inspect", "http://127.0.0.1:1/x.safetensors")[2]:
            self.skipTest("the command is built without URLs")
        with served(self.inputs) as url:
            for command in ("convert <m.safetensors >o.stele", "extract <m.safetensors head.bias -o >o.npy", "delta <v1.safetensors <v2.safetensors -o >o.stele",
                            "apply <v1.safetensors <d2.stele -o >o.safetensors", "compact <d2.stele <d3.stele -o >o.stele",
                            "merge <m.safetensors <other.safetensors -o >o.safetensors", "split <m.safetensors >o.safetensors",
                            "embed <m.safetensors -o >o.hpp --object", "report <m.safetensors -o >o.html"):
                outputs = []
                for place in (str(self.inputs) + "/", url):
                    folder = self.path("out")
                    folder.mkdir()
                    succeed(*(place + w[1:] if w[0] == "<" else folder / w[1:] if w[0] == ">" else w for w in command.split()))
                    outputs.append(self.files(folder))
                    shutil.rmtree(folder)
                self.assertEqual(outputs[0] == outputs[1], True, command)
            status, _, err = run("apply", url + "v1.safetensors", self.inputs / "d2.stele", "--in-place")
            self.assertEqual((status, b"URL" in err), (2, True), err)


@contextlib.contextmanager
def served(folder):
    """Serve a folder's files, also parts of them; yield the URL."""
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self, body):
            path = folder / self.path.lstrip("/")
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = path.read_bytes()
            wanted = self.headers.get("Range")
            begin, end = 0, len(content)
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end = (int(first), int(last) + 1 if last else end) if first else (end - int(last), end)
                end = min(end, len(content))
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(end - begin))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"1"')
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
            self.end_headers()
            if body:
                self.wfile.write(content[begin:end])

        def do_GET(self):
            self.answer(True)

        def do_HEAD(self):
            self.answer(False)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class Journals(InFolder):
    """The journal of an interrupted change in place is part of its file: seen by every command, and applied to no other file."""

    def setUp(self):
        super().setUp()
        self.versions = [version(self.path(f"v{i}.safetensors"), i) for i in range(4)]
        self.bytes = [v.read_bytes() for v in self.versions]
        self.deltas = []
        for old, new in zip(self.versions, self.versions[1:]):
            self.deltas.append(self.path(f"d{len(self.deltas)}.stele"))
            succeed("delta", old, new, "-o", self.deltas[-1])
        self.run = self.path("run")
        self.run.mkdir()
        self.model = self.run / "model.safetensors"
        self.journal = self.run / "model.safetensors.stele-journal"

    def interrupted(self, old=1):
        self.model.write_bytes(self.bytes[old])
        err = interrupt("apply", self.model, self.deltas[old], "--in-place")
        self.assertIn(b"completes the change", err)
        self.assertTrue(self.journal.exists())
        self.assertNotIn(self.model.read_bytes(), self.bytes)

    def test_every_command_sees_it(self):
        self.interrupted()
        mixture = self.model.read_bytes()
        out = self.path("out.safetensors")
        link = self.path("link.safetensors")
        link.symlink_to(self.model)
        for model in (self.model, link, "run/model.safetensors", self.run):
            for words in (("inspect", model), ("verify", model), ("hash", model), ("diff", model, self.versions[0]), ("convert", model, out),
                          ("extract", model, "b", "-o", out), ("merge", model, "-o", out), ("delta", self.versions[0], model, "-o", out),
                          ("apply", model, self.deltas[1], "-o", out), ("repair", model, out), ("split", model, out), ("report", model, "-o", out),
                          ("embed", model, "-o", out), ("convert", model, model)):
                status, out_text, err = run(*words, cwd=self.folder.name)
                self.assertIn(status, (1, 2), words)
                self.assertIn(b"--in-place", out_text + err, words)
                self.assertFalse(out.exists(), words)
        self.assertEqual(self.model.read_bytes(), mixture)
        self.assertTrue(self.journal.exists())

    def test_the_change_is_completed(self):
        for words, expected, changed in (((), 2, True), ((self.deltas[1],), 2, True), ((self.deltas[1], self.deltas[2]), None, None),
                                         ((self.deltas[2],), 3, True)):
            self.interrupted()
            if expected is None:  # another change, that begins with the same version
                status, _, err = run("apply", self.model, *words, "--in-place")
                self.assertEqual((status, b"completes it" in err), (2, True), err)
                self.assertTrue(self.journal.exists())
                continue
            self.assertEqual(document("apply", self.model, *words, "--in-place")["changed"], changed)
            self.assertEqual(self.model.read_bytes() == self.bytes[expected], True, words)
            self.assertEqual(list(self.run.iterdir()), [self.model])

    def test_a_finished_change_is_said(self):
        self.model.write_bytes(self.bytes[1])
        self.assertIn(b"changed", run("apply", self.model, self.deltas[1], "--in-place")[2])
        self.assertIn(b"is that version already", run("apply", self.model, self.deltas[1], "--in-place")[2])
        self.assertFalse(document("apply", self.model, self.deltas[0], self.deltas[1], "--in-place")["changed"])
        self.assertIn(b"no interrupted change", run("apply", self.model, "--in-place")[2])
        self.assertEqual(run("apply", self.model, self.deltas[0], "--in-place")[0], 2)
        self.assertEqual(self.model.read_bytes() == self.bytes[2], True)

    def test_another_file_is_never_changed(self):
        """What takes the file's place: other versions, the same tensors with changes elsewhere, or in the same places."""
        elsewhere, same_places, longer = (bytearray(self.bytes[1]) for _ in range(3))
        elsewhere[-6] ^= 1
        place = self.bytes[1].index(floats(1000 + 1))
        same_places[place:place + 4] = floats(77)
        longer += b"\0"
        for content in (self.bytes[0], self.bytes[3], bytes(elsewhere), bytes(same_places), bytes(longer)):
            for rewrite in (True, False):
                self.interrupted()
                if rewrite:
                    self.model.write_bytes(content)  # the same inode
                else:
                    self.path("new").write_bytes(content)
                    os.replace(self.path("new"), self.model)
                for deltas in ((), (self.deltas[0],), (self.deltas[1],), (self.deltas[2],)):
                    status, _, err = run("apply", self.model, *deltas, "--in-place")
                    self.assertEqual((status, b"remove the journal" in err), (2, True), err)
                    self.assertEqual(self.model.read_bytes() == content, True)
                self.journal.unlink()

    def test_a_copy_of_both_is_completed(self):
        self.interrupted()
        copy = self.path("copy")
        shutil.copytree(self.run, copy)
        succeed("apply", copy / "model.safetensors", "--in-place")
        self.assertEqual((copy / "model.safetensors").read_bytes() == self.bytes[2], True)
        self.model.write_bytes(self.bytes[1])  # the old version is put back
        succeed("apply", self.model, self.deltas[1], "--in-place")
        self.assertEqual(self.model.read_bytes() == self.bytes[2], True)

    def test_a_damaged_journal_changes_nothing(self):
        self.interrupted()
        whole, mixture = self.journal.read_bytes(), self.model.read_bytes()
        for content in (b"", b"notes", whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], whole.replace(b"journal 2", b"journal 1")):
            self.journal.write_bytes(content)
            for words in (("verify", self.model), ("apply", self.model, "--in-place"), ("apply", self.model, self.deltas[1], "--in-place")):
                self.assertIn(run(*words)[0], (1, 2), words)
                self.assertEqual(self.model.read_bytes() == mixture, True)

    def test_a_save_replaces_file_and_journal(self):
        for target in (self.model, self.path("link.safetensors")):
            self.interrupted()
            if target != self.model:
                target.symlink_to(self.model)
            succeed("convert", self.versions[3], target)
            self.assertEqual(list(self.run.iterdir()), [self.model])
            succeed("verify", self.model)
            succeed("diff", self.model, self.versions[3])
        self.interrupted()
        self.model.unlink()
        succeed("convert", self.versions[3], self.model)
        self.assertEqual(list(self.run.iterdir()), [self.model])

    def test_the_journal_has_the_permissions_of_the_file(self):
        for mode in (0o600, 0o640, 0o664):
            self.model.write_bytes(self.bytes[1])
            self.model.chmod(mode)
            interrupt("apply", self.model, self.deltas[1], "--in-place")
            self.assertEqual(self.journal.stat().st_mode & 0o777, mode)
            self.journal.unlink()

    def test_the_journal_of_a_link_is_beside_the_file(self):
        self.model.write_bytes(self.bytes[1])
        link = self.path("link.safetensors")
        link.symlink_to("run/model.safetensors")
        interrupt("apply", link, self.deltas[1], "--in-place")
        self.assertTrue(self.journal.exists())
        succeed("apply", self.model, "--in-place")
        self.assertEqual(self.model.read_bytes() == self.bytes[2], True)
        self.assertTrue(link.is_symlink())

    def test_a_file_with_two_names_is_not_changed_in_place(self):
        self.model.write_bytes(self.bytes[1])
        os.link(self.model, self.path("backup.safetensors"))
        status, _, err = run("apply", self.model, self.deltas[1], "--in-place")
        self.assertEqual((status, b"hard link" in err), (2, True), err)
        self.assertEqual(self.model.read_bytes() == self.bytes[1], True)


class Beside(InFolder):
    """Files beside the one that the user names are named in the output, and never replaced if they are others'."""

    def test_embed(self):
        notes, model = self.path("net.S"), self.path("net.stele")
        header = self.path("net.hpp")
        for unrelated in ((notes,), (model,), (notes, model)):
            for file in unrelated:
                file.write_text("mine")
            status, _, err = run("embed", DIGITS_ST, "-o", header, "--object")
            self.assertEqual((status, unrelated[0].name.encode() in err), (2, True), err)
            self.assertEqual([f.read_text() for f in unrelated], ["mine"] * len(unrelated))
            self.assertFalse(header.exists())
            for file in unrelated:
                file.unlink()
        _, _, err = run("embed", DIGITS_ST, "-o", header, "--object")
        for name in (b"net.S", b"net.stele", b"net.hpp"):
            self.assertIn(name, err)
        found = document("embed", DIGITS_ST, "-o", header, "--object", "--precision", "f16")  # its own files
        self.assertEqual({Path(f).name for f in found["files"]}, {"net.S", "net.stele", "net.hpp"})
        succeed("convert", DIGITS_ST, model)  # no longer the one that was embedded
        before = model.read_bytes()
        self.assertEqual(run("embed", DIGITS_ST, "-o", header, "--object")[0], 2)
        self.assertEqual(model.read_bytes(), before)

    def test_a_set_of_files(self):
        target = self.path("m.safetensors.index.json")
        _, _, err = run("convert", DIGITS_ST, target, "--shard", "8k")
        files = {file.name for file in self.path("").iterdir()}
        self.assertGreater(len(files), 2)
        for name in files:
            self.assertIn(name.encode(), err)
            self.path(name).unlink()
        rows = document("convert", DIGITS_ST, target, "--shard", "8k")["rows"]
        self.assertEqual({row["path"] for row in rows if row["what"] == "written"} | {target.name}, files)

    def test_split(self):
        """A part does not replace an existing file; nothing is written then."""
        for options, name in (((), "p.head.safetensors"), (("--size", "8k"), "p-2-of-")):
            names = [Path(f["file"]) for f in document("split", DIGITS_ST, self.path("p.safetensors"), *options)["files"]]
            self.assertEqual(sorted(names), sorted(self.path("").iterdir()))
            for file in names:
                file.unlink()
            mine = next(f for f in names if f.name.startswith(name))
            mine.write_text("mine")
            status, _, err = run("split", DIGITS_ST, self.path("p.safetensors"), *options)
            self.assertEqual((status, mine.name.encode() in err), (2, True), err)
            self.assertEqual(list(self.path("").iterdir()), [mine])
            self.assertEqual(mine.read_text(), "mine")
            mine.unlink()

    def test_an_unknown_extension_is_no_folder(self):
        hub = self.path("Model-1.5B")
        hub.mkdir()
        safetensors(hub / "model.safetensors", {"q.weight": ("F32", [4, 64], floats(*range(256)))})
        (hub / "config.json").write_text("{}")
        file = self.path("v1.safetensors")
        shutil.copy(hub / "model.safetensors", file)
        for words in (("convert", hub, "OUT"), ("apply", hub, self.path("d.stele"), "-o", "OUT"), ("lora", "merge", hub, hub, "-o", "OUT")):
            for name, hint in (("m.ggfu", b".gguf"), ("m.safetensor", b".safetensors"), ("m.final", b"")):
                out = self.path(name)
                status, _, err = run(*(out if w == "OUT" else w for w in words))
                if words[0] == "convert":
                    self.assertEqual((status, hint in err), (2, True), err)
                self.assertFalse(out.exists(), words)
        for name in ("Model-1.5B-int8", "v2.0", "plain", ".hidden"):
            succeed("convert", hub, self.path(name), "--quantize", "int8")
            self.assertTrue((self.path(name) / "config.json").exists())
        succeed("convert", hub, self.path("m.final"), "--to", "hub")


class Numbers(InFolder):
    """Options that are not what they look like are errors."""

    def test_sizes(self):
        source = DIGITS_ST
        wrong = ("1x", "5Q", "5q", "1bb", "1xb", "1xib", "1kk", "1kbb", "k", "0", "nan", "inf", "1e30", "0x10", "1 k", "1k ", "5GBs", "1,5k")
        for size in wrong:
            for words in (("convert", source, self.path("o.safetensors"), "--shard", size), ("split", source, self.path("o.safetensors"), "--size", size),
                          ("inspect", source, "--limit", size)):
                self.assertEqual(run(*words)[0], 2, words)
                self.assertEqual(list(self.path("").iterdir()), [], words)
        for size in ("1000000", "1000000b", "900k", "900KB", "900kib", "1M", "1MB", "1MiB", "1.5m", "1G", "1t", "1P"):
            succeed("split", source, self.path("o.safetensors"), "--size", size)
            self.assertEqual([p.name for p in self.path("").iterdir()], ["o-1-of-1.safetensors"], size)
            self.path("o-1-of-1.safetensors").unlink()

    def test_precision(self):
        model = safetensors(self.path("m.safetensors"), {"w": ("F32", [4, 64], floats(*range(256))), "b": ("F32", [4], floats(1, 2, 3, 4))})
        for precision in ("f16", "bf16", "q8_0", "q4_K"):
            outputs = [("convert", model, self.path("o.stele")), ("extract", model, "w", "-o", self.path("o.stele")),
                       ("extract", model, "w", "-o", self.path("o.bin")), ("embed", model, "-o", self.path("o.hpp"), "--object")]
            for words in outputs:
                succeed(*words, "--precision", precision)
                name = precision if precision != "q4_K" else "q5_0"  # rows of 64 are no blocks of q4_K
                if words[-1] == self.path("o.bin"):
                    self.assertEqual(self.path("o.bin").stat().st_size, {"f16": 512, "bf16": 512, "q8_0": 272, "q4_K": 176}[precision])
                else:
                    dtypes = {t["name"]: t["dtype"] for t in document("inspect", self.path("o.stele"))["tensors"]}
                    self.assertEqual(dtypes["w"], name, words)
                for file in ("o.stele", "o.bin", "o.S", "o.hpp"):
                    self.path(file).unlink(missing_ok=True)
        for words in (("extract", model, "b", "-o", self.path("o.bin")), ("extract", model, "b", "-o", self.path("o.stele")),
                      ("extract", model, "w", "-o", self.path("o.npy"))):
            self.assertEqual(run(*words, "--precision", "q8_0")[0], 2, words)
            self.assertFalse(words[-1].exists(), words)
        for words in (("convert", model, self.path("o.stele")), ("extract", model, "w", "-o", self.path("o.bin")), ("embed", model, "-o", self.path("o.hpp"))):
            for precision in ("q9_0", "f17", "Q8_00", "int8", "f32 ", "8"):
                self.assertEqual(run(*words, "--precision", precision)[0], 2, (words, precision))


class Chains(InFolder):
    def test_compact_takes_linear_time(self):
        """200 deltas; each that is joined was read twice as often as the one before it."""
        model = self.path("v0.safetensors")
        values = [0.0] * 1000
        safetensors(model, {"t": ("F32", [1000], floats(*values))})
        deltas = []
        for i in range(200):
            values[i * 3 % 1000] += 1 + i
            new = safetensors(self.path(f"v{i + 1}.safetensors"), {"t": ("F32", [1000], floats(*values))})
            deltas.append(self.path(f"d{i}.stele"))
            succeed("delta", self.path(f"v{i}.safetensors"), new, "-o", deltas[-1])
        whole = self.path("all.stele")
        succeed("compact", *deltas, "-o", whole, timeout=60)
        out = self.path("out.safetensors")
        succeed("apply", model, whole, "-o", out)
        succeed("diff", out, new)
        for wrong in ((deltas[0], deltas[2]), (deltas[1], deltas[0]), (deltas[0], deltas[0])):
            status, _, err = run("compact", *wrong, "-o", out)
            self.assertEqual((status, str(wrong[1]).encode() in err), (2, True), err)


if __name__ == "__main__":
    unittest.main()
