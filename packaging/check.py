#!/usr/bin/env python3
"""Checks recipes without their package managers: packaging/check.py FOLDER, a folder that packaging/fill.py wrote.

vcpkg.json against the documented rules of vcpkg's manifests; the formats and the packages of every recipe against the
CMakeLists.txt of the components; conanfile.py and package.py, which run with substitutes for Conan and for Spack's
directives; recipe.yaml, which py-rattler-build renders. With --quick, only what Python's own modules can check, which
`make test` runs on packaging/ itself. With --write, writes the lists of formats into the recipes in packaging/ and
CMakePresets.json first.
"""
import glob
import json
import os
import re
import sys
import types

import fill

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
problems = []
QUICK = "--quick" in sys.argv
# The packages that a component names in its CMakeLists.txt, by the names of the package managers.
MANAGERS = ("vcpkg", "conan", "spack", "homebrew", "nix", "conda", "debian")
NAMES = {
    "SteleBoost": ("boost-pfr", "boost", "boost", "boost", "boost", "libboost-headers", "libboost1.81-dev"),
    "xxHash": ("xxhash", "xxhash", "xxhash", "xxhash", "xxhash", "xxhash", "libxxhash-dev"),
    "hwy": ("highway", "highway", "highway", "highway", "libhwy", "libhwy", "libhwy-dev"),
    "re2": ("re2", "re2", "re2", "re2", "re2", "re2", "libre2-dev"),
    "zstd": ("zstd", "zstd", "zstd", "zstd", "zstd", "zstd", "libzstd-dev"),
    "ZLIB": ("zlib", "zlib", "zlib-api", "zlib", "zlib", "zlib", "zlib1g-dev"),
    "libdeflate": ("libdeflate", "libdeflate", "libdeflate", "libdeflate", "libdeflate", "libdeflate", "libdeflate-dev"),
    "Protobuf": ("protobuf", "protobuf", "protobuf", "protobuf", "protobuf", "libprotobuf", "libprotobuf-dev"),
    "CURL": ("curl", "libcurl", "curl", "curl", "curl", "libcurl", "libcurl4-openssl-dev"),
    "OpenSSL": ("openssl", "openssl", "openssl", "openssl@3", "openssl", "openssl", "libssl-dev"),
    "flatbuffers": ("flatbuffers", "flatbuffers", "flatbuffers", "flatbuffers", "flatbuffers", "flatbuffers", "libflatbuffers-dev"),
    "CLI11": ("cli11", "cli11", "cli11", "cli11", "cli11", "cli11", "libcli11-dev"),
    "Threads": (None,) * len(MANAGERS),
}
COMMAND = {"CLI11"}


def expect(condition, message):
    if not condition:
        problems.append(message)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def components():
    """Returns the needs of each component, from its line stele_component(NAME ...): other components and packages."""
    needs = {}
    for path in [file for depth in ("*", "*/*") for file in glob.glob(os.path.join(TREE, depth, "CMakeLists.txt"))]:
        if os.path.relpath(path, TREE).split(os.sep)[0] in ("build", "tests"):
            continue
        for name, rest in re.findall(r"^\s*stele_component\((\w+)([^)]*)\)", read(path), re.MULTILINE):
            words = rest.split()
            packages = words[words.index("PACKAGES") + 1:] if "PACKAGES" in words else []
            needs[name] = {word.removeprefix("stele_") for word in words if word.startswith("stele_")} | set(packages)
    return needs


COMPONENTS = components()
FORMATS = sorted(name.removeprefix("recorder_") for name in COMPONENTS if name.startswith("recorder_"))


def packages_of(name, seen=None):
    """Returns the packages that a component needs with all components below it."""
    seen = set() if seen is None else seen
    if name in seen:
        return set()
    seen.add(name)
    own = {name} if name in NAMES else set()
    return own.union(*(packages_of(need, seen) for need in COMPONENTS.get(name, ())))


BASE = packages_of("core")
ALL = set().union(*map(packages_of, COMPONENTS))


def wanted(manager, packages):
    names = {NAMES[package][MANAGERS.index(manager)] for package in packages}
    return names - {None}


def check_formats(where, formats):
    expect(sorted(formats) == FORMATS, f"{where}: expected the formats {', '.join(FORMATS)}; found {', '.join(sorted(formats))}")


def check_packages(where, manager, expected, found):
    expected = wanted(manager, expected)
    expect(expected == set(found), f"{where}: expected {', '.join(sorted(expected))}; found {', '.join(sorted(found))}")


def write():
    """Writes every list of formats that follows from the components."""
    def packages(manager, name):
        return wanted(manager, packages_of("recorder_" + name) - BASE)

    def change(path, pattern, make):
        text = read(TREE, path)
        made, count = re.subn(pattern, lambda found: found[1] + make(found) + found[2], text, flags=re.DOTALL)
        expect(count, f"{path}: has no place for the formats")
        with open(os.path.join(TREE, path), "w", encoding="utf-8") as file:
            file.write(made)

    change("CMakePresets.json", r'("name": "libcxx".*?"STELE_FORMATS": ")[^"]*(")', lambda _: ";".join(FORMATS))
    change("packaging/conan/all/conanfile.py", r"(\nFORMATS = \{\n).*?(\})", lambda _: "".join(
        f'    "{name}": {json.dumps(sorted(packages("conan", name)))},\n' for name in FORMATS))
    change("packaging/spack/package.py", r'(\("all",\),\n            \(\n).*?(            \),)', lambda _: "".join(
        f'                "{name}",\n' for name in FORMATS))
    change("packaging/spack/package.py", r'(    for formats in \()[^)]*(\):\n        depends_on\("([a-z-]+))', lambda found: ", ".join(
        f'"{name}"' for name in ["all", *(name for name in FORMATS if found[3] in packages("spack", name))]))
    portfile = read(TREE, "packaging/vcpkg/stele/portfile.cmake")
    features = set(" ".join(re.findall(r"list\(APPEND formats ([a-z0-9 ]+)\)", portfile)).split())
    change("packaging/vcpkg/stele/portfile.cmake", r"(\nset\(formats )[a-z0-9 ]+(\)\n)",
           lambda _: " ".join(name for name in FORMATS if name not in features))


def tree(_):
    """Every package of a component has a row of NAMES, and every format a place in the lists of the tree."""
    folders = sorted(name for name in os.listdir(os.path.join(TREE, "recorders")) if name != "any")
    expect(folders == FORMATS, f"recorders/: {folders} are the folders, {FORMATS} the components")
    named = set().union(*COMPONENTS.values()) - set(COMPONENTS) - {"private"}
    expect(named <= set(NAMES) | {"boost"}, f"packaging/check.py: NAMES lacks {', '.join(sorted(named - set(NAMES) - {'boost'}))}")
    problems.extend(fill.missing())
    version = fill.version()
    newest = re.search(r"^## (\S+)", read(TREE, "CHANGELOG.md"), re.MULTILINE).group(1)
    expect(newest == version, f"CHANGELOG.md: expected a section {version} at the top; found {newest}")
    for page in [os.path.join(TREE, "README.md"), *glob.glob(os.path.join(TREE, "docs", "**", "*.md"), recursive=True)]:
        for name, found in re.findall(r"\b(find_package\(stele |libstele(?:\.so\.)?|stele-)(\d[\d.]*\d)", read(page)):
            expected = version if name == "stele-" else version.rpartition(".")[0]
            expect(found == expected, f"{page}: {name}{found} for version {version}")
    for preset in json.loads(read(TREE, "CMakePresets.json"))["configurePresets"]:
        formats = preset.get("cacheVariables", {}).get("STELE_FORMATS")
        if formats and preset["name"] not in ("demo", "bare", "wasm"):  # which have a few
            check_formats(f"CMakePresets.json: {preset['name']}", formats.split(";"))


# learn.microsoft.com/vcpkg/reference/vcpkg-json; `vcpkg format-manifest` sorts names, and `vcpkg ci-verify` expects that.
def vcpkg(folder):
    where = "vcpkg.json"
    manifest = json.loads(read(folder, "vcpkg/stele/vcpkg.json"))
    identifier = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
    known = {"name", "version", "description", "homepage", "license", "supports", "dependencies", "default-features", "features"}
    expect(set(manifest) <= known, f"{where}: unknown fields {set(manifest) - known}")
    expect(re.fullmatch(r"\d+(\.\d+)*", manifest["version"].replace("@VERSION@", fill.version())), f"{where}: bad version")
    features = manifest["features"]
    expect(set(manifest["default-features"]) <= set(features), f"{where}: a default feature does not exist")

    def dependencies(place, listed):
        names = []
        for entry in listed:
            entry = {"name": entry} if isinstance(entry, str) else entry
            expect(set(entry) <= {"name", "host", "default-features", "features"}, f"{where}: {place}: unknown fields in {entry}")
            expect(identifier.fullmatch(entry["name"]), f"{where}: {place}: bad name {entry['name']}")
            if entry["name"] == manifest["name"]:
                expect(set(entry["features"]) <= set(features), f"{where}: {place}: unknown feature in {entry['features']}")
            names.append((entry["name"], entry.get("host", False)))
        expect(names == sorted(set(names)), f"{where}: {place}: dependencies are not sorted")

    dependencies("dependencies", manifest["dependencies"])
    expect(list(features) == sorted(features), f"{where}: features are not sorted")
    for name, feature in features.items():
        expect(identifier.fullmatch(name) and set(feature) == {"description", "dependencies"}, f"{where}: feature {name}")
        dependencies(name, feature["dependencies"])

    # Every format is selected by one of the features, which has the packages that its formats need.
    portfile = read(folder, "vcpkg/stele/portfile.cmake")
    groups = {"": re.search(r"^set\(formats ([a-z0-9 ]+)\)", portfile, re.MULTILINE).group(1)}
    groups |= re.findall(r'^if\("([a-z0-9-]+)" IN_LIST FEATURES\)\n +list\(APPEND formats ([a-z0-9 ]+)\)', portfile, re.MULTILINE)
    check_formats("portfile.cmake", " ".join(groups.values()).split())
    tools = {"vcpkg-cmake", "vcpkg-cmake-config", "boost-describe", "boost-mp11", "stele"}

    def names(listed):
        return {entry if isinstance(entry, str) else entry["name"] for entry in listed} - tools

    for feature, formats in groups.items():
        listed = features[feature]["dependencies"] if feature else manifest["dependencies"]
        needed = set().union(*(packages_of("recorder_" + name) for name in formats.split()))
        check_packages(f"{where}: feature {feature or 'core'}", "vcpkg", needed - BASE if feature else needed, names(listed))
    every = names(manifest["dependencies"]).union(*(names(feature["dependencies"]) for feature in features.values()))
    check_packages(f"{where}: all", "vcpkg", ALL | COMMAND, every)
    inner = next(entry for entry in features["all"]["dependencies"] if not isinstance(entry, str) and entry["name"] == "stele")
    expect(set(inner["features"]) == set(groups) - {""}, f"{where}: feature all has the features {inner['features']}")


def substitutes(**modules):
    """Makes modules with these members importable, `a__b` as a.b; they stay for the rest of the run."""
    for name, members in modules.items():
        name = name.replace("__", ".")
        for end in (i for i, character in enumerate(name) if character == "."):
            sys.modules.setdefault(name[:end], types.ModuleType(name[:end]))
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)


def conan(folder):
    def nothing(*_, **__):
        return None

    class ConanFile:
        def requires(self, reference, **_):
            self.required.append(reference.split("/")[0])

        tool_requires = requires

    substitutes(conan={"ConanFile": ConanFile}, conan__errors={"ConanInvalidConfiguration": ValueError},
                conan__tools__build={"check_min_cppstd": nothing},
                conan__tools__cmake=dict.fromkeys(("CMake", "CMakeDeps", "CMakeToolchain", "cmake_layout"), nothing),
                conan__tools__files=dict.fromkeys(("copy", "get", "load", "rmdir", "save"), nothing))
    scope = {}
    exec(compile(read(folder, "conan/all/conanfile.py"), "conanfile.py", "exec"), scope)
    check_formats("conanfile.py", scope["FORMATS"])
    system = re.findall(r'^    "([a-z0-9]+)": \(', read(HERE, "conan/system/conanfile.py"), re.MULTILINE)
    for formats, command in [*((name, False) for name in FORMATS), ("all", False), ("all", True)]:
        where = f"conanfile.py: formats={formats}, command={command}"
        recipe = scope["SteleConan"]()
        recipe.options = types.SimpleNamespace(formats=formats, command=command)
        recipe.required = []
        recipe.requirements()
        expected = (ALL if formats == "all" else packages_of("recorder_" + formats)) | (COMMAND if command else set())
        expect(len(recipe.required) == len(set(recipe.required)), f"{where}: required twice: {recipe.required}")
        check_packages(where, "conan", expected, recipe.required)
        expect(set(recipe.required) <= set(system), f"conan/system/conanfile.py lacks {set(recipe.required) - set(system)}")
        linked = recipe._required_packages()
        expect(set(linked) == expected - {"flatbuffers", "CLI11", "Threads"}, f"{where}: shared: {linked}")
        expect(set(linked) <= set(scope["REQUIRED_COMPONENTS"]), f"{where}: REQUIRED_COMPONENTS lacks some of {linked}")


class Directive:
    """Accepts every call, use as a context, and attribute."""

    calls = []

    def __init__(self, name):
        self.name = name

    def __call__(self, *arguments, **named):
        Directive.calls.append((self.name, arguments, named))
        return self

    def __getattr__(self, name):
        return Directive(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def spack(folder):
    names = "license version variant depends_on conflicts when disjoint_sets".split()
    cmake_package = type("CMakePackage", (), {
        "define": staticmethod(lambda name, value: (name, value)),
        "define_from_variant": staticmethod(lambda name, variant: (name, variant))})
    directives = {name: Directive(name) for name in names}
    substitutes(spack__package=directives | {"__all__": names},
                spack_repo__builtin__build_systems__cmake={"CMakePackage": cmake_package})
    scope = {}
    exec(compile(read(folder, "spack/package.py"), "package.py", "exec"), scope)
    calls = {name: [(arguments, named) for called, arguments, named in Directive.calls if called == name] for name in names}
    sha256 = [named["sha256"] for _, named in calls["version"] if "sha256" in named]
    expect(len(sha256) == 1 and re.fullmatch("[0-9a-f]{64}", sha256[0]), f"package.py: sha256 {sha256}")
    check_formats("package.py", calls["disjoint_sets"][0][0][1])
    # A dependency without a condition belongs to every choice. `with when(...)` is the last call before those it governs.
    base, chosen, within = set(), {name: set() for name in ["all", *FORMATS]}, None
    for called, arguments, named in Directive.calls:
        if called == "when":
            within = arguments[0]
        elif called == "depends_on":
            name, condition = re.match("[a-z0-9-]+", arguments[0]).group(), named.get("when", within)
            if name in ("cxx", "cmake"):
                continue
            if condition is None:
                base.add(name)
            elif condition.startswith("formats="):
                chosen.setdefault(condition.removeprefix("formats="), set()).add(name)
            else:
                expect(condition == "+command" and name in wanted("spack", COMMAND), f"package.py: {name} has when={condition}")
    for name, found in chosen.items():
        check_packages(f"package.py: formats={name}", "spack", ALL if name == "all" else packages_of("recorder_" + name), base | found)
    for choice in (("all",), ("gguf", "safetensors")):
        package = scope["Stele"]()
        package.spec = types.SimpleNamespace(satisfies=lambda _: True, variants={"formats": types.SimpleNamespace(value=choice)})
        options = dict(package.cmake_args())
        expect(options.get("STELE_FORMATS", ["all"]) == list(choice), f"package.py: {choice} became {options}")


def conda(folder):
    import rattler_build

    recipe = rattler_build.Stage0Recipe.from_file(os.path.join(folder, "conda/recipe.yaml"))
    variants = rattler_build.VariantConfig.from_yaml(
        "cxx_compiler: [gxx]\ncxx_compiler_version: ['14']\nc_stdlib: [sysroot]\nc_stdlib_version: ['2.28']\n")
    for system, outputs in (("linux-64", ["libstele", "stele"]), ("osx-arm64", ["libstele", "stele"]), ("win-64", [])):
        platform = rattler_build.PlatformConfig(target_platform=system, build_platform=system, host_platform=system)
        rendered = recipe.render(variants, rattler_build.RenderConfig(platform=platform))
        found = [output.recipe.package.name for output in rendered]
        expect(found == outputs, f"recipe.yaml on {system}: expected {outputs}, found {found}")


def others(folder):
    """The recipes that always build all formats name every package."""
    for manager, name, pattern in (("homebrew", "homebrew/stele.rb", r'^ +(?:depends_on|uses_from_macos) "{}"'),
                                   ("nix", "nix/package.nix", r"^    {}$|propagatedBuildInputs = \[ {} \]"),
                                   ("conda", "conda/recipe.yaml", r"^        - {}( |$)"), ("debian", "debian/control", r"^ {}\b")):
        text = read(folder, name)
        for package in sorted(wanted(manager, ALL | COMMAND)):
            expect(re.search(pattern.replace("{}", re.escape(package)), text, re.MULTILINE), f"{name}: {package} is missing")


if "--write" in sys.argv:
    write()
for check in (tree, vcpkg, conan, spack, others) + (() if QUICK else (conda,)):
    check(sys.argv[1])
    print(f"{check.__name__}: checked")
if problems:
    sys.exit("\n".join(problems))
