// Partitioned variables: any partition into rectangles reads as the whole tensor; others are refused.
#include <stele/recorders/tensorflow.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "encodings/tensor_bundle/slices.hpp"
#include "support/models.hpp"
#include "support/tensor_bundle.hpp"

namespace tensor_bundle_slices_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::tensor_bundle;
using namespace std::string_literals;
using Slice = detail::Box;
using detail::tensorflow::slice_key;
using Extents = std::vector<std::uint64_t>;

const TensorBundleRecorder<> recorder;

std::uint64_t count_of(const Extents& shape) { return element_count(shape).value(); }

/// The elements of a tensor: their numbers.
std::string elements_of(const Extents& shape) {
  std::string bytes;
  for (std::uint64_t i = 0; i < count_of(shape); ++i) bytes += u32(i);
  return bytes;
}

/// The elements of a slice of that tensor.
std::string elements_of(const Extents& shape, const Slice& slice) {
  std::string bytes;
  for (std::uint64_t i = 0; i < count_of(slice.length); ++i) {
    std::uint64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      at += (slice.start[d] + rest % slice.length[d]) * stride;
      rest /= slice.length[d];
    }
    bytes += u32(at);
  }
  return bytes;
}

std::string proto(const Slice& slice) {
  std::string text;
  for (std::size_t d = 0; d < slice.start.size(); ++d) {
    std::string axis = slice.start[d] != 0 ? number(1, slice.start[d]) : "";
    if (slice.length[d] != UINT64_MAX) axis += number(2, slice.length[d]);
    text += message(1, axis);
  }
  return text;
}

Files partitioned(const Extents& shape, const std::vector<Slice>& slices) {
  Files files;
  tensor_bundle::Entry whole{3, shape};
  for (const Slice& slice : slices) {
    whole.slices.push_back(proto(slice));
    Slice full = slice;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (full.length[d] == UINT64_MAX) full.length[d] = shape[d];
    }
    files.add(slice_key("v", slice), 3, full.length, elements_of(shape, full));
  }
  files.tensors.emplace_back("v", whole);
  return files;
}

Result<Snapshot> open(const Files& files) { return recorder.open(good(files.bundle()->open("x.index"))); }

/// Cuts a rectangle at random, again and again.
void cut(const Slice& whole, std::mt19937& random, int times, std::vector<Slice>& out) {
  const std::size_t axis = random() % whole.start.size();
  if (times == 0 || whole.length[axis] < 2) return out.push_back(whole);
  const std::uint64_t first = 1 + random() % (whole.length[axis] - 1);
  Slice a = whole, b = whole;
  a.length[axis] = first;
  b.start[axis] += first;
  b.length[axis] -= first;
  cut(a, random, times - 1, out);
  cut(b, random, times - 1, out);
}

}  // namespace

TEST_CASE("tensor bundle slices: keys are in ordered code") {
  CHECK(slice_key("ab", {{0, 2}, {3, 63}}) == "\0ab\0\1\1\2\x80\x83\x82\xbf"s);
  CHECK(slice_key("", {{64}, {8191}}) == "\0\0\1\1\1\xc0\x40\xdf\xff"s);
  CHECK(slice_key("\0\xff"s, {{8192}, {UINT64_MAX}}) == "\0\0\xff\xff\0\0\1\1\1\xe0\x20\0\x7f"s);
  CHECK(slice_key("a", {{std::uint64_t{1} << 55}, {std::uint64_t{1} << 62}}) ==
        "\0a\0\1\1\1\xff\x80\x80\0\0\0\0\0\0\xff\xc0\x40\0\0\0\0\0\0\0"s);
}

TEST_CASE("tensor bundle slices: random partitions of random tensors") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    Extents shape(1 + random() % 4);
    for (std::uint64_t& n : shape) n = 1 + random() % 9;
    std::vector<Slice> slices;
    cut({Extents(shape.size()), shape}, random, static_cast<int>(random() % 5), slices);
    std::shuffle(slices.begin(), slices.end(), random);
    const Snapshot opened = good(open(partitioned(shape, slices)));
    REQUIRE(opened.leaf_count() == 1);
    const LeafView leaf = opened.leaf(0);
    const std::string wanted = elements_of(shape);
    REQUIRE(good(content(leaf)) == wanted);
    for (int part = 0; part < 5; ++part) {
      const std::size_t first = random() % (wanted.size() / 4), size = random() % (wanted.size() / 4 - first) + 1;
      std::string some(4 * size, '\0');
      good(leaf.read(4 * first, std::as_writable_bytes(std::span(some))));
      REQUIRE(some == wanted.substr(4 * first, 4 * size));
    }
    // Without any slice, or with one twice, a part is left out or covered twice.
    if (slices.size() < 2) continue;
    std::vector<Slice> fewer(slices.begin() + 1, slices.end());
    REQUIRE(code_of(open(partitioned(shape, fewer))) == Errc::malformed);
    Files twice = partitioned(shape, slices);
    twice.tensors.back().second.slices.push_back(proto(slices[0]));
    REQUIRE(code_of(open(twice)) == Errc::malformed);
  }
}

TEST_CASE("tensor bundle slices: large slices, whole axes, tensors without elements") {
  const Extents shape{300, 1000};
  const Slice top{{0, 0}, {100, UINT64_MAX}}, bottom{{100, 0}, {200, UINT64_MAX}};
  const Files files = partitioned(shape, {top, bottom});
  CHECK(good(content(good(open(files)).leaf(0))) == elements_of(shape));
  const Slice left{{0, 0}, {300, 999}}, right{{0, 999}, {300, 1}};
  CHECK(good(content(good(open(partitioned(shape, {left, right}))).leaf(0))) == elements_of(shape));
  const Snapshot empty = good(open(partitioned({0, 4}, {{{0, 0}, {0, 2}}, {{0, 2}, {0, 2}}})));
  CHECK(good(content(empty.leaf(0))).empty());
  CHECK(good(content(good(open(partitioned({4}, {{{0}, {4}}, {{2}, {0}}}))).leaf(0))) == elements_of({4}));
}

TEST_CASE("tensor bundle slices: partitions that lie") {
  const Extents shape{4, 6};
  const std::vector<Slice> good_slices = {{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}};
  REQUIRE(open(partitioned(shape, good_slices)));
  const auto refused = [&](const std::vector<Slice>& slices) { return code_of(open(partitioned(shape, slices))); };
  CHECK(refused({{{0, 0}, {4, 2}}, {{0, 1}, {4, 4}}}) == Errc::malformed);  // overlap and gap
  CHECK(refused({{{0, 0}, {2, 6}}, {{2, 0}, {2, 3}}, {{0, 3}, {2, 3}}}) == Errc::malformed);
  CHECK(refused({{{0, 0}, {4, 2}}, {{0, 3}, {4, 4}}}) == Errc::malformed);  // beyond the tensor
  CHECK(refused({{{5, 0}, {1, 6}}}) == Errc::malformed);
  CHECK(refused({{{0, 0}, {4, 6}}, {{0, 0}, {4, 6}}}) == Errc::malformed);
  const auto changed = [&](auto change) {
    Files files = partitioned(shape, good_slices);
    change(files);
    return code_of(open(files));
  };
  CHECK(changed([](Files& f) { f.tensors.erase(f.tensors.begin()); }) == Errc::malformed);
  CHECK(changed([](Files& f) { f.tensors.pop_back(); }) == Errc::malformed);  // slices of no tensor
  CHECK(changed([](Files& f) { f.tensors[0].second.dtype = 1; }) == Errc::malformed);
  CHECK(changed([](Files& f) { f.tensors[0].second.shape = {2, 4}; }) == Errc::malformed);
  CHECK(changed([](Files& f) { f.tensors.back().second.slices.push_back(message(1, number(2, 4))); }) ==
        Errc::malformed);  // rank
  CHECK(changed([](Files& f) { f.tensors.back().second.slices.push_back(message(1, number(2, UINT64_MAX - 1))); }) ==
        Errc::malformed);
  CHECK(changed([](Files& f) { f.tensors.back().second.dtype = 7; }) == Errc::unsupported);
  CHECK(changed([](Files& f) {
          for (auto& [key, entry] : f.tensors) entry.dtype = 29;
        }) == Errc::malformed);  // sizes of one byte
  // A changed byte of a slice.
  Files files = partitioned(shape, good_slices);
  files.shards[0][5] = 'x';
  const Snapshot opened = good(open(files));
  const Error error = bad(content(opened.leaf(0)));
  CHECK(error.code() == Errc::checksum);
  CHECK(error.path() == "v");
  CHECK(error.offset() == 0U);
}

}  // namespace tensor_bundle_slices_test
