// Reads a list of arrays into a Snapshot.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "file.hpp"
#include "leaves/source_range.hpp"
#include "mxnet.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/mxnet.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {
namespace detail::mxnet {
namespace {

/// Memory of an annotation with a prefix.
constexpr std::uint64_t note_memory = 256;

/// Returns true if two names are equal without their prefixes.
bool prefixes_needed(const Contents& contents) {
  if (std::none_of(contents.names.begin(), contents.names.end(), has_prefix)) return false;
  std::vector<std::string_view> bare;
  bare.reserve(contents.names.size());
  for (const std::string& name : contents.names) {
    bare.push_back(std::string_view(name).substr(has_prefix(name) ? prefix_size : 0));
  }
  std::sort(bare.begin(), bare.end());
  return std::adjacent_find(bare.begin(), bare.end()) != bare.end();
}

Result<Snapshot> snapshot_of(const SourcePtr& source, const Limits& limits) {
  IndexBudget memory(limits, source->size());
  STELE_TRY_ASSIGN(const Contents contents, read_file(source, memory));
  const std::size_t count = contents.arrays.size();
  SnapshotBuilder builder;
  builder.set_flat();
  builder.reserve(count + 1, count, contents.extents.size());
  const bool list = contents.names.empty() && count != 0;
  if (!memory.take(contents.names.size() * sizeof(std::string_view))) {
    return index_error("the arrays' names need more memory than the file's size allows");
  }
  const bool stored = prefixes_needed(contents);
  std::string number;
  for (std::size_t i = 0; i < count; ++i) {
    const Array& array = contents.arrays[i];
    std::string_view name = list ? number = std::to_string(i) : contents.names[i];
    std::string_view prefix;
    if (!stored && has_prefix(name)) {
      prefix = name.substr(0, prefix_size - 1);
      name.remove_prefix(prefix_size);
    }
    const TensorEntry entry{.name = name,
                            .dtype = array.dtype,
                            .shape = contents.shape(array),
                            .bytes = array.bytes,
                            .provider = {&source_ops, source.get(), array.offset},
                            .unreadable = array.reason};
    STELE_TRY(add_entry(builder, entry, memory));
    if (prefix.empty()) continue;
    if (!memory.take(note_memory)) {
      return index_error("the names' prefixes need more memory than the file's size allows");
    }
    builder.annotate(std::string(prefix_note), Value(prefix));
  }
  STELE_TRY(sort_names(builder));
  if (list) builder.set_origin(list_origin, "");
  if (stored) builder.set_origin(stored_origin, "");
  if (contents.v3) builder.set_origin(v3_origin, "");
  builder.keep(source);
  return builder.finish();
}

}  // namespace
}  // namespace detail::mxnet

bool MxnetFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  return size >= detail::mxnet::header_bytes + 8 && head.size() >= 16 &&
         detail::load_le<std::uint64_t>(head.data()) == detail::mxnet::magic &&
         detail::load_le<std::uint64_t>(head.data() + 8) == 0;
}

Result<Snapshot> MxnetFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(detail::mxnet::snapshot_of(source, context.options().limits));
}

}  // namespace stele::inline v0
