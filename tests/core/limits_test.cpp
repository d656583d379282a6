// Limits of the memory that a file can request for its index, its tensors and a load's rows, and their settings.
#include <doctest/doctest.h>
#include <malloc.h>

#include <stele/report.hpp>

#include <fstream>

#include "base/limits.hpp"
#include "support/any_recorder.hpp"
#include "support/child.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"

namespace limits_test {

namespace {

using namespace stele;
using namespace stele_test;

struct Many {
  std::map<std::string, int> ids;
  std::vector<std::vector<float>> layers;
  STELE_MODULE(Many, ids, layers)
};

/// Returns the largest address space that this process has had, in bytes.
std::uint64_t peak_address_space() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmPeak:" && file >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE_TEMPLATE("limits: index_bytes replaces the bound of opening, both ways", F, STELE_TEST_FORMATS) {
  Many module;
  module.layers.resize(1000, {1.F});
  for (int i = 0; i < 1000; ++i) module.ids["key" + std::to_string(i)] = i;
  const AnyRecorder recorder = any_recorder<Recorder<F>>();
  const auto bytes = saved(recorder, module);
  REQUIRE_MESSAGE(bytes, why(bytes));
  CHECK(recorder.open(*bytes));
  LoadOptions options;
  options.limits.index_bytes = 4096;
  const auto refused = recorder.open(*bytes, options);
  CHECK(code_of(refused) == Errc::limit);
  options.limits.index_bytes = std::uint64_t{1} << 40;
  CHECK(recorder.open(*bytes, options));
}

TEST_CASE("limits: a budget counts what is there, and does not overflow") {
  detail::IndexBudget budget({}, 100, 3);
  CHECK(budget.left() == detail::index_base + 300);
  budget.admit(10, 64);
  CHECK(budget.left() == detail::index_base + 940);
  CHECK(budget.take(detail::index_base));
  CHECK_FALSE(budget.take(941));
  CHECK(budget.left() == 0);
  budget.admit(UINT64_MAX, 64);
  CHECK(budget.left() == UINT64_MAX);
  CHECK(detail::IndexBudget({}, UINT64_MAX).left() == UINT64_MAX);
  Limits limits;
  limits.index_bytes = 5;
  detail::IndexBudget fixed(limits, 100);
  fixed.admit(100);
  fixed.admit_compressed();
  CHECK(fixed.left() == 5);
}

TEST_CASE("limits: names of a file may not multiply its tensors without being asked for") {
  // One tensor under many names, into a class in which they are not shared.
  struct Lists {
    std::vector<std::vector<float>> all;
  };
  const auto file = [](std::size_t names, std::size_t elements) {
    struct Ties {
      std::vector<std::shared_ptr<std::vector<float>>> all;
    } ties;
    ties.all.assign(names, std::make_shared<std::vector<float>>(elements, 1.F));
    return saved(BinaryRecorder<>(), ties).value();
  };
  const BinaryRecorder<> recorder;
  constexpr std::size_t large = std::size_t{1} << 18;  // 1 MiB
  CHECK(recorder.load<Lists>(file(64, large)));
  const Bytes bomb = file(100, large);
  const auto loaded = recorder.load<Lists>(bomb);
  CHECK(code_of(loaded) == Errc::limit);
  LoadOptions asked;
  asked.limits.total_bytes = std::uint64_t{1} << 30;
  CHECK(recorder.load<Lists>(bomb, asked));
  CHECK(recorder.load<Lists>(file(10'000, 1)));  // small ones may
}

TEST_CASE("limits: wider dtypes and zeros load by default") {
  struct Narrow {
    Tensor<std::int8_t, 1> w;
  };
  struct Wide {
    Tensor<std::int64_t, 1> w;
  };
  constexpr Extent n = std::uint64_t{32} << 20;
  const Narrow narrow{Tensor<std::int8_t, 1>::zeros({n})};
  const auto check = [&](const auto& recorder) {
    const auto bytes = saved(recorder, narrow);
    REQUIRE(bytes);
    const auto opened = recorder.template load<Wide>(*bytes);
    CHECK_MESSAGE(opened, why(opened));
    if (opened) CHECK(opened->w.size() == n);
  };
  check(BinaryRecorder<>());
  check(CompressedRecorder<>());
  check(Recorder<ZstdJsonFormat>());
  check(Recorder<GzipJsonFormat>());
}

TEST_CASE("limits: a load keeps to the bound of opening, whatever its paths are") {
  if (sanitizers) return;
  // One key of a megabyte over 20,000 entries: each entry's path is as long.
  constexpr std::size_t entries = 20'000;
  const auto file = [&](const std::string& entry) {
    std::string text = R"({"format":"stele-json","version":1,"metadata":{},"record":{"w":{"$dtype":"F32","shape":[2],)"
                       R"("data":"AACAPwAAAEA="},"all":{")" +
                       std::string(1'000'000, 'k') + "\":{";
    for (std::size_t i = 0; i < entries; ++i) text += (i != 0 ? ",\"" : "\"") + std::to_string(i) + "\":" + entry;
    return text + "}}}}";
  };
  struct Weight {
    std::vector<float> w;
  };
  struct Maps {
    std::vector<float> w;
    std::map<std::string, std::map<std::string, std::vector<float>>> all;
  };
  const auto within = [](const std::string& text, auto load) {
    ::malloc_trim(0);
    return in_child([&]() -> std::string {
      ::mallopt(M_MMAP_THRESHOLD, 1 << 16);
      const std::uint64_t before = address_space();
      const std::string problem = load(text);
      const std::uint64_t taken = peak_address_space() - before;
      const std::uint64_t bound = detail::index_rate::character * text.size() + detail::index_base;
      return taken <= bound ? problem : std::to_string(taken >> 20) + " MiB of " + std::to_string(bound >> 20);
    });
  };
  const Recorder<PlainJsonFormat> recorder;
  CHECK(within(file("1"), [&](const std::string& text) -> std::string {
          Weight made;
          made.w.resize(2);
          const auto loaded = recorder.load_into(made, bytes_of(text));
          if (loaded || loaded.error().code() != Errc::unused) return why(loaded);
          if (loaded.error().report()->count(Report::What::unused) != entries) return "another count";
          return loaded.error().to_string().size() < 3000 ? "" : "a long message";
        }) == "");
  CHECK(within(file("1"), [&](const std::string& text) -> std::string {
          LoadOptions options;
          options.allow_unused = {"*"};
          Report report;
          const auto loaded = recorder.load<Weight>(bytes_of(text), reporting(options, report));
          if (!loaded) return why(loaded);
          return report.count(Report::What::unused) == entries ? "" : "another count";
        }) == "");
  CHECK(within(file(R"({"$dtype":"F32","shape":[1],"data":"AACAPw=="})"), [&](const std::string& text) -> std::string {
          LoadOptions options;
          options.threads = 1;
          Report report;
          const auto loaded = recorder.load<Maps>(bytes_of(text), reporting(options, report));
          if (!loaded) return why(loaded);
          return report.count(Report::What::applied) == entries + 1 ? "" : "another count";
        }) == "");
}

}  // namespace limits_test
