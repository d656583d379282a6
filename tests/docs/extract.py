#!/usr/bin/env python3
"""Make sources of the ```cpp blocks in Markdown pages.

    extract.py [--with LIBRARY] ROOT FOLDER PAGE...

Writes the sources to FOLDER and prints a line `kind|name|source` for each block. Blocks of kind `run` with one source
are one program, whose argument is the number of the block; a block of kind `alone` is a program, and one of kind
`compile` is only compiled. The rules:

- A block with `int main` is a whole program and stays as it is.
- Any other block follows prelude.hpp. Its includes come first. Its types, templates, functions, using and namespace
  lines stay at namespace scope, in their order; every other statement goes, in its order, into one function after them.
- A block whose first line is `// run` is linked and run too, in an empty folder; it must exit with 0. The blocks of a
  page that are run are compiled together, each in a namespace, except for those that open or specialise a namespace.
- A block below the line `<!-- not compiled: reason -->` is left out.
- A block below the line `<!-- compiled with LIBRARY -->` is left out, and all others are with --with LIBRARY: libtorch
  (make torch), MPI (make mpi).
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


# Code that must stay at global scope.
GLOBAL = re.compile(r"^\s*(namespace\b|template\s*<\s*>|CEREAL_)", re.M)


def source_of(code: str, page: str, line: int, function: str) -> tuple[str, str]:
    """Return the includes of a block, and the rest with its statements in a function."""
    def numbered(offset: int, text: str) -> str:
        return f'#line {line + code.count(chr(10), 0, offset)} "{page}"\n{text}\n'

    includes, outside, inside = [], [], []
    for offset, text in chunks(code):
        bare = without_comments(text)
        declares = DECLARATION.match(bare) or (bare.endswith("}") and not STATEMENT.match(bare))
        scope = includes if bare.startswith("#include") else outside if declares else inside
        scope.append(numbered(offset, text))
    return "".join(includes), "".join(outside) + f"{function} {{\n" + "".join(inside) + "}\n"


def write(file: Path, source: str) -> None:
    if not file.exists() or file.read_text(encoding="utf-8") != source:
        file.write_text(source, encoding="utf-8")


def main() -> int:
    library = sys.argv[2] if sys.argv[1] == "--with" else None
    root, folder, *pages = sys.argv[3 if library else 1:]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(pages):
        page = Path(path).relative_to(root).as_posix()
        stem = re.sub(r"\W", "_", page)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        number, at = 0, 0
        together = []  # (number, includes, rest)
        while at < len(lines):
            fence = re.match(r"\s*(```+)\s*(\S*)", lines[at])
            if not fence:
                at += 1
                continue
            end = at + 1
            while end < len(lines) and lines[end].strip() != fence[1]:
                end += 1
            above = next((text for text in reversed(lines[:at]) if text.strip()), "")
            if fence[2] in ("cpp", "c++"):
                number += 1
            needed = re.match(r"\s*<!-- compiled with (\w+) -->", above)
            skip = re.match(r"\s*<!-- not compiled: .+ -->", above) or (needed[1] if needed else None) != library
            if fence[2] in ("cpp", "c++") and not skip:
                block, line = lines[at + 1:end], at + 2
                code, run = "\n".join(block), bool(block) and block[0].strip() == "// run"
                whole = re.search(r"^int main\b", code, re.MULTILINE)
                if run and not whole and not GLOBAL.search(code):
                    together.append((number, *source_of(code, page, line, "int run()")))
                else:
                    function = "int main()" if run else "[[maybe_unused]] static void stele_doc_block()"
                    source = (f'#line {line} "{page}"\n{code}\n' if whole else
                              '#include "prelude.hpp"\n' + "".join(source_of(code, page, line, function)))
                    file = out / f"{stem}_{number}.cpp"
                    write(file, source)
                    print(f"{'alone' if run else 'compile'}|{page}:{number}|{file}")
            at = end + 1
        if together:
            source = '#include "prelude.hpp"\n' + "".join(includes for _, includes, _ in together)
            for number, _, rest in together:
                source += f"namespace block_{number} {{\n{rest[:-2]}return 0;\n}}\n}}\n"
            source += "int main(int, char** argv) {\n  switch (std::stoi(argv[1])) {\n"
            source += "".join(f"    case {number}: return block_{number}::run();\n" for number, _, _ in together)
            write(out / f"{stem}.cpp", source + "  }\n  return 1;\n}\n")
            for number, _, _ in together:
                print(f"run|{page}:{number}|{out / stem}.cpp")
    return 0


if __name__ == "__main__":
    sys.exit(main())
