#!/usr/bin/env python3
"""Measures the compile time of save and load, relative to cereal's binary archive, in one run.

Usage: benchmarks/compile_time.py [COMPILER] [INCLUDE...]   (default: g++-12, ./include)

Compiles two programs for each library: 10 distinct modules of 10 fields, and 10 nested modules of 50 fields. Each
program saves every module to a file and loads it, in stele's binary format (with the header of that recorder, and with
that of all recorders) or in cereal's. Also compiles a source that includes stele/stele.hpp, and one that includes four
headers of the standard library. Prints ratios of the minimum of five user times.
"""
import os
import resource
import subprocess
import sys
import tempfile

from tables import table


def program(library, modules, fields, nested):
    """Returns the source of a program; `library` is cereal, or the stele header to include."""
    lines = ["#include <vector>", "using Vector = std::vector<float>;"]
    if library != "cereal":
        lines += [f"#include <{library}>"]
    else:
        lines += ["#include <cereal/archives/binary.hpp>", "#include <cereal/types/vector.hpp>", "#include <fstream>"]
    for m in range(modules):
        names = [f"f{m}_{f}" for f in range(fields)]
        lines += [f"class M{m} {{", " public:"]
        lines += [f"  M{m - 1} {n};" if nested and m and not i else f"  Vector {n};" for i, n in enumerate(names)]
        if library != "cereal":
            lines += [f"  STELE_MODULE(M{m}, {', '.join(names)})", "};"]
        else:
            lines += ["  template <class A>", f"  void serialize(A& a) {{ a({', '.join(names)}); }}", "};"]
    for m in [modules - 1] if nested else range(modules):
        if library != "cereal":
            lines += [f'bool save{m}(const M{m}& x) {{ return bool(stele::BinaryRecorder<>().save(x, "x.stele")); }}',
                      f'bool load{m}(M{m}& x) {{ return bool(stele::BinaryRecorder<>().load_into(x, "x.stele")); }}']
        else:
            lines += [f'void save{m}(const M{m}& x) {{ std::ofstream s("x"); cereal::BinaryOutputArchive a(s); a(x); }}',
                      f'void load{m}(M{m}& x) {{ std::ifstream s("x"); cereal::BinaryInputArchive a(s); a(x); }}']
    return "\n".join(lines) + "\n"


def seconds(command):
    best = 1e9
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, check=True)
        best = min(best, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return best


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "g++-12"
    includes = sys.argv[2:] or [os.path.join(os.path.dirname(__file__), "..", "include")]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, text):
            source = os.path.join(folder, name + ".cpp")
            with open(source, "w", encoding="utf-8") as file:
                file.write(text)
            return seconds([compiler, "-std=c++20", "-O2", *(f"-I{i}" for i in includes), "-c", source,
                            "-o", os.path.join(folder, "out.o")])

        for what, shape in (("10 modules x 10 fields", (10, 10, False)), ("10 nested x 50 fields", (10, 50, True))):
            cereal = compiled("cereal", program("cereal", *shape))
            for header in ("stele/recorders/binary.hpp", "stele/stele.hpp"):
                ratio = compiled("stele", program(header, *shape)) / cereal
                rows.append([f"save and load of {what}, `{header}`", "the same, `cereal/archives/binary.hpp`", f"{ratio:.2f}"])
        plain = "".join(f"#include <{name}>\n" for name in ("vector", "string", "memory", "optional"))
        ratio = compiled("include", "#include <stele/stele.hpp>\n") / compiled("plain", plain)
    rows.append(["`#include <stele/stele.hpp>`", "`<vector>`, `<string>`, `<memory>`, `<optional>`", f"{ratio:.2f}"])
    table(["compile time of", "relative to", "ratio"], rows)


if __name__ == "__main__":
    main()
