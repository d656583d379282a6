#include "stele/snapshot.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "base/hash.hpp"
#include "base/printable.hpp"
#include "leaves/needs.hpp"
#include "leaves/provider.hpp"
#include "leaves/source_range.hpp"
#include "leaves/uncached_reads.hpp"
#include "snapshot/data.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/module_leaf.hpp"
#include "snapshot/paths.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {

std::string to_string(std::span<const Extent> extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(extents[i]);
  }
  return text + "]";
}

std::string_view name(NodeKind kind) noexcept {
  static constexpr std::array<std::string_view, node_kind_count> names = {
      "tensor", "value", "module", "list", "array", "tuple", "map", "variant", "none", "alias"};
  const auto i = static_cast<std::size_t>(kind);
  return i < names.size() ? names[i] : "unknown";
}

// ---- reading --------------------------------------------------------------------------------------------------------

Bytes ReadContext::acquire() {
  if (free_.empty()) {
    free_.reserve(free_.capacity() + 1);  // so that pieces can be returned without an allocation
    return Bytes(piece_size);
  }
  Bytes piece = std::move(free_.back());
  free_.pop_back();
  return piece;
}

void ReadContext::bypass_cache() { uncached_ = std::make_shared<detail::UncachedReads>(); }

std::byte* ReadContext::memory(std::size_t block, std::size_t size) {
  Bytes& bytes = memory_.at(block);
  if (bytes.size() < size) bytes = Bytes();  // frees the old block first
  if (bytes.size() < size) bytes = Bytes(size);
  return bytes.data();
}

Result<std::span<const std::byte>> ReadContext::window(const Source& source, std::uint64_t offset, std::size_t size) {
  if (const auto all = source.view(); !all.empty() && offset <= all.size() && size <= all.size() - offset) {
    return all.subspan(static_cast<std::size_t>(offset), size);
  }
  const bool inside = window_source_ == &source && offset >= window_offset_ &&
                      offset - window_offset_ <= window_size_ && size <= window_size_ - (offset - window_offset_);
  if (!inside) {
    if (size > piece_size) {
      return Error(Errc::invalid_argument, "the window is too large")
          .expected("at most " + std::to_string(piece_size) + " bytes")
          .found(std::to_string(size));
    }
    if (window_.empty()) window_ = Bytes(piece_size);
    const std::uint64_t left = source.size() > offset ? source.size() - offset : 0;
    // A source that plans has already read the following bytes for any thread.
    const std::uint64_t useful = source.plans() ? size : std::min<std::uint64_t>(left, piece_size);
    std::size_t ahead = std::max(size, static_cast<std::size_t>(useful));
    window_source_ = nullptr;
    if (auto read = source.read_at(offset, window_.span().first(ahead)); !read) {
      // The caller does not need the bytes after the leaf, and they may be unreadable.
      if (ahead == size) return std::move(read).error();
      ahead = size;
      STELE_TRY(source.read_at(offset, window_.span().first(ahead)));
    }
    window_source_ = &source;
    window_offset_ = offset;
    window_size_ = ahead;
  }
  return std::span<const std::byte>(window_.span()).subspan(static_cast<std::size_t>(offset - window_offset_), size);
}

void Snapshot::will_read() const {
  static_cast<void>(detail::guarded([&]() -> Status {
    detail::Needs needs(detail::Needs::Unread::kept);
    needs.add(*this);
    needs.announce();
    return {};
  }));
}

DType LeafView::dtype() const noexcept { return data_->leaves[leaf_].dtype; }
std::span<const Extent> LeafView::shape() const noexcept {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  return {data_->extents.data() + leaf.shape, leaf.rank};
}
std::uint64_t LeafView::byte_size() const noexcept { return data_->leaves[leaf_].bytes; }
std::uint64_t LeafView::size() const noexcept { return element_count(shape()).value_or(0); }
std::optional<ParamId> LeafView::id() const noexcept {
  const std::uint32_t extra = data_->leaves[leaf_].extra;
  return extra == no_index ? std::nullopt : data_->extras[extra].id;
}
const Annotations* LeafView::annotations() const noexcept {
  const std::uint32_t extra = data_->leaves[leaf_].extra;
  return extra == no_index ? nullptr : data_->extras[extra].annotations.get();
}
std::uint32_t LeafView::node() const noexcept { return data_->leaves[leaf_].node; }
const Provider& LeafView::provider() const noexcept { return data_->leaves[leaf_].provider; }
std::optional<SourceRange> LeafView::location() const {
  const Provider& p = provider();
  return p.ops->locate != nullptr ? std::optional(p.ops->locate(p.at, p.number)) : std::nullopt;
}
std::string_view LeafView::encoding() const noexcept {
  const char* const text = provider().ops->encoding;
  return text != nullptr ? std::string_view(text) : std::string_view();
}
std::string LeafView::path() const { return detail::node_path(*data_, data_->leaves[leaf_].node); }

std::span<const std::byte> LeafView::view() const noexcept {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  return detail::view_bytes(leaf.provider, leaf.bytes);
}

Status LeafView::read(std::uint64_t offset, std::span<std::byte> out) const {
  ReadContext context;
  return read(offset, out, context);
}

Status LeafView::read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  if (offset > leaf.bytes || out.size() > leaf.bytes - offset) {
    return Error(Errc::truncated, "the read ends after the end of the tensor")
        .path(path())
        .expected("at most " + std::to_string(leaf.bytes) + " bytes")
        .found("offset " + std::to_string(offset) + ", " + std::to_string(out.size()) + " bytes");
  }
  // Packed and unsized dtypes have no element size: their bytes are read unchanged.
  if (const unsigned size = element_size(leaf.dtype); size != 0 && (offset % size != 0 || out.size() % size != 0)) {
    return Error(Errc::invalid_argument, "the read does not begin and end at an element")
        .path(path())
        .expected("multiples of " + std::to_string(size) + " bytes")
        .found("offset " + std::to_string(offset) + ", " + std::to_string(out.size()) + " bytes");
  }
  return detail::with_path(detail::read_bytes(leaf.provider, leaf.bytes, offset, out, context), *this);
}

Status LeafView::stream(PieceSink& sink, ReadContext& context) const {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  return detail::with_path(detail::stream_bytes(leaf.provider, leaf.bytes, sink, context), *this);
}

namespace detail {

Status with_path(Status status, const LeafView& leaf) {
  if (status || !status.error().path().empty()) return status;
  return std::move(status).error().path(leaf.path());
}

namespace {

const TensorOps& tensor_ops(std::uint64_t number) { return *module_tensor_ops({&module_leaf_ops, nullptr, number}); }

const std::byte* module_view(const void* at, std::uint64_t number) {
  const TensorOps& ops = tensor_ops(number);
  return ops.data != nullptr && !device_of(ops, at) ? ops.data(const_cast<void*>(at)) : nullptr;
}

Status module_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const TensorOps& ops = tensor_ops(number);
  if (ops.read == nullptr) {
    if (const auto device = device_of(ops, at)) return unreachable_device(device->where, true);
    return Error(Errc::invalid_argument, "the tensor has no memory: data() of its tensor_traits returns null")
        .expected("a pointer to the elements")
        .found("a null pointer, and a shape with elements");
  }
  const unsigned size = element_size(ops.dtype);
  ops.read(at, offset / size, out.size() / size, out.data());
  return {};
}

}  // namespace

const LeafOps module_leaf_ops{module_view, module_read, nullptr, nullptr, true};
const LeafOps element_leaf_ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};

}  // namespace detail

// ---- Snapshot -------------------------------------------------------------------------------------------------------

Snapshot::Snapshot() : data_(std::make_shared<detail::SnapshotData>()) {}
Snapshot::Snapshot(std::shared_ptr<const detail::SnapshotData> data)
    : data_(data != nullptr ? std::move(data) : std::make_shared<detail::SnapshotData>()) {}

std::span<const Node> Snapshot::nodes() const& noexcept { return data_->nodes; }
std::size_t Snapshot::leaf_count() const noexcept { return data_->leaves.size(); }
Result<LeafView> Snapshot::checked_leaf(std::size_t i) const& {
  if (i < leaf_count()) return leaf(i);
  return Error(Errc::not_found, "no tensor has this number")
      .expected("less than " + std::to_string(leaf_count()))
      .found(std::to_string(i));
}
Result<LeafView> Snapshot::checked_leaf(std::size_t i) && {
  STELE_TRY(std::as_const(*this).checked_leaf(i));
  return std::move(*this).leaf(i);
}

const Value& Snapshot::value(const Node& node) const& noexcept {
  static const Value null;
  return node.kind == NodeKind::value ? data_->values[node.index] : null;
}
const std::map<std::string, std::string>& Snapshot::metadata() const& noexcept { return data_->metadata; }
std::map<std::string, std::string> Snapshot::metadata() && { return data_->metadata; }
Value Snapshot::properties() && { return std::as_const(*this).properties(); }
const Value& Snapshot::properties() const& noexcept {
  static const Value null;
  return data_->properties != nullptr ? data_->properties->values : null;
}
const std::vector<std::string>& Snapshot::notes() const& noexcept { return data_->notes; }
std::vector<std::string> Snapshot::notes() && { return data_->notes; }
bool Snapshot::flat() const noexcept { return data_->flat; }
UnknownKinds Snapshot::unknown_kinds() const noexcept { return data_->unknown_kinds; }
bool Snapshot::in_order() const noexcept { return data_->in_order; }
const std::map<std::string, std::string>& Snapshot::origin() const& noexcept { return data_->origin; }
std::map<std::string, std::string> Snapshot::origin() && { return data_->origin; }

std::string Snapshot::path(std::uint32_t node) const {
  return node < data_->nodes.size() ? detail::node_path(*data_, node) : std::string();
}

std::string_view Snapshot::type_name(const Node& node) const& noexcept {
  const bool container = node.kind >= NodeKind::module && node.kind <= NodeKind::variant;
  return container && node.index != no_index ? std::string_view(data_->types[node.index].name) : std::string_view();
}

std::uint32_t Snapshot::version(const Node& node) const noexcept {
  const bool container = node.kind >= NodeKind::module && node.kind <= NodeKind::variant;
  return container && node.index != no_index ? data_->types[node.index].version : 0;
}

std::uint64_t Snapshot::byte_size() const noexcept {
  std::uint64_t n = 0;
  for (const detail::LeafData& leaf : data_->leaves) n += leaf.bytes;
  return n;
}

Snapshot with_metadata(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata) {
  if (metadata.empty()) return snapshot;
  auto data = detail::derived_data(snapshot);
  for (const auto& [key, text] : metadata) data->metadata.insert_or_assign(key, text);
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

Snapshot with_properties(const Snapshot& snapshot, Value properties) {
  auto data = detail::derived_data(snapshot);
  data->properties = properties.is_null()
                         ? nullptr
                         : std::make_shared<const detail::Properties>(detail::Properties{std::move(properties), {}});
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

std::string summary(const Snapshot& snapshot) {
  std::string text;
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    text += detail::printable(leaf.path()) + "  " + std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()) +
            "  " + std::to_string(leaf.size()) + "\n";
    elements += leaf.size();
  }
  return text + std::to_string(snapshot.leaf_count()) + " tensors, " + std::to_string(elements) + " parameters, " +
         std::to_string(snapshot.byte_size()) + " bytes\n";
}

}  // namespace stele::inline v0
