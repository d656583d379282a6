#!/usr/bin/env python3
"""Checks recipes without their package managers: packaging/check.py FOLDER, a folder that packaging/fill.py wrote.

vcpkg.json against the documented rules of vcpkg's manifests; Conan's, Spack's and vcpkg's formats against recorders/;
package.py, which runs with a substitute for Spack's directives; recipe.yaml, which py-rattler-build renders.
"""
import json
import os
import re
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
FORMATS = sorted(name for name in os.listdir(os.path.join(TREE, "recorders")) if name != "any")
problems = []


def expect(condition, message):
    if not condition:
        problems.append(message)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def check_formats(where, formats):
    expect(sorted(formats) == FORMATS, f"{where}: expected the formats {', '.join(FORMATS)}; found {', '.join(sorted(formats))}")


# learn.microsoft.com/vcpkg/reference/vcpkg-json; `vcpkg format-manifest` sorts names, and `vcpkg ci-verify` expects that.
def vcpkg(folder):
    where = "vcpkg.json"
    manifest = json.loads(read(folder, "vcpkg/stele/vcpkg.json"))
    identifier = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
    known = {"name", "version", "description", "homepage", "license", "supports", "dependencies", "default-features", "features"}
    expect(set(manifest) <= known, f"{where}: unknown fields {set(manifest) - known}")
    expect(re.fullmatch(r"\d+(\.\d+)*", manifest["version"]), f"{where}: bad version")
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

    # Every format is selected by one of the features.
    named = re.findall(r"(?:set\(formats|APPEND formats) ([a-z0-9 ]+)\)", read(folder, "vcpkg/stele/portfile.cmake"))
    check_formats("portfile.cmake", " ".join(named).split())


def conan(folder):
    table = re.search(r"^FORMATS = ({.*?^})", read(folder, "conan/all/conanfile.py"), re.MULTILINE | re.DOTALL).group(1)
    check_formats("conanfile.py", eval(table, {}))


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
    directives = types.ModuleType("spack.package")
    directives.__dict__.update({name: Directive(name) for name in names}, __all__=names)
    cmake = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    cmake.CMakePackage = type("CMakePackage", (), {
        "define": staticmethod(lambda name, value: (name, value)),
        "define_from_variant": staticmethod(lambda name, variant: (name, variant))})
    modules = {"spack.package": directives, cmake.__name__: cmake}
    for name in list(modules):
        for end in (i for i, character in enumerate(name) if character == "."):
            modules.setdefault(name[:end], types.ModuleType(name[:end]))
    sys.modules.update(modules)
    scope = {}
    exec(compile(read(folder, "spack/package.py"), "package.py", "exec"), scope)
    calls = {name: [(arguments, named) for called, arguments, named in Directive.calls if called == name] for name in names}
    sha256 = [named["sha256"] for _, named in calls["version"] if "sha256" in named]
    expect(len(sha256) == 1 and re.fullmatch("[0-9a-f]{64}", sha256[0]), f"package.py: sha256 {sha256}")
    check_formats("package.py", calls["disjoint_sets"][0][0][1])
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


for check in (vcpkg, conan, spack, conda):
    check(sys.argv[1])
    print(f"{check.__name__}: checked")
if problems:
    sys.exit("\n".join(problems))
