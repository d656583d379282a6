// Paddle: what opening reads, and where parameters point.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paddle_support.hpp"

namespace stele_test::paddle_lazy_test {

using namespace paddle;
using stele::Snapshot;

namespace {

/// A file that does not exist: what stands in it by place, zeros between.
class Sparse final : public stele::Source {
 public:
  explicit Sparse(std::uint64_t size) : Source("sparse"), size_(size) {}
  std::map<std::uint64_t, std::string> parts;
  std::uint64_t size() const noexcept override { return size_; }
  stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    REQUIRE(offset + out.size() <= size_);
    std::fill(out.begin(), out.end(), std::byte{});
    for (auto part = parts.lower_bound(offset < 4096 ? 0 : offset - 4096);
         part != parts.end() && part->first < offset + out.size(); ++part) {
      for (std::size_t i = 0; i < part->second.size(); ++i) {
        const std::uint64_t at = part->first + i;
        if (at >= offset && at < offset + out.size()) {
          out[static_cast<std::size_t>(at - offset)] = static_cast<std::byte>(part->second[i]);
        }
      }
    }
    read_ += out.size();
    ++calls_;
    return {};
  }
  std::uint64_t take() const { return read_.exchange(0); }
  std::uint64_t calls() const { return calls_.exchange(0); }

 private:
  std::uint64_t size_;
  mutable std::atomic<std::uint64_t> read_{0}, calls_{0};
};

}  // namespace

TEST_CASE("paddle: opening reads heads only") {
  constexpr std::uint64_t elements = 1 << 18;
  const std::string head = paddle_record(5, {elements}, "");
  const std::uint64_t step = head.size() + 4 * elements;
  const auto source = std::make_shared<Sparse>(1000 * step);
  for (std::uint64_t i = 0; i < 1000; ++i) source->parts[i * step] = head;
  source->parts[999 * step + head.size()] = "\0\0\x80\x3f"s;
  const Snapshot s = good(counting.open(stele::SourcePtr(source)));
  CHECK(s.leaf_count() == 1000);
  CHECK(s.byte_size() == 4000 * elements);
  CHECK(source->take() <= 1000 * 256 + 64);  // of 1,000,000 KiB
  CHECK(source->calls() <= 1001);
  float first = 0;
  good(good(s.checked_leaf(999)).read(0, std::as_writable_bytes(std::span(&first, 1))));
  CHECK(first == 1);
  CHECK(source->take() <= 4);
}

TEST_CASE("paddle: a file of 2 GiB, of holes") {
  const TempDir dir;
  const std::string path = dir / "holes.pdiparams";
  constexpr std::uint64_t elements = 1 << 27;
  {
    std::ofstream file(path, std::ios::binary);
    const std::string head = paddle_record(5, {elements}, "");
    for (std::uint64_t i = 0; i < 4; ++i) {
      file.seekp(static_cast<std::streamoff>(i * (head.size() + 4 * elements)));
      file << head;
    }
    REQUIRE(file.flush());
    std::filesystem::resize_file(path, 4 * (head.size() + 4 * elements));
  }
  /// Counts what is read of a file.
  class Counted final : public stele::Source {
   public:
    explicit Counted(stele::SourcePtr base) : Source(base->name()), base_(std::move(base)) {}
    std::uint64_t size() const noexcept override { return base_->size(); }
    stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      read += out.size();
      return base_->read_at(offset, out);
    }
    mutable std::atomic<std::uint64_t> read{0};

   private:
    stele::SourcePtr base_;
  };
  const auto counted = std::make_shared<Counted>(good(stele::open_file(path)));
  const Snapshot s = good(counting.open(stele::SourcePtr(counted)));
  CHECK(s.byte_size() == std::uint64_t{1} << 31U);
  CHECK(counted->read < 4096);
  LoadOptions view;
  view.storage = stele::Storage::mmap;
  CHECK(good(counting.open(path, view)).leaf_count() == 4);
}

TEST_CASE("paddle: views where the elements lie aligned") {
  const TempDir dir;
  // A head of 20 bytes, a description of `n`: floats lie aligned where that is a multiple of 4.
  const std::string aligned = paddle_record(5, {3}, std::string(12, 'a'));  // 24
  const std::string shifted = paddle_record(5, {}, "bbbb");                 // 22
  CHECK(aligned.size() % 4 == 0);
  write_text(dir / "m.pdiparams", aligned + shifted);
  LoadOptions options;
  options.storage = stele::Storage::mmap;
  stele::Report report;
  const Two two = good(plain.load<Two>(dir / "m.pdiparams", reporting(options, report)));
  CHECK(report.paths(stele::Report::What::copied) == std::vector<std::string>{"b"});
  CHECK(two.a.is_view());
  CHECK(!two.b.is_view());
  CHECK(std::memcmp(two.a.data(), "aaaaaaaaaaaa", 12) == 0);
  CHECK(std::memcmp(two.b.data(), "bbbb", 4) == 0);
  const Two mapped = good(plain.load<Two>(good(stele::map_file(dir / "m.pdiparams")), options));
  CHECK(mapped.a.is_view());
}

}  // namespace stele_test::paddle_lazy_test
