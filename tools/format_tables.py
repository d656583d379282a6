#!/usr/bin/env python3
"""Make the tables and the list of formats in README.md and docs/ from recorders/*/format.cpp, as `stele formats --json` lists them.

    format_tables.py STELE           writes the tables
    format_tables.py STELE --check   fails if a page is not up to date
"""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the formats hold that README.md lists in one row.
SMALL = "parameters: only read"


def table(titles, rows):
    return f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def joined(rows):
    """Return the rows of README.md, with one row for all small formats."""
    small = [row for row in rows if row[-1] == SMALL]
    if len(small) < 2:
        return rows
    cells = [separator.join(column) for separator, column in zip((", ", ", ", "; "), zip(*small))]
    return [row for row in rows if row[-1] != SMALL] + [[*cells, SMALL]]


def links(families):
    """Return the list of docs/index.md: the pages of other programs' formats."""
    own = {"stele", "json", "archive"}
    listed = [f"[{family['title']}](formats/{family['folder']}.md)" for family in families if family["folder"] not in own]
    listed.sort(key=str.lower)
    return "".join(f"{line}\n" for line in textwrap.wrap(" · ".join(listed), 118, break_long_words=False, break_on_hyphens=False))


def main() -> int:
    listed = subprocess.run([sys.argv[1], "formats", "--json"], check=True, capture_output=True).stdout
    families = json.loads(listed)["families"]

    def rows(docs):
        """Return the cells of each family, whose links begin in `docs`."""
        for family in families:
            classes = ", ".join(f"`{name}`" for name in family["recorders"])
            header = f"`stele/{family['header']}`"
            holds = re.sub(r"\]\((?!http)", f"]({docs}", family["holds"])
            yield {"format": f"[{family['title']}]({docs}formats/{family['folder']}.md)", "class": classes, "header": header,
                   "target": f"`stele::recorder_{family['folder']}`", "files": family["files"], "holds": holds}

    pages = {"docs/index.md": ("", ()), "README.md": ("docs/", ("format", "class", "files", "holds")),
             "docs/comparisons.md": ("", ("format", "class", "header", "files", "holds")),
             "docs/guide/install.md": ("../", ("target", "class", "header"))}
    status = 0
    for name, (docs, columns) in pages.items():
        page = ROOT / name
        before = page.read_text(encoding="utf-8")
        cells = [[row[column] for column in columns] for row in rows(docs)]
        made = table(columns, joined(cells) if name == "README.md" else cells) if columns else links(families)
        after, count = re.subn(r"(<!-- formats: tools/format_tables.py -->\n).*?(?=<!-- end -->)", lambda m: m[1] + made, before, flags=re.S)
        if count != 1:
            sys.exit(f"{name} has no place for the table")
        if after == before:
            continue
        if sys.argv[2:] == ["--check"]:
            print(f"{name} is not up to date: run tools/format_tables.py")
            status = 1
        else:
            page.write_text(after, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
