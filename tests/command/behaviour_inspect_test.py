"""What `stele inspect` prints: statistics, values, ties, blocks."""

import json
import math
import re
import shutil
import unittest

from support import DIGITS_PT, DIGITS_ST, InFolder, data, document, floats, run, safetensors, succeed


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


if __name__ == "__main__":
    unittest.main()
