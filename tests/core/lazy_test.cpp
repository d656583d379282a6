// Laziness, for every file format: what is read when, and that no tensor is ever in memory as a whole.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "stele/precision/base64.hpp"
#include "support/any_recorder.hpp"
#include "support/child.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"

namespace lazy_test {

namespace {

using namespace stele;
using namespace stele_test;

constexpr std::uint64_t KiB = 1024;
constexpr std::uint64_t MiB = 1024 * KiB;

/// Counts what is read of memory that pretends to be a file.
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::span<const std::byte> bytes) : Source("counted"), bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    REQUIRE(offset <= bytes_.size());
    REQUIRE(out.size() <= bytes_.size() - offset);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read_ += out.size();
    return {};
  }
  std::uint64_t take() const { return read_.exchange(0); }

 private:
  std::span<const std::byte> bytes_;
  mutable std::atomic<std::uint64_t> read_{0};
};

template <class F>
bool has_format(const AnyRecorder& recorder) {
  return dynamic_cast<const F*>(&recorder.format().target()) != nullptr;
}

struct Sizes {
  std::vector<Tensor<float, 1>> leaves;
  Tensor<double, 1> last;
  STELE_MODULE(Sizes, leaves, last)
};

}  // namespace

static void check_reads(const AnyRecorder& recorder) {
  // Text is four characters for three bytes, with quotes around; what is compressed is read by frames.
  const std::uint64_t frame = has_format<ZstdJsonFormat>(recorder) ? MiB : 0;
  const auto in_file = [&](std::uint64_t n) { return is_json_file(recorder) ? n / 3 * 4 + 8 : n; };
  Sizes sizes;
  Random random(1);
  for (const std::size_t n : {10U, 300000U, 100U, 17000U, 16000U, 0U, 1000000U, 500000U, 3U, 70000U}) {
    sizes.leaves.emplace_back(Tensor<float, 1>({n}));
    random.fill(std::as_writable_bytes(sizes.leaves.back().span()));
  }
  sizes.last = Tensor<double, 1>({5}, {1, 2, 3, 4, 5});
  const auto bytes = saved(recorder, sizes);
  REQUIRE_MESSAGE(bytes, why(bytes));
  const auto source = std::make_shared<CountingSource>(bytes->span());
  const auto file = recorder.open(SourcePtr(source));
  REQUIRE_MESSAGE(file, why(file));
  const std::uint64_t index = bytes->size() - file->byte_size();
  CHECK(source->take() <= index + 64 * KiB);

  for (std::size_t i = 0; i < file->leaf_count(); ++i) {
    const LeafView leaf = file->leaf(i);
    CAPTURE(leaf.path());
    const auto all = content(leaf);
    REQUIRE_MESSAGE(all, why(all));
    CHECK(all->size() == leaf.byte_size());
    CHECK(source->take() <= in_file(leaf.byte_size()) + 256 * KiB + 2 * frame);
    if (leaf.size() < 3) continue;
    // A part reads no more than the part.
    std::byte row[8];
    REQUIRE(leaf.read(8 * (leaf.byte_size() / 16), row));
    CHECK(std::memcmp(row, all->data() + 8 * (leaf.byte_size() / 16), 8) == 0);
    CHECK(source->take() <= in_file(sizeof row) + frame);
  }

  // One pass over all of it reads little more than the file.
  REQUIRE(recorder.verify(SourcePtr(source)));
  CHECK(source->take() <= bytes->size() + bytes->size() / 4 + 256 * KiB + 4 * frame);
  REQUIRE(recorder.load<Sizes>(SourcePtr(source)));
  CHECK(source->take() <= bytes->size() + bytes->size() / 4 + 256 * KiB + 4 * frame);

  // A typed record reads nothing; a leaf of it only itself.
  const auto record = recorder.load<Record<Sizes>>(SourcePtr(source));
  REQUIRE_MESSAGE(record, why(record));
  CHECK(source->take() <= index + 64 * KiB);
  const auto one = record->leaves.at(7).load();
  REQUIRE_MESSAGE(one, why(one));
  CHECK((*one)[499999] == sizes.leaves[7][499999]);
  CHECK(source->take() <= in_file(4 * 500000) + 256 * KiB + 2 * frame);

  // Nor does a transform.
  const Snapshot half = with_precision(*file, {DType::f64, DType::none});
  CHECK(source->take() == 0);
  const auto converted = half.find("leaves.9");
  REQUIRE(converted);
  CHECK(converted->byte_size() == 8 * 70000);
  double part[2];
  REQUIRE(converted->read(8 * 69998, std::as_writable_bytes(std::span(part))));
  CHECK(part[1] == static_cast<double>(sizes.leaves[9][69999]));
  CHECK(source->take() <= in_file(8) + frame);
}

TEST_CASE_TEMPLATE("lazy: what is read", F, STELE_TEST_FORMATS) { check_reads(any_recorder<Recorder<F>>()); }

// ---- 4 GiB in 256 MiB -----------------------------------------------------------------------------------------------

namespace {

/// The bytes of a leaf that never exist at once: a pattern whose period is no multiple of any piece.
class Pattern {
 public:
  explicit Pattern(std::size_t p) : period(p), bytes_(period + (std::size_t{1} << 20)) {
    Random random(7);
    for (std::size_t i = 0; i < period; i += 8) {
      const std::uint64_t word = random.bits();
      std::memcpy(bytes_.data() + i, &word, 8);
    }
    repeat();
  }
  /// The same in base64; the period is a multiple of three.
  static Pattern base64(const Pattern& of) {
    Pattern text(of.period / 3 * 4);
    base64_encode(std::span(of.bytes_).first(of.period), reinterpret_cast<char*>(text.bytes_.data()));
    text.repeat();
    return text;
  }
  /// Up to 1 MiB of the pattern from `offset` on.
  const std::byte* at(std::uint64_t offset) const { return bytes_.data() + offset % period; }
  bool is(std::uint64_t offset, std::span<const std::byte> bytes) const {
    for (; !bytes.empty();) {
      const std::size_t n = std::min(bytes.size(), std::size_t{1} << 20);
      if (std::memcmp(at(offset), bytes.data(), n) != 0) return false;
      bytes = bytes.subspan(n);
      offset += n;
    }
    return true;
  }

  const std::size_t period;

 private:
  void repeat() {
    for (std::size_t i = period; i < bytes_.size(); ++i) bytes_[i] = bytes_[i - period];
  }
  std::vector<std::byte> bytes_;
};

const LeafOps pattern_ops{
    .read = [](const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) -> Status {
      std::memcpy(out.data(), static_cast<const Pattern*>(at)->at(offset), out.size());
      return {};
    }};

/// A file that is not kept: what the pattern gives is compared, only the rest is stored.
struct Outline {
  Outline(const Pattern& p, std::uint64_t n) : pattern(p), length(n) {}
  const Pattern& pattern;
  const std::uint64_t length;  // of the huge leaf, as far as it is the pattern
  std::vector<std::byte> head, tail;
  std::uint64_t total = 0;
  std::uint64_t leaf = 0;  // where the huge leaf begins; 0: not known yet
};

class OutlineSink final : public Sink {
 public:
  explicit OutlineSink(Outline& to) : Sink("outline"), to_(to) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (auto piece : pieces) STELE_TRY(add(piece));
    return {};
  }

 private:
  Status add(std::span<const std::byte> piece) {
    if (to_.leaf == 0) {
      to_.head.insert(to_.head.end(), piece.begin(), piece.end());
      to_.total += piece.size();
      const auto begin = to_.pattern.at(0);
      const auto found = std::search(to_.head.begin(), to_.head.end(), begin, begin + 64);
      if (found != to_.head.end()) to_.leaf = static_cast<std::uint64_t>(found - to_.head.begin());
      return to_.head.size() > 2 * MiB && to_.leaf == 0 ? Error(Errc::io, "the huge leaf does not begin") : Status();
    }
    const std::uint64_t end = to_.leaf + to_.length;
    if (to_.total < end) {
      const auto now = piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), end - to_.total)));
      if (!to_.pattern.is(to_.total - to_.leaf, now)) return Error(Errc::io, "other bytes than the leaf's");
      to_.total += now.size();
      piece = piece.subspan(now.size());
    }
    to_.tail.insert(to_.tail.end(), piece.begin(), piece.end());
    to_.total += piece.size();
    return {};
  }
  Outline& to_;
};

class OutlineSource final : public Source {
 public:
  explicit OutlineSource(const Outline& from) : Source("outline"), from_(from) {}
  std::uint64_t size() const noexcept override { return from_.total; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t end = from_.leaf + from_.length;
    while (!out.empty()) {
      std::size_t n = out.size();
      if (offset < from_.leaf) {
        n = std::min(n, static_cast<std::size_t>(from_.leaf - offset));
        std::memcpy(out.data(), from_.head.data() + offset, n);
      } else if (offset < end) {
        n = static_cast<std::size_t>(std::min<std::uint64_t>({n, end - offset, MiB}));
        std::memcpy(out.data(), from_.pattern.at(offset - from_.leaf), n);
      } else {
        if (offset - end > from_.tail.size() || n > from_.tail.size() - (offset - end)) {
          return Error(Errc::truncated, "beyond the end");
        }
        std::memcpy(out.data(), from_.tail.data() + (offset - end), n);
      }
      offset += n;
      out = out.subspan(n);
    }
    return {};
  }

 private:
  const Outline& from_;
};

class PatternCheck final : public PieceSink {
 public:
  explicit PatternCheck(const Pattern& pattern) : pattern_(pattern) {}
  Status piece(std::span<const std::byte> bytes) override {
    if (!pattern_.is(done, bytes)) return Error(Errc::io, "other bytes came back");
    largest = std::max(largest, bytes.size());
    done += bytes.size();
    return {};
  }
  std::uint64_t done = 0;
  std::size_t largest = 0;

 private:
  const Pattern& pattern_;
};

std::string save_and_load_huge(const AnyRecorder& recorder) {
  // Protocol buffers end at 2 GiB.
  const std::uint64_t huge = has_format<OnnxFormat>(recorder) ? 2047 * MiB : std::uint64_t{4} << 30;
  // A short period compresses to a file that fits the memory; else only the rest of the file is kept.
  const bool compressed = has_format<CompressedSteleFormat>(recorder) || has_format<ZstdJsonFormat>(recorder);
  const Pattern pattern(compressed ? 4096 + 128 : (std::size_t{256} << 10) + 128);
  const Pattern text = Pattern::base64(pattern);
  const float weight[3] = {1, 2, 3};
  const std::byte mask[2] = {std::byte{1}, std::byte{0}};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  builder.tensor("weight", DType::f32, std::vector<Extent>{3}, sizeof weight, {&memory_ops, weight, 0});
  builder.tensor("huge", DType::u8, std::vector<Extent>{4096, huge / 4096}, huge, {&pattern_ops, &pattern, 0});
  builder.tensor("mask", DType::boolean, std::vector<Extent>{2}, sizeof mask, {&memory_ops, mask, 0});
  const Snapshot snapshot = builder.finish();
  Outline file(is_json_file(recorder) ? text : pattern, is_json_file(recorder) ? huge / 3 * 4 : huge);
  SourcePtr source;
  if (compressed) {
    BufferSink sink;
    if (const auto r = recorder.save(snapshot, sink); !r) return "save: " + r.error().to_string();
    source = own_bytes(sink.take());
  } else {
    OutlineSink sink(file);
    if (const auto r = recorder.save(snapshot, sink); !r) return "save: " + r.error().to_string();
    if (file.total < huge) return "only " + std::to_string(file.total) + " bytes were written";
    source = std::make_shared<OutlineSource>(file);
  }

  const auto opened = recorder.open(source);
  if (!opened) return "open: " + opened.error().to_string();
  const auto leaf = opened->find("huge");
  if (!leaf || leaf->byte_size() != huge) return "the leaf is not there";
  PatternCheck check(pattern);
  ReadContext context;
  if (const auto r = leaf->stream(check, context); !r) return "load: " + r.error().to_string();
  if (check.done != huge) return "only " + std::to_string(check.done) + " bytes came back";
  if (check.largest > ReadContext::piece_size) return "a piece of " + std::to_string(check.largest) + " bytes";
  const auto small = content(opened->find("weight").value());
  if (!small || *small != text_of(std::as_bytes(std::span(weight)))) return "weight: " + why(small);
  const auto bools = content(opened->find("mask").value());
  return bools && *bools == text_of(mask) ? "" : "mask: " + why(bools);
}

}  // namespace

TEST_CASE_TEMPLATE("lazy: a leaf of 4 GiB in 256 MiB", F, STELE_TEST_FORMATS) {
  if (sanitizers) {
    MESSAGE("left out: a sanitizer needs more address space");
    return;
  }
  const AnyRecorder recorder = any_recorder<Recorder<F>>();
  const std::string problem = in_child([&]() -> std::string {
    // Threads of earlier tests may have reserved address space that nobody uses.
    const std::uint64_t now = address_space();
    const std::uint64_t limit = now < 128 * MiB ? 256 * MiB : now + 128 * MiB;
    const rlimit address{limit, limit};
    if (::setrlimit(RLIMIT_AS, &address) != 0) return "no limit";
    return save_and_load_huge(recorder);
  });
  CHECK(problem == "");
}

}  // namespace lazy_test
