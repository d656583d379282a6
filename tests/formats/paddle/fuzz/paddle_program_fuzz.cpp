// Opens bytes as a Paddle program of either kind; what it says is a parameter file, which must open with it.
#include <algorithm>
#include <cstdint>

#include "fuzz/require.hpp"
#include "stele/recorders/paddle.hpp"
#include "stele/snapshot.hpp"

namespace {

using stele_test::require;

using namespace stele;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto program = paddle_program(std::as_bytes(std::span(data, size)));
  if (!program) {
    require(program.error().code() != Errc::out_of_memory);
    require(!program.error().file().empty());
    return 0;
  }
  require(program->size() <= size);
  require(
      std::is_sorted(program->begin(), program->end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
  // A file of these tensors, as far as they are small.
  static constexpr std::byte zeros[4096]{};
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.set_flat();
  for (const PaddleVariable& v : *program) {
    require(v.dtype != DType::none && v.shape.size() <= 9);
    std::vector<Extent> shape;
    for (const std::int64_t e : v.shape) shape.push_back(e < 0 ? 1 : static_cast<Extent>(e));
    const auto count = element_count(shape);
    const auto bytes = count ? byte_length(v.dtype, *count) : std::nullopt;
    if (!bytes || *bytes > sizeof zeros) return 0;
    builder.tensor(builder.intern(v.name), v.dtype, shape, *bytes, {&ops, zeros, 0});
  }
  if (program->empty()) return 0;  // says nothing
  const PaddleRecorder<> recorder(PaddleFormat({.program = *program}));
  BufferSink sink;
  require(recorder.save(builder.finish(), sink).has_value());
  const auto back = recorder.open(own_bytes(sink.take()));
  require(back.has_value() && back->leaf_count() == program->size());
  return 0;
}
