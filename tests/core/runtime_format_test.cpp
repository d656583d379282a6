// Formats and precisions chosen at run time, the places of leaves in files, Values as JSON, and the rows of a save for
// numbers that became infinite.
#include <stele/checkpoint.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/json.hpp>
#include <stele/transform.hpp>
#include <stele/value.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace runtime_format_test {

using namespace stele_test;
using stele::Report;
using stele::Snapshot;
using stele::Value;

namespace {

struct Plain {
  stele::Tensor<float> small, big;
};

Plain plain() {
  Plain m;
  m.small = stele::Tensor<float>({2}, {1.F, 2.F});
  m.big = stele::Tensor<float>({3}, {1e30F, 1.F, -1e30F});
  return m;
}

}  // namespace

TEST_CASE("a format chosen at run time saves at any precision and opens") {
  const TempDir folder;
  Plain m = plain();
  m.big = stele::Tensor<float>({1}, {4.F});
  for (const stele::Format* format : stele::formats()) {
    if (!format->writes() || format->is_folder() || format->name() != "stele") continue;
    const std::string path = folder / "model.stele";
    good(stele::save(m, path, {.format = format, .precision = stele::DType::f16}));
    const Snapshot file = good(stele::open(*format, path));
    CHECK(file.leaf(0).dtype() == stele::DType::f16);
  }
}

TEST_CASE("a leaf tells its place in the file, or how the file stores it") {
  const Plain m = plain();
  const Snapshot live = good(stele::snapshot_of(m));
  CHECK_FALSE(live.leaf(0).location());
  CHECK(live.leaf(0).encoding().empty());

  const auto bytes = good(stele::BytesRecorder<>().save(m));
  const Snapshot file = good(stele::BytesRecorder<>().open(bytes));
  const auto place = file.leaf(1).location();
  REQUIRE(place);
  CHECK(place->hashed);
  std::array<std::byte, 12> read{};
  good(place->source->read_at(place->offset, read));
  CHECK(std::memcmp(read.data(), m.big.data(), read.size()) == 0);

  stele::BufferSink sink;
  good(stele::JsonRecorder<>(stele::JsonFormat({.encoding = stele::JsonEncoding::plain, .numbers_up_to = 8}))
           .save(m, sink));
  const auto text = sink.take();
  const Snapshot json = good(stele::JsonRecorder<>().open(text));
  CHECK_FALSE(json.leaf(1).location());
  CHECK(json.leaf(1).encoding() == "text");
}

TEST_CASE("a Value is formatted as JSON") {
  CHECK(good(stele::to_json(Value(Value::Map{{"a", Value(1.5)}, {"b", Value(Value::List{Value(), Value(true)})}}))) ==
        R"({"a":1.5,"b":[null,true]})");
  CHECK(good(stele::to_json(Value("\x1b[31m"))) == R"("\u001b[31m")");
  CHECK(good(stele::to_json(Value("\xff"))) == R"({"$str":"/w=="})");
  Value deep;
  for (int i = 0; i < 100; ++i) deep = Value(Value::List{deep});
  CHECK(stele::to_json(deep).error().code() == stele::Errc::limit);
}

TEST_CASE("a save reports numbers that became infinite, for every name and in a dry run") {
  const TempDir folder;
  const Plain m = plain();
  stele::SaveOptions options;
  options.convert.allow_overflow = true;
  const auto check = [](const Report& report) {
    REQUIRE(report.count(Report::What::overflowed) == 1);
    for (std::size_t i = 0; i < report.size(); ++i) {
      if (report[i].what != Report::What::overflowed) continue;
      CHECK(report[i].path == "big");
      CHECK(report[i].detail == "2 numbers");
    }
  };
  options.file.allow_nonatomic = true;
  options.precision = stele::DType::f16;
  for (const unsigned threads : {1U, 4U}) {
    options.threads = threads;
    for (const stele::Format* format : stele::formats()) {
      if (!format->writes() ||
          (format->capabilities().holds != nullptr && !format->capabilities().holds(stele::DType::f16))) {
        continue;
      }
      if (format->name() == "nnef-tensor" || format->name() == "npy") continue;  // hold one tensor
      CAPTURE(format->name());
      options.format = format;
      options.dry_run = false;
      options.allow_loss = true;
      check(good(stele::save(m, folder / ("m" + std::string(format->extension())), options)));
      options.dry_run = true;
      check(good(stele::save(m, folder / ("dry" + std::string(format->extension())), options)));
    }
  }
}

}  // namespace runtime_format_test
