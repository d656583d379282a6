// Reads a model's tensors and numbers into a Snapshot.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "file.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {
namespace {

namespace llama2c = detail::llama2c;

Value properties_of(const llama2c::Header& h) {
  const auto number = [](std::uint64_t n) { return Value(static_cast<std::int64_t>(n)); };
  Value::Map map{{"llama2c.version", Value(std::int64_t{h.version})},
                 {"llama2c.dim", number(h.dim)},
                 {"llama2c.hidden_dim", number(h.hidden_dim)},
                 {"llama2c.n_layers", number(h.n_layers)},
                 {"llama2c.n_heads", number(h.n_heads)},
                 {"llama2c.n_kv_heads", number(h.n_kv_heads)},
                 {"llama2c.vocab_size", number(h.vocab_size)},
                 {"llama2c.max_seq_len", number(h.max_seq_len)},
                 {"llama2c.shared_classifier", Value(h.shared_classifier)}};
  if (h.group_size != 0) map.emplace_back("llama2c.group_size", number(h.group_size));
  return Value(std::move(map));
}

Result<Snapshot> open_llama2c(const SourcePtr& source, const Limits& limits) {
  std::array<std::byte, 256> head{};
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), head.size()));
  STELE_TRY(source->read_at(0, std::span(head).first(size)));
  STELE_TRY_ASSIGN(const llama2c::Header header, llama2c::header_of(std::span(head).first(size)));
  detail::IndexBudget memory(limits, source->size());
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(source);
  std::uint64_t at = header.bytes;
  std::uint32_t embeddings = 0;
  std::vector<detail::composites::Scaled> quantized;
  STELE_TRY(llama2c::each_tensor(header, [&](const llama2c::Tensor& tensor) -> Status {
    const auto count = tensor.shape.element_count();
    const auto bytes = count ? byte_length(tensor.dtype, *count) : std::nullopt;
    if (!bytes || *bytes > source->size() - at) {
      return Error(Errc::truncated, "the file ends before the tensor does")
          .path(tensor.name)
          .expected(bytes ? std::to_string(*bytes) + " bytes" : "more than 2^64 bytes")
          .found(std::to_string(source->size() - at))
          .offset(at);
    }
    STELE_TRY(detail::add_entry(
        builder, {tensor.name, tensor.dtype, tensor.shape.span(), *bytes, {&detail::source_ops, source.get(), at}, {}},
        memory));
    if (tensor.name == "tok_embeddings.weight") embeddings = static_cast<std::uint32_t>(builder.nodes().size() - 1);
    if (tensor.dtype == DType::i8) quantized.push_back({tensor.name, tensor.name + "_scale", "", 0, false});
    at += *bytes;
    return {};
  }));
  if (at != source->size()) {
    return Error(Errc::malformed, "the file is longer than its model")
        .expected(std::to_string(at) + " bytes")
        .found(std::to_string(source->size()))
        .offset(at);
  }
  if (header.shared_classifier) builder.alias(builder.intern("output.weight"), embeddings);
  STELE_TRY(detail::sort_names(builder));
  builder.set_capacity(source->size());
  builder.set_properties(properties_of(header));
  STELE_TRY_ASSIGN(const Snapshot stored, detail::in_host_order(builder.finish()));
  return detail::composites::joined(stored, quantized);
}

}  // namespace

bool Llama2cFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  return llama2c::recognises(head, size);
}

Result<Snapshot> Llama2cFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(
      [&] { return detail::in_file(open_llama2c(source, context.options().limits), source->name()); });
}

}  // namespace stele::inline v0
