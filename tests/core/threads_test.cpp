// One save or load on several threads, its own or an executor's: the same bytes, numbers and errors as on one. Run
// under the thread sanitizer too.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace threads_test {

namespace {

using namespace stele;
using namespace stele_test;

/// Starts a thread for each part but the first, as a pool would.
class Pool final : public Executor {
 public:
  explicit Pool(unsigned most) : most_(most) {}
  unsigned concurrency() const noexcept override { return most_; }
  void run(std::size_t count, void (*part)(void* context, std::size_t i), void* context) override {
    ++runs;
    parts += count;
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back([=] { part(context, i); });
    part(context, 0);
    for (std::thread& t : threads) t.join();
  }
  std::atomic<std::size_t> runs{0}, parts{0};

 private:
  unsigned most_;
};

/// Parts that run one after the other, in an order that no threads would keep.
class Backwards final : public Executor {
 public:
  unsigned concurrency() const noexcept override { return 3; }
  void run(std::size_t count, void (*part)(void* context, std::size_t i), void* context) override {
    while (count != 0) part(context, --count);
  }
};

/// Tensors of all kinds of sizes and memory, more than one thread starts for.
struct Large {
  std::vector<Tensor<float, 1>> small;  // of odd sizes: zeros between them in the file
  Tensor<float, 2> large;
  std::vector<std::vector<float>> plain;  // no block can hold them
  std::vector<Tensor<bool, 1>> masks;     // checked as they are read
  Tensor<double, 1> last;
  std::vector<Tensor<std::int64_t, 1>> numbers;
  STELE_MODULE(Large, small, large, plain, masks, last, numbers)
};

Large large_model() {
  Large m;
  float next = 0.25F;
  for (std::size_t i = 0; i < 700; ++i) {
    const std::size_t n = i % 97 == 0 ? 40000 + i : i * 7 % 1100;
    m.small.emplace_back(Tensor<float, 1>({n}));
    for (float& x : m.small.back()) x = next = next < 1000 ? next + 0.5F : -next / 3;
    m.plain.emplace_back(i % 61, static_cast<float>(i));
    m.masks.push_back(Tensor<bool, 1>::filled({i % 5}, i % 2 == 0));
    m.numbers.push_back(Tensor<std::int64_t, 1>::filled({i % 9}, -static_cast<std::int64_t>(i)));
  }
  m.large = Tensor<float, 2>({300, 1000});
  for (std::size_t i = 0; i < m.large.size(); ++i) m.large.data()[i] = static_cast<float>(i % 1013);
  m.last = Tensor<double, 1>::filled({200000}, 0.125);
  return m;
}

template <class Options>
Options on(unsigned threads, Executor* executor = nullptr) {
  Options options;
  options.threads = threads;
  options.executor = executor;
  return options;
}

TEST_SUITE_BEGIN("concurrency");

STELE_TEST_EACH_RECORDER("threads: a save gives the same bytes on any number of them") {
  const Large m = large_model();
  const Bytes expected = good(saved(recorder, m, on<SaveOptions>(1)));
  Pool pool(3);
  Backwards backwards;
  for (const SaveOptions& options : {on<SaveOptions>(0), on<SaveOptions>(2), on<SaveOptions>(7),
                                     on<SaveOptions>(0, &pool), on<SaveOptions>(0, &backwards)}) {
    const Bytes bytes = good(saved(recorder, m, options));
    CHECK(text_of(bytes.span()) == text_of(expected.span()));
  }
}

STELE_TEST_EACH_RECORDER("threads: a load gives the same numbers on any number of them") {
  const Large m = large_model();
  const Bytes bytes = good(saved(recorder, m));
  const TempDir dir;
  const std::string path = dir / "m";
  write_text(path, std::string(text_of(bytes.span())));
  const Bytes expected = good(saved(BytesRecorder<>(), m));
  const auto same = [&](const Large& other) {
    const Bytes now = good(saved(BytesRecorder<>(), other));
    return text_of(now.span()) == text_of(expected.span());
  };
  Pool pool(3);
  Backwards backwards;
  for (const LoadOptions& options : {on<LoadOptions>(1), on<LoadOptions>(2), on<LoadOptions>(7),
                                     on<LoadOptions>(0, &pool), on<LoadOptions>(0, &backwards)}) {
    Report report;
    Large back = good(recorder.load<Large>(path, reporting(options, report)));
    CHECK(same(back));
    CHECK(report.count(Report::What::applied) == report.size());
    for (Tensor<float, 1>& t : back.small) {
      CHECK(!t.is_view());
      CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
      for (float& x : t) x = 0;
    }
    Report again;
    good(recorder.load_into(back, path, reporting(options, again)));
    CHECK(again.size() == report.size());
    CHECK(same(back));
    CHECK(same(good(recorder.load<Large>(bytes, options))));
    good(recorder.verify(path, options));
  }
  CHECK(pool.runs > 0);
}

/// Fails at the write that passes `most` bytes.
class ShortSink final : public Sink {
 public:
  explicit ShortSink(std::size_t most) : Sink("short"), most_(most) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto& piece : pieces) used_ += piece.size();
    return used_ > most_ ? Error(Errc::no_space, "full") : Status();
  }

 private:
  std::size_t most_, used_ = 0;
};

STELE_TEST_EACH_RECORDER("threads: what is converted is made ahead of the writing") {
  struct Two {
    Tensor<double, 1> a, b;
  };
  Two m{Tensor<double, 1>({2'300'001}), Tensor<double, 1>({1'200'000})};
  for (std::size_t i = 0; i < m.a.size(); ++i) m.a[i] = static_cast<double>(i % 2000) / 7;
  for (std::size_t i = 0; i < m.b.size(); ++i) m.b[i] = -static_cast<double>(i % 2000) / 7;
  const auto full = at_precision_of<FullPrecision>(recorder);
  const Bytes expected = good(saved(full, m, on<SaveOptions>(1)));
  const Bytes bytes = good(saved(full, m, on<SaveOptions>(2)));
  CHECK(text_of(bytes.span()) == text_of(expected.span()));

  for (const std::size_t most : {std::size_t{0}, bytes.size() / 4, bytes.size() / 2}) {
    ShortSink sink(most);
    CHECK(bad(full.save(m, sink, on<SaveOptions>(2))).code() == Errc::no_space);
  }
  m.a[2'000'000] = 1e300;  // becomes infinite
  BufferSink sink;
  const Error e = bad(full.save(m, sink, on<SaveOptions>(2)));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.path() == "a");
  CHECK(e.found().find("2000000") != std::string::npos);
}

TEST_CASE("threads: an executor does what is left of one save, never with threads = 1") {
  const Large m = large_model();
  Pool pool(4);
  const BytesRecorder<> recorder;
  const Bytes bytes = good(saved(recorder, m, on<SaveOptions>(1, &pool)));
  static_cast<void>(good(recorder.load<Large>(bytes, on<LoadOptions>(1, &pool))));
  CHECK(pool.runs == 0);
  static_cast<void>(good(recorder.load<Large>(bytes, on<LoadOptions>(3, &pool))));
  CHECK(pool.runs == 1);
  CHECK(pool.parts == 3);
  static_cast<void>(good(recorder.load<Large>(bytes, on<LoadOptions>(0, &pool))));
  CHECK(pool.parts == 7);
}

TEST_CASE("threads: the error is that of the first damaged tensor, whatever their number") {
  const Large m = large_model();
  const BinaryRecorder<> recorder;
  const Bytes bytes = good(saved(recorder, m));
  std::string damaged(text_of(bytes.span()));
  const Snapshot snapshot = good(BytesRecorder<>().open(bytes));
  for (const char* path : {"small.650", "small.4", "large", "last"}) {
    const LeafView leaf = snapshot.find(path).value();
    damaged[static_cast<std::size_t>(leaf.view().data() - bytes.data()) + 8] ^= 1;
  }
  const TempDir dir;
  write_text(dir / "m", damaged);
  for (const unsigned threads : {1U, 2U, 8U}) {
    const auto options = on<LoadOptions>(threads);
    const Error fresh = bad(recorder.load<Large>(dir / "m", options));
    CHECK(fresh.code() == Errc::checksum);
    CHECK(fresh.path() == "small.4");
    Large live = large_model();
    live.last[0] = 3;
    const Error in_place = bad(recorder.load_into(live, dir / "m", options));
    CHECK(in_place.path() == "small.4");
    CHECK(!in_place.partially_applied());
    CHECK(live.last[0] == 3);
    CHECK(recorder.verify(dir / "m", options).error().path() == "small.4");
  }
}

TEST_CASE("blocks: tensors of a loaded model share memory, and each keeps what it needs of it") {
  const Large m = large_model();
  const Bytes bytes = good(saved(BytesRecorder<>(), m));
  Tensor<float, 1> kept, copy;
  {
    Large back = good(BytesRecorder<>().load<Large>(bytes));
    const auto* first = reinterpret_cast<const std::byte*>(back.small[3].data());
    const auto* second = reinterpret_cast<const std::byte*>(back.small[4].data());
    CHECK(second - first == static_cast<std::ptrdiff_t>((back.small[3].size() * sizeof(float) + 63) / 64 * 64));
    kept = std::move(back.small[5]);
    copy = back.small[6];
  }
  CHECK(std::equal(kept.begin(), kept.end(), m.small[5].begin(), m.small[5].end()));
  CHECK(std::equal(copy.begin(), copy.end(), m.small[6].begin(), m.small[6].end()));
}

TEST_SUITE_END();

}  // namespace

}  // namespace threads_test
