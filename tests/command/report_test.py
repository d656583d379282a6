"""The pages of `stele report`: their numbers without script, and what the script makes of them in a browser."""

import html.parser
import json
import math
import os
import re
import shutil
import statistics
import struct
import subprocess
import unittest

from support import DIGITS_ST, InFolder, document, floats, run, safetensors, succeed

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(html.parser.HTMLParser):
    """Collects the rows of the tables, and the tags and attributes."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.tags, self.references = {}, [], []
        self.rows, self.cell = None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        attributes = dict(attributes)
        self.references += [value for key, value in attributes.items() if key in ("src", "href", "action", "background")]
        if tag == "table":
            self.rows = self.tables.setdefault(attributes.get("id", "metadata"), [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data


class Report(InFolder):
    def page(self, *files, status=0):
        out = self.path("page.html")
        self.assertEqual(run("report", *files, "-o", out)[0], status)
        text = out.read_text(encoding="utf-8")
        page = Page(text)
        self.assertEqual(page.references, [])
        self.assertEqual(re.findall(r"https?:|@import|url\(", text), [])
        self.assertIn("default-src 'none'", text)
        return page

    def in_browser(self, page, script="", width=1280):
        """Return the result of `script`, which follows those of the page. A window has 500 pixels at least, so a narrower one is a frame."""
        if BROWSER is None:
            self.assertFalse(os.environ.get("STELE_NEVER_SKIP"), "chromium is missing")
            self.skipTest("chromium is missing: make report-test")
        file = self.path("driven.html")
        driver = ("<script>window.onerror = (m) => { document.documentElement.dataset.error = m; };</script>",
                  f"<script>document.documentElement.dataset.result = JSON.stringify((() => {{ {script} }})() ?? null);"
                  "if (parent !== window) parent.postMessage({...document.documentElement.dataset}, '*');</script>")
        text = page.read_text(encoding="utf-8")
        file.write_text(text.replace("<head>", "<head>" + driver[0]).replace("</body>", driver[1] + "</body>"), encoding="utf-8")
        if width < 500:
            frame, file = file, self.path("frame.html")
            file.write_text("<!doctype html><html><script>onmessage = (m) => Object.assign(document.documentElement.dataset, m.data);</script>"
                            f"<iframe src={frame.name} width={width} height=800 style='border: 0'></iframe></html>", encoding="utf-8")
        done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                               f"--window-size={max(width, 500)},1600",
                               f"--user-data-dir={self.path('profile')}", "--virtual-time-budget=5000", "--dump-dom", f"file://{file}"],
                              capture_output=True, timeout=200, text=True)
        root = re.search(r"<html[^>]*>", done.stdout)
        self.assertIsNotNone(root, done.stderr[-2000:])
        self.assertIn('data-ready="1"', root[0])
        self.assertNotIn("data-error", root[0])
        return json.loads(html.unescape(re.search(r'data-result="([^"]*)"', root[0])[1]))

    def test_numbers_without_script(self):
        page = self.page(DIGITS_ST)
        rows = {row[0]: row for row in page.tables["tensors"][1:]}
        content = DIGITS_ST.read_bytes()
        tensors = document("inspect", DIGITS_ST)["tensors"]
        self.assertEqual(set(rows), {t["name"] for t in tensors})
        for tensor in tensors:
            numbers = struct.unpack(f"<{tensor['elements']}f", content[tensor["offset"]:tensor["offset"] + tensor["bytes"]])
            row = rows[tensor["name"]]
            self.assertEqual(row[1], "f32")
            self.assertEqual(row[3], f"{tensor['bytes']:,}")
            expected = (min(numbers), max(numbers), statistics.fmean(numbers), statistics.pstdev(numbers),
                        math.sqrt(math.fsum(x * x for x in numbers)))
            for text, number in zip(row[5:10], expected):
                self.assertTrue(math.isclose(float(text), number, rel_tol=1e-5, abs_tol=1e-9), (tensor["name"], text, number))
            self.assertEqual(page.tags.count("svg"), len(tensors))

    def test_histogram(self):
        file = safetensors(self.path("h.safetensors"), {"x": ("F32", [4], floats(0, 0, 0, 48))})
        out = self.path("h.html")
        succeed("report", file, "-o", out)
        path = re.search(r'<path d="([^"]*)"', out.read_text())[1]
        self.assertEqual(path, "M0 20V0h2V20" + "h2" * 46 + "V13h2V20z")

    def test_flags_and_checksums(self):
        file = safetensors(self.path("f.safetensors"), {"nan": ("F32", [2], floats(math.nan, 1)), "zero": ("F32", [2], floats(0, 0)),
                                                        "fine": ("F32", [2], floats(0, 1)), "inf": ("F32", [2], floats(1, -math.inf))})
        rows = {row[0]: row for row in self.page(file).tables["tensors"][1:]}
        self.assertEqual({name: row[-1] for name, row in rows.items()}, {"nan": "1 NaN", "zero": "all zero", "fine": "", "inf": "1 inf"})
        self.assertEqual({row[-2] for row in rows.values()}, {"none"})
        whole = self.path("whole.stele")
        succeed("convert", file, whole)
        rows = self.page(whole).tables["tensors"][1:]
        self.assertEqual({row[-2] for row in rows}, {"checked"})
        place = next(t for t in document("inspect", whole)["tensors"] if t["name"] == "fine")
        content = bytearray(whole.read_bytes())
        content[place["offset"]] ^= 1
        whole.write_bytes(content)
        rows = {row[0]: row for row in self.page(whole, status=1).tables["tensors"][1:]}
        self.assertTrue(rows["fine"][-1].startswith("damaged: checksum"), rows["fine"])
        self.assertEqual(rows["zero"][-2], "checked")

    def test_differences(self):
        a = safetensors(self.path("a.safetensors"), {"x": ("F32", [2], floats(1, 2)), "y": ("F32", [2], floats(1, 2)),
                                                     "s": ("F32", [2], floats(1, 2)), "gone": ("F32", [1], floats(1))})
        b = safetensors(self.path("b.safetensors"), {"x": ("F32", [2], floats(1, 2.5)), "y": ("F32", [2], floats(1, 2)),
                                                     "s": ("F32", [1, 2], floats(1, 2)), "new": ("F32", [1], floats(1))})
        rows = {row[0]: row[1:] for row in self.page(a, b).tables["differences"][1:]}
        self.assertEqual({name: row[0] for name, row in rows.items()}, {"x": "values", "s": "shape", "gone": "only in A", "new": "only in B"})
        self.assertEqual(rows["x"][3:5] + rows["x"][6:], ["0.5", "0.2", "50%"])
        self.assertNotIn("differences", self.page(a, a).tables)

    def test_flags_of_the_second_file(self):
        flags = {"nan": (math.nan, 1), "zero": (0, 0), "inf": (1, math.inf), "fine": (1, 2)}
        old = {n: ("F32", [2], floats(1, 2)) for n in flags} | {"gone": ("F32", [2], floats(0, 0)), "both": ("F32", [2], floats(0, 0)),
                                                               "shape": ("F32", [2], floats(1, 2))}
        new = {n: ("F32", [2], floats(*numbers)) for n, numbers in flags.items()}
        new |= {"fresh": ("F32", [2], floats(math.nan, math.nan)), "both": ("F32", [2], floats(math.nan, 0)), "shape": ("F32", [1, 2], floats(0, 0))}
        a, b = safetensors(self.path("old.safetensors"), old), safetensors(self.path("new.safetensors"), new)
        page = self.page(a, b)
        self.assertEqual({row[0]: row[-1] for row in page.tables["tensors"][1:]},
                         {"nan": "B: 1 NaN", "zero": "B: all zero", "inf": "B: 1 inf", "fine": "", "gone": "all zero",
                          "both": "all zero; B: 1 NaN", "shape": "B: all zero"})
        rows = {row[0]: row[1:] for row in page.tables["differences"][1:]}
        self.assertEqual(rows["fresh"][2], "f32 [2] 2 NaN")
        self.assertEqual(rows["nan"][3:6], ["nan", "nan", "nan"])
        self.assertEqual(rows["inf"][3:6], ["inf", "inf", "inf"])
        out = self.path("page.html")
        self.assertEqual(document("report", a, b, "-o", out)["flagged"], 7)
        self.assertEqual(document("report", b, a, "-o", out)["flagged"], 7)
        self.assertEqual(document("report", b, b, "-o", out)["flagged"], 6)
        whole = self.path("whole.stele")
        succeed("convert", b, whole)
        place = next(t for t in document("inspect", whole)["tensors"] if t["name"] == "fine")
        content = bytearray(whole.read_bytes())
        content[place["offset"]] ^= 1
        whole.write_bytes(content)
        rows = {row[0]: row[-1] for row in self.page(a, whole, status=1).tables["tensors"][1:]}
        self.assertEqual((rows["fine"], rows["nan"]), ("B: damaged", "B: 1 NaN"))

    def test_hostile_names(self):
        names = ["<script>alert(1)</script>", "</script><b>", "\x1b[31m", "\"><img src=x onerror=alert(1)>", "a&b", "'", "\u202e"]
        file = safetensors(self.path("</title>.safetensors".replace("/", "")), {n: ("F32", [1], floats(1)) for n in names},
                           {"<b>": "</table><script>x</script>"})
        page = self.page(file)
        self.assertEqual(page.tags.count("script"), 2)
        self.assertEqual(page.tags.count("img"), 0)
        found = {row[0] for row in page.tables["tensors"][1:]}
        self.assertEqual(found, {n.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") for n in names})
        cells = self.in_browser(self.path("page.html"), "return document.querySelectorAll('#treemap div').length;")
        self.assertEqual(cells, len(names))

    def test_in_a_browser(self):
        self.page(DIGITS_ST)
        found = self.in_browser(self.path("page.html"), """
            const rows = () => [...document.querySelectorAll('#tensors tbody tr.on')].map((r) => r.cells[0].textContent);
            const heads = [...document.querySelectorAll('#tensors th')];
            const out = {all: rows().length};
            heads[3].click(); out.largest = rows()[0];
            heads[3].click(); out.smallest = rows()[0];
            heads[0].click(); heads[0].click(); out.first = rows()[0];
            out.cells = [...document.querySelectorAll('#treemap div')].map((c) => c.title);
            const hidden = [...document.querySelectorAll('#treemap div')].find((c) => c.title.startsWith('hidden:'));
            hidden.click();
            out.zoomed = rows(); out.crumbs = [...document.querySelectorAll('#path button')].map((b) => b.textContent);
            out.inside = [...document.querySelectorAll('#treemap div')].every((c) => c.offsetLeft >= 0 && c.offsetWidth > 0);
            return out;""")
        self.assertEqual(found["all"], 7)
        self.assertEqual((found["largest"], found["smallest"], found["first"]), ("hidden.0.weight", "head.bias", "head.bias"))
        self.assertIn("hidden: 18.2 KiB", found["cells"])
        self.assertIn("hidden.0.weight: 12.0 KiB", found["cells"])
        self.assertEqual(sorted(found["zoomed"]), ["hidden.0.bias", "hidden.0.weight", "hidden.1.weight"])
        self.assertEqual(found["crumbs"], ["all", "hidden"])
        self.assertTrue(found["inside"])

    def wide(self):
        """Return two files whose tables have long cells."""
        names = [f"model.language_model.layers.{i}.self_attn.q_proj.weight" for i in range(5)]
        numbers = floats(-4.09145e-05, -1.23456e-10, 3.33333e+10, math.nan)
        a = self.path("a.stele")
        succeed("convert", safetensors(self.path("a.safetensors"), {n: ("F32", [1, 1, 2, 2], numbers) for n in names}, {"k": "z" * 500}), a)
        b = safetensors(self.path("b.safetensors"), {n: ("F32", [4], floats(1, 2, 3, i)) if i == 1 else ("F32", [1, 1, 2, 2], floats(1e-7, 2, 3, i))
                                                     for i, n in enumerate(names)})
        content = bytearray(a.read_bytes())
        content[document("inspect", a)["tensors"][0]["offset"]] ^= 1
        a.write_bytes(content)
        return a, b

    def test_a_page_of_1280_pixels_does_not_scroll(self):
        scroll_bar = 15
        self.page(*self.wide(), status=1)
        found = self.in_browser(self.path("page.html"), """
            return {window: innerWidth, page: document.documentElement.scrollWidth,
                    tables: [...document.querySelectorAll('.scroll')].map((e) => e.scrollWidth - e.clientWidth)};""", 1280 - scroll_bar)
        self.assertEqual(found, {"window": 1280 - scroll_bar, "page": 1280 - scroll_bar, "tables": [0, 0, 0]})

    def test_a_narrow_page_has_cards(self):
        self.page(*self.wide(), status=1)
        found = self.in_browser(self.path("page.html"), """
            const label = (cell) => getComputedStyle(cell, '::before').content.replace(/"/g, '');
            const card = (row) => Object.fromEntries([...row.cells].filter((c) => c.offsetWidth > 0).map((c) => [label(c), c.textContent]));
            const titles = (table) => [...document.querySelectorAll(`#${table} th`)].map((h) => h.textContent);
            const labels = (table) => [...document.querySelector(`#${table} tbody tr`).cells].map(label);
            return {page: document.documentElement.scrollWidth, cards: [...document.querySelectorAll('#tensors tbody tr')].map(card),
                    inside: [...document.querySelectorAll('td, .card, #scale')].every((c) => c.getBoundingClientRect().right <= 390),
                    titles: ['tensors', 'differences'].map(titles), labels: ['tensors', 'differences'].map(labels)};""", 390)
        self.assertEqual((found["page"], found["inside"]), (390, True))
        self.assertEqual([labels[1:] for labels in found["labels"]], [titles[1:] for titles in found["titles"]])
        card = found["cards"][1]
        self.assertEqual((card["dtype"], card["shape"], card["min"], card["max"]), ("f32", "[1, 1, 2, 2]", "-4.09145e-05", "3.33333e+10"))
        self.assertEqual(card["flags"], "1 NaN")

    def test_the_scale_of_differences(self):
        def f16(*numbers):
            return struct.pack(f"<{len(numbers)}e", *numbers)

        numbers = (1, -0.333, 1e-5, 0.7)
        tensors = {"equal": (("F32", floats(*numbers)),) * 2, "rounded": (("F32", floats(*numbers)), ("F16", f16(*numbers))),
                   "back": (("BF16", b"".join(floats(x)[2:] for x in numbers)), ("F32", floats(*numbers))),
                   "step": (("F32", floats(*numbers)), ("F32", floats(1 + 2 ** -23, *numbers[1:]))),
                   "steps": (("F32", floats(*numbers)), ("F32", floats(1 + 2 ** -20, *numbers[1:]))),
                   "some": (("F32", floats(*numbers)), ("F32", floats(1.01, *numbers[1:]))),
                   "large": (("F32", floats(*numbers)), ("F32", floats(3, *numbers[1:]))),
                   "nan": (("F32", floats(*numbers)), ("F32", floats(math.nan, *numbers[1:]))),
                   "whole": (("I32", struct.pack("<4i", 100, 2, 3, 4)), ("I32", struct.pack("<4i", 100, 2, 3, 5))),
                   "zero": (("F32", floats(0, 0, 0, 0)), ("F32", floats(0, 0, 0, 1e-9)))}
        a, b = (safetensors(self.path(f"{side}.safetensors"), {n: (t[i][0], [4], t[i][1]) for n, t in tensors.items()})
                for i, side in enumerate("ab"))
        self.page(a, b)
        text = self.path("page.html").read_text()
        levels = {name: float(level) for level, name in re.findall(r"<tr[^>]* data-l=(\S+)><td class=n>(\w+)<", text)}
        self.assertEqual({n for n, level in levels.items() if level == 0}, {"equal", "rounded", "back", "step"})
        self.assertEqual({n for n, level in levels.items() if level == 1}, {"large", "nan", "zero"})
        self.assertTrue(0 < levels["steps"] < 0.2 < levels["some"] < 0.8, levels)
        self.assertTrue(0 < levels["whole"] < 1)
        colours = self.in_browser(self.path("page.html"), """
            const map = Object.fromEntries([...document.querySelectorAll('#treemap div')].map((c) => [c.title.split(':')[0], c.style.background]));
            map.same = getComputedStyle(document.querySelector('#scale .same')).backgroundColor;
            map.red = getComputedStyle(document.querySelector('#scale .ramp')).backgroundImage;
            map.titles = [...document.querySelectorAll('#treemap div')].map((c) => c.title);
            return map;""")
        self.assertEqual({colours[n] for n in ("equal", "rounded", "back", "step")}, {colours["same"]})
        self.assertIn(colours["large"], colours["red"])
        self.assertNotIn(colours["some"], (colours["same"], colours["large"]))
        self.assertIn("some: 16 B, differs by up to 1% of the largest number", colours["titles"])
        self.page(a)
        self.assertNotIn("id=scale", self.path("page.html").read_text())

    def test_twenty_thousand_tensors(self):
        tensors = {f"model.{i // 100}.{i % 100}.w": ("F32", [4], floats(i, 0, 1, 2)) for i in range(20001)}
        file = safetensors(self.path("many.safetensors"), tensors)
        self.assertEqual(len(self.page(file).tables["tensors"]), 20002)
        self.assertLess(self.path("page.html").stat().st_size, 32 << 20)
        found = self.in_browser(self.path("page.html"), """
            const rows = () => document.querySelectorAll('#tensors tbody tr.on').length;
            const out = {first: rows()};
            document.getElementById('more').click(); out.more = rows();
            out.count = document.getElementById('count').textContent;
            out.cells = document.querySelectorAll('#treemap div').length;
            return out;""")
        self.assertEqual((found["first"], found["more"], found["count"]), (300, 600, "20001 tensors"))
        self.assertGreater(found["cells"], 100)


if __name__ == "__main__":
    unittest.main()
