"""A quantization scheme that is not decoded is said: a note in `inspect`, rows in `convert`, an error where codes would be
taken for weights; `--raw` insists. Every scheme below meets every command below.

The names, dtypes and shapes of a row are those of the package that writes the scheme.
"""

import json
import unittest
import unittest.mock

import support
from support import InFolder, document, run, safetensors, succeed

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
          "F8_E8M0": 1}
L = "model.layers.0.mlp.up_proj."
NORM = {"model.norm.weight": ("F32", [8])}

# Scheme: configuration (config.json's quantization_config), tensors, the name in notes, parts that are marked.
SCHEMES = {
    "bitnet": ({"quant_method": "bitnet", "linear_class": "autobitlinear"},
               {L + "weight": ("U8", [2, 8]), L + "weight_scale": ("BF16", [1])}, "bitnet", 2),
    "bitnet without configuration": (None, {L + "weight": ("U8", [2, 8]), L + "weight_scale": ("BF16", [1])}, "an unknown scheme", 2),
    "eetq": ({"quant_method": "eetq", "weights": "int8"},
             {L + "weight": ("I8", [8, 8]), L + "weight_scales": ("F16", [8])}, "eetq", 2),
    "eetq without configuration": (None, {L + "weight": ("I8", [8, 8]), L + "weight_scales": ("F16", [8])}, "eetq", 2),
    "exl2": ({"quant_method": "exl2", "version": "0.2.0", "bits": 4.0},
             {L + "q_weight": ("I32", [8, 8]), L + "q_scale": ("I32", [1, 1]), L + "q_scale_max": ("F16", [1]),
              L + "q_groups": ("I16", [2]), L + "q_invperm": ("I16", [64])}, "exl2", 3),
    "exl3": ({"quant_method": "exl3"},
             {L + "trellis": ("I16", [1, 1, 64]), L + "suh": ("F16", [16]), L + "svh": ("F16", [16])}, "exl3", 3),
    "aqlm": ({"quant_method": "aqlm", "nbits_per_codebook": 16},
             {L + "codes": ("I16", [8, 1, 1]), L + "codebooks": ("F16", [1, 16, 1, 8]), L + "scales": ("F16", [8, 1, 1, 1])}, "aqlm", 3),
    "marlin": ({"quant_method": "marlin", "group_size": 128},
               {L + "B": ("I32", [8, 16]), L + "s": ("F16", [1, 64])}, "marlin", 2),
    "quip": (None, {L + "Qidxs": ("I64", [8, 1]), L + "SU": ("F16", [8]), L + "SV": ("F16", [8])}, "quip", 3),
    "vptq": ({"quant_method": "vptq"},
             {L + "indices": ("I32", [1, 8, 4]), L + "centroids.weight": ("F16", [1, 2048])}, "vptq", 2),
    "hqq": (None, {L + "W_q": ("U8", [4, 8]), L + "scale": ("F16", [8, 1]), L + "zero": ("F16", [8, 1]), L + "unknown_key": ("F16", [1])}, "hqq", 3),
    "quanto's qint4, without the shape of the weight": (
        None, {L + "weight._data._data": ("U8", [4, 8]), L + "weight._scale": ("F32", [8, 1]), L + "weight._shift": ("F32", [8, 1])}, "quanto", 3),
    "ModelOpt's W4A8_AWQ": ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
                            {L + "weight": ("U8", [4, 8]), L + "weight_scale": ("F32", [8, 1]), L + "pre_quant_scale": ("F32", [8])},
                            "modelopt W4A8_AWQ", 3),
    "Quark in another order": ({"quant_method": "quark", "export": {"pack_method": "order"}, "global_quant_config": {
                                   "weight": {"dtype": "uint4", "qscheme": "per_group", "group_size": 8}}},
                               {L + "weight": ("I32", [8, 1]), L + "weight_scale": ("F32", [1, 8]), L + "weight_zero_point": ("I32", [1, 1])},
                               "quark", 3),
    "higgs": ({"quant_method": "higgs", "bits": 4},
              {L + "weight": ("I16", [8, 8]), L + "scales": ("F16", [8, 1]), L + "tables": ("F16", [16])}, "higgs", 3),
    "spqr": ({"quant_method": "spqr"}, {L + "dense_weights": ("I64", [8]), L + "first_weight": ("I32", [2, 2])}, "spqr", 1),
    "nunchaku": (None, {L + "qweight": ("I8", [8, 8]), L + "wscales": ("BF16", [1, 8])}, "nunchaku", 2),
    "gptq of a layout that is not read": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "odd"},
                                          {L + "qweight": ("I32", [8, 8]), L + "scales": ("F16", [1, 8]), L + "qzeros": ("I32", [1, 1])},
                                          "gptq odd", 3),
    "codes without their scales": ({"quant_method": "gptq", "bits": 4}, {L + "qweight": ("I32", [8, 8])}, "gptq", 1),
    "FP8 without a scale": ({"quant_method": "fp8"}, {L + "weight": ("F8_E4M3", [8, 8])}, "fp8", 1),
    "FP8 with scales of an unknown name": (None, {L + "weight": ("F8_E4M3", [8, 8]), L + "weight_scaler": ("F32", [8])}, "an unknown scheme", 2),
    "FP8 with scales of an unknown shape": (None, {L + "weight": ("F8_E4M3", [8, 8]), L + "weight_scale": ("F32", [3])}, "an unknown scheme", 2),
    "FP8 experts with scales of an unknown shape": (
        None, {"experts.gate_up_proj": ("F8_E4M3", [2, 8, 8]), "experts.gate_up_proj_scale": ("F32", [2, 3, 5])}, "an unknown scheme", 2),
    "parts of bitsandbytes without .weight": (
        None, {"experts.gate_up_proj": ("U8", [32, 1]), "experts.gate_up_proj.absmax": ("F32", [1])}, "an unknown scheme", 2),
    "INT8 of Keras": (None, {"dense.kernel": ("I8", [8, 8]), "dense.kernel_scale": ("F32", [8])}, "an unknown scheme", 2),
}

# Models with integers or 8-bit floats that are no codes.
ORDINARY = {
    "buffers": {"bert.embeddings.position_ids": ("I64", [1, 8]), "bn.num_batches_tracked": ("I64", []), "bn.weight": ("F32", [8]),
                "bn.running_mean": ("F32", [8]), "attention.scale": ("F32", [1]), "norm.scale": ("F32", [8])},
    "masks": {"h.0.attn.bias": ("U8", [1, 1, 8, 8]), "h.0.attn.masked_bias": ("F32", []), "h.0.attn.c_attn.weight": ("F32", [8, 24])},
    "indices of windows": {"attn.relative_position_index": ("I64", [16, 16]), "attn.logit_scale": ("F32", [4, 1, 1]), "attn.scale": ("F32", [1])},
    "tables of integers": {"tokens.table": ("I32", [8, 2]), "tokens.weight": ("F32", [8, 2]), "tokens.scale": ("F32", [1])},
    "integers as weights": {"net.weight": ("I8", [8, 8]), "net.bias": ("I32", [8])},
}


def made(path, tensors, config=None):
    path.mkdir()
    entries = {name: (dtype, shape, None) for name, (dtype, shape) in tensors.items()}
    with unittest.mock.patch.dict(support.DTYPES, WIDTHS):
        safetensors(path / "model.safetensors", entries)
    if config is not None:
        (path / "config.json").write_text(json.dumps({"architectures": ["A"], "quantization_config": config}))
    return path / "model.safetensors"


def each(test):
    """Runs a test with the file, and the folder, of each scheme."""
    def tests(self):
        for number, (name, (config, tensors, scheme, parts)) in enumerate(SCHEMES.items()):
            with self.subTest(name):
                folder = self.path(str(number))
                test(self, made(folder, {**tensors, **NORM}, config), folder, scheme, parts)
    return tests


class UndecodedSchemes(InFolder):
    def refused(self, *words):
        status, out, err = run(*words)
        self.assertEqual(status, 2, words)
        self.assertIn(b"is not decoded", err)
        self.assertIn(b"--raw", err)

    @each
    def test_inspect(self, file, folder, scheme, parts):
        for path in [file, folder] if (folder / "config.json").exists() else [file]:
            found = document("inspect", path, "--stats")
            self.assertTrue(any(scheme in note or "stay tensors" in note for note in found["notes"]), found["notes"])
            self.assertIn(scheme, succeed("inspect", path))
            marked = [t["name"] for t in found["tensors"] if t.get("annotations", {}).get("undecoded") == scheme]
            self.assertEqual(len(marked), parts, marked)

    @each
    def test_formats_that_keep_parts(self, file, folder, scheme, parts):
        before = succeed("hash", file, "--total").split()[0]
        if (folder / "config.json").exists():
            copy = self.path(folder.name + "copy")
            succeed("convert", folder, copy)
            self.assertEqual(json.loads((copy / "config.json").read_text()), json.loads((folder / "config.json").read_text()))
        for target in ["out.safetensors", "out.stele", "out.pt"]:
            rows = document("convert", file, folder / target)["rows"]
            self.assertEqual([scheme in row["detail"] for row in rows if row["what"] == "quantized"], [True] * parts, rows)
            self.assertEqual(succeed("hash", folder / target, "--total").split()[0], before)
            self.assertTrue(document("inspect", folder / target).get("notes"), target)  # the parts are in the file

    @each
    def test_precisions(self, file, folder, scheme, parts):
        for name, how in [("out.safetensors", "f32"), ("out.stele", "bf16"), ("out.gguf", "q8_0"), ("out.gguf", "Q4_K_M")]:
            self.refused("convert", file, folder / name, "--precision", how)
        for name, how in [("out.safetensors", "int4"), ("out.stele", "8")]:
            self.refused("convert", file, folder / name, "--quantize", how)
        self.refused("convert", file, folder / "dry.gguf", "--dry-run")
        self.assertEqual([p.name for p in folder.iterdir() if p.name.startswith("out")], [])

    @each
    def test_formats_without_parts(self, file, folder, scheme, parts):
        for target in ["out.gguf", "out.json", "out.msgpack"]:
            self.refused("convert", file, folder / target)
            self.assertFalse((folder / target).exists())
        self.refused("embed", file, "-o", folder / "out.hpp")

    def test_every_format(self):
        config, tensors, scheme, parts = SCHEMES["eetq"]
        file = made(self.path("model"), tensors, config)
        before = succeed("hash", file, "--total").split()[0]
        keep = set()
        for format in document("formats")["formats"]:
            if not format["writes"]:
                continue
            name = format["name"]
            out = self.path(name + format["extension"])
            status, text, err = run("convert", file, out, "--to", name, "--json")
            if status != 0:
                self.assertIn(b"is not decoded", text + err, name)
                continue
            keep.add(name)
            self.assertEqual(sum(row["what"] == "quantized" for row in json.loads(text)["rows"]), parts, name)
            self.assertEqual(succeed("hash", out, "--total").split()[0], before, name)
        self.assertEqual(keep, {"stele", "safetensors", "safetensors-sharded", "hub", "npz", "pytorch", "zarr", "keras", "hdf5"})

    @each
    def test_one_tensor(self, file, folder, scheme, parts):
        name = next(t["name"] for t in document("inspect", file)["tensors"] if "annotations" in t)
        self.refused("extract", file, name, "-o", folder / "one.npy", "--precision", "f16")
        self.assertEqual(document("extract", file, name, "-o", folder / "one.bin")["rows"], [])
        succeed("extract", file, "model.norm.weight", "-o", folder / "norm.npy", "--precision", "f16")

    @each
    def test_raw(self, file, folder, scheme, parts):
        rows = document("convert", file, folder / "raw.safetensors", "--raw", "--precision", "bf16")["rows"]
        self.assertEqual([row for row in rows if row["what"] == "quantized"], [])
        found = document("inspect", folder / "raw.safetensors")["tensors"]
        self.assertEqual({t["dtype"] for t in found if t["dtype"] in ("f32", "f16")}, set())

    def test_deltas(self):
        config, tensors, scheme, parts = SCHEMES["eetq"]
        old, new = made(self.path("old"), tensors, config), self.path("new.safetensors")
        succeed("convert", old, new)
        with open(new, "r+b") as file:
            file.seek(-1, 2)
            file.write(b"\1")
        for name in ["d.stele", "d.json"]:
            succeed("delta", old, new, "-o", self.path(name))
            succeed("apply", old, self.path(name), "-o", self.path(name + ".safetensors"))
            self.assertEqual(succeed("hash", self.path(name + ".safetensors"), "--total").split()[0],
                             succeed("hash", new, "--total").split()[0])

    def test_nested_names(self):
        file = support.TESTS / "core" / "data" / "undecoded" / "torchao_int8.pt"
        self.assertTrue(any("torchao" in note for note in document("inspect", file)["notes"]))
        self.refused("convert", file, self.path("out.gguf"))
        self.refused("convert", file, self.path("out.safetensors"), "--precision", "f16")
        rows = document("convert", file, self.path("out.stele"))["rows"]
        self.assertEqual(sum("torchao" in row["detail"] for row in rows), 2)

    def test_configurations_beside(self):
        weight = {"layers.0.wq.weight": ("F8_E4M3", [8, 8])}
        for name, config in [("hf_quant_config.json", {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}),
                             ("params.json", {"dim": 8, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}),
                             ("quantize_config.json", {"quant_method": "other"})]:
            with self.subTest(name):
                folder = self.path(name)
                file = made(folder, weight)
                self.assertNotIn("notes", document("inspect", file))  # 8-bit floats
                (folder / name).write_text(json.dumps(config))
                self.assertEqual(len(document("inspect", file)["notes"]), 1)
                self.refused("convert", file, folder / "out.safetensors", "--precision", "f32")

    def test_ordinary_models(self):
        for number, (name, tensors) in enumerate(ORDINARY.items()):
            with self.subTest(name):
                folder = self.path(str(number))
                file = made(folder, tensors)
                self.assertNotIn("notes", document("inspect", file))
                for words in [["out.safetensors", "--precision", "bf16"], ["out.stele"], ["out.json"], ["int8.stele", "--quantize", "8"]]:
                    rows = document("convert", file, folder / words[0], *words[1:])["rows"]
                    self.assertNotIn("decoded", str(rows))
                status, _, err = run("convert", file, folder / "out.gguf")
                self.assertNotIn(b"decoded", err)


if __name__ == "__main__":
    unittest.main()
