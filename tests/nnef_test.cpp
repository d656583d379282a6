// NNEF: tensor files, folders and archives of them.
#include <stele/bundle.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::NnefContainer;
using stele::NnefFormat;
using stele::NnefRecorder;
using stele::Snapshot;

namespace stele_test {
namespace {

std::string golden(const std::string& name) { return std::string(STELE_TEST_DATA) + "/nnef/" + name; }

/// A line of expected.txt: its README.md says what is in it.
struct Fact {
  std::string file, label, type, shape, hex;
  std::string meaning;  // empty: none
};

std::vector<Fact> all_facts() {
  std::vector<Fact> list;
  std::ifstream in(golden("expected.txt"));
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
  return text.empty() ? "-" : text;
}

/// "q" and the type as expected.txt has it: u12 is a u16 of which a save writes 12 bits.
std::string type_text(const stele::LeafView& leaf) {
  const stele::Annotations* notes = leaf.annotations();
  std::string type(stele::name(leaf.dtype()));
  if (notes == nullptr || type == "opaque" || type == "bool") return type;
  if (const auto bits = notes->find("nnef.bits"); bits != notes->end()) {
    type = type.substr(0, 1) + std::to_string(*bits->second.as_i64());
  }
  return (notes->contains("nnef.quantized") ? "q" : "") + type;
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
    if (!opened.contains(fact.file)) opened.emplace(fact.file, good(NnefRecorder<>{}.open(golden(fact.file))));
    const Snapshot& snapshot = opened.at(fact.file);
    ++counts[fact.file];
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.at(0))) : snapshot.find(path_of_label(fact.label));
    REQUIRE(leaf);
    CHECK(type_text(*leaf) == fact.type);
    CHECK(shape_text(leaf->shape()) == fact.shape);
    CHECK(hex(in_file_order(good(content(*leaf)), leaf->dtype())) == fact.hex);
  }
  stele::LoadOptions options;
  options.dequantize = true;
  for (const Fact& fact : facts) {
    if (fact.meaning.empty() || fact.label.ends_with("channels")) continue;
    CAPTURE(fact.file);
    CAPTURE(fact.label);
    const Snapshot snapshot = good(NnefRecorder<>{}.open(golden(fact.file), options));
    const auto leaf =
        fact.label.empty() ? std::optional(good(snapshot.at(0))) : snapshot.find(path_of_label(fact.label));
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
  for (const auto& [file, count] : counts) {
    CAPTURE(file);
    CHECK(opened.at(file).leaf_count() == count);
  }
}

}  // namespace stele_test
