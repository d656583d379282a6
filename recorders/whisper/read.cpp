// Reads a model's tensors and numbers into a Snapshot.
#include <string>
#include <utility>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "file.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {
namespace {

namespace ggml = detail::ggml;

constexpr std::string_view filters_name = "mel_filters", prefix = "whisper.", tokens_key = "tokenizer.ggml.tokens";

Result<Snapshot> open_whisper(const SourcePtr& source, const Limits& limits) {
  detail::IndexBudget memory(limits, source->size());
  ggml::WhisperFile file(source, memory);
  STELE_TRY_ASSIGN(ggml::Header header, file.head());
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(source);
  const auto add = [&](const ggml::Tensor& tensor) {
    return detail::add_entry(builder,
                             {tensor.name,
                              tensor.dtype,
                              {tensor.extents, tensor.rank},
                              tensor.bytes,
                              {&detail::source_ops, source.get(), tensor.offset},
                              tensor.unreadable},
                             memory);
  };
  ggml::Tensor filters{.name = std::string(filters_name), .rank = 2, .dtype = DType::f32, .offset = header.filters_at};
  std::copy_n(header.filters, 2, filters.extents);
  filters.bytes = 4 * header.filters[0] * header.filters[1];
  STELE_TRY(add(filters));
  while (!file.at_end()) {
    STELE_TRY_ASSIGN(const ggml::Tensor tensor, file.next());
    STELE_TRY(add(tensor));
  }
  STELE_TRY(detail::sort_names(builder));
  Value::Map properties;
  for (std::size_t i = 0; i < header.hparams.size(); ++i) {
    properties.emplace_back(std::string(prefix).append(ggml::hparam_names[i]), Value(header.hparams[i]));
  }
  properties.emplace_back(tokens_key, Value(std::move(header.tokens)));
  builder.set_properties(Value(std::move(properties)));
  return builder.finish();
}

}  // namespace

bool WhisperFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return ggml::is_legacy({reinterpret_cast<const char*>(head.data()), head.size()});
}

Result<Snapshot> WhisperFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(detail::in_file(open_whisper(source, context.options().limits), source->name()));
}

}  // namespace stele::inline v0
