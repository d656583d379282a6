"""What each subcommand prints and writes, on a terminal, in a pipe and when it is interrupted."""

import json
import math
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest
import zipfile

from support import DIGITS, ROOT, STELE, InFolder, data, document, floats, run, safetensors, succeed

DIGITS_ST = DIGITS / "digits.safetensors"
DIGITS_PT = DIGITS / "digits.pth"


class Inspect(InFolder):
    def test_statistics(self):
        file = safetensors(self.path("s.safetensors"),
                           {"a": ("F32", [6], floats(1, -2, 0, 3, math.nan, math.inf)), "b": ("U8", [2], b"\1\2")})
        a, b = document("inspect", file, "--stats")["tensors"]
        self.assertEqual(a["name"], "a")
        stats = a["stats"]
        self.assertEqual((stats["min"], stats["max"], stats["mean"]), (-2, 3, 0.5))
        self.assertAlmostEqual(stats["std"], math.sqrt(sum((x - .5) ** 2 for x in (1, -2, 0, 3)) / 4))
        self.assertAlmostEqual(stats["norm"], math.sqrt(14))
        self.assertEqual((stats["zeros"], stats["nan"], stats["inf"]), (1, 1, 1))
        self.assertEqual((b["stats"]["min"], b["stats"]["max"]), (1, 2))

    def test_values(self):
        numbers = [float(i) for i in range(24)]
        file = safetensors(self.path("v.safetensors"), {"x[0]": ("F32", [2, 3, 4], floats(*numbers))})
        self.assertEqual(succeed("inspect", file, "--print", "x[0][1, :, ::2]"),
                         "x[0]  f32 [2, 3, 4]\n[[12 14]\n [16 18]\n [20 22]]\n")
        self.assertEqual(succeed("inspect", file, "--print", "x[0][..., -1]").splitlines()[1:], ["[[3 7 11]", " [15 19 23]]"])
        self.assertEqual(succeed("inspect", file, "--print", "x[0][0, 0, ::-1]").splitlines()[1], "[3 2 1 0]")
        found = document("inspect", file, "--print", "x[0]", "--max-print", "5")
        self.assertEqual((found["shape"], found["values"]), ([2, 3, 4], ["0", "1", "2", "3", "4"]))
        for wrong in ("x[0][2]", "x[0][0,0,0,0]", "x[0][a]", "x[0][::0]", "x[0][..., ...]", "y", "y[0]"):
            self.assertEqual(run("inspect", file, "--print", wrong)[0], 2, wrong)

    def test_statistics_in_a_tree(self):
        file = safetensors(self.path("s.safetensors"), {"a.b": ("F32", [2], floats(1, -2))})
        self.assertIn("min -2  max 1  mean -0.5", succeed("inspect", file, "--tree", "--stats"))

    def test_pattern_and_largest(self):
        found = document("inspect", DIGITS_ST, "hidden.*", "--largest", "1")
        self.assertEqual([t["name"] for t in found["tensors"]], ["hidden.0.weight"])
        self.assertEqual(found["total"]["tensors"], 3)
        self.assertEqual(run("inspect", DIGITS_ST, "nothing.*")[0], 2)

    def test_several_files(self):
        missing = self.path("missing")
        files = [str(f) for f in (DIGITS_ST, missing, DIGITS_PT)]
        status, out, err = run("inspect", *files, "hidden.*")
        self.assertEqual(status, 2)
        self.assertRegex(out.decode(), rf"(?s)^{re.escape(files[0])}  safetensors\n.*\n3 tensors.*\n\n{re.escape(files[2])}  pytorch\n.*\n3 tensors")
        self.assertEqual((err.count(b"\n"), files[1].encode() in err), (1, True))
        found = document("inspect", *files, "hidden.*", status=2)
        self.assertEqual((found["schema"], [f["file"] for f in found["files"]]), ("stele.inspect/1", files))
        self.assertEqual([("error" in f, len(f.get("tensors", ()))) for f in found["files"]], [(False, 3), (True, 0), (False, 3)])
        one = document("inspect", DIGITS_PT, "hidden.*")
        self.assertEqual({"schema": one["schema"], **found["files"][2]}, one)
        self.assertEqual(document("inspect", DIGITS_PT, "--only", "hidden.*"), one)
        self.assertEqual(len(document("inspect", DIGITS_PT, DIGITS_ST)["files"]), 2)
        self.assertEqual(succeed("inspect", files[0], files[2], "--print", "head.bias[0]"),
                         "".join(f"{sep}{f}\nhead.bias  f32 [10]\n-0.101362154\n" for sep, f in (("", files[0]), ("\n", files[2]))))
        found = document("inspect", *files, "--print", "head.bias[0]", status=2)
        self.assertEqual([f.get("values") for f in found["files"]], [["-0.101362154"], None, ["-0.101362154"]])
        pattern = self.path("head.bias")  # the name of a file; Windows allows no asterisk in it
        shutil.copy(DIGITS_ST, pattern)
        self.assertEqual(len(document("inspect", DIGITS_PT, "head.bias", cwd=self.folder.name)["files"]), 2)
        self.assertEqual(len(document("inspect", DIGITS_PT, "--only", "head.bias", cwd=self.folder.name)["tensors"]), 1)
        self.assertIn(b"no file has this name, either", run("inspect", DIGITS_ST, missing)[2])
        for old in ("--values", "--max-values"):
            self.assertEqual(run("inspect", DIGITS_ST, old, "1")[0], 2)

    def test_long_metadata_is_shortened(self):
        texts = {"short": "a", "long": "{'" + "\u00e9" * 200 + "'}", "k" * 90: "z" * 120, "bell": "\a" * 99}
        file = safetensors(self.path("m.safetensors"), {"x": ("U8", [1], b"1")}, texts)
        lines = {line.split()[0]: line for line in succeed("inspect", file).splitlines()[1:5]}
        self.assertEqual(lines["short"], "  short  a")
        self.assertLessEqual(max(len(lines["long"]), len(lines["bell"])), 100)
        self.assertRegex(lines["long"], r"\u00e9{50,}\u2026 \(404 bytes\)$")
        self.assertRegex(lines["k" * 90], r"  z+\u2026 \(120 bytes\)$")
        for word in ("-v", "--verbose"):
            self.assertIn(texts["long"], succeed("inspect", file, word))
        self.assertEqual(document("inspect", file)["metadata"], texts)
        for pth in (DIGITS_PT, data("pytorch") / "adam.pt"):
            self.assertLessEqual(max(len(line) for line in succeed("inspect", pth).splitlines() if line.startswith("  ")), 100)

    def test_a_huge_sparse_file(self):
        extents = [25 * 2 ** 20, 1024]
        file = safetensors(self.path("huge.safetensors"), {"w": ("F32", extents, None)})
        self.assertEqual(file.stat().st_size // 10 ** 9, 107)
        self.assertEqual(document("inspect", file)["tensors"][0]["shape"], extents)

    def test_training_state_is_listed(self):
        archives = [p for p in data("archive").glob("*.zip") if "optimizer" in document("inspect", p)]
        self.assertTrue(archives)


class Ties(InFolder):
    TENSOR = {"$dtype": "F32", "shape": [1], "data": "AAAAAA=="}

    def record(self, record):
        path = self.path("ties.json")
        path.write_text(json.dumps({"format": "stele-json", "version": 1, "record": record}))
        return path

    def test_every_name_of_a_tied_module(self):
        file = self.record({"a": {"w": self.TENSOR, "b": {"v": self.TENSOR}}, "c": {"$ref": "a"}, "d": {"x": {"$ref": "a.b"}}})
        expected = ["a.b.v", "a.w", "c.b.v", "c.w", "d.x.v"]
        digests = set()
        for out in ("t.stele", "t.safetensors", "t.pt", "t.bpk", "t.zip", "t.mpk", "t.onnx", "t.npz"):
            succeed("convert", file, self.path(out), "--allow-loss")
            tensors = document("inspect", self.path(out))["tensors"]
            self.assertEqual(sorted(t["name"] for t in tensors), expected, out)
            self.assertEqual(run("diff", file, self.path(out))[0], 1 if out == "t.mpk" else 0)  # which lists lost ties
            self.assertEqual(run("diff", file, self.path(out), "--tensors")[0], 0)
            digests.add(document("hash", self.path(out), "--total")["files"][0]["digest"])
        self.assertEqual(len(digests), 1)

    def test_names_are_bounded(self):
        record = {"l0": {"w": self.TENSOR}}
        for i in range(1, 24):
            record[f"l{i}"] = {"x": {"$ref": f"l{i - 1}"}, "y": {"$ref": f"l{i - 1}"}}
        for file in (self.record(record),
                     self.record({"l0": {"w": self.TENSOR}, **{f"l{i}": {"x": {"$ref": f"l{i - 1}"}} for i in range(1, 20000)}})):
            status, _, err = run("inspect", file)
            self.assertEqual(status, 2)
            self.assertIn(b"limit", err)


class Blocks(InFolder):
    """Quantized blocks of GGUF files."""

    def setUp(self):
        super().setUp()
        succeed("convert", DIGITS_PT, self.path("q.gguf"), "--precision", "q8_0")

    def test_convert_and_look_at(self):
        dtypes = {t["name"]: t["dtype"] for t in document("inspect", self.path("q.gguf"))["tensors"]}
        self.assertEqual(dtypes["hidden.0.weight"], "q8_0")
        self.assertEqual(dtypes["hidden.0.bias"], "f32")
        properties = document("inspect", self.path("q.gguf"))["properties"]
        self.assertEqual(properties, {"general.quantization_version": 2, "general.file_type": 7})
        rows = document("convert", DIGITS_PT, self.path("again.gguf"), "--precision", "Q8_0")["rows"]
        self.assertTrue(any(row["what"] == "quantized" and "largest error" in row["detail"] for row in rows))
        # Statistics, values and differences are those of the numbers.
        statistics = {t["name"]: t for t in document("inspect", self.path("q.gguf"), "--stats")["tensors"]}
        self.assertLess(abs(statistics["hidden.0.weight"]["stats"]["mean"]), 1)
        self.assertIn(".", succeed("inspect", self.path("q.gguf"), "--print", "hidden.0.weight[0,:4]"))
        self.assertEqual(run("diff", DIGITS_PT, self.path("q.gguf"), "--ignore-dtype", "--tensors")[0], 1)
        succeed("diff", DIGITS_PT, self.path("q.gguf"), "--ignore-dtype", "--atol", "0.05", "--tensors")

    def test_other_formats(self):
        status, _, err = run("convert", self.path("q.gguf"), self.path("q.safetensors"))
        self.assertEqual(status, 2)
        self.assertIn(b"dtype q8_0", err)
        succeed("convert", self.path("q.gguf"), self.path("q.stele"))
        succeed("diff", self.path("q.gguf"), self.path("q.stele"), "--tensors")
        succeed("convert", self.path("q.gguf"), self.path("q.safetensors"), "--precision", "f16")
        for unknown in ("iq1_s", "Q9_9"):
            status, _, err = run("convert", DIGITS_PT, self.path("x.gguf"), "--precision", unknown)
            self.assertEqual(status, 2)
            self.assertIn(unknown.encode(), err)
        self.assertIn(b"Q4_K_M", err)


class Outputs(InFolder):
    """No output replaces a file that is read."""

    def setUp(self):
        super().setUp()
        self.model = self.path("m.stele")
        succeed("convert", DIGITS_ST, self.model)
        self.before = self.model.read_bytes()

    def refused(self, *arguments):
        status, _, err = run(*arguments)
        self.assertEqual(status, 2, arguments)
        self.assertIn(b"would replace", err, arguments)
        self.assertEqual(self.model.read_bytes(), self.before, arguments)

    def test_the_model_itself(self):
        link, hard = self.path("link.stele"), self.path("hard.stele")
        link.symlink_to(self.model)
        hard.hardlink_to(self.model)
        for out in (self.model, link, hard):
            self.refused("report", self.model, "-o", out)
            self.refused("report", DIGITS_ST, self.model, "-o", out)
            self.refused("extract", self.model, "head.bias", "-o", out)
            self.refused("repair", self.model, out)
            self.refused("merge", DIGITS_ST, self.model, "--overlay", "-o", out)
            self.refused("embed", self.model, "-o", out)
            self.refused("convert", self.model, out, "--part", "hidden")
        shutil.copy(self.model, self.path("p.head.stele"))
        self.model = self.path("p.head.stele")
        self.refused("split", self.model, self.path("p.stele"))
        self.assertFalse(self.path("p.hidden.stele").exists())

    def test_a_truncated_model(self):
        cut = self.path("cut.safetensors")
        cut.write_bytes(DIGITS_ST.read_bytes()[:-100])
        self.assertEqual(run("repair", cut, cut)[0], 2)
        self.assertEqual(cut.read_bytes(), DIGITS_ST.read_bytes()[:-100])

    def test_parts_of_the_model(self):
        index = self.path("s.safetensors.index.json")
        succeed("convert", DIGITS_ST, index, "--shard", "10k")
        self.model = self.path("s-00001-of-00003.safetensors")
        self.assertTrue(self.model.exists())
        self.before = self.model.read_bytes()
        for arguments in (("report", index, "-o"), ("convert", index), ("extract", index, "head.bias", "-o"), ("repair", index)):
            self.refused(*arguments, self.model)
        folder = self.path("folder")
        shutil.copytree(data("paddle") / "lenet_folder", folder)
        self.model = folder / "fc.bias"
        self.before = self.model.read_bytes()
        self.refused("report", folder, "-o", self.model)
        names = self.path("names.txt")
        shutil.copy(data("paddle") / "lenet.txt", names)
        self.model, self.before = names, names.read_bytes()
        self.refused("report", data("paddle") / "lenet.pdiparams", "--names", names, "-o", names)

    def test_in_place(self):
        succeed("convert", self.model, self.model, "--compress")
        self.assertEqual(run("diff", DIGITS_ST, self.model)[0], 0)
        ties = self.path("t.json")
        ties.write_text(json.dumps({"format": "stele-json", "version": 1, "record": {
            "a": {"$dtype": "F32", "shape": [1], "data": "AAAAAA=="}, "b": {"$ref": "a"}, "c": 5}}))
        before = ties.read_bytes()
        for options in (("--to", "burn-json"), ("--to", "npz", "--only", "x"), ("--only", "a"), ("--except", "a"), ("--precision", "f16"),
                        ("--quantize", "8"), ("--to", "gguf", "--allow-loss", "--part", "a")):
            self.assertEqual(run("convert", ties, ties, *options)[0], 2, options)
            self.assertEqual(ties.read_bytes(), before, options)
        archive = self.path("a.zip")
        succeed("convert", DIGITS_PT, archive, "--to-tag", "one")
        succeed("convert", DIGITS_PT, archive, "--to-tag", "two", "--append")
        self.assertEqual(run("convert", archive, archive)[0], 2)  # the other tag
        succeed("convert", archive, archive, "--to-tag", "three", "--append")
        self.assertEqual(document("tags", archive)["tags"], ["one", "two", "three"])

    def test_the_two_places_of_an_output(self):
        folder = self.path("outputs")
        folder.mkdir()
        mlp = data("onnx") / "mlp.onnx"
        for command, words, name in (("convert", (DIGITS_ST,), "o.stele"), ("repair", (DIGITS_ST,), "o.stele"),
                                     ("split", (DIGITS_ST, "--size", "1M"), "o.stele"), ("import", (mlp,), "o.fb"),
                                     ("extract", (DIGITS_ST, "head.bias"), "o.npy"), ("report", (DIGITS_ST,), "o.html"),
                                     ("report", (DIGITS_ST, DIGITS_PT), "o.html"), ("embed", (DIGITS_ST,), "o.hpp")):
            contents = []
            for out in ((name,), ("-o", name), ("--out", name)):
                succeed(command, *words, *out, cwd=folder)
                files = list(folder.iterdir())
                self.assertEqual(len(files), 1, (command, out))
                contents.append(files[0].read_bytes())
                files[0].unlink()
            self.assertEqual(len(set(contents)), 1, command)
            status, _, err = run(command, *words, "a.html" if command == "report" else "a.stele", "-o", name, cwd=folder)
            self.assertEqual((status, list(folder.iterdir())), (2, []), command)
            usage, = re.findall(r"Usage: (.*)", succeed(command, "--help"))
            self.assertEqual("out" in usage, "-o," not in succeed(command, "--help"), usage)
        self.assertIn(b"extract has two outputs", run("extract", DIGITS_ST, "head.bias", "a.npy", "-o", "b.npy")[2])
        for command in ("convert", "extract"):
            self.assertIn(b"required", run(command, DIGITS_ST, "head.bias" if command == "extract" else "--dry-run")[2])

    def test_the_reported_path_exists(self):
        for arguments in (("convert", DIGITS_PT, self.path("plain"), "--to", "stele"), ("merge", DIGITS_PT, "-o", self.path("more"), "--to", "stele")):
            out = document(*arguments)["out"]
            self.assertTrue(os.path.exists(out), out)
        for arguments in (("convert", DIGITS_PT, "-", "--to", "stele"), ("report", DIGITS_PT, "-o", "-"), ("embed", DIGITS_PT, "-o", "-")):
            self.assertEqual(run(*arguments, cwd=self.folder.name)[0], 2)
        self.assertEqual([p.name for p in self.path("").iterdir() if p.name.startswith("-")], [])


class Errors(InFolder):
    def test_one_document(self):
        for arguments in (("hash", DIGITS_ST, "nothing"), ("verify", DIGITS_ST, "nothing"), ("inspect", "nothing"), ("hash",),
                          ("hash", DIGITS_ST, "-a", "md5"), ("inspect", DIGITS_ST, "--print", "nothing")):
            status, out, _ = run(*arguments, "--json")
            self.assertEqual(status, 2)
            found = json.loads(out)
            self.assertTrue("error" in found or "error" in found["files"][1], found)

    def test_json_escapes_what_a_terminal_obeys(self):
        names = ["\u202e", "\u009b31m", "\x7f", "\x1b[31m", "\ufeff", "a\nb"]
        file = safetensors(self.path("n.safetensors"), {n: ("F32", [1], floats(i)) for i, n in enumerate(names)}, {"k\u2066": "v\u0085"})
        for arguments in (("inspect", file), ("hash", file), ("verify", file), ("inspect", file, "nothing\u202e")):
            out = run(*arguments, "--json")[1]
            self.assertTrue(all(0x20 <= c < 0x7f or c == 0x0a for c in out), out)
            json.loads(out)
        self.assertEqual({t["name"] for t in document("inspect", file)["tensors"]}, set(names))

    def test_options_are_those_of_the_command(self):
        model = next(p for p in data("archive").glob("*.zip") if "optimizer" in document("inspect", p))
        shutil.copy(data("paddle") / "lenet.pdiparams", self.path("l.pdiparams"))
        os.mkfifo(self.path("fifo"))
        holder = os.open(self.path("fifo"), os.O_RDWR)
        self.addCleanup(os.close, holder)
        for arguments in (("convert", model, self.path("x.safetensors")), ("convert", data("pytorch") / "values.pt", self.path("x.npy")),
                          ("inspect", self.path("l.pdiparams")), ("inspect", self.path("fifo")), ("inspect", self.path(""))):
            status, _, err = run(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertNotIn(b"::", err)
            self.assertNotIn(b"::", run(*arguments, "--json")[1])

    def test_parts_of_checkpoints(self):
        adam, names = data("pytorch") / "adam.pt", self.path("names.txt")

        def convert(*options):
            return run("convert", adam, self.path("a.zip"), "--checkpoint", "--allow-loss", *options)
        for text, options, expected in (("fc1.weight\nfc1.bias\nfc2.weight\n", (), None),
                                        ("fc2.weight\nfc1.bias\nfc1.weight\n", (), b"shape of its parameter"),
                                        ("", ("--buffers", "fc2*"), b"another number of parameters"),
                                        ("", ("--optimizer", "optimizer_state_dict"), None), ("", ("--optimizer", "none"), b"no such part")):
            names.write_text(text)
            status, _, err = convert(*options, *(("--parameters", names) if text else ()))
            self.assertEqual(status, 0 if expected is None else 2, err)
            self.assertIn(expected or b"", err)
            self.assertNotIn(b"::", err)

    def test_a_remedy_that_the_command_lacks(self):
        status, _, err = run("convert", DIGITS_PT, self.path("s.safetensors"), "--shard", "10k")
        self.assertEqual(status, 0, err)
        status, _, err = run("convert", DIGITS_PT, self.path("s.safetensors"), "--shard", "10k")
        self.assertEqual(status, 2)
        self.assertIn(b"choose another name", err)
        self.assertNotIn(b"::", err)

    def test_no_message_has_a_name_of_cpp(self):
        """The texts of the library, as the command's table spells them. A hint with another name is replaced as a whole."""
        table = (ROOT / "tools" / "stele" / "terminal.cpp").read_text(encoding="utf-8").split("constexpr Spelling spellings[] = {")[1]
        spellings = re.findall(r'\{"([^"]*)",\s*"([^"]*)"\}', table.split("\n};")[0])
        self.assertGreater(len(spellings), 30)
        names = re.compile(r"\b\w*(?:Options|Rules)(?:::\w+)?\b|\bstele::\w+|\b[A-Z]\w*::\w+|\b(?:open|load|save|import|find)\w*\(\)|stele/\w+\.hpp")
        hint = re.compile(r"(, or |and )?(set|raise|pass|list|load|save|make|open|keep|choose|compare|add) |.*(: (set|load) )")
        not_in_the_command = {"SaveOptions::format is null, as find_format() returns for an unknown name",
                              "OnnxOptions::external is not a valid name for the model's second file",
                              "NpyOptions::void1", "NpyOptions::void2", "DType::f8_e4m3fn", "DType::bf16",  # parts of a hint
                              "PaddleOrder::declared", "PaddleOrder::sorted"}
        literal = r'"(?:[^"\\\n]|\\.)*"'
        found = 0
        for folder in ("src", "recorders", "encodings", "checkpoints", "ir", "graph", "dl4j", "transforms", "precision", "training", "remote", "deltas", "device"):
            for file in sorted((ROOT / folder).rglob("*.[ch]pp")):
                for match in re.findall(rf"(?://|#)[^\n]*|{literal}(?:\s*{literal})*", file.read_text(encoding="utf-8")):
                    text = "" if match[0] in "/#" else "".join(re.findall(literal, match)).replace('""', "")[1:-1]
                    found += names.search(text) is not None
                    for library, command in spellings:
                        text = text.replace(library, command)
                    if names.search(text) and text not in not_in_the_command:
                        self.assertTrue(hint.match(text), f"{file}: {text}: no row in the table of terminal.cpp")
        self.assertGreater(found, 50)

    def test_standard_input(self):
        content = DIGITS_PT.read_bytes()
        for arguments in (("inspect", "-"), ("verify", "-"), ("hash", "-"), ("convert", "-", self.path("i.stele"))):
            done = subprocess.run([STELE, *map(str, arguments)], input=content, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run("diff", DIGITS_PT, self.path("i.stele"))[0], 0)

    def test_not_a_model(self):
        files = {"lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", b"git lfs pull"),
                 "html": (b"\n<!DOCTYPE HTML>\n<html><body>404</body></html>", b"HTML"), "json": (b'{\n "error": "not found"}', b"JSON"),
                 "empty": (b"", b"an empty file"), "junk": (b"hello", b"5 bytes")}
        for extension in ("", ".safetensors", ".pt", ".bin", ".gguf", ".onnx", ".json", ".npz", ".stele", ".h5"):
            for name, (content, expected) in files.items():
                file = self.path("f" + extension)
                file.write_bytes(content)
                if name == "junk" and extension:
                    continue
                for command in ("inspect", "verify"):
                    status, out, err = run(command, file)
                    self.assertEqual(status, 2, (command, extension, name))
                    self.assertIn(expected, out + err)
                    self.assertIn(b"not a model file", out + err)
                    self.assertNotIn(b"damaged", out + err)

    def test_a_folder_of_shards_names_merge(self):
        succeed("convert", DIGITS_ST, self.path("s.safetensors.index.json"), "--shard", "10k")
        self.path("s.safetensors.index.json").unlink()
        status, _, err = run("inspect", self.folder.name)
        self.assertEqual(status, 2)
        self.assertIn(b"stele merge", err)

    def test_an_ignored_hangup_stays_ignored(self):
        file = safetensors(self.path("big.safetensors"), {"w": ("F32", [2 ** 18, 1024], None)})
        for ignored in (True, False):
            child = subprocess.Popen([STELE, "hash", file, "-a", "sha256"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     preexec_fn=lambda i=ignored: signal.signal(signal.SIGHUP, signal.SIG_IGN if i else signal.SIG_DFL))
            time.sleep(0.3)
            child.send_signal(signal.SIGHUP)
            _, err = child.communicate(timeout=120)
            self.assertEqual((child.returncode, err), (0, "") if ignored else (130, "stele: interrupted\n"))

    def test_a_file_size_limit_is_an_error(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        done = subprocess.run([STELE, "convert", DIGITS_ST, self.path("x.stele")], capture_output=True, preexec_fn=limit)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(list(self.path("").iterdir()), [])


class Mistakes(InFolder):
    """A word that the command does not know is one line, with the word that was probably meant."""

    def refused(self, *arguments):
        status, out, err = run(*arguments, cwd=self.folder.name)
        self.assertEqual((status, out, err.count(b"\n")), (2, b"", 1), (arguments, err))
        self.assertTrue(err.startswith(b"stele: "), err)
        return err.decode()

    def test_words_of_the_command_line(self):
        for arguments, expected in (((), "a command is missing; see stele --help"),
                                    (("inspct", DIGITS_PT), "there is no command inspct; did you mean inspect?"),
                                    (("nothing",), "there is no command nothing; stele --help lists them"),
                                    (("help", "convrt"), "there is no command convrt; did you mean convert?"),
                                    (("--jsn", "inspect", DIGITS_PT), "there is no option --jsn before the command; see stele --help"),
                                    (("--versoin",), "stele has no option --versoin; did you mean --version?"),
                                    (("inspect", DIGITS_PT, "--tre"), "inspect has no option --tre; did you mean --tree?"),
                                    (("convert", "--precison=f16"), "convert has no option --precison; did you mean --precision?"),
                                    (("hash", DIGITS_PT, "-z"), "hash has no option -z; see stele hash --help"),
                                    (("inspect",), "inspect: file is required; see stele inspect --help"),
                                    (("tags", "a", "b"), "tags does not expect b; see stele tags --help")):
            self.assertEqual(self.refused(*arguments), f"stele: {expected}\n")
        error = json.loads(run("inspect", DIGITS_PT, "--json", "--tre")[1])["error"]
        self.assertEqual((error["message"], error["hint"]), ("inspect has no option --tre", "did you mean --tree?"))

    def test_names_and_patterns(self):
        for arguments, similar in ((("inspect", DIGITS_PT, "hiden.*"), "hidden.*"), (("inspect", DIGITS_PT, "*.wieght"), "*.weight"),
                                   (("inspect", DIGITS_PT, "hidden.*.wieght"), "hidden.*.weight"), (("inspect", DIGITS_PT, "hiddne*"), "hidden*"),
                                   (("inspect", DIGITS_PT, "head.biass"), "head.bias"),
                                   (("inspect", DIGITS_PT, "--print", "head.wieght[0]"), "head.weight"),
                                   (("extract", DIGITS_PT, "head.wieght", "-o", "x.npy"), "head.weight"),
                                   (("convert", DIGITS_PT, "x.stele", "--only", "hidden.*", "--only", "haed.*"), "head.*"),
                                   (("convert", DIGITS_PT, "x.stele", "--transpose", "*.wight"), "*.weight"),
                                   (("convert", DIGITS_PT, "x", "--to", "safetensor"), "safetensors"),
                                   (("embed", DIGITS_PT, "-o", "x.hpp", "--only", "hed.bias"), "head.bias"),
                                   (("diff", DIGITS_PT, DIGITS_PT, "--only", "hed.*"), "head.*")):
            self.assertTrue(self.refused(*arguments).endswith(f"; did you mean {similar}?\n"), arguments)
        self.assertNotIn("did you mean", self.refused("inspect", DIGITS_PT, "decoder.layers.*"))
        note = "--except hiden.* matches nothing; did you mean hidden.*?"
        self.assertEqual(document("convert", DIGITS_PT, self.path("x.stele"), "--except", "hiden.*")["notes"], [note])
        self.assertIn(f"note: {note}\n".encode(), run("embed", DIGITS_PT, "-o", self.path("x.hpp"), "--except", "hiden.*")[2])

    def test_help(self):
        for command in ("inspect", "convert", "completion", "help"):
            self.assertEqual(succeed("help", command), succeed(command, "--help"))
        self.assertEqual(succeed("help"), succeed("--help"))


class Convert(InFolder):
    def test_rules_without_effect_are_named(self):
        notes = document("convert", DIGITS_PT, self.path("n.stele"), "--rename", "^nothing=x", "--rename", r"^head\.=last.")["notes"]
        self.assertEqual(notes, ["--rename ^nothing changes no name"])
        vectors = safetensors(self.path("v.safetensors"), {"a": ("F32", [4], floats(1, 2, 3, 4))})
        for precision in ("q4_K", "Q4_K_M"):
            notes = document("convert", vectors, self.path("v.gguf"), "--precision", precision)["notes"]
            self.assertEqual(len(notes), 1, notes)
            self.assertIn(precision, notes[0])
        self.assertEqual(document("convert", DIGITS_PT, self.path("q.gguf"), "--precision", "q8_0")["notes"], [])

    def test_quantize_checks_first(self):
        file = safetensors(self.path("big.safetensors"), {"w": ("F32", [2 ** 20, 16384], None)})  # 64 GiB: takes long to read
        status, _, err = run("convert", file, self.path("q.npz"), "--quantize", "8", timeout=60)
        self.assertEqual(status, 2)
        self.assertIn(b"ranges", err)
        with subprocess.Popen([STELE, "convert", file, self.path("q.stele"), "--quantize", "8"], stderr=subprocess.PIPE) as child:
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.wait(20), 130)
            self.assertEqual(child.stderr.read(), b"stele: interrupted\n")

    def test_losses_are_errors(self):
        status, _, err = run("convert", DIGITS_PT, self.path("x.caffemodel"))
        self.assertEqual(status, 2)
        model = next(p for p in data("archive").glob("*.zip") if "optimizer" in document("inspect", p))
        status, _, err = run("convert", model, self.path("x.safetensors"))
        self.assertEqual(status, 2)
        self.assertIn(b"--allow-loss", err)
        self.assertFalse(self.path("x.safetensors").exists())
        rows = document("convert", model, self.path("x.safetensors"), "--allow-loss")["rows"]
        self.assertEqual([r["detail"] for r in rows if r["what"] == "lost" and not r["path"]].count("the optimizer state"), 1, rows)
        fb = data("samediff") / "updater_adam.fb"
        self.assertEqual(run("convert", fb, self.path("x.safetensors"))[0], 2)
        lost = ["the graph: only its tensors are saved", "the training configuration", "the optimizer state"]
        for command in (("convert", fb), ("split", fb), ("merge", fb, "-o"), ("repair", fb)):
            found = document(*command, self.path(command[0] + ".safetensors"), "--allow-loss")
            rows = found["files"][0]["rows"] if "files" in found else found["rows"]
            self.assertEqual([r["detail"] for r in rows if r["what"] == "lost"], lost, command)

    def test_checkpoints_stay_whole(self):
        model = next(p for p in data("archive").glob("*.zip") if "optimizer" in document("inspect", p))
        succeed("convert", model, self.path("copy.zip"), "--tag", document("tags", model)["tags"][-1])
        self.assertEqual(document("inspect", model).get("optimizer"), document("inspect", self.path("copy.zip")).get("optimizer"))

    def test_a_checkpoint_of_pytorch_becomes_one_of_dl4j(self):
        adam = data("pytorch") / "adam.pt"
        status, _, err = run("convert", adam, self.path("a.zip"), "--checkpoint")
        self.assertEqual(status, 2)
        self.assertIn(b"not part of the checkpoint", err)
        rows = document("convert", adam, self.path("a.zip"), "--checkpoint", "--allow-loss")["rows"]
        self.assertEqual([r["path"] for r in rows if r["what"] == "lost"],
                         ["scheduler", "loss", "param_groups.0.initial_lr"])
        self.assertNotIn("step", [r["path"] for r in rows])  # all are the iteration count
        found = document("inspect", self.path("a.zip"))
        self.assertEqual([t["name"] for t in found["tensors"]], ["fc1.weight", "fc1.bias", "fc2.weight"])
        self.assertEqual(found["optimizer"], "exp_avg (3 tensors), exp_avg_sq (3 tensors)")
        succeed("convert", self.path("a.zip"), self.path("b.pt"))
        self.assertEqual(run("diff", adam, self.path("b.pt"), "--only", "model_state_dict.*")[0], 0)
        self.assertEqual(run("diff", adam, self.path("b.pt"), "--only", "*exp_avg*")[0], 0)
        optimizer = document("inspect", self.path("b.pt"))["optimizer"]
        self.assertEqual(optimizer, "exp_avg (3 tensors), exp_avg_sq (3 tensors), step (3 tensors)")

    def test_names_and_precision(self):
        out = self.path("x.safetensors")
        succeed("convert", DIGITS_PT, out, "--precision", "bf16", "--only", "hidden.*", "--except", "*.bias",
                "--rename", r"^hidden\.(\d)=layer\1", "--transpose", "*1.weight")
        tensors = {t["name"]: (t["dtype"], t["shape"]) for t in document("inspect", out)["tensors"]}
        self.assertEqual(tensors, {"layer0.weight": ("bf16", [48, 64]), "layer1.weight": ("bf16", [48, 32])})

    def test_quantize_and_compress(self):
        succeed("convert", DIGITS_PT, self.path("q.stele"), "--quantize", "8", "--compress")
        tensors = document("inspect", self.path("q.stele"))["tensors"]
        self.assertTrue(all(t["dtype"] == "u8" and "quantization" in t["annotations"] for t in tensors))
        self.assertEqual(run("convert", DIGITS_PT, self.path("q.pt"), "--compress")[0], 2)

    def test_shards(self):
        succeed("convert", DIGITS_PT, self.path("s.safetensors"), "--shard", "10k")
        index = self.path("s.safetensors.index.json")
        self.assertGreater(len(set(json.loads(index.read_text())["weight_map"].values())), 1)
        self.assertEqual(run("diff", DIGITS_PT, index)[0], 0)

    def test_tags(self):
        archive = self.path("a.zip")
        succeed("convert", DIGITS_PT, archive, "--to-tag", "one")
        succeed("convert", DIGITS_PT, archive, "--to-tag", "two", "--append", "--precision", "f16")
        self.assertEqual(document("tags", archive)["tags"], ["one", "two"])
        for command in (("convert", archive), ("split", archive), ("repair", archive), ("merge", archive, "-o")):
            out = self.path(command[0] + ".safetensors")
            status, _, err = run(*command, out)
            self.assertEqual((status, b"another tag of the archive" in err, out.exists()), (2, True, False), err)
            succeed(*command, out, "--allow-loss")
            if command[0] != "merge":
                succeed(*command, self.path(command[0] + "2.safetensors"), "--tag", "two")
        lost = {"what": "lost", "path": "one", "detail": "another tag of the archive; --tag chooses one"}
        for options, rows in (((), [lost]), (("--tag", "one"), []), (("--tag", "two"), [])):
            found = document("convert", archive, self.path("o.safetensors"), "--allow-loss", "--dry-run", *options)
            self.assertEqual(found["rows"], rows)
        # An edit keeps the tags; a repaired archive without its directory has a row of the library.
        more, cut = self.path("more.zip"), self.path("cut.zip")
        shutil.copy(archive, more)
        self.assertEqual(document("convert", more, more, "--append", "--to-tag", "three")["rows"], [])
        cut.write_bytes(archive.read_bytes()[:-22])
        rows = document("repair", cut, self.path("cut.stele"), status=1)["rows"]
        self.assertEqual([row["detail"] for row in rows], ["other tags of the archive (1): one"])
        rows = document("repair", cut, self.path("cut.stele"), "--tag", "two", status=1)["rows"]
        self.assertEqual(rows, [])
        other = self.path("other.zip")
        succeed("convert", DIGITS_PT, other, "--to-tag", "one")
        self.assertEqual(run("convert", archive, other, "--to-tag", "two", "--append")[0], 2)
        self.assertEqual(document("tags", other)["tags"], ["one"])
        self.assertEqual(run("diff", DIGITS_PT, archive, "--tag-b", "one")[0], 0)
        self.assertEqual(run("diff", archive, DIGITS_PT, "--tag-a", "one")[0], 0)
        self.assertEqual(run("diff", DIGITS_PT, archive)[0], 1)
        succeed("delta", archive, archive, "-o", self.path("d.stele"), "--tag-old", "one", "--tag-new", "two", "--allow-loss")
        succeed("apply", DIGITS_PT, self.path("d.stele"), "-o", self.path("two.stele"))
        self.assertEqual(run("diff", self.path("two.stele"), archive, "--tag-b", "two", "--tensors")[0], 0)
        succeed("tags", archive, "--remove", "two")
        self.assertEqual(succeed("tags", archive), "one\n")
        self.assertEqual(run("tags", archive, "--remove", "one")[0], 2)

    def test_edits_at_the_same_time(self):
        archive = self.path("a.zip")
        succeed("convert", DIGITS_PT, archive, "--to-tag", "t0")
        tags = [f"t{i}" for i in range(1, 7)]
        running = [
            subprocess.Popen([STELE, "convert", DIGITS_PT, archive, "--append", "--to-tag", tag, "-q"]) for tag in tags
        ]
        self.assertEqual([process.wait(240) for process in running], [0] * 6)
        self.assertEqual(sorted(document("tags", archive)["tags"]), ["t0"] + tags)

    def test_names_of_positional_files(self):
        paddle = self.path("digits.pdiparams")
        status, _, err = run("convert", DIGITS_ST, paddle)
        self.assertEqual(status, 2)
        self.assertIn(b"cannot store metadata", err)
        self.assertIn(b"pass --allow-loss", err)
        succeed("convert", DIGITS_ST, paddle, "--allow-loss")
        self.assertEqual(run("diff", DIGITS_ST, paddle, "--names-b", DIGITS_ST, "--tensors")[0], 0)
        self.assertEqual(run("diff", paddle, DIGITS_ST, "--names-a", DIGITS_ST, "--tensors")[0], 0)
        self.assertEqual(run("diff", DIGITS_ST, paddle, "--names-b", DIGITS_ST)[0], 1)  # the metadata

    def test_dry_run_and_no_clobber(self):
        out = self.path("x.stele")
        succeed("convert", DIGITS_PT, out, "--dry-run")
        self.assertFalse(out.exists())
        succeed("convert", DIGITS_PT, out)
        self.assertEqual(run("convert", DIGITS_PT, out, "--no-clobber")[0], 2)
        self.assertEqual(run("diff", DIGITS_PT, out)[0], 0)

    def test_overflow(self):
        file = safetensors(self.path("o.safetensors"), {"a": ("F32", [2], floats(1, 1e30))})
        self.assertEqual(run("convert", file, self.path("o.stele"), "--precision", "f16")[0], 2)
        rows = document("convert", file, self.path("o.stele"), "--precision", "f16", "--allow-overflow")["rows"]
        self.assertEqual([(r["what"], r["path"]) for r in rows], [("overflowed", "a")])
        succeed("convert", file, self.path("o.stele"))
        dry = document("convert", file, self.path("d.stele"), "--precision", "f16", "--allow-overflow", "--dry-run")["rows"]
        self.assertEqual(dry, rows)

    def test_adapt_pytorch_needs_types(self):
        status, _, err = run("convert", DIGITS_ST, self.path("x.stele"), "--adapt", "pytorch")
        self.assertEqual(status, 2, err)


class Graphs(InFolder):
    def open_model(self):
        return data("onnx") / "idioms" / "lp_pool_pads_open.onnx"

    def test_convert_writes_the_graph_or_says_so(self):
        model, fb = data("onnx") / "mlp.onnx", self.path("m.fb")
        self.assertIn("unused: shape", run("convert", model, fb)[2].decode())
        names = {t["name"] for t in document("inspect", fb)["tensors"]}
        self.assertIn("net.0.weight", names)
        succeed("import", fb, self.path("again.onnx"))
        self.assertEqual(document("import", self.path("again.onnx"), self.path("b.fb"))["operations"], 6)
        weights = self.path("w.fb")
        succeed("convert", model, weights, "--weights")
        self.assertIn(b"has no graph", run("import", weights, self.path("x.onnx"))[2])

    def test_a_graph_is_left_out_with_a_row(self):
        model = data("onnx") / "mlp.onnx"
        graph = {"what": "lost", "path": "", "detail": "the graph: only its tensors are saved"}
        for out, options in (("m.safetensors", ()), ("m.stele", ("--dry-run",)), ("m.onnx", ()), ("m.json", ("--rename", "^=x.")),
                             ("m.npz", ("--precision", "f16")), ("w.fb", ("--weights",)), ("o.stele", ("--only", "net.*"))):
            found = document("convert", model, self.path(out), *options)
            self.assertEqual((found["rows"].count(graph), found["notes"]), (1, []), out)
        self.assertEqual(document("convert", self.path("m.safetensors"), self.path("n.stele"))["rows"], [])
        found = document("convert", model, self.path("m.fb"))
        self.assertEqual([row["what"] for row in found["rows"]], ["unused"])
        self.assertNotIn(graph, document("import", self.path("m.fb"), self.path("again.onnx"))["rows"])
        # In place, it would be lost with the model.
        own = self.path("own.onnx")
        shutil.copy(model, own)
        status, _, err = run("convert", own, own)
        self.assertEqual((status, own.read_bytes()), (2, model.read_bytes()))
        self.assertIn(b"the graph", err)

    def test_a_graph_that_is_not_covered(self):
        model = data("onnx") / "package" / "test_slice.onnx"
        status, _, err = run("convert", model, self.path("m.fb"))
        self.assertEqual(status, 2)
        self.assertIn(b"--mappings FILE; stele import has the options of graphs; --weights writes the tensors alone", err)
        self.assertNotIn(b"ImportOptions", err)
        self.assertFalse(self.path("m.fb").exists())

    def test_open_extents_are_given_with_an_option(self):
        def field(number, payload):
            return bytes([number << 3 | 2, len(payload)]) + payload

        equation = field(1, b"equation") + field(4, b"ii->i") + b"\xa0\x01\x03"
        node = field(1, b"x") + field(2, b"y") + field(4, b"Einsum") + field(5, equation)
        square = field(1, b"x") + field(2, field(1, b"\x08\x01" + field(2, 2 * field(1, b""))))
        graph = field(1, node) + field(11, square) + field(12, field(1, b"y"))
        self.path("m.onnx").write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x0c"))
        status, _, err = run("import", self.path("m.onnx"), self.path("m.fb"))
        self.assertEqual(status, 2)
        self.assertIn(b"give the shapes of inputs with --shape NAME=1,3,? (open: x [?, ?])", err)
        self.assertEqual(document("import", self.path("m.onnx"), self.path("m.fb"), "--shape", "x=3,3")["operations"], 4)

    def test_import(self):
        for target in ("m.fb", "m.zip", "m.sdz", "m.onnx"):
            found = document("import", self.open_model(), self.path(target), "--shape", "x=2,3,?,8")
            self.assertEqual((found["written"], found["operations"]), (True, 5))
            self.assertTrue(self.path(target).exists())
        saved = data("tensorflow") / "run_mlp_saved_open"
        self.assertGreater(document("import", saved, self.path("tf.fb"))["operations"], 3)
        frozen = data("tensorflow") / "run_cnn_open.pb"
        self.assertGreater(document("import", frozen, self.path("tf.onnx"), "--opset", "18")["operations"], 3)
        self.assertEqual(run("import", self.path("m.zip"), self.path("x.fb"), "--tag", "none")[0], 2)
        self.assertEqual(run("import", saved, self.path("x.fb"), "--tag", "two")[0], 2)
        for shape in ("x", "x=", "=1", "x=1,,2", "x=1,2,3,4,", "x=a,b,c,d", "x=-1,2,3,4"):
            status, _, err = run("import", self.open_model(), self.path("x.fb"), "--shape", shape)
            self.assertEqual(status, 2, shape)
        for word, taken, other in (("--signature", "serving_default", "none"), ("--output", "StatefulPartitionedCall_1", "none")):
            self.assertGreater(document("import", saved, self.path("tf.fb"), word, taken)["operations"], 3)
            self.assertEqual(run("import", saved, self.path("x.fb"), word, other)[0], 2)
        self.assertEqual(run("import", self.open_model(), self.path("x.safetensors"))[0], 2)
        self.assertEqual(run("import", DIGITS / "digits.safetensors", self.path("x.fb"))[0], 2)
        self.assertEqual(run("import", data("onnx") / "types.onnx", self.path("x.fb"))[0], 2)
        self.assertFalse(self.path("x.fb").exists())
        self.assertEqual(run("import", self.path("m.fb"), self.path("x.onnx"), "--shape", "x=2,3,7,8")[0], 2)
        before = self.path("m.fb").read_bytes()
        self.assertEqual(run("import", self.open_model(), self.path("m.fb"), "-n")[0], 2)
        succeed("import", frozen, self.path("m.fb"), "--dry-run")
        self.assertEqual(self.path("m.fb").read_bytes(), before)

    def test_import_of_tags(self):
        saved = data("tensorflow") / "run_mlp_saved_open"
        succeed("import", self.open_model(), self.path("m.zip"), "--shape", "x=2,3,?,8")
        succeed("convert", saved, self.path("m.zip"), "--append", "--to-tag", "two")
        operations = {tag: document("import", self.path("m.zip"), self.path("t.fb"), "--tag", tag)["operations"]
                      for tag in ("main", "two")}
        self.assertEqual(operations["main"], 5)
        self.assertGreater(operations["two"], 5)

    def test_slots_of_optimizers_are_kept_or_listed(self):
        adam = data("tensorflow") / "adam"
        status, _, err = run("convert", adam, self.path("a.safetensors"))
        self.assertEqual(status, 2)
        self.assertIn(b"optimizer state of 6 tensors", err)
        rows = document("convert", adam, self.path("a.safetensors"), "--allow-loss")["rows"]
        self.assertEqual([row["detail"] for row in rows], ["the optimizer state"])
        succeed("convert", adam, self.path("a.zip"))
        self.assertIn("optimizer", document("inspect", self.path("a.zip")))


class Check(InFolder):
    def test_verify_and_repair(self):
        file = self.path("d.stele")
        succeed("convert", DIGITS_ST, file)
        place = next(t for t in document("inspect", file)["tensors"] if t["name"] == "hidden.0.weight")
        content = bytearray(file.read_bytes())
        content[place["offset"] + 5] ^= 1
        file.write_bytes(content)
        found = document("verify", file, status=1)["files"][0]
        self.assertFalse(found["ok"])
        self.assertEqual([d["name"] for d in found["damaged"]], ["hidden.0.weight"])
        self.assertEqual(found["damaged"][0]["range"], f"bytes {place['offset']} to {place['offset'] + place['bytes']}")
        repaired = self.path("r.stele")
        lost = document("repair", file, repaired, status=1)
        self.assertEqual([row["name"] for row in lost["lost"]], ["hidden.0.weight"])
        self.assertEqual(lost["recovered"], 6)
        differences = document("diff", DIGITS_ST, repaired, status=1)["differences"]
        self.assertEqual([(d["kind"], d["name"]) for d in differences], [("only in A", "hidden.0.weight")])

    def test_repair_of_a_truncated_file(self):
        content = DIGITS_ST.read_bytes()
        for size in (len(content) - 1, 15000, 700, 560):
            file = self.path("t.safetensors")
            file.write_bytes(content[:size])
            self.assertEqual(run("verify", file)[0], 1)
            found = document("repair", file, self.path("r.safetensors"), status=1)
            self.assertEqual(found["recovered"] + len(found["lost"]), 7)
            if found["recovered"]:
                only_a = document("diff", DIGITS_ST, self.path("r.safetensors"), status=1)
                self.assertEqual(only_a["equal_tensors"], found["recovered"])

    def test_repair_of_a_stele_file_without_its_trailer(self):
        file, cut = self.path("t.stele"), self.path("cut.stele")
        succeed("convert", DIGITS_ST, file)
        for lost, recovered in ((1, 7), (64, 7), (65, 0)):
            cut.write_bytes(file.read_bytes()[:-lost])
            found = document("repair", cut, self.path("r.safetensors"), status=1 if recovered else 2)
            self.assertEqual(found.get("recovered", 0), recovered)
            if recovered:
                self.assertEqual(document("diff", DIGITS_ST, self.path("r.safetensors"))["equal_tensors"], 7)

    def test_repair_of_a_zip_file_without_its_end(self):
        for name in ("t.npz", "t.pt", "t.zip"):
            whole, cut = self.path(name), self.path("cut-" + name)
            succeed("convert", DIGITS_ST, whole, "--allow-loss")
            content = whole.read_bytes()
            cut.write_bytes(content[: content.index(b"PK\x01\x02")])
            self.assertNotEqual(run("inspect", cut)[0], 0)
            found = document("repair", cut, self.path("r.safetensors"), status=1)
            self.assertEqual((found["recovered"], found["lost"], len(found["notes"])), (7, [], 1), name)
            self.assertEqual(document("diff", DIGITS_ST, self.path("r.safetensors"))["equal_tensors"], 7)

    def test_repair_of_an_npz_file_with_other_entries(self):
        file = self.path("t.npz")
        succeed("convert", DIGITS_ST, file, "--allow-loss")
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("README.md", "how to use it")
        verdict = document("verify", file)["files"][0]
        self.assertIn("README.md", [row["path"] for row in verdict["unchecked"]])
        found = document("repair", file, self.path("r.npz"), status=1)
        self.assertEqual([row["name"] for row in found["lost"]], ["README.md"])
        self.assertEqual(found["recovered"], 7)

    def test_repair_lists_entries_that_zip_files_cannot_have(self):
        file = self.path("t.npz")
        succeed("convert", DIGITS_ST, file, "--allow-loss")
        content = file.read_bytes()
        for old, name, path in ((b"hidden.0.bias.npy", b"hidden\\0.bias.npy", "hidden\\0.bias"),
                                (b"hidden.0.bias.npy", b"../den.0.bias.npy", "../den.0.bias"),
                                (b"normalize.scale.npy", b"hidden.1.weight.npy", "hidden.1.weight (2)")):
            with self.subTest(path):
                file.write_bytes(content.replace(old, name))
                self.assertNotEqual(run("verify", file)[0], 0)
                found = document("repair", file, self.path("r.npz"), status=1)
                self.assertEqual(([row["name"] for row in found["lost"]], found["recovered"]), ([path], 6))
                self.assertIn(f"the entry {name.decode()} is lost", found["notes"][1])
                self.assertIn(b"recovered 6 of 7 tensors", run("repair", file, self.path("again.npz"))[1])

    def test_repair_of_a_part_of_a_damaged_file(self):
        cut = self.path("t.safetensors")
        cut.write_bytes(DIGITS_ST.read_bytes()[:-4])
        whole = document("repair", cut, self.path("all.safetensors"), status=1)
        part = document("repair", cut, self.path("part.safetensors"), "--part", "hidden", status=1)
        self.assertEqual(part["notes"], whole["notes"])
        self.assertGreater(whole["recovered"], part["recovered"])
        self.assertGreater(part["recovered"], 0)
        archive, pt = self.path("t.zip"), self.path("t.pt")
        for file, arguments in ((archive, ("--tag", "main")), (pt, ("--ignore-checksums",))):
            succeed("convert", DIGITS_ST, file, "--allow-loss")
            content = file.read_bytes()
            file.write_bytes(content[: content.index(b"PK\x01\x02")])
            found = document("repair", file, self.path("r.safetensors"), *arguments, status=1)
            self.assertEqual((found["recovered"], found["lost"], len(found["notes"])), (7, [], 1))

    def test_repair_of_shards(self):
        succeed("convert", DIGITS_ST, self.path("m.safetensors.index.json"), "--shard", "8k")
        shards = sorted(self.path(".").glob("m-*.safetensors"))
        self.assertGreater(len(shards), 1)
        held = len(document("inspect", shards[0])["tensors"])
        shards[0].unlink()
        found = document("repair", self.path("m.safetensors.index.json"), self.path("r.safetensors"), status=1)
        self.assertEqual((found["recovered"], len(found["lost"])), (7 - held, held))

    def test_shards_of_pytorch(self):
        tensors = [t["name"] for t in document("inspect", DIGITS_ST)["tensors"]]
        weight_map = {}
        for number, names in enumerate((tensors[:3], tensors[3:]), 1):
            part = f"pytorch_model-{number:05}-of-00002.bin"
            only = [word for name in names for word in ("--only", name)]
            succeed("convert", DIGITS_ST, self.path(part), "--to", "pytorch", "--allow-loss", *only)
            weight_map.update({name: part for name in names})
        index = self.path("pytorch_model.bin.index.json")
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        self.assertEqual(document("inspect", index)["format"], "pytorch")
        self.assertEqual(run("verify", index)[0], 0)
        self.assertEqual(document("diff", DIGITS_ST, index, "--tensors")["equal_tensors"], 7)
        self.assertEqual(document("inspect", index.parent)["format"], "pytorch")
        self.assertEqual(run("verify", index.parent)[0], 0)
        self.assertEqual(document("diff", DIGITS_ST, index.parent, "--tensors")["equal_tensors"], 7)
        self.path("pytorch_model-00002-of-00002.bin").unlink()
        self.assertNotEqual(run("inspect", index)[0], 0)
        found = document("repair", index, self.path("r.safetensors"), status=1)
        self.assertEqual((found["recovered"], len(found["lost"])), (3, 4))

    def test_checksums_that_are_wrong(self):
        file = self.path("t.pt")
        succeed("convert", DIGITS_ST, file, "--allow-loss")
        content = bytearray(file.read_bytes())
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                crc = entry.CRC.to_bytes(4, "little")
                for at in (i for i in range(len(content)) if content[i : i + 4] == crc):
                    content[at] ^= 1
        file.write_bytes(content)
        status, _, err = run("convert", file, self.path("x.safetensors"))
        self.assertNotEqual(status, 0)
        self.assertIn(b"pass --ignore-checksums", err)
        succeed("convert", file, self.path("x.safetensors"), "--ignore-checksums")
        self.assertEqual(document("diff", DIGITS_ST, self.path("x.safetensors"))["equal_tensors"], 7)
        self.assertEqual(run("verify", file, "--ignore-checksums")[0], 0)
        self.assertEqual(run("inspect", DIGITS_ST, "--ignore-checksums")[0], 2)

    def test_verify_of_several(self):
        self.assertEqual(run("verify", DIGITS_ST, DIGITS_PT)[0], 0)
        self.assertEqual(run("verify", DIGITS_ST, self.path("nothing"))[0], 2)

    def test_hash(self):
        for algorithm, digits in (("xxh3", 16), ("xxh64", 16), ("sha1", 40), ("sha256", 64)):
            lines = [line.split() for line in succeed("hash", DIGITS_ST, "-a", algorithm).splitlines()]
            self.assertEqual(len(lines), 8)
            self.assertTrue(all(line[0] == algorithm and len(line[1]) == digits for line in lines))
            self.assertEqual(lines[0][2], f"{DIGITS_ST}:head.bias")
        import hashlib
        place = document("inspect", DIGITS_ST, "head.bias")["tensors"][0]
        content = DIGITS_ST.read_bytes()[place["offset"]:place["offset"] + place["bytes"]]
        self.assertIn(hashlib.sha256(content).hexdigest(), succeed("hash", DIGITS_ST, "-a", "sha256"))

    def test_hash_does_not_depend_on_the_configuration_of_openssl(self):
        expected = succeed("hash", DIGITS_ST, "-a", "sha256")
        for text in ("[m]\nalg_section = a\n[a]\ndefault_properties = fips=yes\n",
                     "[m]\nproviders = p\n[p]\nnone = n\n[n]\nmodule = /nowhere.so\nactivate = 1\n"):
            config = self.path("openssl.cnf")
            config.write_text("openssl_conf = m\n" + text)
            environment = {**os.environ, "OPENSSL_CONF": str(config)}
            for threads in ("1", "4"):
                self.assertEqual(succeed("hash", DIGITS_ST, "-a", "sha256", "-j", threads, env=environment), expected)

    def test_a_name_does_not_look_like_a_line_of_the_digest(self):
        two = safetensors(self.path("two.safetensors"), {"a": ("F32", [2], floats(1, 2)), "b": ("F32", [2], floats(3, 4))})
        found = document("hash", two)["files"][0]
        other = {t["name"]: t["digest"] for t in found["tensors"]}["b"]
        for text in (f"a\n{other}  f32  [2]  b", f"a\n{other}  f32  [2]  1  b"):
            one = safetensors(self.path("one.safetensors"), {text: ("F32", [2], floats(1, 2))})
            self.assertNotEqual(document("hash", one)["files"][0]["digest"], found["digest"])

    def test_the_text_of_the_digest(self):
        import hashlib
        content = {"b\n": floats(1, 2), "a": floats(3, 4)}
        file = safetensors(self.path("t.safetensors"), {n: ("F32", [2], c) for n, c in content.items()})
        text = b"stele hash 2\n" + b"".join(f"{hashlib.sha256(content[n]).hexdigest()}  f32  [2]  {len(n)}  {n}\n".encode() for n in sorted(content))
        self.assertEqual(document("hash", file, "-a", "sha256")["files"][0]["digest"], hashlib.sha256(text).hexdigest())

    def test_hash_tells_names_dtypes_and_shapes_apart(self):
        content = floats(1, 2, 3, 4)
        digests = set()
        for name, dtype, shape in (("a", "F32", [4]), ("b", "F32", [4]), ("a", "F32", [2, 2]), ("a", "I32", [4])):
            file = safetensors(self.path("h.safetensors"), {name: (dtype, shape, content)})
            digests.add(document("hash", file, "--total")["files"][0]["digest"])
        self.assertEqual(len(digests), 4)


class Diff(InFolder):
    def pair(self, a, b):
        return (safetensors(self.path("a.safetensors"), a), safetensors(self.path("b.safetensors"), b))

    def test_structure(self):
        a, b = self.pair({"x": ("F32", [2], floats(1, 2)), "s": ("F32", [2], floats(1, 2)), "only": ("F32", [1], floats(0))},
                         {"x": ("F32", [2], floats(1, 2)), "s": ("F32", [1, 2], floats(1, 2)), "new": ("F32", [1], floats(0))})
        found = [(d["kind"], d["name"]) for d in document("diff", a, b, status=1)["differences"]]
        self.assertEqual(found, [("only in A", "only"), ("only in B", "new"), ("shape", "s")])

    def test_values_worst_first(self):
        a, b = self.pair({"x": ("F32", [3], floats(1, 2, 3)), "y": ("F32", [2], floats(0, 10)), "n": ("F32", [1], floats(math.nan))},
                         {"x": ("F32", [3], floats(1, 2.5, 3)), "y": ("F32", [2], floats(0, 12)), "n": ("F32", [1], floats(math.nan))})
        found = document("diff", a, b, status=1)["differences"]
        self.assertEqual([(d["name"], d["max_abs"], d["differing"], d["first"]) for d in found], [("y", 2, 1, 1), ("x", .5, 1, 1)])
        self.assertEqual(run("diff", a, b, "--atol", "2")[0], 0)
        self.assertEqual(run("diff", a, b, "--rtol", "0.2")[0], 0)
        self.assertEqual(run("diff", a, b, "--rtol", "0.1")[0], 1)
        self.assertEqual(run("diff", a, b, "--only", "n")[0], 0)
        self.assertEqual(run("diff", a, b, "--only", "z")[0], 2)

    def test_differences_that_are_no_numbers(self):
        a, b = self.pair({"nan": ("F32", [2], floats(1, 2)), "inf": ("F32", [2], floats(1, 2)), "from": ("F32", [1], floats(math.nan))},
                         {"nan": ("F32", [2], floats(math.nan, 1)), "inf": ("F32", [2], floats(1, -math.inf)), "from": ("F32", [1], floats(0))})
        rows = {words[1]: words[4:7] for words in map(str.split, run("diff", a, b)[1].decode().splitlines())
                if words[0] == "values"}
        self.assertEqual(rows, {"nan": ["nan"] * 3, "inf": ["inf"] * 3, "from": ["nan"] * 3})
        for row in document("diff", a, b, status=1)["differences"]:  # JSON has neither
            self.assertEqual([row[key] for key in ("max_abs", "max_rel", "rms")], [None] * 3)

    def test_infinity_is_no_tolerance(self):
        a, b = self.pair({"x": ("F32", [2], floats(math.inf, 1))}, {"x": ("F32", [2], floats(1, 1))})
        self.assertEqual(run("diff", a, b, "--atol", "1e300", "--rtol", "1e300")[0], 1)

    def test_large_integers(self):
        a, b = self.pair({"x": ("I64", [1], struct.pack("<q", 2 ** 62))}, {"x": ("I64", [1], struct.pack("<q", 2 ** 62 + 1))})
        self.assertEqual(document("diff", a, b, status=1)["differences"][0]["differing"], 1)

    def test_dtypes(self):
        half = struct.pack("<2e", 1, 2)
        a, b = self.pair({"x": ("F32", [2], floats(1, 2))}, {"x": ("F16", [2], half)})
        self.assertEqual(document("diff", a, b, status=1)["differences"][0]["kind"], "dtype")
        self.assertEqual(run("diff", a, b, "--ignore-dtype")[0], 0)


    def json_pair(self, a, b):
        files = []
        for name, (record, metadata) in (("a", a), ("b", b)):
            files.append(self.path(f"{name}.json"))
            files[-1].write_text(json.dumps({"format": "stele-json", "version": 1, "metadata": metadata, "record": record}))
        return files

    def test_all_that_is_not_a_tensor(self):
        tensor = {"$dtype": "F32", "shape": [1], "data": "AAAAAA=="}
        a, b = self.json_pair(({"w": tensor, "v": {"$ref": "w"}, "clip": 5, "rate": 0.5, "old": "x"}, {"author": "A", "same": "s"}),
                              ({"w": tensor, "v": tensor, "clip": 7, "rate": 0.5001, "new": [True]}, {"author": "B", "same": "s"}))
        found = [(d["kind"], d["name"], d["a"], d["b"]) for d in document("diff", a, b, status=1)["differences"]]
        self.assertEqual(found, [("tie", "v", "", ""), *found[1:]] if found[0][0] != "tie" else found)
        self.assertEqual({f[:2] for f in found}, {("tie", "w"), ("plain value", "clip"), ("plain value", "rate"), ("plain value", "old"),
                                                  ("plain value", "new.0"), ("metadata", "author")} |
                         ({("tie", "v")} - {("tie", "w")} if ("tie", "v") in {f[:2] for f in found} else set()))
        self.assertIn(("plain value", "clip", "5", "7"), found)
        self.assertEqual(document("diff", a, b, "--tensors")["equal_tensors"], 2)
        self.assertEqual([d["name"] for d in document("diff", a, b, "--only", "clip", "--only", "w", status=1)["differences"]], ["clip"])
        self.assertNotIn("rate", str(document("diff", a, b, "--atol", "0.001", status=1)))
        for out, options in (("p.html", ()), ("q.html", ("--tensors", "--title", "A & B"))):
            succeed("report", a, b, "-o", self.path(out), *options)
            self.assertEqual("plain value" in self.path(out).read_text(), not options)
            self.assertEqual("<title>A &amp; B</title>" in self.path(out).read_text(), bool(options))

    def test_checkpoints(self):
        adam, one, same = data("pytorch") / "adam.pt", self.path("one.zip"), self.path("same.zip")
        for out in (one, same):
            succeed("convert", adam, out, "--checkpoint", "--allow-loss")
        self.assertEqual(document("diff", one, same)["differences"], [])
        succeed("convert", adam, same, "--checkpoint", "--allow-loss", "--transpose", "fc2.weight")
        kinds = {(d["kind"], d["name"]) for d in document("diff", one, same, status=1)["differences"]}
        self.assertIn(("optimizer", "exp_avg of fc2.weight"), kinds)
        self.assertNotIn(("optimizer", "exp_avg of fc1.weight"), kinds)
        plain = self.path("plain.stele")
        succeed("convert", one, plain, "--allow-loss")
        kinds = {(d["kind"], d["name"]) for d in document("diff", one, plain, status=1)["differences"]}
        self.assertLessEqual({("checkpoint", "training"), ("optimizer", "exp_avg of fc1.weight")}, kinds)
        succeed("diff", one, plain, "--tensors")

    def test_the_tensors_of_two_npy_files(self):
        one = safetensors(self.path("s.safetensors"), {"x": ("F32", [2], floats(1, 2)), "y": ("F32", [2], floats(1, 3))})
        for name, tensor in (("a", "x"), ("b", "x"), ("c", "y")):
            succeed("extract", one, tensor, "-o", self.path(f"{name}.npy"))
        self.assertEqual(document("diff", self.path("a.npy"), self.path("b.npy"))["tensors"], 1)
        self.assertEqual(document("diff", self.path("a.npy"), self.path("c.npy"), status=1)["differences"][0]["kind"], "values")
        empty = safetensors(self.path("e.safetensors"), {})
        self.assertEqual(run("diff", one, empty)[0], 1)
        self.assertEqual(run("diff", empty, empty)[0], 0)


class Parts(InFolder):
    def test_extensions_in_upper_case(self):
        for lower, upper in (("a.safetensors", "b.SAFETENSORS"), ("a.json", "b.JSON"), ("a.json.gz", "b.Json.GZ"), ("a.sdz", "b.SDZ")):
            succeed("convert", DIGITS_PT, self.path(lower))
            succeed("convert", DIGITS_PT, self.path(upper))
            self.assertEqual(self.path(lower).read_bytes(), self.path(upper).read_bytes(), upper)
        for lower, upper in (("a.npy", "b.NPY"), ("a.bin", "b.BIN")):
            succeed("extract", DIGITS_PT, "head.weight", "-o", self.path(lower))
            succeed("extract", DIGITS_PT, "head.weight", "-o", self.path(upper))
            self.assertEqual(self.path(lower).read_bytes(), self.path(upper).read_bytes(), upper)
        succeed("convert", DIGITS_PT, self.path("s.SAFETENSORS"), "--shard", "10k")
        self.assertEqual(run("diff", DIGITS_PT, self.path("s.SAFETENSORS.index.json"))[0], 0)
        files = [f["file"] for f in document("split", DIGITS_ST, self.path("p.SAFETENSORS"))["files"]]
        self.assertEqual({file[-12:] for file in files}, {".SAFETENSORS"})

    def test_split_and_merge(self):
        for options in ((), ("--size", "8k"), ("--levels", "2")):
            out = self.path("p.safetensors")
            files = [f["file"] for f in document("split", DIGITS_ST, out, *options)["files"]]
            self.assertGreater(len(files), 1)
            succeed("merge", *files, "-o", self.path("whole.stele"))
            self.assertEqual(run("diff", DIGITS_ST, self.path("whole.stele"))[0], 0)
            for file in files:  # a part replaces no file
                os.unlink(file)
        self.assertEqual(run("merge", DIGITS_ST, DIGITS_PT, "-o", self.path("twice.stele"))[0], 2)
        succeed("merge", DIGITS_ST, DIGITS_PT, "--overlay", "-o", self.path("twice.stele"))

    def test_parts_of_two_files(self):
        nested, delta, out = (self.path(name) for name in ("n.stele", "d.stele", "o.stele"))
        succeed("convert", DIGITS_PT, nested, "--rename", "^=net.")
        self.assertEqual(run("diff", nested, DIGITS_PT, "--part-a", "net", "--tensors")[0], 0)
        self.assertEqual(run("diff", DIGITS_PT, nested, "--part-b", "net", "--tensors")[0], 0)
        self.assertEqual(run("diff", DIGITS_PT, nested, "--tensors")[0], 1)
        succeed("delta", nested, nested, "-o", delta, "--part-old", "net", "--part-new", "net")
        succeed("apply", DIGITS_PT, delta, "-o", out)
        self.assertEqual(run("diff", DIGITS_PT, out, "--tensors")[0], 0)

    def test_threads(self):
        for threads in ("1", "3"):
            succeed("convert", DIGITS_PT, self.path(threads + ".stele"), "--threads", threads)
        self.assertEqual(self.path("1.stele").read_bytes(), self.path("3.stele").read_bytes())
        self.assertEqual(run("hash", DIGITS_PT, "--threads", "1025")[0], 2)

    def test_extract(self):
        succeed("extract", DIGITS_PT, "head.weight", "-o", self.path("w.npy"))
        content = self.path("w.npy").read_bytes()
        self.assertEqual(content[:8], b"\x93NUMPY\x01\x00")
        size = struct.unpack("<H", content[8:10])[0]
        self.assertEqual((size + 10) % 64, 0)
        self.assertEqual(eval(content[10:10 + size]), {"descr": "<f4", "fortran_order": False, "shape": (10, 32)})
        succeed("extract", DIGITS_PT, "head.weight", "-o", self.path("w.bin"))
        self.assertEqual(content[10 + size:], self.path("w.bin").read_bytes())
        succeed("extract", DIGITS_PT, "head.weight", "-o", self.path("w.safetensors"), "--precision", "f16")
        self.assertEqual(document("inspect", self.path("w.safetensors"))["tensors"][0]["dtype"], "f16")
        self.assertEqual(run("extract", DIGITS_PT, "head.weigth", "-o", self.path("n.npy"))[0], 2)
        self.assertEqual(run("extract", DIGITS_PT, "head.weight", "-o", self.path("n.npy"), "--precision", "bf16")[0], 2)
        self.assertFalse(self.path("n.npy").exists())


class Embed(InFolder):
    PROGRAM = """
        #include "HEADER"
        #define XXH_INLINE_ALL
        #include <xxhash.h>
        #include <stele/recorders/stele_reader.hpp>
        #include <cstdint>
        #include <cstdio>
        std::uint64_t hash(const void* data, std::size_t size) { return XXH3_64bits(data, size); }
        int main() {
          stele::format::MemoryFile file;
          stele::format::TensorBytes tensor;
          if (file.open(net(), hash) || file.tensor("head.bias", tensor, hash)) return 1;
          if (reinterpret_cast<std::uintptr_t>(net().data()) % 64 != 0) return 2;
          std::fwrite(tensor.bytes.data(), 1, tensor.bytes.size(), stdout);
        }"""

    def head_bias(self):
        place = document("inspect", DIGITS_ST, "head.bias")["tensors"][0]
        return DIGITS_ST.read_bytes()[place["offset"]:place["offset"] + place["bytes"]]

    def compiles(self, source, *options):
        succeed("embed", source, "-o", self.path("net.hpp"), "--name", "net", *options)
        self.path("main.cpp").write_text(self.PROGRAM.replace("HEADER", "net.hpp"))
        subprocess.run(["g++-12", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}/include",
                        "main.cpp", *(["net.S"] if options else []), "-o", "main"], cwd=self.folder.name, check=True)
        self.assertEqual(subprocess.run([self.path("main")], capture_output=True, check=True).stdout, self.head_bias())

    def evil(self, name):
        return safetensors(self.path(name), {"head.bias": ("F32", [10], self.head_bias()), "a\\": ("U8", [1], b"a"), "b??/": ("U8", [1], b"b"),
                                             "*/\n#error": ("U8", [1], b"a")})

    def test_the_header_compiles(self):
        for source, *options in ((DIGITS_PT,), (DIGITS_ST, "--object"), (self.evil("evil.safetensors"),)):
            self.compiles(source, *options)

    def test_the_header_of_a_file_with_an_evil_name_compiles(self):
        self.compiles(self.evil("\n#error x \\"))

    def test_names(self):
        for name in ("1a", "a-b", "class", "_a", "a__b", "", "a;b", "\u00e9", "main", "std", "stele"):
            self.assertEqual(run("embed", DIGITS_PT, "-o", self.path("n.hpp"), "--name", name)[0], 2, name)
        self.assertFalse(self.path("n.hpp").exists())

    def test_the_model_is_not_replaced(self):
        model = self.path("net.stele")
        succeed("convert", DIGITS_ST, model)
        before = model.read_bytes()
        for out, *options in (("net.hpp", "--object", "--precision", "f16"), ("net.stele",), ("net.S", "--object")):
            self.assertEqual(run("embed", model, "-o", self.path(out), *options)[0], 2, out)
            self.assertEqual(model.read_bytes(), before, out)
        for out in ("new.S", "new.stele"):
            self.assertEqual(run("embed", model, "-o", self.path(out), "--object")[0], 2, out)
            self.assertFalse(self.path(out).exists(), out)


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
                                (("hash", "--algorithm", ""), "xxh3 xxh64 sha1 sha256"), (("completion", ""), "bash zsh fish")):
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


class Deltas(InFolder):
    """What changed between two versions: delta, apply, compact."""

    def setUp(self):
        super().setUp()
        self.versions = [DIGITS_ST]
        for name, precision in (("v1.safetensors", "bf16"), ("v2.safetensors", "f16")):
            succeed("convert", self.versions[-1], self.path("half.safetensors"), "--precision", precision)
            succeed("convert", self.path("half.safetensors"), self.path(name), "--precision", "f32")
            self.versions.append(self.path(name))

    def test_apply_gives_the_new_version(self):
        first, second, both = self.path("1.stele"), self.path("2.stele"), self.path("both.stele")
        made = document("delta", self.versions[0], self.versions[1], "-o", first)
        self.assertEqual(made["changed"] + made["unchanged"], 7)
        self.assertEqual(made["base"], document("hash", DIGITS_ST)["files"][0]["digest"])
        self.assertEqual(made["bytes"], first.stat().st_size)
        self.assertEqual(document("delta", self.versions[1], self.versions[2], "-o", second)["base"], made["next"])
        succeed("compact", first, second, "-o", both)
        for deltas in ((first, second), (both,)):
            out = self.path("out.npz")
            succeed("apply", DIGITS_PT, *deltas, "-o", out)
            succeed("diff", out, self.versions[2], "--tensors")
        for file in (first, both):
            succeed("verify", file)
            self.assertIn("stele.delta", succeed("inspect", file))

    def test_wrong_inputs_write_nothing(self):
        first, out = self.path("1.stele"), self.path("out.safetensors")
        succeed("delta", self.versions[0], self.versions[1], "-o", first)
        for arguments in (("apply", self.versions[1], first), ("apply", DIGITS_ST, first, first), ("apply", DIGITS_ST, DIGITS_PT),
                          ("apply", first, first), ("convert", first), ("compact", first, first), ("compact", DIGITS_ST),
                          ("delta", first, DIGITS_ST), ("delta", DIGITS_ST, DIGITS_PT)):
            target = (out,) if arguments[0] == "convert" else ("-o", out)
            self.assertEqual(run(*arguments, *target)[0], 2, arguments)
            self.assertFalse(out.exists(), arguments)
        self.assertEqual(run("convert", first, self.path("f16.stele"), "--precision", "f16")[0], 2)

    def test_in_place_survives_kills(self):
        """A process that is killed at any time leaves the old or the new version, or one that the next call completes."""
        base, new = self.path("base.safetensors"), self.path("new.safetensors")
        count = 400_000
        safetensors(base, {"a": ("F32", [count], floats(*range(count))), "b": ("F32", [9], floats(*range(9)))})
        safetensors(new, {"a": ("F32", [count], floats(*(i + (i % 3 == 0) for i in range(count)))), "b": ("F32", [9], floats(*range(9)))})
        delta, model = self.path("d.stele"), self.path("model.safetensors")
        succeed("delta", base, new, "-o", delta)
        old, expected = base.read_bytes(), new.read_bytes()
        model.write_bytes(old)
        start = time.monotonic()
        succeed("apply", model, delta, "--in-place")
        whole = time.monotonic() - start
        outcomes = set()
        for attempt in range(40):
            model.write_bytes(old)
            child = subprocess.Popen([STELE, "apply", model, delta, "--in-place", "-q"])
            time.sleep(attempt / 30 * whole)
            child.kill()
            child.wait()
            journal = model.with_name(model.name + ".stele-journal")
            outcomes.add((model.read_bytes() == old, model.read_bytes() == expected, journal.exists()))
            if model.read_bytes() != expected or journal.exists():
                succeed("apply", model, delta, "--in-place")
            self.assertEqual(model.read_bytes(), expected, attempt)
            self.assertEqual([p.name for p in self.path("").iterdir() if "model" in p.name], ["model.safetensors"])
        self.assertGreater(len(outcomes), 1)
        self.assertIn(b"is that version already", run("apply", model, delta, "--in-place")[2])
        self.assertEqual(model.read_bytes(), expected)
        stele_file = self.path("m.stele")
        succeed("convert", base, stele_file)
        for arguments in (("apply", stele_file, delta, "--in-place"), ("apply", base, delta), ("apply", base, delta, "--in-place", "-o", new)):
            self.assertEqual(run(*arguments)[0], 2, arguments)
        self.assertEqual(base.read_bytes(), old)

    def test_folders_for_engines(self):
        for encoding in ("xor", "overwrite"):
            folder = self.path(f"weight_{encoding}")
            made = document("delta", self.versions[0], self.versions[1], "-o", folder, "--to", "update", "--update-version", "7", "--encoding", encoding)
            self.assertEqual(made["version"], 7)
            out = self.path("out.safetensors")
            succeed("apply", DIGITS_ST, folder, "-o", out)
            succeed("diff", out, self.versions[1], "--tensors")
        self.assertEqual(run("apply", self.versions[1], self.path("weight_xor"), "-o", self.path("no.safetensors"))[0], 2)
        self.assertFalse(self.path("no.safetensors").exists())


class Lora(InFolder):
    def test_merge_and_unmerge(self):
        model = safetensors(self.path("m.safetensors"), {"q.weight": ("F32", [1, 2], floats(1, 2)), "n": ("F32", [1], floats(9))})
        adapter = self.path("adapter")
        adapter.mkdir()
        safetensors(adapter / "adapter_model.safetensors",
                    {"base_model.model.q.lora_A.weight": ("F32", [1, 2], floats(1, 3)),
                     "base_model.model.q.lora_B.weight": ("F32", [1, 1], floats(2))})
        out = self.path("out.safetensors")
        self.assertEqual(run("lora", "merge", model, adapter, "-o", out)[0], 2)  # no configuration
        (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1, "lora_alpha": 0.5}')
        found = document("lora", "merge", model, adapter, "-o", out)
        self.assertEqual((found["schema"], found["tensors"], found["rows"]), ("stele.lora/1", 2, []))
        self.assertEqual(document("inspect", out, "--print", "q.weight")["values"], ["2", "5"])
        succeed("lora", "unmerge", out, adapter, "-o", self.path("back.stele"))
        succeed("diff", model, self.path("back.stele"), "--tensors")
        self.assertEqual(run("lora", "add", model, adapter, "-o", out)[0], 2)
        base = self.path("base")  # a folder of the hub becomes one
        base.mkdir()
        shutil.copy(model, base / "model.safetensors")
        (base / "config.json").write_text('{"a": 1}')
        succeed("lora", "merge", base, adapter, "-o", self.path("merged"))
        self.assertEqual((self.path("merged") / "config.json").read_text(), '{"a": 1}')
        succeed("diff", self.path("merged"), out, "--tensors")
        archive = self.path("m.zip")
        succeed("convert", model, archive, "--to-tag", "one")
        succeed("convert", model, archive, "--to-tag", "two", "--append")
        status, _, err = run("lora", "merge", archive, adapter, "-o", out)  # the other tag would be lost
        self.assertEqual((status, b"one" in err), (2, True), err)
        succeed("lora", "merge", archive, adapter, "-o", out, "--allow-loss")

    def hub(self, name, tensors, config):
        """Write a folder of the hub, of a model or of an adapter."""
        folder = self.path(name)
        folder.mkdir()
        kind = "adapter_" if "lora_alpha" in config else ""
        safetensors(folder / f"{kind}model.safetensors", {n: ("F32", shape, floats(*numbers)) for n, (shape, numbers) in tensors.items()})
        (folder / f"{kind}config.json").write_text(json.dumps(config, indent=2))
        return folder

    def numbers(self, model, name):
        return [float(x) for x in document("inspect", model, "--print", name)["values"]]

    def test_a_head_that_is_the_embedding(self):
        """The file has the embedding alone; config.json has the tie. The expected tensors are those of PEFT (tests/interop/lora.py)."""
        embedding, head = "model.embed_tokens.weight", "lm_head.weight"
        tied = {"architectures": ["XForCausalLM"], "tie_word_embeddings": True, "eps": 1e-05}
        base = self.hub("tied", {embedding: ([2, 2], (1, 2, 3, 4))}, tied)
        saved = self.hub("saved", {f"base_model.model.{head}": ([2, 2], (5, 6, 7, 8))}, {"lora_alpha": 1, "modules_to_save": ["lm_head"]})
        other = self.hub("other", {f"base_model.model.{embedding}": ([2, 2], (5, 6, 7, 8))}, {"lora_alpha": 1, "modules_to_save": ["embed_tokens"]})
        pair = self.hub("pair", {"base_model.model.lm_head.lora_A.weight": ([1, 2], (1, 1)), "base_model.model.lm_head.lora_B.weight": ([2, 1], (1, 2))},
                           {"lora_alpha": 1})
        for i, (adapter, kept, trained, still_tied) in enumerate(((saved, embedding, head, False), (other, head, embedding, False), (pair, None, embedding, True))):
            out = self.path(f"out{i}")
            err = run("lora", "merge", base, adapter, "-o", out)[2].decode()
            self.assertEqual(json.loads((out / "config.json").read_text()), tied | {"tie_word_embeddings": still_tied})
            self.assertEqual("tie_word_embeddings is now false" in err, not still_tied)
            self.assertEqual(self.numbers(out, trained), [2, 3, 5, 6] if still_tied else [5, 6, 7, 8])
            names = {t["name"] for t in document("inspect", out)["tensors"]}
            self.assertEqual(names, {embedding} if still_tied else {embedding, head})
            if kept:
                self.assertEqual(self.numbers(out, kept), [1, 2, 3, 4])
        alone = base / "model.safetensors"  # without its config.json, nothing shows whether the head is the embedding
        for adapter, message in ((other, "may also be the head"), (pair, "tie_word_embeddings")):
            status, _, err = run("lora", "merge", alone, adapter, "-o", self.path("x.safetensors"))
            self.assertEqual((status, message in err.decode()), (2, True), err)
        classifier = self.hub("classifier", {embedding: ([2, 2], (1, 2, 3, 4))}, dict(tied, architectures=["XForSequenceClassification"]))
        succeed("lora", "merge", classifier, other, "-o", self.path("y"))
        self.assertEqual([t["name"] for t in document("inspect", self.path("y"))["tensors"]], [embedding])

    def test_the_class_of_a_layer(self):
        tensors = {"h.c_proj.weight": ([2, 2], (1, 2, 3, 4)), "h.c_proj.bias": ([2], (0, 0)), "h.up.weight": ([2, 3], range(6)), "h.up.bias": ([3], (0, 0, 0))}
        adapter = self.hub("adapter", {"base_model.model.h.c_proj.lora_A.weight": ([1, 2], (1, 3)), "base_model.model.h.c_proj.lora_B.weight": ([2, 1], (10, 20))},
                              {"lora_alpha": 1, "fan_in_fan_out": False})
        linear, conv1d = [11, 32, 23, 64], [11, 22, 33, 64]
        for i, (config, options, expected) in enumerate((({"model_type": "gpt2"}, (), conv1d), ({"model_type": "llama"}, (), None), ({}, (), None),
                                                         ({}, ("--conv1d", "*.c_proj"), conv1d), ({}, ("--linear", "h.c_proj"), linear),
                                                         ({"model_type": "gpt2", "auto_map": {}}, (), None))):
            out = self.path(f"out{i}")
            status, _, err = run("lora", "merge", self.hub(f"base{i}", tensors, config), adapter, "-o", out, *options)
            self.assertEqual(status, 0 if expected else 2, err)
            if expected:
                self.assertEqual(self.numbers(out, "h.c_proj.weight"), expected)
            else:
                self.assertIn("--conv1d LAYER or --linear LAYER", err.decode())


class Hub(InFolder):
    """Folders of the Hugging Face hub, and their quantized weights."""

    def setUp(self):
        super().setUp()
        self.model = self.path("Model-1.5B")
        self.model.mkdir()
        safetensors(self.model / "model.safetensors",
                    {"fc.weight": ("F32", [8, 128], floats(*range(1024))), "fc.bias": ("F32", [8], floats(*range(8)))})
        (self.model / "config.json").write_text('{"model_type": "mine"}')
        (self.model / "tokenizer.json").write_text("{}")

    def test_quantize(self):
        out = self.path("Model-1.5B-int4")
        rows = document("convert", self.model, out, "--quantize", "int4:64")["rows"]
        self.assertEqual([(r["what"], r["path"]) for r in rows], [("quantized", "fc.weight")])
        self.assertRegex(rows[0]["detail"], r"^f32 -> int4, 4[.0-9]* bits; largest error [1-9]")
        self.assertEqual((out / "tokenizer.json").read_text(), "{}")
        config = json.loads((out / "config.json").read_text())
        self.assertEqual((config["model_type"], config["quantization_config"]["quant_method"]), ("mine", "compressed-tensors"))
        found = {t["name"]: t for t in document("inspect", out)["tensors"]}
        self.assertEqual((found["fc.weight"]["dtype"], found["fc.weight"]["composite"]["group"]), ("f32", 64))
        self.assertIn("fc.weight_packed", {t["name"] for t in document("inspect", out, "--parts")["tensors"]})
        back = self.path("back")
        document("convert", out, back, "--precision", "bf16")
        self.assertNotIn("quantization_config", (back / "config.json").read_text())
        self.assertEqual(run("convert", self.model, out, "--quantize", "nf4")[0], 2)  # a folder with content

    def test_what_cannot_be(self):
        for target, *options in (("m.gguf", "--quantize", "int4"), ("m", "--quantize", "int5"), ("m", "--quantize", "int4:"),
                                 ("m", "--quantize", "int4:7"), ("m", "--quantize", "9"), ("m", "--quantize", "fp8", "--precision", "q8_0")):
            status, _, err = run("convert", self.model, self.path(target), *options)
            self.assertEqual((status, self.path(target).exists()), (2, False), (options, err))
            self.assertNotIn(b"::", err)
        rows = document("convert", self.model, self.path("m.stele"))["rows"]
        self.assertIn("config.json, tokenizer.json", rows[0]["detail"])
        self.assertEqual(run("convert", DIGITS_ST, self.path("folder"))[0], 2)
        succeed("convert", DIGITS_ST, self.path("folder"), "--to", "hub")
        self.assertEqual([p.name for p in self.path("folder").iterdir()], ["model.safetensors"])


if __name__ == "__main__":
    unittest.main()
