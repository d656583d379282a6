# Debian's libraries by the names of Conan Center's packages, components and CMake targets. `make packages` exports this
# recipe once for each requirement of ../all/conanfile.py, since it can't download Conan Center's packages. With formats=all it
# only computes the graph of requirements.
from conan import ConanFile

# The component (none: the package itself), the library, the CMake package and its target.
LIBRARIES = {
    "boost": ("headers", None, "Boost", "Boost::headers"),
    "cli11": (None, None, "CLI11", "CLI11::CLI11"),
    "flatbuffers": (None, None, "flatbuffers", "flatbuffers::flatbuffers"),
    "highway": ("hwy", "hwy", "highway", "highway::hwy"),
    "libcurl": ("curl", "curl", "CURL", "CURL::libcurl"),
    "libdeflate": (None, "deflate", "libdeflate", "libdeflate::libdeflate_static"),
    "openssl": ("crypto", "crypto", "OpenSSL", "OpenSSL::Crypto"),
    "protobuf": ("libprotobuf", "protobuf", "Protobuf", "protobuf::libprotobuf"),
    "re2": ("re2", "re2", "re2", "re2::re2"),
    "xxhash": ("libxxhash", "xxhash", "xxHash", "xxHash::xxhash"),
    "zlib": (None, "z", "ZLIB", "ZLIB::ZLIB"),
    "zstd": ("zstdlib", "zstd", "zstd", "zstd::libzstd_static"),
}


class SystemConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def package_info(self):
        component, library, file_name, target = LIBRARIES[self.name]
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        self.cpp_info.set_property("cmake_file_name", file_name)
        if self.name in ("xxhash", "zstd"):
            self.cpp_info.set_property("cmake_target_name", target)
        info = self.cpp_info.components[component] if component else self.cpp_info
        info.set_property("cmake_target_name", target)
        info.includedirs = []
        info.libdirs = []
        info.bindirs = []
        if library:
            info.system_libs = [library]
