import json
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, load, rmdir, save

required_conan_version = ">=2.4"

# The folders of recorders/, and the packages that each needs besides Boost, xxHash and Highway.
FORMATS = {
    "archive": ["flatbuffers", "libdeflate", "zlib"],
    "burn": ["libdeflate", "zlib"],
    "caffe": [],
    "coreml": [],
    "darknet": [],
    "executorch": [],
    "flax": [],
    "gguf": [],
    "json": ["libdeflate", "zlib", "zstd"],
    "keras": ["libdeflate", "zlib"],
    "llama2c": [],
    "mxnet": [],
    "ncnn": [],
    "nnef": ["libdeflate", "zlib"],
    "numpy": ["libdeflate", "zlib"],
    "onnx": [],
    "openvino": [],
    "orbax": ["libdeflate", "zlib", "zstd"],
    "paddle": [],
    "pickle": [],
    "pytorch": ["libdeflate", "zlib"],
    "safetensors": [],
    "samediff": ["flatbuffers", "libdeflate", "zlib"],
    "stele": ["zstd"],
    "tensorflow": [],
    "tflite": [],
    "whisper": [],
    "zarr": ["libdeflate", "zlib", "zstd"],
}

# Components of Conan's packages, by the names of the CMake packages in stele's steleConfig.cmake.
REQUIRED_COMPONENTS = {
    "SteleBoost": "boost::headers",
    "xxHash": "xxhash::libxxhash",
    "hwy": "highway::hwy",
    "zstd": "zstd::zstdlib",
    "ZLIB": "zlib::zlib",
    "libdeflate": "libdeflate::libdeflate",
    "re2": "re2::re2",
    "Protobuf": "protobuf::libprotobuf",
    "CURL": "libcurl::curl",
    "OpenSSL": "openssl::crypto",
}


class SteleConan(ConanFile):
    name = "stele"
    description = "Saves and loads machine-learning models as C++ structs: PyTorch, safetensors, GGUF, ONNX and others"
    license = "MIT"
    url = "https://github.com/conan-io/conan-center-index"
    homepage = "https://github.com/@OWNER@/stele"
    topics = ("machine-learning", "serialization", "safetensors", "gguf", "pytorch", "onnx")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "formats": ["ANY"],  # "all", or folders of recorders/: "stele;safetensors;gguf"
        "command": [True, False],  # the program `stele`; needs all formats
    }
    default_options = {
        "shared": False,
        "fPIC": True,
        "formats": "all",
        "command": False,
    }
    implements = ["auto_shared_fpic"]
    no_copy_source = True

    @property
    def _formats(self):
        return self._split(self.options.formats)

    @property
    def _all(self):
        return self._formats == ["all"]

    def _needs(self, package):
        return self._all or any(package in FORMATS.get(name, []) for name in self._formats)

    def layout(self):
        cmake_layout(self, src_folder="src")

    @staticmethod
    def _split(formats):
        return sorted({name for name in re.split(r"[;, ]+", str(formats)) if name})

    def package_id(self):
        self.info.options.formats = ";".join(self._split(self.info.options.formats))

    def requirements(self):
        # The public headers include Boost. The library is tested with these versions of Boost, RE2, protobuf and
        # FlatBuffers.
        self.requires("boost/1.81.0", transitive_headers=True, libs=False)
        self.requires("xxhash/0.8.2")
        self.requires("highway/1.0.7")
        if self._needs("zstd"):
            self.requires("zstd/[~1.5]")
        if self._needs("zlib"):
            self.requires("zlib/[>=1.2.11 <2]")
        if self._needs("libdeflate"):
            self.requires("libdeflate/1.22")
        if self._needs("flatbuffers"):  # the library compiles its headers and does not link it
            self.requires("flatbuffers/2.0.8", headers=True, libs=False, visible=False)
        if self._all:
            self.requires("re2/20230301")
            self.requires("protobuf/3.21.12")
            self.requires("libcurl/[>=7.85 <9]")
            self.requires("openssl/[>=1.1 <4]")
        if self.options.command:
            self.requires("cli11/2.4.2", visible=False)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25 <4]")
        if self._needs("flatbuffers"):
            self.tool_requires("flatbuffers/<host_version>")
        if self._all:
            self.tool_requires("protobuf/<host_version>")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os not in ("Linux", "Macos"):
            raise ConanInvalidConfiguration("stele supports Linux and macOS")
        unknown = [name for name in self._formats if name not in FORMATS and not self._all]
        if unknown or not self._formats:
            raise ConanInvalidConfiguration(f"formats={self.options.formats}: expected all, or some of " + ", ".join(FORMATS))
        if self.options.command and not self._all:
            raise ConanInvalidConfiguration("the option command requires formats=all")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        tc = CMakeToolchain(self)
        tc.cache_variables["STELE_FORMATS"] = "" if self._all else ";".join(self._formats)
        tc.cache_variables["STELE_COMMAND"] = bool(self.options.command)
        tc.cache_variables["STELE_EXAMPLES"] = False
        tc.cache_variables["STELE_TESTS"] = False
        tc.cache_variables["STELE_DEV"] = False
        if not self._all:  # otherwise CMake would take an RE2 of the system
            tc.cache_variables["CMAKE_DISABLE_FIND_PACKAGE_re2"] = True
        tc.generate()
        deps = CMakeDeps(self)
        deps.set_property("highway", "cmake_file_name", "hwy")
        deps.set_property("highway::hwy", "cmake_target_name", "hwy::hwy")
        deps.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    @property
    def _components_file(self):
        return os.path.join(self.package_folder, "lib", "stele-components.json")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        cmake = CMake(self)
        cmake.install()
        # The CMake targets and what each needs, as the build has computed them. package_info() reads them again.
        config = load(self, os.path.join(self.package_folder, "lib", "cmake", "stele", "steleConfig.cmake"))
        packages = dict(re.findall(r"^set\(_stele_packages_(\w+) ?(.*)\)$", config, re.MULTILINE))
        components = {}
        for name, needs in re.findall(r"^set\(_stele_needs_(\w+) (.*)\)$", config, re.MULTILINE):
            *needed, target = needs.split()
            components[target] = {"needs": needed, "packages": packages[name].split()}
        save(self, self._components_file, json.dumps(components, indent=1))
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rmdir(self, os.path.join(self.package_folder, "share"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "stele")
        self.cpp_info.set_property("pkg_config_name", "stele")
        components = json.loads(load(self, self._components_file))
        if self.options.shared:
            self.cpp_info.libs = ["stele"]
            self.cpp_info.set_property("cmake_target_name", "stele::stele")
            self.cpp_info.set_property("cmake_target_aliases", [f"stele::{name}" for name in components])
            self.cpp_info.requires = [REQUIRED_COMPONENTS[name] for name in self._required_packages()]
            return
        self.cpp_info.set_property("cmake_target_name", "stele::stele")
        for name, component in components.items():
            info = self.cpp_info.components[name]
            info.set_property("cmake_target_name", f"stele::{name}")
            info.libs = [f"stele_{name}"]
            info.requires = component["needs"] + [
                REQUIRED_COMPONENTS[package] for package in component["packages"] if package in REQUIRED_COMPONENTS]
            if self.settings.os == "Linux" and "Threads" in component["packages"]:
                info.system_libs = ["pthread", "dl"]

    def _required_packages(self):
        names = ["SteleBoost", "xxHash", "hwy"]
        names += ["zstd"] if self._needs("zstd") else []
        names += ["ZLIB"] if self._needs("zlib") else []
        names += ["libdeflate"] if self._needs("libdeflate") else []
        names += ["re2", "Protobuf", "CURL", "OpenSSL"] if self._all else []
        return names
