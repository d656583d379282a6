#!/usr/bin/env python3
"""Writes the npm package into a folder, for `npm pack`: packaging/npm/pack.py STELE_WASM OUT_FOLDER."""
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main():
    wasm, out = sys.argv[1], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    version = re.search(r'STELE_VERSION_STRING "([^"]*)"', (ROOT / "include/stele/config.hpp").read_text())[1]
    for file in [*HERE.glob("*.js"), HERE / "index.d.ts", HERE / "README.md", ROOT / "bindings/wasm/stele.js", ROOT / "LICENSE"]:
        shutil.copyfile(file, out / file.name)
    package = (HERE / "package.json").read_text().replace("@version@", version)
    (out / "package.json").write_text(package)
    shutil.copyfile(wasm, out / "stele.wasm")


main()
