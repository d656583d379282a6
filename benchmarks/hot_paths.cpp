// The paths that every save and load uses, each once; benchmarks/instructions.py counts their instructions. One thread,
// no files and no clock, so that every run has the same instructions.
#include <valgrind/callgrind.h>

#include <utility>
#include <vector>

#include "models.hpp"

namespace {

constexpr std::size_t leaves = 2000;
constexpr std::size_t numbers = (std::size_t{1} << 20) / sizeof(float);

workload::List model;
stele::Snapshot snapshot;
stele::Bytes binary;
stele::Bytes safetensors;
stele::Snapshot opened;
std::vector<float> from(numbers);
std::vector<std::uint16_t> to(numbers);

using Binary = stele::BytesRecorder<>;
using Safetensors = stele::MemoryRecorder<stele::SafetensorsFormat>;

stele::SaveOptions save_options() {
  stele::SaveOptions options;
  options.threads = 1;
  return options;
}
stele::LoadOptions load_options() {
  stele::LoadOptions options;
  options.threads = 1;
  return options;
}

/// Counts `f`: valgrind counts only in this function, and writes the sum under the name.
template <class F>
void count(const char* name, F path) {
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
  path();
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT(name);
}

}  // namespace

int main() {
  model = workload::many(leaves);
  workload::fill(from, 1);
  count("snapshot", [] { snapshot = stele::snapshot_of(model).value(); });
  count("half_of_snapshot", [] { snapshot = stele::with_precision(snapshot, {stele::DType::f16}); });
  count("save_binary", [] { binary = Binary().save(model, save_options()).value(); });
  count("save_safetensors", [] { safetensors = Safetensors().save(model, save_options()).value(); });
  count("open_safetensors", [] { opened = Safetensors().open(std::as_const(safetensors).span()).value(); });
  count("open_binary", [] { opened = Binary().open(std::as_const(binary).span()).value(); });
  count("find", [] { from[0] = static_cast<float>(opened.find("tensors.1999")->size()); });
  count("load_binary",
        [] { model = Binary().load<workload::List>(std::as_const(binary).span(), load_options()).value(); });
  count("load_safetensors",
        [] { model = Safetensors().load<workload::List>(std::as_const(safetensors).span(), load_options()).value(); });
  count("convert_to_half", [] {
    stele::convert(stele::DType::f32, reinterpret_cast<const std::byte*>(from.data()), stele::DType::f16,
                   reinterpret_cast<std::byte*>(to.data()), numbers);
  });
  count("convert_from_half", [] {
    stele::convert(stele::DType::f16, reinterpret_cast<const std::byte*>(to.data()), stele::DType::f32,
                   reinterpret_cast<std::byte*>(from.data()), numbers);
  });
}
