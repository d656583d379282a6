"""Files from parts of files: split, merge, extract, embed."""

import os
import struct
import subprocess
import unittest

from support import DIGITS_PT, DIGITS_ST, ROOT, InFolder, document, run, safetensors, succeed


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


if __name__ == "__main__":
    unittest.main()
