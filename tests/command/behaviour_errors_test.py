"""Errors of the command: outputs that are refused, documents of errors, mistakes in the command line."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from support import DIGITS_PT, DIGITS_ST, ROOT, STELE, TESTS, InFolder, data, document, floats, run, safetensors, succeed


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
        table = (ROOT / "tools" / "stele" / "terminal.cpp").read_text(encoding="utf-8").split("constexpr Wording wordings[] = {")[1]
        spellings = re.findall(r'\{"([^"]*)",\s*"([^"]*)"[,}]', table.split("\n};")[0])
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

    def test_a_known_kind_of_file_under_the_name_of_a_format(self):
        kinds = {"arr.joblib": b"a joblib file", "xgb.ubj": b"an XGBoost model", "xgb.json": b"an XGBoost model",
                 "lgb.txt": b"a LightGBM model", "lgb.json": b"a LightGBM model", "lgb.pkl": b"a LightGBM model",
                 "sk.skops": b"a scikit-learn model", "sk.pkl": b"a scikit-learn model"}
        for name, kind in kinds.items():
            for extension in ("bin", "json", "npz", "pkl", "pt", "safetensors", "weights"):
                with self.subTest(name=name, extension=extension):
                    file = self.path(f"m.{extension}")
                    shutil.copyfile(TESTS / "core" / "data" / "foreign" / name, file)
                    for command in ("inspect", "verify", "hash"):
                        status, out, err = run(command, file)
                        self.assertEqual(status, 2)
                        self.assertIn(b"not a model file: found " + kind, out + err)

    def test_folders_and_files_beside_a_model(self):
        folder = self.path("hub")
        folder.mkdir()
        (folder / "config.json").write_text('{"architectures": ["X"], "model_type": "x"}')
        shutil.copyfile(DIGITS_PT, folder / "pytorch_model.bin")
        for words, expected in ((("inspect", folder / "config.json"), b"a JSON file that is not a model"),
                                (("verify", folder / "config.json"), b"not checked"),
                                (("tags", folder), b"only archives have tags: expected a .zip file, found a folder"),
                                (("import", folder, self.path("x.fb")), b"the folder has no graph")):
            status, out, err = run(*words)
            self.assertEqual(status, 2, words)
            self.assertIn(expected, out + err)
        succeed("inspect", folder)

    def test_a_folder_that_leaves_the_model_open_lists_its_files(self):
        for name in ("a.gguf", "b.gguf"):
            succeed("convert", DIGITS_ST, self.path(name))
        for command in ("inspect", "verify", "hash"):
            status, out, err = run(command, self.folder.name)
            self.assertEqual(status, 2)
            self.assertIn(b"found a.gguf, b.gguf", out + err)
            self.assertNotIn(b"merge", out + err)
            succeed(command, self.path("a.gguf"))  # as the hint says

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
                                   (("extract", DIGITS_PT, "head.b*", "-o", "x.npy"), "head.bias"),
                                   (("convert", DIGITS_PT, "x.stele", "--only", "hidden.*", "--only", "haed.*"), "head.*"),
                                   (("convert", DIGITS_PT, "x.stele", "--transpose", "*.wight"), "*.weight"),
                                   (("convert", DIGITS_PT, "x", "--to", "safetensor"), "safetensors"),
                                   (("embed", DIGITS_PT, "-o", "x.hpp", "--only", "hed.bias"), "head.bias"),
                                   (("diff", DIGITS_PT, DIGITS_PT, "--only", "hed.*"), "head.*")):
            self.assertTrue(self.refused(*arguments).endswith(f"; did you mean {similar}?\n"), arguments)
        self.assertNotIn("did you mean", self.refused("inspect", DIGITS_PT, "decoder.layers.*"))
        self.assertTrue(self.refused("inspect", str(DIGITS_PT).replace("digits.", "digit.")).endswith(
            f"; did you mean {os.path.basename(DIGITS_PT)}?\n"))
        note = "--except hiden.* matches nothing; did you mean hidden.*?"
        self.assertEqual(document("convert", DIGITS_PT, self.path("x.stele"), "--except", "hiden.*")["notes"], [note])
        self.assertIn(f"note: {note}\n".encode(), run("embed", DIGITS_PT, "-o", self.path("x.hpp"), "--except", "hiden.*")[2])

    def test_help(self):
        for command in ("inspect", "convert", "completion", "help"):
            self.assertEqual(succeed("help", command), succeed(command, "--help"))
        self.assertEqual(succeed("help"), succeed("--help"))


if __name__ == "__main__":
    unittest.main()
