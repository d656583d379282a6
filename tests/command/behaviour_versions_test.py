"""Models that differ from others: deltas, adapters, quantized checkpoints."""

import json
import shutil
import subprocess
import time
import unittest

from support import DIGITS_PT, DIGITS_ST, STELE, InFolder, document, floats, run, safetensors, succeed


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

    def test_weight_updates_are_not_applied_in_place(self):
        model, update = self.path("model.safetensors"), self.path("update")
        model.write_bytes(DIGITS_ST.read_bytes())
        succeed("delta", model, self.versions[1], "-o", update, "--to", "update")
        status, _, err = run("apply", model, update, "--in-place")
        self.assertEqual(status, 2)
        self.assertIn(b"write a new file", err)
        self.assertEqual(model.read_bytes(), DIGITS_ST.read_bytes())

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
