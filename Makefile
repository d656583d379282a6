# Every target installs what it needs (Debian 12, as root) and builds below build/.
#
#   make demo                 build six formats, run programs of examples/programs/ and the command: what stele does, in 30 lines
#                             (ALL=1: every format, in 200 lines)
#   make test                 build with g++ and run all tests (STELE_TEST_FULL=1: all kills and conversions)
#   make check-PRESET         build and test with another preset: dev-clang asan-ubsan tsan cxx23
#   make sanitize             check-asan-ubsan, only the tests of encodings and checkpoints
#   make bench                benchmarks, release build: the goals of docs/performance.md; results in build/bench
#   make growth               time per tensor of 10^2 to 10^6 tensors: a table, and docs/growth.svg
#   make memory               memory beyond the model of saves and loads of up to 4 GB: a table
#   make bench-burn           Burn's own benchmark, by Burn 0.21 and by stele
#   make bench-peers          other libraries, relative to the same limits: a table
#   make size                 size of a program with each recorder, and compile time relative to cereal's: tables
#   make performance          runs these five and writes their tables into docs/performance.md; use an idle machine
#   make bench-devices        loads to a GPU and saves from it, relative to page-locked copies (DEVICE=hip); with other libraries:
#                             benchmarks/devices.py
#   make instructions         instructions of the hot paths, compared with benchmarks/instructions.txt
#   make linear               checks that every reader takes linear time, by counts of instructions
#   make fuzz SECONDS=60      every fuzz target for that many seconds (TARGETS="json_fuzz stele_fuzz" selects targets)
#   make fuzz-check           every fuzz target: its seeds, and a fixed number of inputs made from them
#   make mutants FILES="encodings/tar/read.cpp"  small changes in sources, one at a time: which of them no test notices
#                             (COUNT=5 of each source, SEED=1)
#   make docs                 compile the code blocks of README.md and docs/
#   make api                  reference of include/stele by doxygen, in build/api/html
#   make deb                  Debian packages, in build/deb
#   make amalgamation         the library as two files, in build/amalgamation (FORMATS="stele;safetensors;gguf;numpy;json");
#                             amalgamation-test: with several compilers, for Windows, compared with the library (installs MinGW)
#   make static               the command stele as one static file, to copy to other machines
#   make packaging            use the library from other projects: installed, as sources, from the Debian packages;
#                             packaging-smoke: each component installed, and one program with the Debian packages
#   make weekly               checks that .ci/run has no time for: packaging packages mpi python-asan libcxx module strangers switches bare
#                             check-asan-ubsan amalgamation-test wasm viewer-test npm-test
#   make abi                  compare the exported names of the shared library with those of the last release
#                             (UPDATE=--update writes them); tools/abi.sh compares two revisions by abidiff
#   make packages             check the recipes of packaging/ for package managers (installs their tools); FORMATS="stele;gguf":
#                             the formats that Conan builds
#   make debian-source        Debian's source package, in build/packages/debian
#   make torch                build stele::torch, exchange files with PyTorch: torch-debian, with Debian's libtorch 1.13 (half a
#                             gigabyte), and torch-wheel, with that of the Python package (in build/torch/venv, 6 GB)
#   make mpi                  build stele::mpi and run its tests with 1 to 8 processes (installs OpenMPI); bench-mpi: its costs
#   make interop-dcp          distributed checkpoints both ways against PyTorch 2.15 (Python, in build/interop-pytorch, 6 GB)
#   make embedded             run the programs for a microcontroller under QEMU (installs compilers for Arm and RISC-V, and QEMU)
#   make report-test          the pages of `stele report` in headless Chromium (installs it)
#   make viewer               the viewer for browsers, in build/viewer; serves it at http://127.0.0.1:8000 (PORT=)
#   make viewer-test          the viewer in headless Chromium (installs it; PICTURES=FOLDER: also writes screenshots)
#   make npm                  the npm package, in build/npm; npm-test: installs it in a folder and tests it in Node
#   make bare                 library, command and tests without exceptions, RTTI, threads, maps, and calls that only Linux has:
#                             six formats
#   make cmake-3.22           configures with that version (from PyPI)
#   make switches             compiles the library with each of these off alone; switches-smoke: only src/base and src/io
#   make libcxx               tests of the core and the formats by clang-19 and libc++ (installs them)
#   make foreign ARCH=s390x   tests of the core and formats on another architecture under QEMU (installs a cross compiler, and
#                             QEMU): s390x, which is big-endian, arm64, and armhf and i386, which have 32 bits
#   make macos                library, command, examples and tests for macOS on Arm and Intel, by zig: compiled and linked only
#   make zig TARGET=x86_64-linux-musl  builds and runs them with another C library: TARGETs are in tools/zig.sh (BARE=1: what
#                             `make bare` builds); zig-bare: that for musl on x86-64 and Arm, for FreeBSD and for macOS
#   make wasm                 library and tests for WebAssembly with WASI, by zig, run by wasmtime (both from PyPI, in build/zig);
#                             wasm-smoke: compiles only the core and what depends on the system
#   make windows              tests and the command for Windows, by MinGW, under Wine (installs both; builds the libraries);
#                             windows-smoke: compiles only what depends on the system (installs MinGW)
#   make python               build the Python module and run its tests (Python packages in build/python/venv; TORCH=1: also
#                             with PyTorch, 6 GB); python-asan: the same with sanitizers; bench-python: its speed beside safetensors and PyTorch
#   make wheel                the module as a wheel and as sources, in build/wheel; wheel-2.28: a wheel for glibc 2.28 and
#                             CPython 3.12, in build/wheel-2.28 (by zig; PYTHON312: a Python 3.12 or later)
#   make module               `import stele;` by clang-19 (installs it; CMake 4 and Ninja from PyPI in build/module/venv)
#   make interop-dl4j         SameDiff files both ways against DL4J (installs a JDK and Maven, and fetches DL4J, 130 MB)
#   make interop-ir           imported ONNX models, run by DL4J and by onnxruntime: docs/generated/onnx-operators.md (TORCH=1: PyTorch's, too;
#                             TENSORFLOW=1: TensorFlow's, too: docs/generated/tensorflow-operators.md)
#   make interop-tensorflow   checkpoints that TensorFlow writes (Python, in build/interop-tensorflow, 2 GB)
#   make interop-tflite       models that TensorFlow Lite writes (Python, in build/interop-tflite, 2 GB)
#   make interop-executorch   files both ways against ExecuTorch (Python, in build/interop-executorch, 6 GB)
#   make interop-breadth      the formats of further programs, one after the other (12 GB): the targets from interop-tflite to interop-caffe
#   make interop-flax         files both ways against Flax (Python, in build/interop-flax, 750 MB)
#   make interop-ncnn         models of ncnn, against pnnx and ncnn (Python, in build/interop-ncnn, 6 GB)
#   make interop-whisper      models of whisper.cpp, against it (Python, in build/interop-whisper, 100 MB)
#   make interop-orbax        checkpoints that Orbax writes (Python, in build/interop-orbax, 900 MB)
#   make interop-zarr         folders both ways against zarr-python and TensorStore (Python, in build/interop-zarr, 150 MB)
#   make interop-openvino     models both ways against OpenVINO (Python, in build/interop-openvino, 250 MB)
#   make interop-coreml       models that coremltools writes (Python, in build/interop-coreml, 200 MB)
#   make interop-keras        files both ways against Keras and h5py (Python, in build/interop-keras, 500 MB)
#   make interop-pickle       pickles of PaddlePaddle and NumPy (Python, in build/interop-pickle, 900 MB)
#   make interop-mxnet        files both ways against MXNet; interop-caffe, interop-darknet: files against OpenCV (Python, 300 MB each)
#   make interop-paddle       parameter files both ways against PaddlePaddle (Python, in build/interop-paddle, 900 MB)
#   make interop-pytorch      files both ways against PyTorch 2.15 (Python, in build/interop-pytorch, 6 GB) and 1.13 (Debian's)
#   make interop-burn         every file of Burn 0.13 to 0.22 both ways (Rust, in build/interop-burn, 10 GB)
#   make interop-gguf         GGUF files both ways against gguf-py, llama.cpp and transformers (Python, in build/interop-gguf, 6 GB);
#                             bench-gguf: codecs of blocks compared with those of ggml and gguf-py
#   make interop-slime        weight updates both ways against slime's code (SLIME: a checkout of it)
#   make remote               URLs against moto, versitygw (built with Go) and nginx: files up and down, signatures, TLS, kills, faults
#                             (Python, in build/remote); bench-remote: speed at 30 ms of latency
#   make products             files of every pair of dimensions of a format, both ways against the format's own program, with
#                             the environments of interop-NAME, or QUANTIZED for the schemes of tests/composites; products-NAME:
#                             of one format (UPDATE=--update writes the digests; make -j2 runs two at a time)
#   make interop              check files against other programs (Python, in build/interop)
#   make strangers            model files that 52 packages of other projects ship: fetched, opened, converted, and compared with
#                             their frameworks (1.2 GB, in build/strangers; TORCH=1: also with PyTorch, 6 GB)
#   make format format-check tidy deps clean

JOBS ?= 2
# A compiler cache finds the objects again from any checkout.
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1
# The cache does not preprocess sources: it uses the compiler's lists of headers.
export CCACHE_DEPEND = 1
# Sources of the tests, which use a precompiled header.
export CCACHE_SLOPPINESS = pch_defines,time_macros
FUZZ_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

# QUICK=1: demo, release and deb with the options of dev, whose objects a compiler cache then has.
QUICK ?=
quick = $(if $(QUICK),-D STELE_DEV=ON -D CMAKE_CXX_FLAGS= -D CMAKE_CXX_FLAGS_RELEASE="-O1 -D_GLIBCXX_ASSERTIONS")

# $(call build,PRESET [OPTIONS],[TARGETS])
define build
	cmake --preset $(1)
	cmake --build --preset $(firstword $(1)) -j $(JOBS)$(if $(2), --target $(2))
endef

.DEFAULT_GOAL := test
.PHONY: deps deps-build deps-embedded demo test sanitize bench bench-devices bench-burn bench-peers growth memory performance instructions linear size
.PHONY: viewer viewer-page viewer-test npm npm-test wasm-module bare cmake-3.22 switches switches-smoke fuzz fuzz-check docs api deb static packaging packaging-smoke weekly packages debian-source abi embedded report-test foreign windows windows-smoke wasm wasm-smoke macos zig zig-bare libcxx module python python-asan bench-python wheel wheel-2.28 interop torch torch-debian torch-wheel mpi bench-mpi interop-dcp interop-quantized interop-slime bench-gguf products mutants
.PHONY: format format-check tidy clean remote bench-remote strangers amalgamation amalgamation-test product-command

deps:
	@tools/deps.sh all
deps-build:
	@tools/deps.sh build
deps-embedded:
	@tools/deps.sh embedded

# Without ALL and BURN, builds the formats of the preset demo alone. ALL=1: every format at every precision, and the operations
# of graphs. BURN="FILE...": runs mnist too, on model.bin or model.bpk of Burn's mnist-inference-web.
ALL ?=
BURN ?=
demo_preset = $(if $(ALL)$(BURN),release,demo)
demo: export NINJA_STATUS = [%f of %t, %e s] 
demo: deps-build
	@printf '\nCompiling the core, %s formats and the command. Two idle cores take about %s minutes, once.\n\n' \
	    $(if $(filter demo,$(demo_preset)),six 3,all 11)
	$(call build,$(demo_preset) $(quick),digits resume stele_command $(if $(ALL),every_format import_model) $(if $(BURN),mnist))
	@tools/demo.sh build/$(demo_preset) $(if $(ALL),--all)
	$(if $(BURN),build/release/examples/mnist examples/data $(BURN))

test: check-dev

check-%: deps
	$(call build,$*)
	ctest --preset $* -j $(JOBS)

# Formats are read with these sanitizers in fuzz-check; their tests and those of the core take half an hour.
sanitize: deps
	$(call build,asan-ubsan -D "STELE_TEST_FOLDERS=checkpoints;encodings")
	ctest --preset asan-ubsan -j $(JOBS)

# Files are written below build/, so the benchmarks measure its disk.
ROUNDS ?= 9
W3 ?=
json = --benchmark_out=$(1).json --benchmark_out_format=json
bench: deps
	$(call build,release -D STELE_BENCHMARKS=ON,benchmarks)
	@mkdir -p build/bench
	cd build/bench && ../release/benchmarks/bench_goals --rounds=$(ROUNDS) $(if $(W3),--w3) $(call json,goals)
	cd build/bench && ../release/benchmarks/bench_compression $(call json,compression)
	cd build/bench && ../release/benchmarks/bench_leaves $(call json,leaves)
	cd build/bench && ../release/benchmarks/bench_json $(call json,json)
	@benchmarks/goals.py build/bench

growth: deps
	$(call build,release -D STELE_BENCHMARKS=ON,bench_growth)
	@mkdir -p build/bench
	cd build/bench && ../release/benchmarks/bench_growth $(call json,growth)
	@benchmarks/growth.py build/bench/growth.json docs/growth.svg

# Needs 5 GB of memory and 5 GB of disk below build/.
memory: deps
	$(call build,release -D STELE_BENCHMARKS=ON,bench_memory)
	@mkdir -p build/bench
	@benchmarks/memory.py build/bench build/release/benchmarks/bench_memory

# Python packages and Rust crates go below build/peers; libraries that cannot be fetched or built are listed as missing.
# TORCH=1 adds PyTorch, whose package is several gigabytes.
TORCH ?=
bench-peers: deps
	$(call build,release -D STELE_BENCHMARKS=ON,bench_peers)
	@mkdir -p build/bench build/peers
	-[ -x build/peers/venv/bin/python ] || python3 -m venv build/peers/venv
	-build/peers/venv/bin/pip install --disable-pip-version-check -q -r benchmarks/peers/requirements.txt \
	    $(if $(TORCH),-r benchmarks/peers/torch.txt)
	-! command -v cargo >/dev/null || CARGO_TARGET_DIR=$(CURDIR)/build/peers/cargo \
	    cargo build --locked --release -q -j $(JOBS) --manifest-path benchmarks/peers/Cargo.toml
	@benchmarks/peers.py build/bench build/release/benchmarks/bench_peers build/peers/venv/bin/python \
	    build/peers/cargo/release/peers

# Burn's own benchmark, by Burn 0.21 and by stele. Needs cargo.
bench-burn: deps
	$(call build,release -D STELE_BENCHMARKS=ON,bench_burn)
	CARGO_TARGET_DIR=$(CURDIR)/build/interop-burn/target cargo build --locked --release -q -j $(JOBS) \
	    --manifest-path tests/formats/burn/interop/v21/Cargo.toml --bin burn-bench-v21
	@benchmarks/burn.py build/bench/burn build/release/benchmarks/bench_burn \
	    build/interop-burn/target/release/burn-bench-v21

# DEVICE: cuda or hip, or "cuda FOLDER BYTES ROUNDS LIBRARY".
DEVICE ?= cuda
bench-devices: deps
	$(call build,release -D STELE_BENCHMARKS=ON,bench_devices)
	@mkdir -p build/bench
	build/release/benchmarks/bench_devices $(firstword $(DEVICE)) $(or $(wordlist 2,5,$(DEVICE)),build/bench)

# What the smallest program is built with. Sources that are not joined have a line each in the linker's map.
smallest = -D CMAKE_BUILD_TYPE=MinSizeRel -D CMAKE_UNITY_BUILD=OFF -D CMAKE_CXX_FLAGS=-DHWY_COMPILE_ONLY_STATIC \
    -D STELE_BENCHMARKS=ON -D STELE_EXAMPLES=OFF -D STELE_WERROR=OFF -D STELE_FORMATS=safetensors \
    $(foreach switch,EXCEPTIONS RTTI THREADS MMAP,-D STELE_$(switch)=OFF)
size: deps
	$(call build,release -D STELE_BENCHMARKS=ON,sizes)
	cmake --preset release -B build/minimal -D CMAKE_BUILD_TYPE=MinSizeRel -D STELE_BENCHMARKS=ON \
	    -D STELE_EXAMPLES=OFF -D STELE_WERROR=OFF  # g++ warns of values that std::optional does not hold
	cmake --build build/minimal -j $(JOBS) --target sizes
	cmake --preset release -B build/smallest $(smallest)
	cmake --build build/smallest -j $(JOBS) --target size_load
	@benchmarks/size.py build/release build/minimal
	@benchmarks/size_parts.py build/smallest size_load
	@benchmarks/compile_time.py

# Measures the figures of docs/performance.md again.
performance:
	$(MAKE) -j 1 bench growth memory bench-peers size
	benchmarks/tables.py docs/performance.md

# Counts of instructions do not depend on the machine's load. UPDATE=--update writes the new counts.
instructions: deps
	cmake --preset release -B build/hot-paths -D STELE_BENCHMARKS=ON -D STELE_EXAMPLES=OFF -D STELE_COMMAND=OFF \
	    -D "STELE_FORMATS=safetensors;stele"
	cmake --build build/hot-paths -j $(JOBS) --target bench_hot_paths
	benchmarks/instructions.py build/hot-paths/benchmarks/bench_hot_paths $(UPDATE)

linear: deps
	$(call build,release -D STELE_BENCHMARKS=ON $(quick),bench_shared_parts)
	benchmarks/shared_parts.py build/release/benchmarks/bench_shared_parts

fuzz: deps
	$(call build,fuzz)
	TARGETS="$(TARGETS)" tools/fuzz.sh seconds $(FUZZ_SECONDS) $(JOBS)

# A commit always gets the same result.
FUZZ_RUNS ?= 2000
fuzz-check: deps
	$(call build,fuzz)
	tools/fuzz.sh runs $(FUZZ_RUNS) $(JOBS)

# The list is the same for the same seed.
FILES ?= $(error FILES="encodings/tar/read.cpp ..." names the sources to change)
COUNT ?= 5
SEED ?= 1
mutants: deps
	cmake --preset dev -B build/mutants -D STELE_SOURCE_CHECKS=OFF -D STELE_EXAMPLES=OFF -D STELE_COMMAND=OFF
	cmake --build build/mutants -j $(JOBS) --target stele_tests
	tools/mutants.py --seed $(SEED) --count $(COUNT) $(FILES)

docs: deps
	$(call build,dev,docs_blocks)
	ctest --preset dev -L docs -j $(JOBS)

# A warning of doxygen is an error.
api:
	@tools/deps.sh api
	rm -rf build/api
	mkdir -p build/api
	doxygen docs/Doxyfile

deb: deps
	$(call build,deb $(quick))
	rm -f build/deb/*.deb
	cpack --config build/deb/CPackConfig.cmake -B build/deb

static: deps-build
	$(call build,static,stele_command)
	@ls -l build/static/tools/stele/stele

amalgamation: FORMATS = stele;safetensors;gguf;numpy;json
amalgamation: deps-build
	tools/amalgamate.py --formats "$(FORMATS)"

amalgamation-test: deps
	@tools/deps.sh windows-smoke
	$(call build,dev,amalgamation_files)
	tests/amalgamation/run.sh build/dev/tests/amalgamation/amalgamation_files build/dev/tests/data build/amalgamation/test --all

packaging packaging-smoke: deb
	$(call build,release $(quick))
	JOBS=$(JOBS) QUICK=$(QUICK) tests/packaging/run.sh $(if $(filter %-smoke,$@),--smoke)

weekly: packaging packages mpi python-asan libcxx module strangers switches bare check-asan-ubsan amalgamation-test wasm viewer-test npm-test

abi: deps
	$(call build,deb,stele)
	tests/packaging/abi/check.sh build/deb/libstele.so $(UPDATE)

FORMATS ?= safetensors
packages: deps build/packages/venv/installed
	@tools/deps.sh packages
	JOBS=$(JOBS) FORMATS="$(FORMATS)" packaging/check.sh

build/packages/venv/installed: packaging/requirements.txt
	$(venv)

debian-source: deps
	packaging/source.sh

# `make test` runs this, too, if the compiler is installed; here nothing is skipped. PRESET: of the host's half.
embedded: PRESET = dev
embedded: deps deps-embedded
	$(call build,$(PRESET),embedded_host stele_command)
	STELE_NEVER_SKIP=1 ctest --preset $(PRESET) -L embedded -V

# `make test` runs these tests, too, if a browser is installed; here nothing is skipped.
report-test: PRESET = dev
report-test: deps
	@tools/deps.sh browser
	$(call build,$(PRESET),stele_command)
	STELE_NEVER_SKIP=1 ctest --preset $(PRESET) -R '^command:report$$' -V

module_file = build/wasm/bindings/wasm/stele.wasm
wasm-module: deps
	JOBS=$(JOBS) tools/zig.sh wasm32-wasi libraries
	$(call build,wasm,stele_wasm)
	@gzip -9c $(module_file) | wc -c | sed 's/$$/ bytes: stele.wasm, compressed by gzip/'

PORT ?= 8000
viewer-page: wasm-module
	viewer/build.py $(module_file) build/viewer
viewer: viewer-page
	python3 -m http.server --bind 127.0.0.1 --directory build/viewer $(PORT)
viewer-test: PRESET = dev
viewer-test: viewer-page
	@tools/deps.sh browser
	$(call build,$(PRESET),stele_command)
	STELE=build/$(PRESET)/tools/stele/stele STELE_TEST_DATA=$(CURDIR)/build/$(PRESET)/tests/data VIEWER=build/viewer tests/viewer/viewer_test.py -v

npm: wasm-module
	rm -rf build/npm
	packaging/npm/pack.py $(module_file) build/npm/package
	cd build/npm && npm pack --silent ./package
npm-test: PRESET = dev
npm-test: npm
	$(call build,$(PRESET),stele_command)
	STELE=build/$(PRESET)/tools/stele/stele STELE_TEST_DATA=$(CURDIR)/build/$(PRESET)/tests/data tests/npm/run.sh build/npm

bare: deps
	$(call build,bare)
	ctest --preset bare -j $(JOBS)

cmake-3.22: deps
	[ -e build/cmake-3.22/bin/cmake ] || { python3 -m venv build/cmake-3.22 && build/cmake-3.22/bin/pip install -q cmake==3.22.6; }
	build/cmake-3.22/bin/cmake --log-level=WARNING -G Ninja -S . -B build/cmake-3.22/build

switches switches-smoke: deps
	tools/switches.py $(if $(filter %-smoke,$@),--smoke) $(JOBS)

libcxx: deps
	@tools/deps.sh libcxx
	$(call build,libcxx,stele_tests)
	build/libcxx/tests/stele_tests

ARCH ?= s390x
foreign: deps
	@tools/deps.sh foreign
	tools/foreign.sh $(ARCH) $(JOBS)

TARGET ?= x86_64-linux-musl
zig: deps
	JOBS=$(JOBS) tools/zig.sh $(TARGET)
zig-bare: deps
	for target in x86_64-linux-musl aarch64-linux-musl x86_64-freebsd aarch64-macos; do \
	    BARE=1 JOBS=$(JOBS) tools/zig.sh $$target || exit; done
macos: deps
	JOBS=$(JOBS) tools/zig.sh aarch64-macos
	JOBS=$(JOBS) tools/zig.sh x86_64-macos

wasm: deps
	JOBS=$(JOBS) tools/zig.sh wasm32-wasi libraries
	$(call build,wasm)
	ctest --preset wasm
wasm-smoke: deps
	tools/zig.sh wasm32-wasi toolchain
	tests/wasm/smoke.sh $(JOBS)

windows-smoke: deps
	@tools/deps.sh windows-smoke
	tests/windows/smoke.sh $(JOBS)
windows: deps
	@tools/deps.sh windows
	@tools/deps.sh cross
	tools/cross_deps.sh windows
	$(call build,windows,stele_tests stele_command)
	tests/windows/run.sh build/windows

# The module is in the preset release, whose objects it shares. PYTEST: options of pytest.
PYTEST ?=
build/python/venv/installed: tests/python/requirements.txt $(if $(TORCH),tests/python/torch.txt)
	$(call venv,,$(addprefix -r ,$^))
define build_python
	@tools/deps.sh python
	$(call build,release -D STELE_PYTHON=ON $(quick) -D Python_EXECUTABLE=$(CURDIR)/build/python/venv/bin/python,_stele _stele_types)
endef
python: deps build/python/venv/installed
	$(build_python)
	cd tests/python && PYTHONPATH=$(CURDIR)/build/release/python $(CURDIR)/build/python/venv/bin/python -m pytest -q $(PYTEST)

build/wheel/venv/installed: tests/python/wheel.txt
	$(venv)
python-asan: deps build/python/venv/installed
	@tools/deps.sh python
	$(call build,asan-ubsan -D STELE_PYTHON=ON -D Python_EXECUTABLE=$(CURDIR)/build/python/venv/bin/python,_stele)
	cd tests/python && PYTHONPATH=$(CURDIR)/build/asan-ubsan/python PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
	    LD_PRELOAD=$$(clang-14 -print-file-name=libclang_rt.asan-x86_64.so) \
	    $(CURDIR)/build/python/venv/bin/python -m pytest -q
bench-python: TORCH = 1
bench-python: deps build/python/venv/installed
	$(build_python)
	PYTHONPATH=$(CURDIR)/build/release/python build/python/venv/bin/python benchmarks/python.py build/bench/python --write docs/python.md
wheel: deps build/wheel/venv/installed
	@tools/deps.sh python
	tools/wheel.sh $(JOBS)

PYTHON312 ?= python3.12
build/wheel-2.28/venv/installed: tests/python/wheel.txt
	$(call venv,$(PYTHON312) -m venv,-r $< cmake==4.4.5)
wheel-2.28: deps build/wheel-2.28/venv/installed
	GLIBC=2.28 tools/wheel.sh $(JOBS)

# Modules need a newer CMake than Debian's.
build/module/venv/installed: tests/module/requirements.txt
	$(venv)
module: export PATH := $(CURDIR)/build/module/venv/bin:$(PATH)
module: deps build/module/venv/installed
	@tools/deps.sh module
	tests/module/names.py clang++-19
	cmake --preset default -B build/module/build -D CMAKE_CXX_COMPILER=clang++-19 -D CMAKE_BUILD_TYPE= -D STELE_CXX_MODULE=ON \
	    -D STELE_FORMATS="safetensors;stele;json"
	cmake --build build/module/build -j $(JOBS) --target module_use
	cd build/module && build/tests/module/module_use

# $(call venv,[HOW],[WHAT]): an environment of Python in the target's folder, with the first prerequisite's packages.
define venv
	$(or $(1),python3 -m venv) $(@D)
	$(@D)/bin/pip install --disable-pip-version-check -q $(or $(2),-r $<)
	touch $@
endef
build/interop/installed: tests/interop/requirements.txt
	$(venv)
build/interop-%/installed: tests/formats/%/interop/requirements.txt
	$(venv)
build/torch/venv/installed: tests/interop/torch-requirements.txt
	$(venv)

interop: deps build/interop/installed
	$(call build,dev)
	STELE_BUILD=build/dev PYTHON=build/interop/bin/python tests/interop/run.sh

# `make interop-NAME` runs prepare_NAME, builds build_NAME with preset_NAME, and runs run_NAME. Defaults, with a PYTHON that
# has the packages of tests/formats/NAME/interop/requirements.txt: NAME.sh there, with the program interop_NAME of the preset
# dev; or, if it does not exist, NAME_files.py, which checks the command against the other program.
interop-%: deps
	$(prepare_$*)
	$(call build,$(or $(preset_$*),dev),$(or $(build_$*),$(if $(wildcard $(script)),interop_$*,stele_command)))
	$(or $(run_$*),$(if $(wildcard $(script)),PYTHON=$(python) $(script) build/dev,$(files)))
script = tests/formats/$*/interop/$*.sh
files = $(python) tests/formats/$*/interop/$*_files.py check build/dev/tools/stele/stele
python = build/interop-$*/bin/python
own = tests/formats/%/interop/requirements.txt

# Runs tests/**/NAME/products.py: of a format in the environment of interop-NAME, or of `make interop` if it has none; of a
# scheme of tests/composites by QUANTIZED.
declared = $(wildcard tests/*/*/products.py tests/*/*/*/products.py)
schemes = $(patsubst tests/composites/%/products.py,products-%,$(wildcard tests/composites/*/products.py))
run_product = $(filter %/$*/products.py,$(declared)) build/dev/tools/stele/stele build/products/$* $(UPDATE)
# pdparams, a kind of pickle, is written by Paddle.
product_format = $(if $(filter pdparams,$*),paddle,$(word 3,$(subst /, ,$(filter %/$*/products.py,$(declared)))))
product_venv = build/interop$(if $(wildcard $(subst %,$(product_format),$(own))),-$(product_format))
without_source = $(if $(LLAMA2C),,llama2c) $(if $(and $(DARKNET),$(ALEXEY)),,darknet)
products: $(patsubst %,products-%,$(filter-out $(without_source),$(notdir $(patsubst %/,%,$(dir $(declared)))))) ;
product-command: deps
	$(call build,dev,stele_command)
products-%: product-command
	$(if $(filter burn,$*),$(prepare_burn))
	$(if $(filter samediff,$*),$(prepare_dl4j))
	$(MAKE) $(product_venv)/installed
	$(product_venv)/bin/python $(run_product)
$(schemes): products-%: product-command
	$(QUANTIZED) $(run_product)

$(patsubst $(own),interop-%,$(wildcard $(subst %,*,$(own)))): interop-%: deps build/interop-%/installed
breadth = $(filter-out gguf paddle pytorch tensorflow,$(patsubst $(own),%,$(wildcard $(subst %,*,$(own)))))
interop-breadth: $(addprefix interop-,$(breadth)) ;

# The Rust compiler is not a package of the system: https://rustup.rs.
prepare_burn = @cargo --version || { echo "make interop-burn: wants cargo 1.92 or later: https://rustup.rs" >&2; exit 1; }
run_burn = BURN_PROGRAM=$(CURDIR)/build/dev/tests/interop_burn tests/formats/burn/interop/burn.sh

prepare_dl4j = tools/deps.sh dl4j
build_dl4j = interop_samediff interop_operators
run_dl4j = tests/formats/samediff/interop/dl4j.sh build/dev

build_openvino = stele_command interop_openvino
run_openvino = $(files) build/dev/tests/interop_openvino
# llama-cpp-python is built from its sources: 12 minutes on two cores.
build/interop-gguf/installed: export CMAKE_ARGS = -DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
preset_gguf = release
build_gguf = stele_command
run_gguf = $(python) tests/formats/gguf/interop/gguf_both_ways.py build/release build/interop-gguf/work

prepare_keras = tools/deps.sh torch
build_keras = stele_command interop_keras
run_keras = $(files) && $(python) tests/formats/keras/interop/keras_files.py torch build/dev/tests/interop_keras /usr/bin/python3

TENSORFLOW ?=
prepare_ir = tools/deps.sh dl4j
build_ir = interop_import
run_ir = TORCH=$(TORCH) TENSORFLOW=$(TENSORFLOW) tests/interop/import.sh build/dev docs/generated/onnx-operators.md \
    docs/generated/tensorflow-operators.md

prepare_pytorch = tools/deps.sh torch

run_tensorflow = $(python) tests/formats/tensorflow/interop/check_tensorflow.py build/dev

# Debian's libtorch 1.13, and that of the newest Python package.
torch: torch-debian torch-wheel

torch-debian: deps build/torch/debian-python/installed
	cmake --preset dev -B build/torch/debian -D STELE_TORCH=ON -D STELE_SOURCE_CHECKS=OFF
	JOBS=$(JOBS) STELE_BUILD=build/torch/debian PYTHON=build/torch/debian-python/bin/python tests/interop/torch.sh

# Debian's Python, which has Debian's torch.
build/torch/debian-python/installed: tests/interop/torch-requirements.txt
	tools/deps.sh torch
	$(call venv,/usr/bin/python3 -m venv --system-site-packages,"$$(grep ^safetensors= $<)")

torch-wheel: deps build/torch/venv/installed
	cmake --preset dev -B build/torch/wheel -D STELE_TORCH=ON -D STELE_SOURCE_CHECKS=OFF \
	    -D CMAKE_PREFIX_PATH="$$(build/torch/venv/bin/python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
	JOBS=$(JOBS) STELE_BUILD=build/torch/wheel PYTHON=build/torch/venv/bin/python tests/interop/torch.sh

# $(call build_mpi,TARGETS)
define build_mpi
	cmake --preset dev -B build/mpi -D STELE_MPI=ON -D STELE_SOURCE_CHECKS=OFF -D STELE_EXAMPLES=OFF -D STELE_COMMAND=OFF
	cmake --build build/mpi -j $(JOBS) --target $(1)
endef

# Subset of the tests: the core is tested by `make test`.
mpi: PROCESSES ?= 1 2 3 4 8
mpi: deps
	tools/deps.sh mpi
	$(call build_mpi,mpi_tests mpi_run mpi_store mpi_interop mpi_page)
	tests/mpi/run.sh build/mpi $(PROCESSES)

bench-mpi: deps build/interop-pytorch/installed
	tools/deps.sh mpi
	cmake --preset release -B build/mpi-release -D STELE_MPI=ON -D STELE_BENCHMARKS=ON -D STELE_TESTS=OFF -D STELE_EXAMPLES=OFF
	cmake --build build/mpi-release -j $(JOBS) --target bench_hold bench_mpi
	build/mpi-release/benchmarks/bench_hold
	benchmarks/mpi/mpi.py build/mpi-release/benchmarks/bench_mpi build/interop-pytorch/bin/python

interop-dcp: deps build/interop-pytorch/installed
	tools/deps.sh mpi
	$(call build_mpi,mpi_interop)
	build/interop-pytorch/bin/python tests/formats/pytorch/interop/dcp.py build/mpi

# QUANTIZED: a Python with the packages that the head of make.py lists (3 GB).
QUANTIZED ?= python3
interop-quantized: deps
	$(call build,release,stele_command)
	$(QUANTIZED) tests/interop/quantized/make.py build/quantized
	$(QUANTIZED) tests/interop/quantized/check.py build/quantized build/release/tools/stele/stele
	$(QUANTIZED) tests/interop/quantized/written.py build/release/tools/stele/stele build/quantized-written
	$(QUANTIZED) tests/interop/lora.py build/release/tools/stele/stele

# SLIME: a checkout of slime. SLIME_PYTHON: a Python with the packages that the head of slime.py lists.
SLIME_PYTHON ?= python3
interop-slime: deps
	$(call build,release,stele_command)
	$(SLIME_PYTHON) tests/interop/slime.py build/release/tools/stele/stele "$(SLIME)"

build/strangers/venv/installed: tests/strangers/requirements.txt $(if $(TORCH),tests/python/torch.txt)
	$(call venv,,$(addprefix -r ,$^))
strangers: deps build/strangers/venv/installed
	@npm --version >/dev/null || { echo "make strangers: wants npm" >&2; exit 1; }
	@tools/deps.sh dl4j
	$(call build,dev,stele_command)
	build/strangers/venv/bin/python tests/strangers/strangers.py fetch build/strangers
	build/strangers/venv/bin/python tests/strangers/strangers.py check build/strangers build/dev/tools/stele/stele

build/remote/venv/installed: tests/remote/interop/requirements.txt
	$(venv)
remote: deps build/remote/venv/installed
	@tools/deps.sh remote
	$(call build,dev,stele_command)
	build/remote/venv/bin/python tests/remote/interop/remote.py build/dev/tools/stele/stele build/remote/work
bench-remote: deps build/remote/venv/installed
	@tools/deps.sh remote
	$(call build,release,stele_command)
	build/remote/venv/bin/python tests/remote/interop/speed.py build/release/tools/stele/stele build/remote/work

bench-gguf: deps build/interop-gguf/installed
	$(call build,release -D STELE_BENCHMARKS=ON,bench_blocks)
	build/interop-gguf/bin/python benchmarks/blocks.py build/release/benchmarks/bench_blocks

format: deps
	tools/format.sh -i
format-check: deps
	tools/format.sh --check

tidy: PRESET = dev-clang
tidy: deps
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target stele_dl4j_generated stele_ir_generated  # what protoc and flatc generate
	tools/tidy.py build/$(PRESET) $(JOBS)

clean:
	rm -rf build
