"""Runs and steps of a CheckpointManager as inputs of every command that takes a model (docs/formats/steps.md)."""

import json
import shutil
import unittest

from support import InFolder, document, floats, run, safetensors, succeed


class Runs(InFolder):
    def setUp(self):
        super().setUp()
        self.whole, self.deltas = self.path("whole"), self.path("deltas")
        models = {step: self.model(f"{step}.stele", step) for step in (1, 2, 3)}
        for step in (1, 2, 3):
            self.step(self.whole, step, models[step])
            part, base = models[step], None
            if step > 1:
                part, base = self.path(f"d{step}.stele"), step - 1
                succeed("delta", models[base], models[step], "-o", part)
            self.step(self.deltas, step, part, base)
        self.models = models

    def model(self, name, number):
        plain = safetensors(self.path("plain.safetensors"), {"w": ("F32", [64], floats(number, *[0.5] * 63))})
        succeed("convert", plain, self.path(name))
        return self.path(name)

    def xxh3(self, content):
        file = safetensors(self.path("bytes.safetensors"), {"b": ("U8", [len(content)], content)})
        return succeed("hash", "-a", "xxh3", file).split()[1]

    def step(self, run_folder, number, parameters, base=None, optimizer=None):
        """Write a step as a CheckpointManager does."""
        folder = run_folder / f"step-{number:08}"
        folder.mkdir(parents=True)
        parts = {"parameters.stele": parameters, **({"optimizer-0.stele": optimizer} if optimizer else {})}
        files = {}
        for name, source in sorted(parts.items()):
            shutil.copyfile(source, folder / name)
            files[name] = {"bytes": source.stat().st_size, "xxh3": self.xxh3(source.read_bytes())}
        manifest = {"stele_step": 1, "step": number, "time": "2026-11-24T13:50:49Z", "time_ms": 0, "library": "stele",
                    "format": "stele", **({"base": base, "deltas": number - 1} if base else {}), "metrics": {"loss": 0.5},
                    "state": {}, "parameters": "parameters.stele",
                    "optimizer": {"M": "optimizer-0.stele"} if optimizer else {}, "files": files}
        body = json.dumps(manifest, indent=2)[:-2].encode()
        (folder / "manifest.json").write_bytes(body + b',\n  "xxh3": "' + self.xxh3(body).encode() + b'"\n}\n')
        return folder

    def inputs(self):
        """Yield (path, the number in the model)."""
        for folder in (self.whole, self.deltas):
            yield folder, 3
            for step in (1, 2, 3):
                yield folder / f"step-{step:08}", step

    def test_every_command_that_takes_a_model_takes_runs_and_steps(self):
        base = self.models[1]
        out = self.path("out.stele")
        for path, number in self.inputs():
            with self.subTest(path=path.name, folder=path.parent.name):
                same = self.models[number]
                found = document("inspect", path)
                self.assertEqual([t["name"] for t in found["tensors"]], ["w"])
                self.assertIn(f"step {number}, in the format stele", succeed("inspect", path))
                self.assertIn(f"{number}", succeed("inspect", path, "--print", "w[0]"))
                self.assertIn("ok, steps", succeed("verify", path))
                self.assertEqual(succeed("hash", "--total", path).split()[0], succeed("hash", "--total", same).split()[0])
                self.assertIn("lost: (file): the metrics of the step", self.convert(path, out))
                self.assertEqual(succeed("hash", "--total", out).split()[0], succeed("hash", "--total", same).split()[0])
                self.assertEqual(run("diff", path, same)[0], 0)
                self.assertEqual(run("diff", self.model("9.stele", 9), path)[0], 1)
                succeed("report", path, "-o", self.path("r.html"))
                succeed("report", base, path, "-o", self.path("r.html"))
                succeed("extract", path, "w", "-o", self.path("w.npy"))
                succeed("merge", path, "-o", self.path("m.stele"))
                succeed("delta", base, path, "-o", self.path("delta.stele"))
                succeed("apply", path, self.delta(same), "-o", self.path("applied.stele"))
                succeed("embed", path, "-o", self.path("m.hpp"))

    def convert(self, path, out):
        out.unlink(missing_ok=True)
        status, _, err = run("convert", path, out)
        self.assertEqual(status, 0, err)
        return err.decode()

    def delta(self, base):
        out = self.path("next.stele")
        succeed("delta", base, self.model("9.stele", 9), "-o", out)
        return out

    def test_forms_of_the_path(self):
        for path, number in self.inputs():
            for words, folder in ((["."], path), ([path.name], path.parent), (["./" + path.name + "/"], path.parent)):
                status, out, err = run("inspect", *words, cwd=folder)
                self.assertEqual(status, 0, err)
                self.assertIn(f"step {number},".encode(), out)

    def test_a_run_is_its_newest_complete_step(self):
        (self.whole / "step-00000003" / "parameters.stele").unlink()
        out = succeed("inspect", self.whole)
        self.assertIn("step 2, in the format stele: the newest complete step of the run", out)
        self.assertIn("step 3 is not complete", out)
        self.assertIn("step 3 is not complete", succeed("verify", self.whole))
        self.assertEqual(run("inspect", self.whole / "step-00000003")[0], 2)

    def test_damage(self):
        file = self.whole / "step-00000003" / "parameters.stele"
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        file.write_bytes(content)
        for path in (self.whole, self.whole / "step-00000003"):
            status, out, _ = run("verify", path)
            self.assertEqual(status, 1)
            self.assertIn(b"damaged", out)

    def test_the_state_of_an_optimizer_is_not_lost_silently(self):
        run_folder = self.path("trained")
        self.step(run_folder, 7, self.models[1], optimizer=self.models[2])
        self.assertIn("optimizer", succeed("inspect", run_folder))
        status, _, err = run("convert", run_folder, self.path("x.safetensors"))
        self.assertEqual(status, 2)
        self.assertIn(b"optimizer", err)
        succeed("convert", run_folder, self.path("x.safetensors"), "--allow-loss")

    def test_a_step_is_not_replaced(self):
        before = (self.whole / "step-00000003" / "parameters.stele").read_bytes()
        for path in (self.whole, self.whole / "step-00000003"):
            status, _, err = run("convert", path, self.whole / "step-00000003" / "parameters.stele", "--precision", "f16")
            self.assertEqual(status, 2, err)
        self.assertEqual((self.whole / "step-00000003" / "parameters.stele").read_bytes(), before)

    def test_the_bases_of_a_step_are_not_replaced(self):
        """Each command that writes a model × the run and its newest step × each file of the steps before."""
        other = self.models[1]
        for path in (self.deltas, self.deltas / "step-00000003"):
            for base in (1, 2):
                out = self.deltas / f"step-{base:08}" / "parameters.stele"
                before = out.read_bytes()
                for words in (["convert", path, out], ["repair", path, out], ["merge", path, "-o", out],
                              ["delta", other, path, "-o", out], ["embed", path, "-o", out],
                              ["apply", path, self.delta(self.models[3]), "-o", out],
                              ["extract", path, "w", "-o", out], ["report", path, "-o", out]):
                    with self.subTest(words=words):
                        status, _, err = run(*words)
                        self.assertEqual(status, 2, err)
                        self.assertEqual(out.read_bytes(), before)
        # Other files of the folder that has the run are not inputs.
        out = self.path("model.stele")
        for _ in range(2):
            succeed("convert", self.deltas, out)

    def test_parts_of_a_run(self):
        """Commands that write parts of a model, or take adapters."""
        adapter = self.path("adapter")
        adapter.mkdir()
        safetensors(adapter / "adapter_model.safetensors",
                    {f"base_model.model.m.lora_{which}.weight": ("F32", shape, floats(*[0.0] * 4))
                     for which, shape in (("A", [1, 4]), ("B", [4, 1]))})
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1}))
        trained = self.path("trained")
        self.step(trained, 1, self.matrix("matrix.stele"))
        for path, number in self.inputs():
            with self.subTest(path=path.name, folder=path.parent.name):
                same = self.models[number]
                for words, out in ((["split", path, self.path("p.stele")], self.path("p.top.stele")),
                                   (["repair", path, self.path("r.stele")], self.path("r.stele"))):
                    out.unlink(missing_ok=True)
                    status, _, err = run(*words)
                    self.assertEqual(status, 0, err)
                    self.assertIn(b"lost: (file): the metrics of the step", err)
                    self.assertEqual(run("diff", out, same)[0], 0)
        for path in (trained, trained / "step-00000001"):
            for action in ("merge", "unmerge"):
                succeed("lora", action, path, adapter, "-o", self.path("merged.stele"))
                self.assertEqual(run("diff", self.path("merged.stele"), self.path("matrix.stele"))[0], 0)

    def matrix(self, name):
        plain = safetensors(self.path("plain.safetensors"), {"m.weight": ("F32", [4, 4], floats(*[0.5] * 16))})
        succeed("convert", plain, self.path(name))
        return self.path(name)

    def test_commands_that_need_another_file_say_so(self):
        model, out = self.models[1], self.path("out.stele")
        for path in (self.deltas, self.deltas / "step-00000002"):
            for words, message in (
                    (["compact", path, path, "-o", out], "a step is a whole model; the delta of a step is a file in its folder"),
                    (["apply", model, path, "-o", out], "a step is a whole model; the delta of a step is a file in its folder"),
                    (["apply", path, self.path("d2.stele"), "--in-place"], "a folder cannot be changed in place"),
                    (["tags", path], "only archives have tags"),
                    (["import", path, self.path("out.zip")], "stele convert reads the tensors of folders"),
                    (["lora", "merge", model, path, "-o", out], "adapter_config.json"),
                    (["convert", model, path], "no format has this extension"),
                    (["convert", model, path, "--to", "hub"], "save to another path"),
                    (["inspect", path / "manifest.json"], "open its folder" if "step" in path.name else "cannot open")):
                with self.subTest(words=words):
                    status, _, err = run(*words)
                    self.assertEqual(status, 2, err)
                    self.assertIn(message, err.decode())
        # The files of two steps are deltas that follow each other.
        parts = [self.deltas / f"step-{step:08}" / "parameters.stele" for step in (2, 3)]
        succeed("compact", *parts, "-o", self.path("both.stele"))
        succeed("apply", model, self.path("both.stele"), "-o", out)
        self.assertEqual(run("diff", out, self.models[3])[0], 0)


if __name__ == "__main__":
    unittest.main()
