"""What `stele verify`, `repair`, `hash` and `diff` find."""

import json
import math
import os
import struct
import unittest
import zipfile

from support import DIGITS_PT, DIGITS_ST, InFolder, data, document, floats, run, safetensors, succeed


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
        for name in b"hidden\\0.bias.npy", b"../den.0.bias.npy":  # NumPy reads them
            file.write_bytes(content.replace(b"hidden.0.bias.npy", name))
            self.assertEqual(run("verify", file)[0], 0)
            self.assertEqual(document("repair", file, self.path("r.npz"))["recovered"], 7)
        for old, name, path in ((b"hidden.0.bias.npy", b"hidden\x000.bias.npy", "hidden\x000.bias"),
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

    def test_hash_goes_on_after_a_file_that_it_cannot_read(self):
        bad = self.path("bad.npz")
        bad.write_bytes(b"PK")
        status, out, err = run("hash", bad, DIGITS_ST, "nothing", DIGITS_PT, "--total")
        self.assertEqual((status, len(out.splitlines()), err.count(b"stele: ")), (2, 2, 2), err)
        files = document("hash", bad, DIGITS_ST, "nothing", status=2)["files"]
        self.assertEqual([sorted(file) for file in files], [["error", "file"], ["digest", "file", "tensors"], ["error", "file"]])
        self.assertEqual(document("hash", bad, status=2)["error"]["code"], files[0]["error"]["code"])

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


if __name__ == "__main__":
    unittest.main()
