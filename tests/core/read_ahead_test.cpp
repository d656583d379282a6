#include <doctest/doctest.h>
#include <stele/stele.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "support/temp_dir.hpp"

namespace read_ahead_test {

namespace {

using namespace stele;

/// A source whose reads are counted, and take time.
class Slow final : public Source {
 public:
  explicit Slow(std::vector<std::byte> bytes, std::chrono::microseconds wait = {})
      : Source("slow"), bytes_(std::move(bytes)), wait_(wait) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const unsigned now = ++active_;
    unsigned most = most_at_once.load();
    while (most < now && !most_at_once.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(wait_);
    --active_;
    {
      const std::lock_guard lock(mutex_);
      reads.push_back({offset, out.size()});
    }
    if (offset <= bad && bad < offset + out.size()) return Error(Errc::io, "a bad byte").offset(bad);
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error(Errc::truncated, "the end");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  std::uint64_t total() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const ByteRange& r : reads) sum += r.size;
    return sum;
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return reads.size();
  }

  mutable std::vector<ByteRange> reads;
  mutable std::atomic<unsigned> most_at_once{0};
  std::atomic<std::uint64_t> bad{UINT64_MAX};

 private:
  std::vector<std::byte> bytes_;
  std::chrono::microseconds wait_;
  mutable std::mutex mutex_;
  mutable std::atomic<unsigned> active_{0};
};

std::vector<std::byte> noise(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::minstd_rand engine(1);
  for (std::byte& b : bytes) b = static_cast<std::byte>(engine());
  return bytes;
}

bool same(const Source& source, std::uint64_t offset, std::size_t size, const std::vector<std::byte>& all) {
  std::vector<std::byte> out(size);
  const auto read = source.read_at(offset, out);
  REQUIRE_MESSAGE(read, read.error().to_string());
  return std::equal(out.begin(), out.end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
}

constexpr std::size_t kib = 1024;

}  // namespace

TEST_SUITE("concurrency") {
  TEST_CASE("read ahead: any reads return the bytes, on any threads, with any announcements") {
    const auto all = noise(3'000'000);
    const auto slow = std::make_shared<Slow>(all);
    const SourcePtr source = read_ahead(slow, {.requests = 4, .memory = 512 * kib, .request = 64 * kib});
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 engine(t);
        for (int i = 0; i < 300; ++i) {
          const std::uint64_t offset = engine() % all.size();
          const std::size_t size =
              std::min<std::size_t>(engine() % (i % 10 == 0 ? 400'000 : 5'000), all.size() - offset);
          if (i % 3 == 0) {
            const ByteRange ranges[] = {{offset, size}, {std::min<std::uint64_t>(offset + 2 * size, all.size()), size}};
            source->will_read(ranges);
          }
          if (i % 50 == 49) source->will_read({});
          std::vector<std::byte> out(size);
          if (!source->read_at(offset, out) ||
              !std::equal(out.begin(), out.end(), all.begin() + static_cast<std::ptrdiff_t>(offset)))
            ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("read ahead: announced ranges are joined over small gaps, split, and read several at a time") {
    const auto all = noise(8'000'000);
    const auto slow = std::make_shared<Slow>(all, std::chrono::milliseconds(2));
    const SourcePtr source = read_ahead(slow, {.requests = 8, .gap = 100, .request = 256 * kib});
    std::vector<ByteRange> ranges;
    for (std::uint64_t at = 0; at < 4'000'000; at += 1000) ranges.push_back({at, 950});
    ranges.push_back({5'000'000, 2'000'000});
    source->will_read(ranges);
    for (const ByteRange& range : ranges) REQUIRE(same(*source, range.offset, range.size, all));
    CHECK(slow->count() <= 4'000'000 / (200 * kib) + 9);
    CHECK(slow->total() <= 6'000'000);  // nothing is read twice
    CHECK(slow->most_at_once > 3);
    CHECK(slow->most_at_once <= 9);
  }

  TEST_CASE("read ahead: what nobody reads does not fill the memory, and is withdrawn") {
    const auto all = noise(4'000'000);
    const auto slow = std::make_shared<Slow>(all);
    {
      const SourcePtr source = read_ahead(slow, {.requests = 4, .memory = 300 * kib, .request = 100 * kib});
      const ByteRange whole{0, all.size()};
      source->will_read({&whole, 1});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK(slow->total() <= 400 * kib);
      source->will_read({});
      CHECK(same(*source, 3'000'000, 1000, all));
    }
    CHECK(slow->total() <= 600 * kib);
  }

  TEST_CASE("read ahead: reads in another order than the file's") {
    const auto all = noise(4'000'000);
    const auto slow = std::make_shared<Slow>(all);
    const SourcePtr source = read_ahead(slow, {.requests = 4, .memory = 64 << 20, .request = 100 * kib});
    const ByteRange whole{0, all.size()};
    source->will_read({&whole, 1});
    for (std::size_t at = all.size(); at != 0; at -= 40'000) REQUIRE(same(*source, at - 40'000, 40'000, all));
    CHECK(slow->total() == all.size());
  }

  TEST_CASE("read ahead: an error belongs to the range, and a later read tries again") {
    const auto all = noise(1'000'000);
    const auto slow = std::make_shared<Slow>(all);
    slow->bad = 555'555;
    const SourcePtr source = read_ahead(slow, {.requests = 4, .request = 100 * kib});
    const ByteRange whole{0, all.size()};
    source->will_read({&whole, 1});
    CHECK(same(*source, 0, 100'000, all));
    std::vector<std::byte> out(10);
    const auto failed = source->read_at(555'550, out);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().message() == "a bad byte");
    slow->bad = UINT64_MAX;
    CHECK(same(*source, 555'550, 10, all));
    REQUIRE_FALSE(source->read_at(all.size() - 5, out));
  }
}

TEST_CASE("read ahead: small reads share blocks, also at the end, and reads in order are read ahead") {
  const auto all = noise(2'000'000);
  const auto slow = std::make_shared<Slow>(all);
  Bytes head(64 * kib);
  std::copy_n(all.begin(), head.size(), head.data());
  const SourcePtr source = read_ahead(slow, {}, std::move(head));
  CHECK(same(*source, 0, 8, all));
  CHECK(same(*source, 8, 1000, all));
  CHECK(slow->count() == 0);
  CHECK(same(*source, all.size() - 22, 22, all));
  CHECK(same(*source, all.size() - 4000, 3000, all));
  CHECK(slow->count() == 1);
  for (std::size_t at = 100'000; at + 1000 <= 1'900'000; at += 1000) REQUIRE(same(*source, at, 1000, all));
  CHECK(slow->count() < 15);
  CHECK(slow->total() < 2'300'000);
}

TEST_CASE("read ahead: a load announces what it reads, and no more") {
  struct Layer {
    Tensor<float, 2> weight = Tensor<float, 2>::filled({64, 64}, 1);
    Tensor<float, 1> bias;
  };
  struct Model {
    std::vector<Layer> layers;
  };
  Model model;
  model.layers.resize(200);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    model.layers[i].bias = Tensor<float, 1>::filled({64}, static_cast<float>(i));
  }
  const stele_test::TempDir dir;
  for (const std::string name : {"m.safetensors", "m.stele", "m.gguf", "m.npz", "m.pt"}) {
    CAPTURE(name);
    REQUIRE(save(model, dir / name));
    auto file = open_file(dir / name);
    REQUIRE(file);
    std::vector<std::byte> bytes((*file)->size());
    REQUIRE((*file)->read_at(0, bytes));
    const auto slow = std::make_shared<Slow>(bytes, std::chrono::milliseconds(1));
    auto loaded = load<Model>(read_ahead(slow, {.request = 256 * kib}));
    REQUIRE_MESSAGE(loaded, loaded.error().to_string());
    CHECK(loaded->layers[199].bias.data()[63] == 199);
    // A zip file has a header before each entry, which is read when the file is opened.
    const std::size_t times = name.ends_with("z") || name.ends_with("t") ? 2 : 1;
    CHECK(slow->total() < times * bytes.size() + 200 * kib);
    CHECK(slow->count() < times * bytes.size() / (256 * kib) + 16);
  }
}

}  // namespace read_ahead_test
