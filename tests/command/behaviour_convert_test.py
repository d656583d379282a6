"""What `stele convert` and `stele import` write."""

import json
import shutil
import signal
import subprocess
import time
import unittest
import zipfile

from support import DIGITS_PT, DIGITS_ST, STELE, InFolder, data, document, floats, run, safetensors, succeed


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

    def test_precisions_and_formats_have_the_names_of_others(self):
        for name, dtype in (("float16", "f16"), ("half", "f16"), ("bfloat16", "bf16"), ("float64", "f64"), ("float32", "f32")):
            succeed("convert", DIGITS_ST, self.path("a.stele"), "--precision", name)
            self.assertEqual({row["dtype"] for row in document("inspect", self.path("a.stele"))["tensors"]}, {dtype})
        for name, format in (("pt", "pytorch"), (".pth", "pytorch"), ("pytorch", "pytorch"), ("h5", "hdf5")):
            succeed("convert", DIGITS_ST, self.path("b.word"), "--to", name)
            self.assertEqual(document("inspect", self.path("b.word"))["format"], format)
        for name in ("word", "a/b.pt", "", "."):
            self.assertEqual(run("convert", DIGITS_ST, self.path("c.word"), "--to", name)[0], 2, name)

    def test_elements_of_numpy_without_a_type(self):
        """np.save() and np.savez() write those of ml_dtypes so."""
        cases = ((b"V2", "--void2", "bf16", b"\x80\x3f\x00\xc0\x00\x3f"), (b"V1", "--void1", "f8_e4m3fn", b"\x38\xc0\x30"))
        for descr, option, dtype, data in cases:
            head = (b"{'descr': '<%s', 'fortran_order': False, 'shape': (3,), }" % descr).ljust(117) + b"\n"
            array = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data
            with open(self.path("a.npy"), "wb") as file:
                file.write(array)
            with zipfile.ZipFile(self.path("a.npz"), "w") as archive:
                archive.writestr("a.npy", array)
            for name in ("a.npy", "a.npz"):
                status, _, err = run("convert", self.path(name), self.path("x.safetensors"))
                self.assertEqual(status, 2)
                self.assertIn(b"pass " + option.encode(), err)
                self.assertNotIn(b"::", err)
                succeed("convert", self.path(name), self.path("x.safetensors"), option, dtype)
                with open(self.path("x.safetensors"), "rb") as file:
                    self.assertTrue(file.read().endswith(data))
                self.assertEqual([t["dtype"] for t in document("inspect", self.path("x.safetensors"))["tensors"]], [dtype])
            _, out, _ = run("inspect", self.path("a.npz"))
            self.assertIn(b"pass " + option.encode(), out)
            self.assertNotIn(b"::", out)
            self.assertEqual(run("inspect", self.path("a.npy"), option, "word")[0], 2)
            self.assertEqual(run("inspect", DIGITS_ST, option, dtype)[0], 2)

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
        self.assertEqual(run("import", DIGITS_ST, self.path("x.fb"))[0], 2)
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


if __name__ == "__main__":
    unittest.main()
