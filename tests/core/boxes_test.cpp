// Tensors in boxes: the check of their cover, and the tensor that is joined from leaves of all kinds.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.hpp"
#include "base/hash.hpp"
#include "leaves/boxes.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"

namespace boxes_test {

namespace {

using namespace stele;
using namespace stele_test;
using detail::Box;
using detail::check_cover;
using detail::IndexBudget;
using detail::JoinedBoxes;
using Extents = std::vector<Extent>;
using Boxes = std::vector<Box>;

Errc cover(const Boxes& boxes, const Extents& shape) {
  IndexBudget memory;
  return code_of(check_cover(boxes, shape, memory));
}

/// Cuts a box at random, again and again.
void cut(const Box& whole, std::mt19937& random, int times, Boxes& out) {
  const std::size_t axis = random() % whole.start.size();
  if (times == 0 || whole.length[axis] < 2) return out.push_back(whole);
  const Extent first = 1 + random() % (whole.length[axis] - 1);
  Box a = whole, b = whole;
  a.length[axis] = first;
  b.start[axis] += first;
  b.length[axis] -= first;
  cut(a, random, times - 1, out);
  cut(b, random, times - 1, out);
}

/// The kinds of leaves that a part may be.
enum class Kind { viewed, read, streamed, plain, hashed, crc, padded, hashed_view, count };

/// A file that is not in memory.
class File final : public Source {
 public:
  explicit File(std::string bytes) : Source("file"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error(Errc::truncated, "the file ends");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

struct Part {
  std::string bytes;
  SourcePtr source;
  File* file = nullptr;
  SourceRange range;
  bool damaged = false;
};

Status read_part(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  std::memcpy(out.data(), static_cast<const Part*>(at)->bytes.data() + offset, out.size());
  return {};
}
/// Passes pieces of 320 bytes, and then an error if the part is damaged.
Status stream_part(const void* at, std::uint64_t, std::uint64_t, PieceSink& sink, ReadContext&) {
  const Part& part = *static_cast<const Part*>(at);
  const auto all = bytes_of(part.bytes);
  const std::size_t step = all.size() < 10000 ? 320 : 32000;
  for (std::size_t i = 0; i < all.size(); i += step)
    STELE_TRY(sink.piece(all.subspan(i, std::min(step, all.size() - i))));
  return part.damaged ? Status(Error(Errc::checksum, "the part is damaged")) : Status();
}
constexpr LeafOps read_ops{.read = read_part};
constexpr LeafOps streamed_ops{.read = read_part, .stream = stream_part};
constexpr LeafOps located_ops{
    .locate = [](const void* at, std::uint64_t) { return static_cast<const Part*>(at)->range; }};

/// A tensor, cut into boxes.
struct Cut {
  Extents shape;
  std::size_t element;
  Boxes boxes;
  std::string whole;
  std::deque<Part> parts;
  std::deque<JoinedBoxes> joined;
  Snapshot snapshot;

  Cut(const Extents& extents, std::size_t size, const Boxes& cuts, const std::vector<Kind>& kinds)
      : shape(extents), element(size), boxes(cuts) {
    const std::uint64_t count = element_count(shape).value();
    whole.resize(static_cast<std::size_t>(count) * element);
    std::uint32_t state = 1;
    for (char& c : whole) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    std::vector<Provider> leaves;
    for (std::size_t i = 0; i < boxes.size(); ++i) leaves.push_back(leaf(boxes[i], kinds[i % kinds.size()]));
    joined.emplace_back(shape, element, boxes, leaves);
    SnapshotBuilder builder;
    builder.set_flat();
    const DType dtype = element == 1 ? DType::u8 : element == 4 ? DType::f32 : DType::c128;
    builder.tensor("w", dtype, shape, whole.size(), joined.front().provider());
    snapshot = builder.finish();
  }

  std::string bytes_in(const Box& box) const {
    std::string bytes;
    if (std::find(box.length.begin(), box.length.end(), Extent{0}) != box.length.end()) return bytes;
    const std::size_t rank = shape.size();
    std::vector<Extent> at(rank);
    const Extent row = rank == 0 ? 1 : box.length.back();
    for (bool more = true; more;) {
      Extent first = 0;
      for (std::size_t d = 0; d < rank; ++d) first = first * shape[d] + box.start[d] + at[d];
      bytes.append(whole, static_cast<std::size_t>(first) * element, static_cast<std::size_t>(row) * element);
      more = false;
      for (std::size_t d = rank; !more && d-- > 1;) {
        more = ++at[d - 1] < box.length[d - 1];
        if (!more) at[d - 1] = 0;
      }
    }
    return bytes;
  }

  Provider leaf(const Box& box, Kind kind) {
    Part& part = parts.emplace_back();
    part.bytes = bytes_in(box);
    if (kind == Kind::viewed) return {&memory_ops, part.bytes.data(), 0};
    if (kind == Kind::read) return {&read_ops, &part, 0};
    if (kind == Kind::streamed) return {&streamed_ops, &part, 0};
    auto file = std::make_shared<File>("before" + part.bytes + std::string(700, '\0'));
    part.file = file.get();
    part.source = file;
    part.range = {file.get(), 6};
    if (kind == Kind::padded) part.range.zeros = 700;
    if (kind == Kind::hashed || kind == Kind::hashed_view) {
      part.range.hash = detail::hash64(part.bytes.data(), part.bytes.size());
    }
    if (kind == Kind::crc)
      part.range.crc = detail::crc32c, part.range.hash = detail::crc32c(0, part.bytes.data(), part.bytes.size());
    part.range.hashed = kind != Kind::plain && kind != Kind::padded;
    if (kind == Kind::hashed_view) {
      part.source = borrow_bytes(bytes_of(file->bytes()));
      part.range.source = part.source.get();
      files.push_back(file);
    }
    return {&located_ops, &part, 0};
  }
  std::vector<SourcePtr> files;
};

constexpr std::array all_kinds = {Kind::viewed, Kind::read, Kind::streamed, Kind::plain,
                                  Kind::hashed, Kind::crc,  Kind::padded,   Kind::hashed_view};
static_assert(all_kinds.size() == static_cast<std::size_t>(Kind::count));

void check_reads(const Cut& tensor, std::mt19937& random, int times) {
  const LeafView leaf = tensor.snapshot.leaf(0);
  REQUIRE(good(content(leaf)) == tensor.whole);
  const std::size_t count = tensor.whole.size() / tensor.element;
  for (int i = 0; i < times && count != 0; ++i) {
    const std::size_t first = random() % count, size = 1 + random() % (count - first);
    std::string some(tensor.element * size, '\0');
    good(leaf.read(tensor.element * first, std::as_writable_bytes(std::span(some))));
    REQUIRE(some == tensor.whole.substr(tensor.element * first, some.size()));
  }
}

}  // namespace

TEST_CASE("boxes: a cover has each element once") {
  CHECK(cover({{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}}, {4, 6}) == Errc::none);
  CHECK(cover({{{0, 0}, {4, 6}}}, {4, 6}) == Errc::none);
  CHECK(cover({{{}, {}}}, {}) == Errc::none);
  CHECK(cover({}, {0, 4}) == Errc::none);
  CHECK(cover({{{0, 0}, {0, 2}}, {{0, 2}, {0, 2}}}, {0, 4}) == Errc::none);
  CHECK(cover({{{0}, {4}}, {{2}, {0}}}, {4}) == Errc::none);
  // A pinwheel, which no cut along a whole axis makes.
  const Boxes pinwheel{{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  CHECK(cover(pinwheel, {3, 3}) == Errc::none);
  CHECK(cover(Boxes(pinwheel.begin(), pinwheel.end() - 1), {3, 3}) == Errc::malformed);
  CHECK(cover({{{0, 0}, {4, 2}}, {{0, 1}, {4, 4}}}, {4, 6}) == Errc::malformed);  // overlap and gap
  CHECK(cover({{{0, 0}, {2, 6}}, {{2, 0}, {2, 3}}, {{0, 3}, {2, 3}}}, {4, 6}) == Errc::malformed);
  CHECK(cover({{{0, 0}, {4, 2}}, {{0, 3}, {4, 4}}}, {4, 6}) == Errc::malformed);
  CHECK(cover({{{5, 0}, {1, 6}}}, {4, 6}) == Errc::malformed);
  CHECK(cover({{{0}, {4}}, {{0}, {4}}}, {4}) == Errc::malformed);
  CHECK(cover({}, {4}) == Errc::malformed);
  CHECK(cover({}, {}) == Errc::malformed);
  CHECK(cover({{{}, {}}, {{}, {}}}, {}) == Errc::malformed);
  CHECK(cover({{{0}, {4}}}, {4, 1}) == Errc::malformed);
  CHECK(cover({{{0, 0}, {4}}}, {4, 1}) == Errc::malformed);
  CHECK(cover({{{1}, {UINT64_MAX}}}, {4}) == Errc::malformed);
  CHECK(cover({{{UINT64_MAX}, {4}}}, {4}) == Errc::malformed);
  // Elements whose number exceeds 64 bits.
  const Extent huge = Extent{1} << 63;
  CHECK(cover({{{0, 0}, {huge, 1}}, {{0, 1}, {huge, huge - 1}}}, {huge, huge}) == Errc::none);
  CHECK(cover({{{0, 0}, {huge, 1}}, {{0, 1}, {huge, huge - 2}}}, {huge, huge}) == Errc::malformed);
  // Axes that are cut.
  const Extents nine(9, 2);
  Boxes halves{{Extents(9), nine}, {Extents(9), nine}};
  for (std::size_t d = 0; d < 9; ++d) halves[0].length[d] = 1;
  CHECK(cover(halves, nine) == Errc::unsupported);
  IndexBudget none;
  none.left() = 100;
  CHECK(code_of(check_cover(pinwheel, Extents{3, 3}, none)) == Errc::limit);
}

TEST_CASE("boxes: random covers, less a box, with one twice, with one moved") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Extents shape(1 + random() % 5);
    for (Extent& n : shape) n = 1 + random() % 9;
    Boxes boxes;
    cut({Extents(shape.size()), shape}, random, static_cast<int>(random() % 6), boxes);
    std::shuffle(boxes.begin(), boxes.end(), random);
    REQUIRE(cover(boxes, shape) == Errc::none);
    if (boxes.size() < 2) continue;
    Boxes other(boxes.begin() + 1, boxes.end());
    REQUIRE(cover(other, shape) == Errc::malformed);
    other = boxes;
    other[0] = other[1];
    REQUIRE(cover(other, shape) == Errc::malformed);
    other = boxes;
    other[0].start[random() % shape.size()] += 1;
    REQUIRE(cover(other, shape) == Errc::malformed);
  }
}

TEST_CASE("boxes: a tensor is joined from leaves of all kinds") {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    Extents shape(random() % 5);
    for (Extent& n : shape) n = 1 + random() % 9;
    Boxes boxes;
    if (shape.empty()) {
      boxes.push_back({});
    } else {
      cut({Extents(shape.size()), shape}, random, static_cast<int>(random() % 6), boxes);
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    std::vector<Kind> kinds(all_kinds.begin(), all_kinds.end());
    std::shuffle(kinds.begin(), kinds.end(), random);
    static constexpr std::size_t sizes[] = {1, 4, 16};
    check_reads(Cut(shape, sizes[random() % 3], boxes, kinds), random, 5);
  }
  check_reads(Cut({4}, 4, {{{2}, {0}}, {{0}, {4}}}, {Kind::plain}), random, 5);
  check_reads(Cut({0, 4}, 4, {{{0, 0}, {0, 2}}, {{0, 2}, {0, 2}}}, {Kind::plain}), random, 5);
}

TEST_CASE("boxes: parts that are larger than a block") {
  std::mt19937 random(7);
  // 40 MiB: with rows of 8 MiB, the second block begins inside the parts.
  const Extent rows = 5, columns = Extent{8} << 20, cut_at = 3000000;
  const Boxes by_columns{{{0, 0}, {rows, cut_at}}, {{0, cut_at}, {rows, columns - cut_at}}};
  const Boxes by_rows{{{0, 0}, {1, columns}}, {{1, 0}, {4, columns}}};
  const Boxes mixed{
      {{0, 0}, {rows, cut_at}}, {{0, cut_at}, {1, columns - cut_at}}, {{1, cut_at}, {4, columns - cut_at}}};
  const std::vector<Boxes> all{by_columns, by_rows, mixed};
  for (const Boxes& boxes : all) {
    const std::size_t step = &boxes == &all.front() && !sanitizers ? 1 : 3;
    for (std::size_t k = 0; k < all_kinds.size(); k += step) {
      CAPTURE(k);
      const std::vector<Kind> kinds{all_kinds[k], all_kinds[(k + 3) % all_kinds.size()]};
      Cut tensor({rows, columns}, 1, boxes, kinds);
      check_reads(tensor, random, 2);
      // Each part is checked, though its bytes are in two blocks.
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        Part& part = tensor.parts[i];
        const Kind kind = kinds[i % 2];
        if (kind == Kind::viewed || kind == Kind::read || kind == Kind::plain) continue;
        CAPTURE(i);
        part.damaged = true;
        const std::size_t at = kind == Kind::padded ? 6 + part.bytes.size() + 699 : 6 + part.bytes.size() - 1;
        char* const byte = part.file != nullptr ? &part.file->bytes()[at] : nullptr;
        if (byte != nullptr) *byte = static_cast<char>(*byte ^ 1);
        const Error error = bad(content(tensor.snapshot.leaf(0)));
        CHECK(error.code() == (kind == Kind::padded ? Errc::malformed : Errc::checksum));
        CHECK(error.path() == "w");
        part.damaged = false;
        if (byte != nullptr) *byte = static_cast<char>(*byte ^ 1);
      }
    }
  }
}

TEST_CASE("boxes: small parts are checked, and errors of reading are passed on") {
  const Boxes boxes{{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}};
  for (const Kind kind : {Kind::streamed, Kind::hashed, Kind::crc, Kind::padded, Kind::hashed_view}) {
    for (std::size_t i = 0; i < 2; ++i) {
      Cut tensor({4, 6}, 4, boxes, {kind});
      Part& part = tensor.parts[i];
      part.damaged = true;
      if (part.file != nullptr) part.file->bytes()[kind == Kind::padded ? 6 + part.bytes.size() : 6] ^= 1;
      CHECK(code_of(content(tensor.snapshot.leaf(0))) == (kind == Kind::padded ? Errc::malformed : Errc::checksum));
    }
  }
  Cut tensor({4, 6}, 4, boxes, {Kind::plain});
  tensor.parts[1].file->bytes().resize(30);
  CHECK(code_of(content(tensor.snapshot.leaf(0))) == Errc::truncated);
  std::string some(4 * 6, '\0');
  CHECK(tensor.snapshot.leaf(0).read(0, std::as_writable_bytes(std::span(some))).has_value());
  CHECK(code_of(tensor.snapshot.leaf(0).read(4 * 18, std::as_writable_bytes(std::span(some)))) == Errc::truncated);
}

}  // namespace boxes_test
