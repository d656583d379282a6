#!/usr/bin/env python3
"""Writes the viewer: viewer/build.py STELE_WASM OUT_FOLDER. Makes index.html, of the files beside this one, and copies stele.wasm."""
import base64
import hashlib
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def text(*parts):
    return "".join((ROOT / part).read_text(encoding="utf-8") for part in parts)


def hashes(page, tag):
    """Return the sources of a Content-Security-Policy that allow the elements of the page, and nothing else."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in found)


def main():
    wasm, out = sys.argv[1], Path(sys.argv[2])
    worker = text("bindings/wasm/stele.js", "viewer/worker.js")
    assert "</script" not in worker
    page = text("viewer/index.html")
    for name, content in {"report.css": text("tools/stele/report.css"), "viewer.css": text("viewer/viewer.css"), "worker": worker,
                          "viewer.js": text("viewer/viewer.js")}.items():
        page = page.replace(f"@{name}@", content)
    page = page.replace("@style-hashes@", hashes(page, "style")).replace("@script-hashes@", hashes(page, "script"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(page, encoding="utf-8")
    shutil.copyfile(wasm, out / "stele.wasm")


main()
