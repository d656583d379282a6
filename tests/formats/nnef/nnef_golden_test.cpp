// NNEF: files that other programs wrote, or that were made by hand.
#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "nnef_support.hpp"
#include "support/golden_text.hpp"

namespace stele_test::nnef_golden_test {

using namespace nnef;
using stele::Errc;

namespace {

/// A line of expected.txt: its README.md says what is in it.
struct Fact {
  std::string file, label, type, shape, hex;
  std::string meaning;  // empty: none
};

std::vector<Fact> all_facts() {
  std::vector<Fact> list;
  std::ifstream in(nnef_golden("expected.txt"));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    Fact fact;
    std::getline(fields, fact.file, '\t');
    std::getline(fields, fact.type, '\t');
    std::getline(fields, fact.shape, '\t');
    std::getline(fields, fact.hex, '\t');
    std::getline(fields, fact.meaning, '\t');
    if (const auto colon = fact.file.find(':'); colon != std::string::npos) {
      fact.label = fact.file.substr(colon + 1);
      fact.file.resize(colon);
    }
    list.push_back(std::move(fact));
  }
  return list;
}

std::string path_of_label(std::string label) {
  if (label.starts_with('/')) label.erase(0, 1);
  std::string path;
  for (const char c : label) path += c == '/' ? std::string(".") : c == '.' ? std::string("\\.") : std::string(1, c);
  return path;
}

/// f64 numbers in hexadecimal, little-endian.
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> list;
  for (std::size_t at = 0; at + 16 <= text.size(); at += 16) {
    std::uint64_t bits = 0;
    for (std::size_t k = 8; k-- > 0;) bits = bits << 8 | std::stoull(text.substr(at + 2 * k, 2), nullptr, 16);
    list.push_back(std::bit_cast<double>(bits));
  }
  return list;
}

}  // namespace

TEST_CASE("nnef: golden files") {
  std::map<std::string, Snapshot> opened;
  std::map<std::string, std::size_t> counts;
  const std::vector<Fact> facts = all_facts();
  REQUIRE(facts.size() > 50);
  for (const Fact& fact : facts) {
    CAPTURE(fact.file);
    CAPTURE(fact.label);
    if (!opened.contains(fact.file)) opened.emplace(fact.file, good(NnefRecorder<>{}.open(nnef_golden(fact.file))));
    const Snapshot& snapshot = opened.at(fact.file);
    ++counts[fact.file];
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.checked_leaf(0))) : snapshot.find(path_of_label(fact.label));
    REQUIRE(leaf);
    CHECK(type_text(*leaf) == fact.type);
    CHECK(shape_text(leaf->shape(), "-") == fact.shape);
    CHECK(hex(in_file_order(good(content(*leaf)), leaf->dtype())) == fact.hex);
  }
  stele::LoadOptions options;
  options.dequantize = true;
  for (const Fact& fact : facts) {
    if (fact.meaning.empty() || fact.label.ends_with("channels")) continue;
    CAPTURE(fact.file);
    CAPTURE(fact.label);
    const Snapshot snapshot = good(NnefRecorder<>{}.open(nnef_golden(fact.file), options));
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.checked_leaf(0))) : snapshot.find(path_of_label(fact.label));
    REQUIRE(leaf);
    CHECK(leaf->dtype() == stele::DType::f32);
    const std::vector<double> wanted = numbers_of(fact.meaning);
    std::vector<float> found(wanted.size());
    REQUIRE(leaf->byte_size() == found.size() * sizeof(float));
    good(leaf->read(0, std::as_writable_bytes(std::span(found))));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CHECK(found[i] == doctest::Approx(static_cast<float>(wanted[i])).epsilon(1e-7));
    }
  }
  for (const auto& count : counts) {
    CAPTURE(count.first);
    CHECK(opened.at(count.first).leaf_count() == count.second);
  }
}

TEST_CASE("nnef: golden files are written again as they were") {
  std::size_t same = 0;
  for (const Fact& fact : all_facts()) {
    if (!fact.label.empty()) continue;
    CAPTURE(fact.file);
    const std::string& file = fact.file;
    const Snapshot opened = good(NnefRecorder<>().open(nnef_golden(file)));
    const bool older = file.starts_with("provisional/") || file.find("_0x1") != std::string::npos ||
                       file.find("signed_flag") != std::string::npos || file.find("provisional") != std::string::npos ||
                       file.find("limits_code_2") != std::string::npos || file.find("four_bytes") != std::string::npos;
    if (!older) {
      const auto bytes = good(saved(in(NnefContainer::tensor), opened));
      std::string wanted = read_text(nnef_golden(file));
      if (file == "by_hand/bool_8.dat") {  // all but 0 is true
        for (std::size_t i = 128; i < wanted.size(); ++i) wanted[i] = wanted[i] != 0;
      }
      CHECK(hex(text_of(bytes.span())) == hex(wanted));
      ++same;
      continue;
    }
    // Those of before become files of today with the same numbers.
    const auto bundle = folder_of(NnefRecorder<>(), opened);
    if (file == "by_hand/logarithmic_0x11_8_signed.dat") {
      CHECK(code_of(bundle) == Errc::not_representable);
      continue;
    }
    REQUIRE_MESSAGE(bundle, why(bundle));
    const auto names = names_of(**bundle);
    const std::string written = text_in(
        **bundle, *std::find_if(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".dat"); }));
    CHECK(word(written, 48) <= 5);
    CHECK(written.substr(52, 76) == std::string(76, '\0'));
    const Snapshot again = good(NnefRecorder<>().open(stele::bundle_source(*bundle)));
    CHECK(good(content(again.leaf(0))) == good(content(opened.leaf(0))));
    CHECK(type_text(again.leaf(0)) == type_text(opened.leaf(0)));
    stele::LoadOptions options;
    options.dequantize = true;
    if (fact.meaning.empty()) continue;
    CHECK(good(content(good(NnefRecorder<>().open(stele::bundle_source(*bundle), options)).leaf(0))) ==
          good(content(good(NnefRecorder<>().open(nnef_golden(file), options)).leaf(0))));
  }
  CHECK(same > 60);
}

}  // namespace stele_test::nnef_golden_test
