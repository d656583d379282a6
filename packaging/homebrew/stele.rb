# packaging/fill.py replaces the owner, the version and the hash.
class Stele < Formula
  desc "Save and load machine-learning models as C++ structs"
  homepage "https://github.com/@OWNER@/stele"
  url "https://github.com/@OWNER@/stele/archive/refs/tags/v@VERSION@.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"
  head "https://github.com/@OWNER@/stele.git", branch: "main"

  depends_on "cli11" => :build
  depends_on "cmake" => [:build, :test]
  depends_on "flatbuffers" => :build
  depends_on "boost"
  depends_on "highway"
  depends_on "libdeflate"
  depends_on "openssl@3"
  depends_on "protobuf"
  depends_on "re2"
  depends_on "xxhash"
  depends_on "zstd"

  uses_from_macos "curl"
  uses_from_macos "zlib"

  def install
    args = %w[
      -DBUILD_SHARED_LIBS=ON
      -DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON
      -DSTELE_DEV=OFF
      -DSTELE_EXAMPLES=OFF
      -DSTELE_TESTS=OFF
    ]
    args << "-DCMAKE_INSTALL_RPATH=#{rpath}"
    system "cmake", "-S", ".", "-B", "build", *args, *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    zsh_completion.install share/"zsh/vendor-completions/_stele"
    fish_completion.install share/"fish/vendor_completions.d/stele.fish"
  end

  test do
    (testpath/"CMakeLists.txt").write <<~CMAKE
      cmake_minimum_required(VERSION 3.25)
      project(use LANGUAGES CXX)
      find_package(stele CONFIG REQUIRED)
      add_executable(use use.cpp)
      target_link_libraries(use PRIVATE stele::stele)
    CMAKE
    (testpath/"use.cpp").write <<~CPP
      #include <stele/stele.hpp>
      struct Model { std::vector<float> weight; };
      int main() {
        stele::save(Model{{1, 2, 3}}, "model.safetensors").value();
        return stele::load<Model>("model.safetensors").value().weight.size() == 3 ? 0 : 1;
      }
    CPP
    system "cmake", "-S", ".", "-B", "build"
    system "cmake", "--build", "build"
    system "build/use"
    assert_match "1 tensor", shell_output("#{bin}/stele inspect model.safetensors")
  end
end
