// The front door finds every format: saves by the path's ending, loads by content.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test {
namespace {

struct Two {
  std::array<float, 2> bias{1, 2};
  std::array<float, 3> weight{3, 4, 5};
};

}  // namespace

TEST_CASE("front door: every format by its ending, and by content under another name") {
  for (const stele::Format* format : stele::formats()) {
    CAPTURE(format->name());
    if (format->extension().empty() || format->name() == "nnef-tensor") continue;
    const TempDir dir;
    const std::string path = dir / ("model" + std::string(format->extension()));
    good(stele::save(Two(), path, quick()));
    CHECK(good(stele::load<Two>(path)).weight[2] == 5);
    if (format->name() == "safetensors-sharded" || format->name() == "sdnb") continue;  // files that name each other
    std::filesystem::rename(path, dir / "other.thing");
    CHECK(good(stele::load<Two>(dir / "other.thing")).bias[1] == 2);
  }
}

TEST_CASE("front door: a file of one tensor") {
  const TempDir dir;
  good(stele::save(std::vector<float>{1, 2, 3}, dir / "w.dat", quick()));
  CHECK(good(stele::load<std::vector<float>>(dir / "w.dat"))[2] == 3);
}

TEST_CASE("front door: files of others, by content") {
  const std::string data = test_data();
  const std::pair<const char*, const char*> files[] = {
      {"/nnef/model.nnef", "nnef"},
      {"/nnef/model.nnef.tgz", "nnef-tgz"},
      {"/nnef/model.nnef.tar", "nnef-tgz"},
      {"/nnef/types/f32.dat", "nnef-tensor"},
      {"/nnef/by_hand/provisional_signed_16.dat", "nnef-tensor"},
      {"/paddle/lenet.pdiparams", "paddle"},
      {"/paddle/lenet_params/__params__", "paddle"},
      {"/paddle/single_f32.pdtensor", "paddle"},
      {"/paddle/lenet_folder", "paddle-folder"},
      {"/paddle/lenet_separate", "paddle-folder"},
      {"/paddle/nested_folder", "paddle-folder"},
  };
  for (const auto& known : files) {
    CAPTURE(known.first);
    const std::string path = data + known.first;
    const stele::SourcePtr source =
        good(std::filesystem::is_directory(path) ? stele::open_folder(path) : stele::open_file(path));
    CHECK(good(stele::format_of_content(*source))->name() == known.second);
  }
}

TEST_CASE("front door: a folder of nothing known") {
  const TempDir dir;
  std::ofstream(dir / "notes.txt") << "text";
  CHECK(code_of(stele::open(dir.path())) == stele::Errc::bad_magic);
}

}  // namespace stele_test
