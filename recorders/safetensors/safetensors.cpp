// Reads and writes one file.
#include "stele/recorders/safetensors.hpp"

#include <numeric>

#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "encodings/safetensors/file.hpp"
#include "file.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0 {

bool SafetensorsFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  if (head.size() < 9) return false;
  const auto n = detail::load_le<std::uint64_t>(head.data());
  if (n > detail::safetensors::max_header || n > size - 8) return false;
  for (const std::byte b : head.subspan(8)) {
    const char c = static_cast<char>(b);
    if (c == '{') return true;
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return false;
}

Result<Snapshot> SafetensorsFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const Snapshot file, detail::safetensors::open_file(std::move(source), context));
  return detail::safetensors::with_named_ties(file);
}

Result<Snapshot> detail::safetensors::open_file(SourcePtr source, const OpenContext& context) {
  detail::IndexBudget memory(context.options().limits, source->size());
  SnapshotBuilder builder;
  builder.set_flat();
  const auto count = [&](std::size_t tensors, std::size_t extents) { builder.reserve(tensors + 1, tensors, extents); };
  STELE_TRY_ASSIGN(detail::safetensors::Contents contents,
                   detail::safetensors::read_file(std::move(source), memory, count, [&](const detail::TensorEntry& t) {
                     builder.tensor(t.name, t.dtype, t.shape, t.bytes, t.provider);
                   }));
  STELE_TRY(detail::finish_names(builder, std::move(contents.metadata), memory));
  contents.skipped.leave_out(builder.data().left_out, "unknown keys of tensors");
  builder.keep(std::move(contents.keeper));
  return detail::in_host_order(builder.finish());
}

namespace detail::safetensors {

Status write(const Snapshot& snapshot, std::span<const TensorEntry> tensors, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink) {
  STELE_TRY_ASSIGN(const FilePlan plan, plan_file(tensors, metadata));
  STELE_TRY(sink.reserve(8 + plan.header.size() + plan.bytes));
  LeafGather gather(sink);
  std::byte length[8];
  store_le(length, std::uint64_t{plan.header.size()});
  STELE_TRY(gather.write(length));
  STELE_TRY(gather.write(std::as_bytes(std::span(plan.header))));
  ReadContext context(workers);
  const Snapshot ordered = in_file_order(snapshot);
  for (const std::uint32_t i : plan.order) STELE_TRY(gather.leaf(ordered.leaf(leaves[i]), context));
  return gather.flush();
}

}  // namespace detail::safetensors

Status SafetensorsFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  const std::vector<detail::TensorEntry> tensors = detail::entries_of(snapshot, paths);
  STELE_TRY(detail::safetensors::check(tensors, snapshot.metadata()));
  std::vector<std::uint32_t> leaves(snapshot.leaf_count());
  std::iota(leaves.begin(), leaves.end(), std::uint32_t{0});
  std::map<std::string, std::string> metadata = snapshot.metadata();
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const detail::TensorEntry& tensor : tensors) names.push_back(tensor.name);
  STELE_TRY_ASSIGN(std::string extras, detail::safetensors::extras_of(snapshot, metadata, std::move(names)));
  STELE_TRY(detail::add_flat_key(metadata, std::move(extras)));
  return detail::safetensors::write(snapshot, tensors, leaves, metadata, detail::workers_of(options), sink);
}

}  // namespace stele::inline v0
