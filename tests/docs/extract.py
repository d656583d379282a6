#!/usr/bin/env python3
"""Make sources of the ```cpp blocks in Markdown pages.

    extract.py ROOT FOLDER PAGE...

Writes FOLDER/<page>_<n>.cpp for block n of a page and prints a line `kind|name|source` for each, kind being `run` or
`compile`. The rules:

- A block with `int main` is a whole program and stays as it is.
- Any other block stands alone after prelude.hpp. Its includes, types, templates, functions, using and namespace lines
  stay at namespace scope, in their order; every other statement goes, in its order, into one function after them
  (`main` when the block is run). A model the page keeps using can be put into prelude.hpp under
  `#ifndef STELE_DOC_HAS_<Name>`; the macro is defined where the block itself defines a class of that name.
- A block whose first line is `// run` is linked and run too, in an empty folder; it must exit with 0.
- A block below the line `<!-- not compiled: reason -->` is left out.
"""

import re
import sys
from pathlib import Path

# A chunk that starts so belongs to namespace scope, whatever its end.
DECLARATION = re.compile(
    r"(#|template\b|struct\b|class\b|enum\b|union\b|namespace\b|using\b|typedef\b|static_assert\b|extern\b|inline\b|"
    r"BOOST_[A-Z_]+\s*\(|CEREAL_[A-Z_]+\s*\(|STELE_[A-Z_]+\s*\()")
# A chunk that ends with a body and starts so is a statement; any other that does is a function.
STATEMENT = re.compile(r"(if|for|while|do|switch|try|else|catch)\b|\{")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*|.', re.S | re.M)


def chunks(code: str):
    """Cut code at its top level, after `;`, after a closing brace that ends a body, and after a preprocessor line."""
    start, depth = 0, 0
    for token in TOKEN.finditer(code):
        text, end = token.group(), token.end()
        cut = False
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
            following = code[end:].lstrip()
            cut = (depth == 0 and text == "}" and not following.startswith((";", ",", ".", ")", "(", "[", "=", "<", "|"))
                   and not re.match(r"(else|catch|while)\b", following))
        elif depth == 0:
            cut = text == ";" or text.lstrip().startswith("#")
        if cut:
            yield start, code[start:end]
            start = end
    if code[start:].strip():
        yield start, code[start:]


def without_comments(code: str) -> str:
    return TOKEN.sub(lambda token: "" if token.group().startswith(("//", "/*")) else token.group(), code).strip()


def source_of(code: str, page: str, line: int, run: bool) -> str:
    def numbered(offset: int, text: str) -> str:
        return f'#line {line + code.count(chr(10), 0, offset)} "{page}"\n{text}\n'

    if re.search(r"^int main\b", code, re.MULTILINE):
        return numbered(0, code)
    outside, inside = [], []
    for offset, text in chunks(code):
        bare = without_comments(text)
        declares = DECLARATION.match(bare) or (bare.endswith("}") and not STATEMENT.match(bare))
        (outside if declares else inside).append(numbered(offset, text))
    defined = re.findall(r"^(?:struct|class) (\w+)[^;{]*\{", code, re.MULTILINE)
    head = "".join(f"#define STELE_DOC_HAS_{name}\n" for name in defined) + '#include "prelude.hpp"\n'
    function = "int main()" if run else "[[maybe_unused]] static void stele_doc_block()"
    return head + "".join(outside) + f"{function} {{\n" + "".join(inside) + "}\n"


def main() -> int:
    root, folder, *pages = sys.argv[1:]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(pages):
        page = Path(path).relative_to(root).as_posix()
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        number, at = 0, 0
        while at < len(lines):
            fence = re.match(r"\s*(```+)\s*(\S*)", lines[at])
            if not fence:
                at += 1
                continue
            end = at + 1
            while end < len(lines) and lines[end].strip() != fence[1]:
                end += 1
            if fence[2] in ("cpp", "c++"):
                number += 1
                above = next((text for text in reversed(lines[:at]) if text.strip()), "")
                if not re.match(r"\s*<!-- not compiled: .+ -->", above):
                    block = lines[at + 1:end]
                    run = bool(block) and block[0].strip() == "// run"
                    name = f"{page}:{number}"
                    file = out / (re.sub(r"\W", "_", page) + f"_{number}.cpp")
                    source = source_of("\n".join(block), page, at + 2, run)
                    if not file.exists() or file.read_text(encoding="utf-8") != source:
                        file.write_text(source, encoding="utf-8")
                    print(f"{'run' if run else 'compile'}|{name}|{file}")
            at = end + 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
