// Paddle's parameter files.
#include <stele/bundle.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::PaddleFormat;
using stele::PaddleNames;
using stele::PaddleRecorder;
using stele::Snapshot;

namespace stele_test {
namespace {

std::string golden(const std::string& name) { return std::string(STELE_TEST_DATA) + "/paddle/" + name; }

/// A tensor as tests/interop/paddle_files.py describes it.
struct Fact {
  std::string name, dtype, shape, hex;
  std::vector<std::string> lod;
};

std::vector<Fact> facts(const std::string& name) {
  std::vector<Fact> list;
  std::ifstream in(golden(name + ".txt"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Fact fact;
    std::string quoted;
    words >> quoted >> fact.dtype >> fact.shape >> fact.hex;
    for (std::size_t i = 0; i < quoted.size(); ++i) {
      if (quoted[i] != '%') {
        fact.name += quoted[i];
        continue;
      }
      fact.name += static_cast<char>(std::stoi(quoted.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
    for (std::string level; words >> level;) fact.lod.push_back(level);
    list.push_back(std::move(fact));
  }
  return list;
}

std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    text += {digits[b >> 4], digits[b & 15]};
  }
  return text.empty() ? "-" : text;
}

std::string shape_text(std::span<const stele::Extent> shape) {
  std::string text;
  for (const stele::Extent e : shape) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? "scalar" : text;
}

void check_facts(const Snapshot& snapshot, const std::vector<Fact>& wanted, bool named) {
  REQUIRE(!wanted.empty());
  REQUIRE(snapshot.leaf_count() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const stele::LeafView leaf = good(snapshot.at(i));
    CAPTURE(wanted[i].name);
    CHECK(leaf.path() == (named ? wanted[i].name : std::to_string(i)));
    CHECK(stele::name(leaf.dtype()) == wanted[i].dtype);
    CHECK(shape_text(leaf.shape()) == wanted[i].shape);
    CHECK(hex(in_file_order(good(content(leaf)), leaf.dtype())) == wanted[i].hex);
  }
}

}  // namespace

TEST_CASE("paddle: golden files with their programs") {
  for (const std::string& name :
       {std::string("lenet"), std::string("lenet_old"), std::string("ernie_f32"), std::string("ernie_f16"),
        std::string("ernie_bf16"), std::string("ernie_i8"), std::string("adam"), std::string("adam_old"),
        std::string("blocks"), std::string("buffers"), std::string("buffers_old"), std::string("readable"),
        std::string("dtypes_old"), std::string("names")}) {
    CAPTURE(name);
    const PaddleRecorder<> recorder;
    const Snapshot snapshot = good(recorder.open(golden(name + ".pdiparams")));
    check_facts(snapshot, facts(name), true);
    stele::BufferSink sink;
    good(recorder.record(snapshot, sink));
    CHECK(text_of(sink.take().span()) == read_text(golden(name + ".pdiparams")));
  }
}

}  // namespace stele_test
