#!/usr/bin/env python3
"""Changes readers and decoders in small ways and lists the changes that no test notices.

Usage: tools/mutants.py [--seed N] [--count N] [--near] [--list] [--only FILE:LINE:KIND] [--build FOLDER] FILE...

Each mutant is one change in one source: another comparison, operator or constant, a dropped check, swapped arguments, a
removed statement. It is compiled alone, with the source's headers precompiled, and linked, without optimization, with the
test sources that are about its folder (tests_of). A mutant is dead if a case fails, the program crashes, or it exceeds the
time or the memory that the unchanged source needs by far. Changes that do not compile, or compile to the same object, are not
counted. FOLDER is a build of the preset dev with all tests: build/mutants, which `make mutants` builds.

The same seed selects the same changes of an unchanged source. The table has one line a mutant.
"""
import argparse
import collections
import functools
import json
import os
import pathlib
import random
import re
import resource
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILER = "clang++-14"  # compiles a source in half of g++'s time
MEMORY = 8 << 30  # bytes of address space: a mutant that asks for all memory dies

# Test sources about a folder, below tests/, where their names do not follow from the folder's.
TESTS = {
    "src/passes/composites/": ["core/composites", "core/undecoded", "core/quantized"],
    "src/passes/delta/": ["core/delta", "core/updates", "checkpoints/step_deltas"],
    "deltas/": ["core/updates", "core/delta"],
    "encodings/gzip/": ["formats/burn/burn_gzip", "formats/json/json_compressed", "encodings/zip_", "core/model_zip"],
    "remote/": ["remote/"],
    "recorders/any/": ["core/front_door", "core/recorders", "core/saved_opens", "core/in_place", "core/recover"],
}
# Cases over all formats, and of what formats share.
SHARED = ["core/recorders", "core/saved_opens", "core/losses", "core/lazy", "core/damage", "core/model_folder", "core/derived_files"]


def users(encoding, seen):
    """Folders below tests/ of the formats that use an encoding, also through another one."""
    found = set()
    for source in sorted(ROOT.glob("encodings/**/*.[ch]pp")) + sorted(ROOT.glob("recorders/**/*.[ch]pp")):
        top, name = source.relative_to(ROOT).parts[:2]
        if (top, name) in seen or f'"encodings/{encoding}/' not in source.read_text():
            continue
        seen.add((top, name))
        found |= users(name, seen) if top == "encodings" else {f"formats/{name}/"}
    return found


@functools.lru_cache(None)
def tests_of(source):
    """Two lists of prefixes of test sources below tests/: those about the source, and those that use it."""
    top, name = pathlib.PurePath(source).parts[:2]
    near = next((tests for folder, tests in TESTS.items() if source.startswith(folder)), None)
    if near:
        return near, SHARED + ["formats/safetensors/", "checkpoints/"]
    if top != "encodings":
        return [f"formats/{name}/"], SHARED
    formats = sorted(users(name, {(top, name)}))
    own = f"encodings/{name.split('_')[0]}"
    return ([own], formats) if list(ROOT.glob(f"tests/{own}*")) else (formats, SHARED)


def blank(text):
    """The text with spaces for comments, literals and preprocessor lines: what is left can be changed."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'|^#(?:\\\n|[^\n])*'
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.S | re.M)


def closing(code, opened):
    """The place after the bracket that closes the one at `opened`."""
    depth = 0
    for place in range(opened, len(code)):
        depth += (code[place] in "({[") - (code[place] in ")}]")
        if depth == 0:
            return place + 1
    return len(code)


OPERATORS = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "logic": {"&&": "||", "||": "&&"},
    "arithmetic": {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "+=": "-=",
                   "-=": "+="},
}


def changes(text, rng):
    """All changes of a source: (kind, begin, end, replacement)."""
    code = blank(text)
    found = []
    for kind, pairs in OPERATORS.items():  # clang-format puts spaces around binary operators alone
        names = "|".join(map(re.escape, sorted(pairs, key=len, reverse=True)))
        found += [(kind, m.start(1), m.end(1), pairs[m[1]]) for m in re.finditer(rf"(?<=[\w)\]}}\" ]) ({names})(?=\s)", code)]
    found += [("negation", m.start(), m.end(), "") for m in re.finditer(r"!(?=[\w(])", code)]
    for m in re.finditer(r"(?<![\w.'])(0x[0-9a-fA-F]+|\d+)([uUlLzZ]*)(?![\w.'])", code):
        number = int(m[1], 0) + (1 if m[1] == "0" or rng.random() < 0.5 else -1)
        found.append(("constant", m.start(), m.end(), str(number) + m[2]))
    for m in re.finditer(r"^ +if \(", code, re.M):
        end = closing(code, m.end() - 1)
        body = re.compile(r" (?:return\b|continue;|break;|\{\s*return\b)").match(code, end)
        if body is None or text[m.end():].startswith("const"):
            continue
        found.append(("check", m.end(), end - 1, f"false && ({text[m.end():end - 1]})"))
    found += [("check", m.start(1), m.end(1), ";") for m in re.finditer(r"^ +(?:if \(.*\) )?(STELE_TRY\([^;{}]*\);)$", code, re.M)]
    for m in re.finditer(r"\w\(([\w.\->]+(?:\[\w+\])?), ([\w.\->]+(?:\[\w+\])?)(?=[,)])", code):
        found.append(("arguments", m.start(1), m.end(2), f"{text[m.start(2):m.end(2)]}, {text[m.start(1):m.end(1)]}"))
    statement = (r"^ +((?!return|using|const|case|break|else|STELE_|static|auto|if|for|while)"
                 r"[\w.\[\]>*()+\-]+(?:\(|\+\+|--| [-+|&^*/]?= )[^;{}]*;)$")
    found += [("statement", m.start(1), m.end(1), ";") for m in re.finditer(statement, code, re.M)]
    return sorted(set(found), key=lambda change: (change[1], change[2], change[0]))


def chosen(text, name, seed):
    """The changes of a source in the order in which they are tried: kinds in turn."""
    rng = random.Random(f"{seed} {name}")
    kinds = {}
    for change in changes(text, rng):
        kinds.setdefault(change[0], []).append(change)
    for found in kinds.values():
        rng.shuffle(found)
    order = sorted(kinds)
    rng.shuffle(order)
    while any(kinds.values()):
        for kind in order:
            if kinds[kind]:
                yield kinds[kind].pop()


class Build:
    """A build of the tests, from which mutants are compiled and linked."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.work = self.folder / "mutants"
        self.work.mkdir(exist_ok=True)
        self.units = json.loads((self.folder / "compile_commands.json").read_text())
        lines = subprocess.run(["ninja", "-t", "commands", "stele_tests"], cwd=self.folder, check=True, text=True,
                               capture_output=True).stdout.splitlines()
        link = next(line for line in reversed(lines) if " -o tests/stele_tests " in line)
        self.link = shlex.split(link.split("&&")[1].strip())

    def included(self, unit):
        """The sources of a unit: it, or those that it joins."""
        path = pathlib.Path(unit["file"])
        if not path.is_relative_to(self.folder):
            return [path]
        return [(path.parent / name).resolve() for name in re.findall(r'#include "(.*\.cpp)"', path.read_text())]

    def flags(self, source):
        """The options of a source that change its meaning."""
        unit = next((unit for unit in self.units if source in self.included(unit)), None)
        if unit is None:
            sys.exit(f"{source} is in no component of {self.folder}")
        flags = re.findall(r"(?:^| )(-isystem [^ ]+|-I[^ ]+|-D[^ ]+|-std=[^ ]+|-f[PV][^ ]+|-fvis[^ ]+)", unit["command"])
        return [COMPILER, "-O0", "-g0", "-w", "-iquote", str(source.parent)] + shlex.split(" ".join(flags))

    def compile(self, flags, source, out):
        return subprocess.run([*flags, "-c", str(source), "-o", str(out)], stderr=subprocess.DEVNULL).returncode == 0

    def link_tests(self, prefixes, objects, out):
        """A program of the tests whose sources begin with the prefixes. The first definition of a name is the one used."""
        tests = {str(ROOT / "tests" / prefix) for prefix in prefixes}
        units = {unit["output"] if "output" in unit else re.search(r" -o ([^ ]+)", unit["command"])[1]: unit for unit in self.units}
        command = [self.link[0], *map(str, objects), "-Wl,-z,muldefs", "-Wl,-S"]
        for word in self.link[1:]:
            unit = units.get(word)
            if unit and not any(path.name == "main.cpp" or str(path).startswith(tuple(tests)) for path in self.included(unit)):
                continue
            command.append(str(out) if word == "tests/stele_tests" else word)
        subprocess.run(command, cwd=self.folder, check=True)

    def run(self, program, prefixes, seconds, *filters):
        """Runs cases and returns the cause of death ("case", "crash", "time" or ""), the CPU seconds, and the output."""
        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        sources = ",".join(f"*tests/{prefix}*" for prefix in prefixes)
        command = [str(program), f"--source-file={sources}", "--abort-after=1", *filters]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = subprocess.run(command, cwd=self.work, preexec_fn=limit, capture_output=True, text=True, errors="replace",
                                  timeout=20 * seconds)
        except subprocess.TimeoutExpired:
            return "time", seconds, ""
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cause = "" if done.returncode == 0 else "time" if done.returncode < 0 and used >= seconds else "case"
        if done.returncode < 0 and not cause == "time" or "test case CRASHED" in done.stdout:
            cause = "crash"
        return cause, used, done.stdout

    @functools.lru_cache(None)
    def slow_cases(self, prefixes):
        """The filter of the slowest cases, which take nine tenths of the time, and the CPU seconds of the others and of all."""
        program = self.work / "unchanged"
        self.link_tests(prefixes, [], program)
        cause, used, output = self.run(program, prefixes, 600, "--duration")
        if cause:
            sys.exit(f"the tests {' '.join(prefixes)} fail: {cause}")
        cases = sorted(((float(time), case) for time, case in re.findall(r"^([0-9.]+) s: (.*)$", output, re.M)), reverse=True)
        total = left = sum(time for time, _ in cases)
        slow = []
        for seconds, case in cases:
            if left <= total / 10 or seconds < 0.1:
                break
            left -= seconds
            slow.append(case.replace(",", "?"))
        return ",".join(slow), used * left / total if total else 0, used


def judge(build, object_, source, all_cases):
    """The cause of a mutant's death: the fast cases about the source decide most, then come all others."""
    near, far = (tuple(tests) for tests in tests_of(source))
    program = build.work / "tests"
    slow, few, most = build.slow_cases(near)
    build.link_tests(near, [object_], program)
    cause = build.run(program, near, int(3 * few) + 3, *([f"--test-case-exclude={slow}"] if slow else []))[0]
    if not cause and slow:
        cause = build.run(program, near, int(3 * most) + 3, f"--test-case={slow}")[0]
    if not cause and all_cases:
        build.link_tests(far, [object_], program)
        cause = build.run(program, far, 300)[0]
    return cause


def mutants(build, name, arguments):
    """Compiles and runs the mutants of one source; returns the lines of the table."""
    source = ROOT / name
    text = source.read_text()
    header, pch, object_, copy = (build.work / file for file in ("mutant.hpp", "mutant.pch", "mutant.o", source.name))
    header.write_text("".join(re.findall(r"^#include .*\n", text, re.M)))
    flags = build.flags(source)
    subprocess.run([*flags, "-x", "c++-header", "-fpch-instantiate-templates", str(header), "-o", str(pch)], check=True)
    flags += ["-include-pch", str(pch)]
    copy.write_text(text)
    if not build.compile(flags, copy, object_):
        sys.exit(f"{name} does not compile alone")
    unchanged = object_.read_bytes()
    table = []
    for kind, begin, end, new in chosen(text, name, arguments.seed):
        place = f"{name}:{text.count(chr(10), 0, begin) + 1}:{kind}"
        if len(table) == arguments.count or (arguments.only and place not in arguments.only):
            continue
        copy.write_text(text[:begin] + new + text[end:])
        if build.compile(flags, copy, object_) and object_.read_bytes() != unchanged:
            change = " ".join(f"{text[begin:end]} -> {new or 'nothing'}".split())
            table.append(f"{judge(build, object_, name, arguments.far) or 'ALIVE'} | {place} | {change}")
            print(table[-1], flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="source, such as encodings/tar/read.cpp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5, help="mutants of each source")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--only", action="append", help="only the mutants with this place, as the table has it")
    parser.add_argument("--near", dest="far", action="store_false", help="run only the cases about the source")
    parser.add_argument("--list", action="store_true", help="list the changes and the tests of each source, and run none")
    arguments = parser.parse_args()
    if arguments.list:
        for name in arguments.files:
            text = (ROOT / name).read_text()
            print(f"{name}: {' '.join(tests_of(name)[0])} | {' '.join(tests_of(name)[1])}")
            for kind, begin, end, new in sorted(chosen(text, name, arguments.seed), key=lambda change: change[1]):
                print(f"  {text.count(chr(10), 0, begin) + 1} {kind}: {' '.join(text[begin:end].split())} -> {new or 'nothing'}")
        return
    build = Build(arguments.build)
    began = time.monotonic()
    table = [line for name in arguments.files for line in mutants(build, name, arguments)]
    causes = collections.Counter(line.split(" | ")[0] for line in table)
    alive = [line for line in table if line.startswith("ALIVE")]
    print(f"\n{len(table)} mutants:", ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items())), *alive, sep="\n")
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
