# Spack's repository replaces this line by its license header. packaging/fill.py fills in the rest.

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Stele(CMakePackage):
    """Saves and loads machine-learning models as C++ structs: PyTorch, safetensors, GGUF, ONNX and others."""

    homepage = "https://github.com/@OWNER@/stele"
    url = "https://github.com/@OWNER@/stele/archive/refs/tags/v@VERSION@.tar.gz"
    git = "https://github.com/@OWNER@/stele.git"

    license("MIT", checked_by="@OWNER@")

    version("main", branch="main")
    version("@VERSION@", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("shared", default=False, description="Build one shared library")
    variant("command", default=True, when="formats=all", description="Build the command stele")
    variant(
        "formats",
        values=disjoint_sets(
            ("all",),
            (
                "archive",
                "burn",
                "caffe",
                "coreml",
                "darknet",
                "executorch",
                "flax",
                "gguf",
                "json",
                "keras",
                "llama2c",
                "mxnet",
                "ncnn",
                "nnef",
                "numpy",
                "onnx",
                "openvino",
                "orbax",
                "paddle",
                "pickle",
                "pytorch",
                "safetensors",
                "samediff",
                "stele",
                "tensorflow",
                "tflite",
                "whisper",
                "zarr",
            ),
        )
        .prohibit_empty_set()
        .with_default("all")
        .with_non_feature_values("all"),
        description="Formats to build; only all has stele::transforms, stele::ir and stele::remote",
    )

    depends_on("cxx", type="build")

    depends_on("cmake@3.25:", type="build")
    # The public headers include Boost.
    depends_on("boost@1.81:", type=("build", "link", "run"))
    depends_on("highway@1.0.3:")
    depends_on("xxhash@0.8:")

    for formats in ("all", "json", "orbax", "stele", "zarr"):
        depends_on("zstd@1.5:", when=f"formats={formats}")
    for formats in ("all", "archive", "burn", "json", "keras", "nnef", "numpy", "orbax", "pytorch", "samediff", "zarr"):
        depends_on("zlib-api", when=f"formats={formats}")
        depends_on("libdeflate", when=f"formats={formats}")
    for formats in ("all", "archive", "samediff"):
        depends_on("flatbuffers@2.0.8:", type="build", when=f"formats={formats}")

    with when("formats=all"):
        depends_on("curl@7.85:")
        depends_on("openssl@3:")
        depends_on("protobuf@3.21:", type=("build", "link"))
        depends_on("re2")

    with when("+command"):
        depends_on("cli11@2.1:", type="build")

    conflicts("platform=windows")
    conflicts("%gcc@:11", msg="stele needs C++20")
    conflicts("%clang@:13", msg="stele needs C++20")

    def cmake_args(self):
        formats = self.spec.variants["formats"].value
        args = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define("STELE_COMMAND", self.spec.satisfies("+command")),
            self.define("STELE_DEV", False),
            self.define("STELE_EXAMPLES", False),
            self.define("STELE_TESTS", False),
        ]
        if "all" not in formats:
            args.append(self.define("STELE_FORMATS", list(formats)))
            args.append(self.define("CMAKE_DISABLE_FIND_PACKAGE_re2", True))
        return args
