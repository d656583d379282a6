// Errors that are met while bytes flow, conversions on load, and tensors that view the file.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/snapshot.hpp>
#include <stele/source.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace data_test {

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::LoadOptions;
using stele::Param;
using stele::Report;
using stele::Snapshot;
using stele::Tensor;

namespace {

/// A file that counts what is read of it, and fails when told to.
struct FakeFile {
  struct Leaf {
    std::string name;
    DType dtype;
    std::vector<std::byte> bytes;
  };
  std::vector<Leaf> leaves;
  mutable std::vector<int> reads;  // of each leaf
  int fails_at = -1;               // this read (of leaf `broken`) and all after it fail
  std::size_t broken = 0;
  bool throws = false;

  template <class T>
  void add(std::string name, const std::vector<T>& numbers, DType dtype = stele::dtype_of_v<T>) {
    const auto bytes = std::as_bytes(std::span(numbers));
    leaves.push_back({std::move(name), dtype, {bytes.begin(), bytes.end()}});
    reads.push_back(0);
  }

  static stele::Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                            stele::ReadContext&) {
    const auto& file = *static_cast<const FakeFile*>(at);
    const int count = file.reads[number]++;
    if (number == file.broken && file.fails_at >= 0 && count >= file.fails_at) {
      if (file.throws) throw std::runtime_error("the disk is gone");
      return stele::Error(Errc::io, "the disk is gone");
    }
    std::memcpy(out.data(), file.leaves[number].bytes.data() + offset, out.size());
    return {};
  }
  Snapshot open() const {
    static constexpr stele::LeafOps ops{.read = read};
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const stele::Extent shape[] = {leaves[i].bytes.size() / stele::element_size(leaves[i].dtype)};
      builder.tensor(builder.intern(leaves[i].name), leaves[i].dtype, shape, leaves[i].bytes.size(), {&ops, this, i});
    }
    return builder.finish();
  }
};

struct Model {
  Vec a;
  Tensor<float, 1> unset;
  Vec b;
  std::vector<float> c;
  Tensor<float> any;
};
Model model() { return {vec({1, 1}), {}, vec({2}), {3}, {}}; }
FakeFile file() {
  FakeFile f;
  f.add<float>("a", {10, 11});
  f.add<float>("unset", {12, 13, 14});
  f.add<float>("b", {15});
  f.add<float>("c", {16});
  f.add<float>("any", {17, 18});
  return f;
}

template <class T>
struct Numbers {
  std::vector<T> numbers;
  STELE_MODULE(Numbers, numbers)
};
template <class From, class To>
stele::Result<Numbers<To>> convert(std::vector<From> numbers, const LoadOptions& options = {}) {
  const Numbers<From> from{std::move(numbers)};
  return stele::load<Numbers<To>>(good(stele::snapshot_of(from)), options);
}

struct Viewing {
  Tensor<float, 2> plain;
  Param<Tensor<double, 1>> learned;
  Tensor<const float, 1> constant;
  Tensor<std::int32_t> whole;
  Tensor<bool, 1> truths;
  std::vector<float> sequence;
};
Viewing viewing() {
  return {mat(2, 3, 1),
          Param(Tensor<double, 1>({1}, {2.5}), stele::ParamId::from_u64(3)),
          Tensor<const float, 1>({2}, {7, 8}),
          Tensor<std::int32_t>({1, 1}, {9}),
          Tensor<bool, 1>({2}, {true, false}),
          {4, 5}};
}
LoadOptions as_view() {
  LoadOptions options;
  options.storage = stele::Storage::mmap;
  return options;
}
template <class T>
bool inside(std::span<const std::byte> memory, const T* pointer) {
  const auto* at = reinterpret_cast<const std::byte*>(pointer);
  return at >= memory.data() && at < memory.data() + memory.size();
}

}  // namespace

TEST_CASE("data: a leaf that streams another number of bytes than it declares") {
  // `number` is the number of bytes.
  static constexpr stele::LeafOps ops{
      .read =
          [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte> out, stele::ReadContext&) {
            std::fill(out.begin(), out.end(), std::byte{0});
            return stele::Status();
          },
      .stream = [](const void*, std::uint64_t number, std::uint64_t, stele::PieceSink& sink,
                   stele::ReadContext&) -> stele::Status {
        const std::vector<std::byte> zeros(static_cast<std::size_t>(number));
        return sink.piece(zeros);
      }};
  struct Weights {
    Tensor<float, 1> w;
  };
  for (const std::uint64_t bytes : {0U, 12U, 16U, 20U, 4096U}) {
    CAPTURE(bytes);
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    const stele::Extent shape[] = {4};
    builder.tensor("w", stele::DType::f32, shape, 16, {&ops, nullptr, bytes});
    const stele::Snapshot s = builder.finish();
    const auto check = [&](const auto& result) {
      REQUIRE(result.has_value() == (bytes == 16));
      if (result) return;
      CHECK(result.error().code() == Errc::malformed);
      CHECK(result.error().path() == "w");
      CHECK(result.error().expected() == "16 bytes");
      CHECK(result.error().found() == (bytes > 16 ? "at least " : "") + std::to_string(bytes) + " bytes");
    };
    check(stele::load<Weights>(s));
    check(stele::BytesRecorder<>{}.save(s));
    check(saved(stele::JsonRecorder<>{}, s));
    check(saved(stele::ArchiveRecorder<>{}, s));
  }
}

TEST_CASE("data: an error in the verifying pass changes nothing") {
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    FakeFile f = file();
    f.broken = 2;
    f.fails_at = 0;
    f.throws = throws;
    Model m = model();
    const Image before = image(m);
    Report report;
    const stele::Error e = bad(stele::load_into(m, f.open(), {.report = &report}));
    CHECK(e.code() == (throws ? Errc::user_exception : Errc::io));
    CHECK(e.message().find("the disk is gone") != std::string::npos);
    CHECK(e.path() == "b");
    CHECK_FALSE(e.partially_applied());
    REQUIRE(e.report() != nullptr);
    CHECK(e.report()->count(Report::What::applied) == 0);
    CHECK(image(m) == before);
    CHECK_FALSE(m.unset.is_set());
    CHECK_FALSE(m.any.is_set());
    CHECK(m.c.size() == 1);

    f.fails_at = -1;
    good(stele::load_into(m, f.open()));
    CHECK(m.unset[2] == 14);
    CHECK(m.any.shape() == stele::Shape{2});
  }
}

TEST_CASE("data: an error while a new module is made discards it") {
  FakeFile f = file();
  f.broken = 2;
  f.fails_at = 0;
  Report report;
  const stele::Error e = bad(stele::load<Model>(f.open(), {.report = &report}));
  CHECK(e.code() == Errc::io);
  CHECK(e.path() == "b");
  CHECK_FALSE(e.partially_applied());
  CHECK(f.reads == std::vector<int>{1, 1, 1, 0, 0});  // one pass, in the file's order
  f.throws = true;
  CHECK(bad(stele::load<Model>(f.open())).path() == "b");
}

TEST_CASE("data: trust_data skips the verifying pass") {
  FakeFile f = file();
  Model m = model();
  good(stele::load_into(m, f.open()));
  CHECK(f.reads == std::vector<int>(5, 2));
  LoadOptions trust;
  trust.trust_data = true;
  f = file();
  m = model();
  good(stele::load_into(m, f.open(), trust));
  CHECK(f.reads == std::vector<int>(5, 1));
  CHECK((*m.a)[1] == 11);
}

TEST_CASE("data: an error in the writing pass is told precisely") {
  const auto check = [](FakeFile& f, const LoadOptions& options) {
    Model m = model();
    const stele::Error e = bad(stele::load_into(m, f.open(), options));
    CHECK(e.code() == (f.throws ? Errc::user_exception : Errc::io));
    CHECK(e.path() == "b");
    CHECK(e.partially_applied());
    REQUIRE(e.report() != nullptr);
    CHECK(e.report()->paths(Report::What::applied) == Paths{"a", "unset"});
    CHECK((*m.a)[0] == 10);
    CHECK(m.unset[0] == 12);
    CHECK(m.c[0] == 3);
    CHECK(m.b->size() == 1);
    static_cast<void>(image(m));  // all of it is valid
  };
  FakeFile f = file();
  f.broken = 2;
  f.fails_at = 1;  // the disk fails between the passes
  check(f, {});
  f.throws = true;
  f.reads.assign(5, 0);
  check(f, {});
  LoadOptions trust;
  trust.trust_data = true;
  f.fails_at = 0;
  f.reads.assign(5, 0);
  check(f, trust);
}

TEST_CASE("data: an error in the middle of the very first tensor is partial too") {
  struct Big {
    std::vector<float> numbers;
  };
  FakeFile f;
  f.add("numbers", std::vector<float>(200000, 7));  // more than one piece
  f.fails_at = 1;
  Big m{std::vector<float>(200000, 1)};
  LoadOptions trust;
  trust.trust_data = true;
  const stele::Error e = bad(stele::load_into(m, f.open(), trust));
  CHECK(m.numbers[0] == 7);
  CHECK(m.numbers.back() == 1);
  CHECK(e.partially_applied());
  CHECK(e.report()->count(Report::What::applied) == 0);
}

TEST_CASE("data: integers convert when every number fits") {
  Report report;
  CHECK(good(convert<std::int64_t, std::int8_t>({1, -128, 127}, {.report = &report})).numbers[1] == -128);
  CHECK(report.paths(Report::What::converted) == Paths{"numbers"});
  CHECK(report[0].detail.find("i64 -> i8") == 0);
  CHECK(good(convert<std::uint8_t, std::int64_t>({255})).numbers[0] == 255);
  stele::Error e = bad(convert<std::int64_t, std::int8_t>({1, 2, 128}));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.path() == "numbers");
  CHECK(e.found().find("element 2") != std::string::npos);
  e = bad(convert<std::int32_t, std::uint32_t>({5, -1}));
  CHECK(e.found().find("element 1") != std::string::npos);
  // The index counts from the tensor's beginning, not from the piece's.
  std::vector<std::int32_t> many(300000, 1);
  many[299999] = 1000;
  CHECK(bad(convert<std::int32_t, std::int8_t>(many)).found().find("element 299999") != std::string::npos);
}

TEST_CASE("data: floats convert, what is lost is said") {
  Report report;
  CHECK(good(convert<float, double>({0.1F}, {.report = &report})).numbers[0] == static_cast<double>(0.1F));
  CHECK(report[0].detail == "f32 -> f64");
  Report lossy;
  CHECK(good(convert<double, float>({0.1}, {.report = &lossy})).numbers[0] == 0.1F);
  CHECK(lossy[0].what == Report::What::converted);
  CHECK(lossy[0].detail == "f64 -> f32, lossy");
  CHECK(good(convert<float, stele::float16>({1.5F, -2})).numbers[0] == stele::float16(1.5F));

  const float inf = std::numeric_limits<float>::infinity();
  CHECK(good(convert<double, float>({INFINITY, 1})).numbers[0] == inf);  // is one already
  const stele::Error e = bad(convert<double, float>({1, 1e300, 1e301}));
  CHECK(e.code() == Errc::out_of_range);
  CHECK(e.found().find("element 1") != std::string::npos);
  LoadOptions allow;
  allow.convert.allow_overflow = true;
  Report counted;
  CHECK(good(convert<double, float>({1, 1e300, -1e301}, reporting(allow, counted))).numbers[2] == -inf);
  REQUIRE(counted.count(Report::What::overflowed) == 1);
  CHECK(counted[1].detail == "2 numbers");
}

TEST_CASE("data: an overflow is met before a living module is touched") {
  const Numbers<double> wide{{1e300}};
  Numbers<float> m{{5}};
  const stele::Error e = bad(stele::load_into(m, good(stele::snapshot_of(wide))));
  CHECK(e.code() == Errc::out_of_range);
  CHECK_FALSE(e.partially_applied());
  CHECK(m.numbers[0] == 5);
}

TEST_CASE("data: int and float convert only when allowed") {
  LoadOptions allow;
  allow.convert.allow_kind_change = true;
  CHECK(bad(convert<std::int32_t, float>({1})).code() == Errc::dtype_mismatch);
  CHECK(bad(convert<float, std::int32_t>({1})).code() == Errc::dtype_mismatch);
  CHECK(good(convert<std::int32_t, float>({7}, allow)).numbers[0] == 7);
  CHECK(good(convert<float, std::int32_t>({-7}, allow)).numbers[0] == -7);
  CHECK(bad(convert<float, std::int32_t>({1, 0.5F}, allow)).found().find("element 1") != std::string::npos);
  Numbers<float> m{{1}};
  const Numbers<std::int32_t> i{{3}};
  CHECK(bad(stele::load_into(m, good(stele::snapshot_of(i)))).code() == Errc::dtype_mismatch);
  CHECK(m.numbers[0] == 1);
  good(stele::load_into(m, good(stele::snapshot_of(i)), allow));
  CHECK(m.numbers[0] == 3);
}

TEST_CASE("data: a bool byte is 0 or 1") {
  struct Truths {
    Tensor<bool, 1> truths;
  };
  FakeFile f;
  f.add<std::uint8_t>("truths", {1, 0, 1}, DType::boolean);
  CHECK(good(stele::load<Truths>(f.open())).truths[2]);
  f.leaves[0].bytes[2] = std::byte{2};
  const stele::Error fresh = bad(stele::load<Truths>(f.open()));
  CHECK(fresh.code() == Errc::malformed);
  CHECK(fresh.found().find("element 2") != std::string::npos);
  Truths m{Tensor<bool, 1>({3}, {false, false, false})};
  CHECK(bad(stele::load_into(m, f.open())).code() == Errc::malformed);
  CHECK_FALSE(m.truths[0]);
  // Formats write what they are given; verify() reads every byte.
  const stele::Bytes file = good(stele::BytesRecorder<>{}.save(f.open()));
  CHECK(bad(stele::BytesRecorder<>{}.verify(file)).code() == Errc::malformed);
}

TEST_CASE("view: tensors point into memory that the source owns") {
  const Viewing m = viewing();
  std::optional<Viewing> back;
  Report report;
  std::span<const std::byte> memory;
  {
    stele::SourcePtr source = stele::own_bytes(good(stele::BytesRecorder<>{}.save(m)));
    memory = source->view();
    back = good(stele::BytesRecorder<>{}.load<Viewing>(source, reporting(as_view(), report)));
  }
  CHECK(image(*back) == image(m));
  CHECK(back->plain.is_view());
  CHECK(inside(memory, back->plain.data()));
  CHECK(inside(memory, back->learned->data()));
  CHECK(back->learned.id == stele::ParamId::from_u64(3));
  CHECK(inside(memory, back->constant.data()));
  CHECK(inside(memory, back->whole.data()));
  CHECK_FALSE(back->truths.is_view());
  CHECK_FALSE(inside(memory, back->sequence.data()));
  CHECK(report.paths(Report::What::copied) == Paths{"truths", "sequence"});
  back->plain(0, 0) = 77;  // private memory
  const Viewing copy = *back;
  CHECK_FALSE(copy.plain.is_view());
  back.reset();
  CHECK(copy.plain(0, 0) == 77);
}

TEST_CASE("view: borrowed memory is adopted by const tensors only") {
  const Viewing m = viewing();
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(m));
  Report report;
  const Viewing back = good(stele::BytesRecorder<>{}.load<Viewing>(bytes, reporting(as_view(), report)));
  CHECK(image(back) == image(m));
  CHECK(inside(bytes.span(), back.constant.data()));
  CHECK_FALSE(back.plain.is_view());
  CHECK(report.paths(Report::What::copied) == Paths{"plain", "learned", "whole", "truths", "sequence"});
  for (std::size_t i = 0; i < report.size(); ++i) {
    if (report[i].path == "plain" && report[i].what == Report::What::copied) {
      CHECK(report[i].detail == "the memory is read-only");
    }
  }
}

TEST_CASE("view: another dtype is converted, so copied") {
  struct Narrow {
    Tensor<float, 1> learned;
  };
  struct Wide {
    Tensor<double, 1> learned;
  };
  const Wide wide{Tensor<double, 1>({1}, {1.5})};
  const stele::SourcePtr source = stele::own_bytes(good(stele::BytesRecorder<>{}.save(wide)));
  Report report;
  const Narrow n = good(stele::BytesRecorder<>{}.load<Narrow>(source, reporting(as_view(), report)));
  CHECK_FALSE(n.learned.is_view());
  CHECK(n.learned[0] == 1.5F);
  CHECK(report.count(Report::What::copied) == 1);
  CHECK(report.count(Report::What::converted) == 1);
}

TEST_CASE("view: of a mapped file, in new modules and in place") {
  const TempDir dir;
  const std::string path = dir / "m.stele";
  good(stele::BinaryRecorder<>{}.save(viewing(), path));
  Viewing back = good(stele::BinaryRecorder<>{}.load<Viewing>(path, as_view()));
  CHECK(back.plain.is_view());
  CHECK(image(back) == image(viewing()));
  back.plain(0, 0) = -1;  // copy on write: the file stays
  Viewing owned = good(stele::BinaryRecorder<>{}.load<Viewing>(path));
  CHECK_FALSE(owned.plain.is_view());
  CHECK(image(owned) == image(viewing()));
  owned.plain(0, 0) = -2;
  Report report;
  good(stele::BinaryRecorder<>{}.load_into(owned, path, reporting(as_view(), report)));
  CHECK(owned.plain.is_view());
  CHECK(owned.plain(0, 0) == 1);
  CHECK(report.paths(Report::What::copied) == Paths{"truths", "sequence"});
  // Views can be loaded over and saved again.
  good(stele::BinaryRecorder<>{}.load_into(back, path));
  CHECK(image(back) == image(viewing()));
}

}  // namespace data_test
