// Shapes whose elements cannot be counted are refused by every format, both ways, also where one extent is 0.
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recorders/samediff.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace uncountable_test {

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::Extent;
using stele::Snapshot;

namespace {

constexpr stele::LeafOps nothing{.read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte>,
                                            stele::ReadContext&) -> stele::Status { return {}; }};

Snapshot empty_tensor(std::span<const Extent> shape) {
  stele::SnapshotBuilder builder;
  builder.begin(stele::NodeKind::module, "");
  builder.tensor("empty", DType::f32, shape, 0, {&nothing, nullptr, 0});
  return builder.finish();
}

constexpr Extent far = (Extent{1} << 63) - 1;

std::string safetensors(std::string_view header, std::size_t data = 0) {
  std::string file(8, '\0');
  stele::detail::store_le(reinterpret_cast<std::byte*>(file.data()), std::uint64_t{header.size()});
  return file + std::string(header) + std::string(data, '\0');
}

}  // namespace

TEST_CASE_TEMPLATE("uncountable shapes: saves refuse them", R, STELE_TEST_RECORDERS, stele::GgufRecorder<>,
                   stele::NnefRecorder<>, stele::PaddleRecorder<>, stele::SameDiffRecorder<>) {
  const R recorder;
  for (const std::vector<Extent>& shape :
       {std::vector<Extent>{far, far, 0}, {far, 0, far}, {0, far, far}, {far, far, far}}) {
    const Snapshot snapshot = empty_tensor(shape);
    stele::BufferSink sink;
    const auto r = recorder.save(snapshot, sink);
    CAPTURE(why(r));
    CHECK(code_of(r) == Errc::not_representable);
    CHECK(r.error().path() == "empty");
  }
}

TEST_CASE_TEMPLATE("uncountable shapes: loads refuse them", F, STELE_TEST_FORMATS) {
  const F format;
  for (const std::vector<Extent>& shape : {std::vector<Extent>{far, far, 0}, {far, 0, far}, {0, far, far}}) {
    // This bypasses the check that saves make. Some formats leave such a tensor out.
    stele::BufferSink sink;
    if (const auto losses = format.losses(empty_tensor(shape), ""); losses && !losses->empty()) continue;
    const auto written = format.write(empty_tensor(shape), sink, {});
    if (!written) continue;
    const stele::Bytes bytes = sink.take();
    const auto opened = stele::Recorder<F>(format).open(bytes);
    CAPTURE(why(opened));
    CHECK(code_of(opened) == Errc::malformed);
  }
  // A shape that can be counted is read.
  if (const auto losses = format.losses(empty_tensor(std::vector<Extent>{far, 2, 0}), ""); !losses->empty()) return;
  stele::BufferSink sink;
  good(format.write(empty_tensor(std::vector<Extent>{far, 2, 0}), sink, {}));
  const stele::Bytes bytes = sink.take();
  const Snapshot opened = good(stele::Recorder<F>(format).open(bytes));
  CHECK(opened.leaf(0).size() == 0);
  CHECK(opened.leaf(0).shape()[0] == far);
}

TEST_CASE("safetensors: what the reference refuses and accepts") {
  const stele::MemoryRecorder<stele::SafetensorsFormat> recorder;
  const auto code = [&](std::string_view header, std::size_t data = 0) {
    const std::string file = safetensors(header, data);
    return code_of(recorder.open(bytes_of(file)));
  };
  CHECK(code(R"({"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]}})") ==
        Errc::malformed);
  CHECK(code(R"({"a":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}})") == Errc::none);
  CHECK(code(R"({"__metadata__":null,"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4) == Errc::none);
  CHECK(code(R"({"__metadata__":[],"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4) == Errc::malformed);
  CHECK(code(R"({"__metadata__":null,"__metadata__":null})") == Errc::duplicate);
  CHECK(code(R"({"__metadata__":{"a":null}})") == Errc::malformed);
}

}  // namespace uncountable_test
