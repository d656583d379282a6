// Reads a network's blobs into a Snapshot.
#include <utility>

#include "file.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/recorders/read_only.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {

namespace caffe = detail::caffe;

bool CaffeFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  return caffe::is_network(head, size);
}

Result<Snapshot> CaffeFormat::open(SourcePtr source, const OpenContext& context) const {
  detail::IndexBudget memory(context.options().limits, source->size());
  SnapshotBuilder builder;
  builder.set_flat();
  STELE_TRY_ASSIGN(const caffe::Contents contents,
                   caffe::read_network(source, memory, [&](const detail::TensorEntry& entry) {
                     return detail::add_entry(builder, entry, memory);
                   }));
  STELE_TRY(detail::sort_names(builder));
  builder.data().left_out.emplace_back(detail::graph_part);
  if (contents.gradients) builder.data().left_out.emplace_back("gradients");
  builder.keep(std::move(source));
  return detail::in_host_order(builder.finish());
}

}  // namespace stele::inline v0
