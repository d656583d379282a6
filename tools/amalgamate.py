#!/usr/bin/env python3
"""Writes the library as two files, stele.hpp and stele.cpp, which need no other file and no library.

Usage: tools/amalgamate.py [--formats "stele;safetensors;gguf;numpy;json"] [--out build/amalgamation]

The sources are those that CMake compiles for these formats; CMake's file API lists them. Own headers appear once. Of Boost,
Highway and xxHash, the headers that are reached appear, each library after its license. Boost's names get a prefix, so that
a program may use any Boost of its own. The standard library alone.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORMATS = "stele;safetensors;gguf;numpy;json"
SYSTEMS = ("linux", "macos", "portable", "posix", "windows")  # folders of src/io/os

# Headers of stele.hpp besides stele/stele.hpp and those of the recorders. None needs another library.
PUBLIC = ("bundle", "composite", "delta", "layout", "optimizer_state", "quantize", "quantized")

# Each inlined library: how includes of it begin, its license, what comes before it, and what no compiler reaches then.
BOOST = ("Boost (Describe, Mp11, PFR)", re.compile(r"boost/"), "BSL-1.0.txt", "", None)
HIGHWAY = ("Highway", re.compile(r"hwy/"), "Apache-2.0.txt", "#define HWY_COMPILE_ONLY_SCALAR\n",
           re.compile(r"hwy/(foreach_target\.h|ops/(?!scalar|shared|set_macros|generic_ops).*)"))
XXHASH = ("xxHash", re.compile(r"xxh"), None, "#define XXH_INLINE_ALL\n", re.compile(r"xxh_x86dispatch\.h"))
LIBRARIES = (BOOST, XXHASH, HIGHWAY)

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")
# Boost.Describe's macro for enumerations, which a program may use.
BOOST_MORE = ("boost/describe/enum.hpp",)
# Of libraries that are neither inlined nor optional.
OTHERS = re.compile(r"(flatbuffers|google|re2|curl|openssl)/")

HEAD_HPP = """\
// stele {version}: makes records of a model's own classes; saves and loads them. Formats: {formats}.
//
// These are two files, which tools/amalgamate.py makes of stele's sources. Include stele.hpp, compile stele.cpp as C++20 and
// link it; they need no other file and no library. They compile without exceptions and without RTTI, too (-fno-exceptions,
// -fno-rtti), for Linux, macOS, Windows and other systems with POSIX's files.
//
// Macros, for stele.cpp (-D STELE_ZSTD=1):
//   STELE_ZSTD     1: compressed `.stele` files and `.json.zst`; needs zstd.h, link with -lzstd. Default 0: opening or
//                  saving them returns Errc::unsupported
//   STELE_ZLIB     1: deflated entries of .npz files, and `.json.gz`; needs zlib.h and libdeflate.h, link with -lz -ldeflate.
//                  Default 0: reading or saving them returns Errc::unsupported
//   STELE_THREADS  0: one thread, no locks. Default: 1 if the C++ library has threads
//   STELE_MMAP     0: reads files instead of mapping them. Default: 1 if the system has maps
//
// Parts of other projects, each after its license: Boost.Describe, Boost.Mp11 and Boost.PFR, in stele.hpp; xxHash, Highway
// and the grids of ggml's block types, in stele.cpp. The namespace of this Boost is stele_boost, and its macros begin with
// STELE_BOOST_ (STELE_BOOST_DESCRIBE_STRUCT), so that a program may use any Boost of its own; classes and enumerations that
// BOOST_DESCRIBE_STRUCT and BOOST_DESCRIBE_ENUM of that Boost describe are found, too.
//
{license}
#pragma once
"""

HEAD_CPP = """\
// The sources of stele {version}, for stele.hpp, which describes the macros. Made by tools/amalgamate.py.
//
{license}
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64  // files beyond 2 GiB on 32-bit systems
#endif
// Blocks of quantized weights have equal bits on every machine. For all functions alike: g++ inlines none of other options.
#if defined(__FP_FAST_FMA) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#elif defined(__clang__)
#pragma clang fp contract(off)
#endif
#include "stele.hpp"

#ifndef STELE_ZSTD
#define STELE_ZSTD 0
#endif
#ifndef STELE_ZLIB
#define STELE_ZLIB 0
#endif
#ifndef STELE_THREADS
#if (defined(__GLIBCXX__) && !defined(_GLIBCXX_HAS_GTHREADS)) || defined(_LIBCPP_HAS_NO_THREADS) || defined(__wasi__)
#define STELE_THREADS 0
#endif
#endif
#ifndef STELE_MMAP
#if !defined(_WIN32) && !__has_include(<sys/mman.h>)
#define STELE_MMAP 0
#endif
#endif
#define STELE_STATIC_LIBRARIES
{defines}"""

QUIET = """
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#endif
"""
LOUD = """
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
"""


def configured(formats, folder):
    """Configures a build of these formats; returns the sources as (path, folders of headers), components in order."""
    build = folder / "cmake"
    query = build / ".cmake/api/v1/query"
    query.mkdir(parents=True, exist_ok=True)
    (query / "codemodel-v2").touch()
    off = [f"-DSTELE_{part}=OFF" for part in ("TESTS", "EXAMPLES", "COMMAND", "INSTALL")]
    subprocess.run(["cmake", "--log-level=WARNING", "-S", ROOT, "-B", build, f"-DSTELE_FORMATS={formats}", "-DSTELE_SYSTEM=linux",
                    "-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_re2=ON", "-DSTELE_DEV=OFF", *off], check=True,
                   stdout=subprocess.DEVNULL)
    reply = build / ".cmake/api/v1/reply"
    index = json.loads(max(reply.glob("index-*.json")).read_text())
    model = json.loads((reply / index["reply"]["codemodel-v2"]["jsonFile"]).read_text())
    targets = {t["id"]: t["jsonFile"] for t in model["configurations"][0]["targets"]}
    names = {t["name"]: t["id"] for t in model["configurations"][0]["targets"]}
    done, sources, defines = set(), [], set()

    def visit(identity):
        if identity in done:
            return
        done.add(identity)
        target = json.loads((reply / targets[identity]).read_text())
        for below in target.get("dependencies", []):
            visit(below["id"])
        for source in target["sources"]:
            if "compileGroupIndex" not in source:
                continue
            group = target["compileGroups"][source["compileGroupIndex"]]
            defines.update(d["define"] for d in group.get("defines", []) if d["define"].startswith("STELE_"))
            sources.append(((ROOT / source["path"]).resolve(), [Path(i["path"]) for i in group.get("includes", [])]))

    visit(names["stele_any"])
    return sources, sorted(defines)


def system_folders():
    """Returns the folders in which the compiler looks for headers."""
    said = subprocess.run(["c++", "-xc++", "-E", "-v", "/dev/null"], capture_output=True, text=True, check=True).stderr
    return [Path(line.strip()) for line in said.split("#include <...>")[1].split("End of search list")[0].splitlines()[1:]]


def library_of(name):
    return next((library for library in LIBRARIES if library[1].match(name)), None)


def unreached(library, name):
    return library[4] is not None and library[4].match(name) is not None


def public_headers(formats):
    """Returns the headers of stele.hpp: those of stele/stele.hpp, and of each format those that its sources include."""
    umbrella = re.findall(r'#include "(stele/[^"]+)"', (ROOT / "include/stele/stele.hpp").read_text())
    headers = [name for name in umbrella if "/recorders/" not in name] + ["stele/recorders/any.hpp"]
    for name in formats:
        text = "".join(path.read_text() for path in sorted((ROOT / "recorders" / name).glob("*.cpp")))
        headers += re.findall(r'#include "(stele/recorders/[^"]+)"', text)
    headers += [f"stele/{name}.hpp" for name in PUBLIC]
    return list(dict.fromkeys(headers))


class Joiner:
    """Joins sources and their headers."""

    def __init__(self, folders, guarded=()):
        self.folders = folders  # of the compiler
        self.guarded = guarded  # own headers that appear more than once
        self.times = {}
        self.reached = {library[0]: [] for library in LIBRARIES}
        self.done = set()  # what need not appear again at this place: paths of own headers, names of others
        self.outside = []  # for each condition that is open: what was done before it
        self.out = []

    def line(self, line):
        """Appends a line. What is included below a condition counts only there."""
        directive = CONDITION.match(line)
        word = directive.group(1) if directive else ""
        if word.startswith("if"):
            self.outside.append(set(self.done))
        elif word in ("else", "elif"):
            self.done = set(self.outside[-1])
        elif word == "endif":
            self.done = self.outside.pop()
        self.out.append(line if line.endswith("\n") else line + "\n")

    def find(self, name, folders):
        return next(((folder / name).resolve() for folder in folders if (folder / name).is_file()), None)

    def own(self, path, folders):
        """Appends an own source or header; what it includes appears in the places of the includes."""
        if path in self.done:
            return
        lines = path.read_text().splitlines(keepends=True)
        once = "#pragma once\n" in lines
        if once:
            self.done.add(path)
            self.times[path] = self.times.get(path, 0) + 1
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        guard = "STELE_ONE_" + re.sub(r"\W", "_", name.upper()) if path in self.guarded else None
        self.out.append(f"\n// ==== {name}\n" if "/cmake/" not in name else "")
        if guard:
            self.out.append(f"#ifndef {guard}\n#define {guard}\n")
        for line in lines:
            include = INCLUDE.match(line)
            if not include:
                if line != "#pragma once\n":
                    self.line(line)
                continue
            quoted, name = include.groups()
            library = library_of(name)
            if library:
                if not unreached(library, name) and name not in self.reached[library[0]]:
                    self.reached[library[0]].append(name)
                continue
            found = self.find(name, [path.parent, *folders] if quoted == '"' else folders)
            if found is not None and (quoted == '"' or found.is_relative_to(ROOT)):
                self.own(found, folders)
            elif (quoted == '"' and not name.startswith("stele/")) or OTHERS.match(name):  # stele/needs_cxx_20 exists nowhere
                sys.exit(f"{path}: {name} belongs to a library that cannot be inlined: leave its format out")
            elif name not in self.done:
                self.done.add(name)
                self.line(line)
        if guard:
            self.out.append("#endif\n")

    def text(self):
        return "".join(self.out)


def library_text(library, names, folders):
    """Returns the headers of a library that are reached from `names`, each once, with their guards, after its license."""
    name, _, license_file, before, _ = library
    out, done = [], set()

    def add(path):
        done.add(path)
        for line in path.read_text(errors="replace").splitlines():
            include = INCLUDE.match(line)
            if include and library_of(include.group(2)) is library:
                if not unreached(library, include.group(2)):
                    below = next(folder / include.group(2) for folder in [path.parent, *folders] if (folder / include.group(2)).is_file())
                    if below.resolve() not in done:
                        add(below.resolve())
            else:
                out.append(line.rstrip() + "\n")

    for first in names:
        path = next((folder / first for folder in folders if (folder / first).is_file()), None)
        if path is None:
            sys.exit(f"{first} of {name} is not installed")
        if path.resolve() not in done:
            add(path.resolve())
    text = "".join(out)
    license_text = (ROOT / "tools/licenses" / license_file).read_text() if license_file else None
    head = f"\n// ==== {name}{', with the prefix stele_' if library is BOOST else ''}\n"
    head += "".join(f"// {line}".rstrip() + "\n" for line in license_text.splitlines()) if license_text else ""
    return f"{head}{QUIET}{before}{text}{LOUD}"


def prefixed(text):
    """Returns the text with other names for Boost's namespaces and macros. Functions that Boost finds by their arguments,
    such as boost_enum_descriptor_fn, keep their names: so descriptions by the user's Boost are found, too."""
    text = re.sub(r"\bboost(?=::(describe|mp11|pfr)\b)", "stele_boost", text)
    text = re.sub(r"(?<=namespace )boost\b", "stele_boost", text)
    return re.sub(r"(?<!STELE_)BOOST_", "STELE_BOOST_", text)  # also in the middle of names, which macros join


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", default=FORMATS)
    parser.add_argument("--out", type=Path, default=ROOT / "build/amalgamation")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    formats = [f for f in arguments.formats.split(";") if f]
    sources, defines = configured(";".join(formats), arguments.out)
    folders = system_folders()
    for source, of_source in sources:
        folders += [f for f in of_source if f not in folders and not f.resolve().is_relative_to(ROOT / "src")]
    public = public_headers(formats)

    guarded = set()
    while True:
        header = Joiner(folders, guarded)
        for name in public:
            header.own(ROOT / "include" / name, [ROOT / "include"])
        body = Joiner(folders, guarded)
        body.done = set(header.done)
        body.times = header.times
        systems = {system: [] for system in SYSTEMS}
        for path, of_source in sources:
            system = re.search(r"/io/os/(\w+)/", str(path))
            if not system:
                body.own(path, of_source)
        for system in SYSTEMS:
            for path in sorted((ROOT / "src/io/os" / system).glob("*.cpp")):
                systems[system].append(path)
        core = next(of_source for path, of_source in sources if path.is_relative_to(ROOT / "src"))
        for line, system in (("#if defined(_WIN32)", "windows"), ("#else", "posix"), ("#if defined(__APPLE__)", "macos"),
                             ("#elif defined(__linux__)", "linux"), ("#else", "portable"), ("#endif", None), ("#endif", None)):
            body.line(line)
            for path in systems.get(system, []):
                body.own(path, core)
        again = {path for path, times in body.times.items() if times > 1}
        if again == guarded:
            break
        guarded = again
    boost = header.reached[BOOST[0]] + [n for n in body.reached[BOOST[0]] if n not in header.reached[BOOST[0]]]
    version = re.search(r'STELE_VERSION_STRING "(.*)"', (ROOT / "include/stele/config.hpp").read_text()).group(1)
    licenses = "".join(f"// {line}".rstrip() + "\n" for line in (ROOT / "LICENSE").read_text().splitlines())
    fields = {"version": version, "formats": ", ".join(formats), "license": licenses}
    hpp = HEAD_HPP.format(**fields) + prefixed(library_text(BOOST, [*boost, *BOOST_MORE], folders) + header.text())
    cpp = HEAD_CPP.format(**fields, defines="".join(f"#define {d.replace('=', ' ')}\n" for d in defines))
    for library in (XXHASH, HIGHWAY):
        cpp += library_text(library, body.reached[library[0]], folders)
    cpp += prefixed(body.text())
    for name, text in (("stele.hpp", hpp), ("stele.cpp", cpp)):
        (arguments.out / name).write_text(re.sub(r"\n{3,}", "\n\n", text))
        print(f"{arguments.out / name}: {len(text):,} bytes, {text.count(chr(10)):,} lines")


if __name__ == "__main__":
    main()
