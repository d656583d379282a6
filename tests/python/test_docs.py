"""The code blocks of docs/python.md and README.md run, one after the other, and print what their comments say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- needs: (\w+) -->\n)?```python\n(.*?)```", re.S)
PRINTED = re.compile(r"print\(.*\) +# (.*)$")


def blocks(page: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text()
    if page == "README.md":
        text = text.partition("## Python")[2].partition("\n## ")[0]
    return BLOCK.findall(text)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert found
    names: dict[str, object] = {}
    for needs, code in found:
        if needs:
            pytest.importorskip(needs)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, page, "exec"), names)  # noqa: S102
        said = [match[1].partition(": ")[0].strip() for line in code.splitlines() if (match := PRINTED.search(line.rstrip()))]
        printed = output.getvalue()
        for text in said:
            assert text in printed, f"{page}: a block prints {printed!r}, not {text!r}"
