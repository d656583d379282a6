#!/usr/bin/env python3
"""The viewer in headless Chromium: STELE=<command> VIEWER=<folder that viewer/build.py wrote> viewer_test.py [-v]."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "command")]
from browser import Browser, Server  # noqa: E402
from support import DIGITS_PT, DIGITS_ST, ROOT, InFolder, data, document, floats, safetensors, succeed  # noqa: E402

VIEWER = Path(os.environ["VIEWER"]).resolve()
PICTURES = os.environ.get("PICTURES")

TABLE = """(async (id) => {
  const element = document.getElementById(id), rows = new Map();
  for (let top = 0; ; top += element.clientHeight) {
    element.scrollTop = top;
    await new Promise(requestAnimationFrame);
    for (const row of element.querySelectorAll('.row')) {
      const y = Number(/translateY\\((\\d+)/.exec(row.style.transform)[1]);
      rows.set(y, Object.fromEntries([...row.children].map((cell) => [cell.dataset.title, cell.textContent])));
    }
    if (top + element.clientHeight >= element.scrollHeight) break;
  }
  element.scrollTop = 0;
  await new Promise(requestAnimationFrame);
  return [...rows].sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
})"""


class Viewer(InFolder):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.files = Path(cls.scratch.name) / "files"
        cls.files.mkdir()
        cls.server = Server({"viewer": VIEWER, "files": cls.files})
        cls.browser = Browser(Path(cls.scratch.name) / "profile")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.close()
        cls.scratch.cleanup()

    def setUp(self):
        super().setUp()
        self.browser.look(1280, 900)
        self.browser.go(self.server.url + "viewer/index.html")

    def tearDown(self):
        self.assertEqual(self.browser.messages(), [])
        super().tearDown()

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def table(self, name="tensors"):
        return self.browser.evaluate(f"{TABLE}({json.dumps(name)})")

    def opened(self, files, input_="#file", seconds=60):
        before = int(self.browser.evaluate("document.documentElement.dataset.ready ?? 0"))
        self.browser.choose(input_, files)
        return self.browser.wait(f"document.documentElement.dataset.ready === '{before + 1}' || !document.getElementById('failed').hidden", seconds)

    def check(self, *path):
        """Check that the page shows what `stele inspect --json` prints."""
        found = document("inspect", *path)
        self.assertEqual(self.browser.evaluate("document.getElementById('failed').hidden"), True, self.text("#failed-text"))
        expected = [{"name": t["name"] + (" (tied)" if t.get("tied") else ""), "dtype": (t.get("composite") or {}).get("scheme", t["dtype"]),
                     "shape": "[" + ", ".join(map(str, t["shape"])) + "]", "bytes": f"{(t.get('composite') or t)['bytes']:,}"}
                    for t in found["tensors"]]
        rows = [{key: row[key] for key in ("name", "dtype", "shape", "bytes")} for row in self.table()]
        self.assertEqual(rows, expected)
        self.assertTrue(self.text("#sub").startswith(found["format"] + ","), self.text("#sub"))
        shown = self.browser.evaluate("Object.fromEntries([...document.querySelectorAll('#metadata tr')].map((r) => [...r.cells].map((c) => c.textContent)))")
        for key, value in found["metadata"].items():
            if len(value) < 4096 and value.isprintable():
                self.assertEqual(shown[key], value)
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('#notes p')].map((p) => p.textContent)"), found.get("notes", []))
        return found

    def test_every_format(self):
        whole = self.path("whole.stele")
        succeed("convert", DIGITS_ST, whole)
        gguf = self.path("q.gguf")
        succeed("convert", DIGITS_ST, gguf, "--precision", "q8_0")
        npz = self.path("n.npz")
        succeed("convert", DIGITS_ST, npz)
        keras = data("keras")
        files = [DIGITS_ST, whole, gguf, npz, data("numpy") / "four_axes.npy", DIGITS_PT, data("pytorch") / "quantized.pt",
                 data("onnx") / "mlp.onnx", sorted(keras.glob("*.keras"))[0], sorted(keras.glob("*.h5"))[0]]
        for file in files:
            with self.subTest(file=file.name):
                self.opened([file])
                self.check(file)

    def test_statistics_and_elements(self):
        self.opened([DIGITS_ST])
        expected = {t["name"]: t["stats"] for t in document("inspect", "--stats", DIGITS_ST)["tensors"]}
        self.browser.evaluate("document.getElementById('statistics').click()")
        self.browser.wait("document.getElementById('busy').hidden")
        rows = self.table()
        for row in rows:
            for key in ("min", "max", "mean", "std"):
                self.assertTrue(math.isclose(float(row[key]), expected[row["name"]][key], rel_tol=1e-3), (row, key))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('#tensors .row svg.h').length"), len(rows))
        self.browser.evaluate("document.querySelector('#tensors .row').click()")
        self.browser.wait("document.querySelector('#detail-body svg')")
        detail = self.browser.evaluate("document.getElementById('detail-body').innerText")
        self.assertIn(rows[0]["name"], detail)
        other = self.path("x.safetensors")
        safetensors(other, {"x": ("F16", [4], struct.pack("<4e", 1, -2, 0.5, math.nan)), "zero": ("F32", [2], floats(0, 0))})
        self.opened([other])
        self.browser.evaluate("document.querySelector('#tensors .row').click()")
        self.browser.wait("document.querySelector('.values')")
        self.assertEqual(self.text(".values").split(), ["1", "-2", "0.5", "NaN"])
        self.browser.evaluate("document.getElementById('statistics').click()")
        self.browser.wait("document.getElementById('busy').hidden")
        self.assertEqual([row["flags"] for row in self.table()], ["1 NaN", "all zero"])
        self.browser.evaluate("document.getElementById('only').click(), document.getElementById('search').value = 'z', document.getElementById('search').dispatchEvent(new Event('input'))")
        self.browser.wait("document.getElementById('count').textContent.startsWith('1 of')")
        self.browser.evaluate("document.getElementById('hash').click()")
        self.browser.wait("document.getElementById('digest').textContent !== ''")
        self.assertEqual(self.text("#digest"), "XXH3 " + document("hash", other)["files"][0]["digest"])

    def test_modules_and_order(self):
        self.opened([DIGITS_ST])
        names = [t["name"] for t in document("inspect", DIGITS_ST)["tensors"]]
        self.browser.evaluate("document.querySelector('.module[data-path=hidden]').click()")
        self.assertEqual([row["name"] for row in self.table()], [n for n in names if n.startswith("hidden.")])
        self.browser.evaluate("document.querySelector('.module[data-path=\"\"]').click()")
        sizes = [t["bytes"] for t in document("inspect", DIGITS_ST)["tensors"]]
        self.browser.evaluate("document.querySelectorAll('#tensors .head .cell')[3].click()")
        self.assertEqual([row["bytes"] for row in self.table()], [f"{s:,}" for s in sorted(sizes, reverse=True)])
        self.browser.evaluate("document.querySelectorAll('#tensors .head .cell')[3].click()")
        self.assertEqual([row["bytes"] for row in self.table()], [f"{s:,}" for s in sorted(sizes)])

    def test_broken_files(self):
        broken = self.path("broken.safetensors")
        broken.write_bytes(DIGITS_ST.read_bytes()[:5000])
        none = self.path("none.txt")
        none.write_text("this is no model")
        for file in (broken, none):
            self.opened([file])
            error = document("inspect", file, status=2)["error"]
            self.assertTrue(self.browser.evaluate("document.getElementById('model').hidden"))
            self.assertIn(error["message"], self.text("#failed-text") + "not a model file" * (file is none))
            self.assertIn(file.name, self.text("#failed"))
        self.opened([DIGITS_ST])
        self.check(DIGITS_ST)
        whole = self.path("damaged.stele")
        succeed("convert", DIGITS_ST, whole)
        place = document("inspect", whole)["tensors"][1]
        content = bytearray(whole.read_bytes())
        content[place["offset"]] ^= 1
        whole.write_bytes(content)
        self.opened([whole])
        self.browser.evaluate("document.getElementById('statistics').click()")
        self.browser.wait("document.getElementById('busy').hidden")
        self.assertEqual({row["name"]: row["flags"] for row in self.table() if row["flags"]}, {place["name"]: "damaged"})

    def test_hostile_names(self):
        names = ["<img src=x onerror=document.title=1>", "</script><script>document.title=1</script>", "\u202eabc", "a\\.b", "\x1b[31m", "'\"><b>"]
        file = self.path("<img src=x onerror=document.title=1>.safetensors")
        safetensors(file, {n: ("F32", [1], floats(1)) for n in names}, {"<b>k": "<img src=x onerror=document.title=1>"})
        self.opened([file])
        shown = [n.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b") for n in (t["name"] + " (tied)" * t.get("tied", False) for t in document("inspect", file)["tensors"])]
        self.assertEqual([row["name"] for row in self.table()], shown)
        for i in range(len(names)):
            self.browser.evaluate(f"document.querySelectorAll('#tensors .row')[{i}].click()")
            self.browser.wait("document.getElementById('busy').hidden")
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img, #model b:not(.card b), #model script').length"), 0)
        self.assertNotEqual(self.browser.evaluate("document.title"), "1")
        self.assertEqual(self.text("#title"), file.name)

    def test_folder(self):
        folder = self.path("model")
        folder.mkdir()
        names = [f"layers.{i}.weight" for i in range(6)]
        for part in range(2):
            safetensors(folder / f"model-0000{part + 1}-of-00002.safetensors",
                        {n: ("BF16", [4, 4], bytes(range(32))) for n in names[part::2]})
        (folder / "model.safetensors.index.json").write_text(json.dumps({
            "metadata": {"total_size": 6 * 32}, "weight_map": {n: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, n in enumerate(names)}}))
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        self.opened([folder], "#folder")
        self.check(folder)
        self.assertEqual(self.text("#title"), "model")

    def test_url(self):
        file = self.files / "a b.safetensors"
        content = b"\1" * (40 << 20)
        safetensors(file, {"big": ("U8", [len(content)], content), "small": ("F32", [2], floats(1, 2))})
        self.browser.evaluate(f"document.getElementById('url').value = {json.dumps(self.server.url + 'files/a%20b.safetensors')}, document.getElementById('by-url').requestSubmit()")
        self.browser.wait("!document.getElementById('model').hidden || !document.getElementById('failed').hidden")
        self.check(file)
        self.assertLess(self.server.sent[file.name], 1 << 20)
        self.browser.evaluate("document.querySelectorAll('#tensors .row')[1].click()")
        self.browser.wait("document.querySelector('.values')")
        self.assertEqual(self.text(".values").split(), ["1", "2"])
        self.assertLess(self.server.sent[file.name], 2 << 20)
        self.browser.go(self.server.url + "viewer/index.html?again#url=" + self.server.url + "files/a%20b.safetensors")
        self.browser.wait("!document.getElementById('model').hidden")

    def failure(self, url):
        self.browser.evaluate(f"document.getElementById('url').value = {json.dumps(url)}, document.getElementById('by-url').requestSubmit()")
        self.browser.wait("!document.getElementById('failed').hidden")
        text = self.text("#failed-text")
        self.browser.evaluate("document.getElementById('failed').hidden = true")
        self.browser.events.clear()  # Chromium logs every refused request
        return text

    def test_urls_that_cannot_be_read(self):
        file = self.files / "ranges.safetensors"
        safetensors(file, {"x": ("F32", [2], floats(1, 2))})
        self.assertIn("no such file", self.failure(self.server.url + "files/none.safetensors"))
        whole = Server({"viewer": VIEWER, "files": self.files}, ranges=False)
        try:
            self.assertIn("(CORS)", self.failure(whole.url + "files/ranges.safetensors"))
            self.server.ranges = False
            self.assertIn("without ranges", self.failure(self.server.url + "files/ranges.safetensors"))
        finally:
            self.server.ranges = True
            whole.close()

    def test_the_npm_package_in_a_browser(self):
        package = self.files / "package"
        subprocess.run([ROOT / "packaging/npm/pack.py", VIEWER / "stele.wasm", package], check=True)
        (self.files / "page.html").write_text("<!doctype html><title>a page</title>")
        (self.files / "digits.safetensors").write_bytes(DIGITS_ST.read_bytes())
        self.browser.go(self.server.url + "files/page.html")
        found = self.browser.evaluate("""(async () => {
          const {open, SteleError} = await import('./package/browser.js');
          const bytes = await (await fetch('digits.safetensors')).arrayBuffer();
          const out = {};
          for (const [key, source] of Object.entries({url: 'digits.safetensors', bytes: new Uint8Array(bytes), file: new File([bytes], 'digits.safetensors')})) {
            const model = await open(source);
            out[key] = {names: model.tensors.map((t) => t.name), hash: await model.hash(), first: Array.from(await model.tensors[0].read({count: 4}))};
            model.close();
          }
          out.error = await open(new Uint8Array([1, 2, 3])).catch((error) => error instanceof SteleError && error.code);
          return out;
        })()""")
        expected = {"names": [t["name"] for t in document("inspect", DIGITS_ST)["tensors"]], "hash": document("hash", DIGITS_ST)["files"][0]["digest"],
                    "first": list(struct.unpack("<4f", DIGITS_ST.read_bytes()[document("inspect", DIGITS_ST)["tensors"][0]["offset"]:][:16]))}
        self.assertIn(found.pop("error"), ("bad_magic", "unsupported", "truncated"))
        self.assertEqual(found, {"url": expected, "bytes": expected, "file": expected})

    def test_differences(self):
        a = safetensors(self.path("a.safetensors"), {"x": ("F32", [2], floats(1, 2)), "y": ("F32", [2], floats(1, 2)),
                                                     "s": ("F32", [2], floats(1, 2)), "gone": ("F32", [1], floats(1))}, {"k": "1"})
        b = safetensors(self.path("b.safetensors"), {"x": ("F32", [2], floats(1, 2.5)), "y": ("F32", [2], floats(1, 2)),
                                                     "s": ("F32", [1, 2], floats(1, 2)), "new": ("F32", [1], floats(1))}, {"k": "2"})
        self.opened([a])
        self.browser.evaluate("HTMLInputElement.prototype.click = () => {}, document.getElementById('compare').click()")
        self.browser.choose("#file", [b])
        self.browser.wait("document.documentElement.dataset.compared === '1'")
        found = document("diff", a, b, status=1)
        rows = self.table("differences")
        self.assertEqual([(r["name"], r["difference"], r["A"], r["B"]) for r in rows],
                         [(d["name"], d["kind"], d["a"], d["b"]) for d in found["differences"]])
        self.assertEqual([r["max |a-b|"] for r in rows if r["name"] == "x"], ["0.5"])
        self.assertIn(f"{found['equal_tensors']} of {found['tensors']} common tensors are equal", self.text("#diff-sum"))
        self.browser.choose("#file", [a])
        self.browser.wait("document.documentElement.dataset.compared === '2'")
        self.assertIn("Equal to a.safetensors", self.text("#diff-sum"))

    def test_a_file_of_five_gigabytes(self):
        st = self.path("large.safetensors")
        safetensors(st, {f"layers.{i}.w": ("F32", [1024, 1280, 1024], None) for i in range(1)} | {"last": ("F32", [4], floats(1, 2, 3, 4))})
        gguf = self.path("large.gguf")
        shape = [1024, 1280, 1024]

        def text(word):
            return struct.pack("<Q", len(word)) + word.encode()

        size = 4 * math.prod(shape)
        head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
        head += text("layers.w") + struct.pack("<I3QIQ", 3, *shape, 0, 0) + text("last") + struct.pack("<IQIQ", 1, 4, 0, size)
        head += bytes(-len(head) % 32)
        with open(gguf, "wb") as file:
            file.write(head)
            file.seek(size, os.SEEK_CUR)
            file.write(floats(1, 2, 3, 4))
        for file in (st, gguf):
            self.assertGreater(file.stat().st_size, 5 << 30)
            self.opened([file])  # compiles the module
            seconds = self.opened([file])
            self.check(file)
            self.browser.evaluate("[...document.querySelectorAll('#tensors .row')].find((r) => r.textContent.startsWith('last')).click()")
            self.browser.wait("document.querySelector('.values')")
            self.assertEqual(self.text(".values").split(), ["1", "2", "3", "4"])
            read, memory = (int(self.browser.evaluate(f"document.documentElement.dataset.{key}")) for key in ("read", "memory"))
            print(f"\n{file.name}: opened in {seconds:.2f} s, read {read / 1024:.0f} KiB, memory of the module {memory / 2**20:.1f} MiB", file=sys.stderr)
            self.assertLess(seconds, 1)
            self.assertLess(read, 4 << 20)
            self.assertLess(memory, 100 << 20)
        self.browser.evaluate("[...document.querySelectorAll('#tensors .row')].find((r) => r.textContent.startsWith('layers')).click()")
        self.browser.wait("document.getElementById('progress').hasAttribute('value')")
        self.browser.evaluate("document.getElementById('cancel').click()")
        self.browser.evaluate("[...document.querySelectorAll('#tensors .row')].find((r) => r.textContent.startsWith('last')).click()")
        self.browser.wait("document.getElementById('busy').hidden && document.querySelector('.values')", 5)

    def test_a_hundred_thousand_tensors(self):
        count = 100_000
        file = self.path("many.safetensors")
        safetensors(file, {f"model.{i // 1000}.{i % 1000}.w": ("F32", [1], None) for i in range(count)})
        self.opened([file])
        self.assertEqual(self.text("#count"), "100,000 tensors")
        self.assertLess(self.browser.evaluate("document.querySelectorAll('#tensors .row').length"), 200)
        slowest = self.browser.evaluate("""(async () => {
          const element = document.getElementById('tensors');
          let slowest = 0;
          for (let i = 0; i < 60; ++i) {
            const began = performance.now();
            element.scrollTop = i * 40000;
            await new Promise(requestAnimationFrame);
            slowest = Math.max(slowest, performance.now() - began);
          }
          return slowest;
        })()""")
        print(f"\n100,000 tensors: the slowest of 60 jumps took {slowest:.0f} ms", file=sys.stderr)
        self.assertLess(slowest, 500)
        self.browser.evaluate("document.getElementById('search').value = '77.123.', document.getElementById('search').dispatchEvent(new Event('input'))")
        self.browser.wait("document.getElementById('count').textContent === '1 of 100,000 tensors'")

    def test_widths(self):
        """No page is wider than its window; with PICTURES, writes pictures there."""
        file = self.model()
        changed = self.path("tiny-gpt-tuned.safetensors")
        succeed("convert", file, changed, "--precision", "bf16")
        for width, height in ((1280, 900), (390, 844)):
            for dark in (False, True):
                self.browser.look(width, height, dark)
                self.browser.go(self.server.url + f"viewer/index.html?{width}{dark}")
                self.picture(f"start-{width}-{'dark' if dark else 'light'}")
                self.opened([file])
                self.browser.evaluate("document.getElementById('statistics').click()")
                self.browser.wait("document.getElementById('busy').hidden")
                self.picture(f"model-{width}-{'dark' if dark else 'light'}")
                self.browser.evaluate("document.querySelectorAll('#tensors .row')[2].click()")
                self.browser.wait("document.getElementById('busy').hidden")
                self.browser.evaluate("document.querySelector('.panes').scrollIntoView()")
                self.picture(f"tensor-{width}-{'dark' if dark else 'light'}")
                self.browser.evaluate("document.getElementById('detail-close').click(), HTMLInputElement.prototype.click = () => {}, document.getElementById('compare').click(), scrollTo(0, 0)")
                self.browser.choose("#file", [changed])
                self.browser.wait("document.documentElement.dataset.compared === '1'")
                self.picture(f"diff-{width}-{'dark' if dark else 'light'}")

    def model(self):
        import random
        chance = random.Random(3)
        tensors = {"tok_embeddings.weight": ("F16", [512, 64])}
        for i in range(6):
            for name, shape in {"attn.q_proj.weight": [64, 64], "attn.k_proj.weight": [64, 64], "attn.v_proj.weight": [64, 64], "attn.o_proj.weight": [64, 64],
                                "mlp.up.weight": [192, 64], "mlp.down.weight": [64, 192], "norm.weight": [64], "norm.bias": [64]}.items():
                tensors[f"layers.{i}.{name}"] = ("F32" if "norm" in name else "BF16", shape)
        tensors["head.weight"] = ("F32", [512, 64])
        content = {}
        for index, (name, (dtype, shape)) in enumerate(tensors.items()):
            numbers = [chance.gauss(0, .05 + .002 * index) if "bias" not in name else 0.0 for _ in range(math.prod(shape))]
            if name == "layers.4.mlp.up.weight":
                numbers[7] = math.nan
            content[name] = (dtype, shape, struct.pack(f"<{len(numbers)}e", *numbers) if dtype == "F16" else floats(*numbers) if dtype == "F32"
                             else b"".join(floats(x)[2:] for x in numbers))
        return safetensors(self.path("tiny-gpt.safetensors"), content,
                           {"format": "pt", "license": "apache-2.0", "trained_with": "1,250 steps of 64 sequences"})

    def picture(self, name):
        widths = self.browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(widths[0], widths[1], name)
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(Path(PICTURES) / f"{name}.png")


if __name__ == "__main__":
    unittest.main()
