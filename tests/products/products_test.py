"""Files of all products (comparison.py) that are committed: stele finds in each what the real program wrote."""

import json
import os
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "products")]
import test_data  # noqa: E402
import comparison  # noqa: E402

STELE = os.environ["STELE"]
DECLARED = sorted((ROOT / "tests").rglob("products.json"))


def proven(page):
    """Return the dimensions in a page's table of features that products prove: `| DIMENSION: values | … | products |`."""
    rows = re.findall(r"^\| *([^|]+?) *\|.*\| *([^|]*) *\|$", page, re.M)
    return {feature.split(":")[0] for feature, by in rows if "products" in by}


class Products(unittest.TestCase):
    maxDiff = None

    def test_files(self):
        self.assertGreater(len(DECLARED), 0)
        for path in DECLARED:
            product = json.loads(path.read_text(encoding="utf-8"))
            folder = test_data.root() / path.parent.relative_to(ROOT / "tests") / "data" / "products"
            cases = [case for case in product["cases"] if "file" in case]
            with self.subTest(product=path.parent.name):
                self.assertEqual(len(cases) > 0, product["files"] > 0)
                files = [folder / case["file"] for case in cases]
                results = comparison.found(STELE, files, product["compared"], product["decoded"])
                for case, (row, _, _) in zip(cases, results, strict=True):
                    wanted = {key: case[key] for key in case if key not in ("case", "file")}
                    self.assertEqual(wanted, row, f"{case['file']} {case['case']}")

    def test_pages(self):
        """Each dimension has a row in the table of features."""
        for path in DECLARED:
            product = json.loads(path.read_text(encoding="utf-8"))
            text = "\n".join((ROOT / "docs" / page).with_suffix(".md").read_text(encoding="utf-8") for page in product["pages"])
            missing = set(product["dimensions"]) - proven(text)
            self.assertEqual(missing, set(), f"{path}: no row of {product['pages']} is proven by products")


if __name__ == "__main__":
    unittest.main()
