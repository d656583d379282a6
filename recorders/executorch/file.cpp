// Definitions that `.ptd` and `.pte` share.
#include "file.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "passes/transpose.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"

namespace stele::inline v0::detail::executorch {
namespace {

template <class Matches>
const ScalarType* find(Matches matches) {
  const auto* found = std::find_if(std::begin(scalar_types), std::end(scalar_types), matches);
  return found != std::end(scalar_types) ? found : nullptr;
}

/// Returns true if the axes, except those of one element, are in ascending order.
bool is_row_major(const TensorLayout& layout) {
  std::size_t last = 0;
  return std::all_of(layout.order.begin(), layout.order.end(), [&](std::size_t axis) {
    if (layout.sizes[axis] == 1) return true;
    return axis >= std::exchange(last, axis);
  });
}

}  // namespace

const ScalarType* type_of(DType dtype) noexcept {
  return find([&](const ScalarType& type) { return type.dtype == dtype; });
}
const ScalarType* type_of(std::int8_t number) noexcept {
  return find([&](const ScalarType& type) { return type.number == number; });
}

Tensors::Tensors(SourcePtr source, const Limits& limits)
    : source_(std::move(source)), memory_(limits, source_->size(), index_rate::entry) {
  builder_.set_flat();
  builder_.keep(source_);
}

Status Tensors::take(std::uint64_t bytes) {
  if (memory_.take(bytes)) return {};
  return index_error("the tensors need more memory than the file's size allows").file(source_->name());
}

Result<TensorLayout> Tensors::layout(fb::Reader& in, const fb::Table& table, unsigned type, unsigned sizes,
                                     unsigned order) {
  TensorLayout layout;
  layout.type = in.number<std::int8_t>(table, type);
  const fb::Vector extents = in.vector(table, sizes, 4), axes = in.vector(table, order, 1);
  layout.valid = extents.size <= max_rank && (axes.size == extents.size || axes.size == 0);
  if (!layout.valid) return layout;
  for (std::uint64_t i = 0; i < extents.size; ++i) {
    const auto extent = in.number<std::int32_t>(extents, i);
    layout.valid = layout.valid && extent >= 0;
    layout.sizes.push_back(static_cast<Extent>(std::max(extent, 0)));
    layout.order.push_back(axes.size != 0 ? in.number<std::uint8_t>(axes, i) : static_cast<std::size_t>(i));
  }
  for (std::size_t i = 0; i < layout.order.size(); ++i) {
    layout.valid = layout.valid && std::find(layout.order.begin(), layout.order.end(), i) != layout.order.end();
  }
  return layout;
}

Result<std::uint32_t> Tensors::add(std::string_view name, const TensorLayout& layout, const Data& data, bool exact) {
  const ScalarType* const type = type_of(layout.type);
  const auto elements = element_count(layout.sizes);
  const auto length = type != nullptr && elements ? byte_length(type->dtype, *elements) : std::nullopt;
  const std::uint64_t bytes = length.value_or(0);
  std::string reason;
  if (type == nullptr) {
    reason = "a tensor of the scalar type " + std::to_string(layout.type);
  } else if (!layout.valid || !length) {
    reason = "a tensor with an invalid shape";
  } else if (exact ? bytes != data.size : bytes > data.size) {
    reason = "a tensor of " + std::to_string(bytes) + " bytes with data of " + std::to_string(data.size);
  }
  if (!reason.empty()) {
    STELE_TRY(add_unreadable(name, reason, data));
    return static_cast<std::uint32_t>(builder_.nodes().size() - 1);
  }
  std::vector<Extent> stored;
  for (const std::size_t axis : layout.order) stored.push_back(layout.sizes[axis]);
  TensorEntry entry{.name = name, .dtype = type->dtype, .shape = layout.sizes, .bytes = bytes};
  entry.provider = {&source_ops, source_.get(), data.at};
  const bool moves = !is_row_major(layout);
  if (moves) {
    entry.shape = stored;
    STELE_TRY(take(512));
    std::vector<std::size_t> axes(layout.order.size());
    for (std::size_t i = 0; i < axes.size(); ++i) axes[layout.order[i]] = i;
    axes_.emplace(static_cast<std::uint32_t>(builder_.data().leaves.size()), std::move(axes));
  }
  STELE_TRY(add_entry(builder_, entry, memory_));
  return static_cast<std::uint32_t>(builder_.nodes().size() - 1);
}

Status Tensors::add_unreadable(std::string_view name, std::string_view reason, const Data& data) {
  TensorEntry entry{.name = name, .dtype = DType::none, .shape = {}, .bytes = data.size};
  entry.provider = {&source_ops, source_.get(), data.at};
  entry.unreadable = reason;
  return add_entry(builder_, entry, memory_);
}

Status Tensors::alias(std::string_view name, std::uint32_t node) {
  STELE_TRY(take(sizeof(Node) + 32 + 3 * name.size()));
  builder_.alias(builder_.intern(name), node);
  return {};
}

void Tensors::note(std::string text) { builder_.data().notes.push_back(std::move(text)); }

void Tensors::leave_out(std::string part) { builder_.data().left_out.push_back(std::move(part)); }

Result<Snapshot> Tensors::finish() {
  STELE_TRY(sort_names(builder_));
  builder_.set_capacity(std::min(bytes_, source_->size()));
  STELE_TRY_ASSIGN(Snapshot snapshot, in_host_order(builder_.finish()));
  if (axes_.empty()) return snapshot;
  return transpose_where(snapshot, [&, leaf = std::uint32_t{0}](const LeafView&) mutable {
    const auto found = axes_.find(leaf++);  // called once for each leaf, in order
    return found != axes_.end() ? std::optional(found->second) : std::nullopt;
  });
}

Data segment(fb::Reader& in, const fb::Vector& segments, std::uint64_t number, std::uint64_t base) {
  if (number >= segments.size) {
    in.fail(segments.at, "a segment does not exist", "less than " + std::to_string(segments.size),
            std::to_string(number));
    return {};
  }
  const fb::Table table = in.table(segments, number);
  const auto offset = in.number<std::uint64_t>(table, 0), size = in.number<std::uint64_t>(table, 1);
  const std::uint64_t end = in.source()->size();
  if (base > end || offset > end - base || size > end - base - offset) {
    in.fail(table.at, "a segment is outside the file", "at most " + std::to_string(end) + " bytes",
            std::to_string(base) + " + " + std::to_string(offset) + " + " + std::to_string(size));
    return {};
  }
  return {base + offset, size};
}

}  // namespace stele::inline v0::detail::executorch
