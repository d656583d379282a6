#include "stele/snapshot.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "hash.hpp"
#include "snapshot_internal.hpp"
#include "source_range.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {

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

namespace detail {

std::string_view NamePool::add(std::string_view name) {
  if (name.empty()) return "";
  if (used_ + name.size() > room_) {
    room_ = std::max<std::size_t>(name.size(), 16384);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
    used_ = 0;
  }
  char* at = blocks_.back().get() + used_;
  std::memcpy(at, name.data(), name.size());
  used_ += name.size();
  return {at, name.size()};
}

std::uint32_t TypeIndex::find_or_add(std::vector<TypeData>& types, std::string_view name, std::uint32_t version) {
  const auto slot_of = [&](std::string_view n, std::uint32_t v) {
    std::size_t at =
        static_cast<std::size_t>(hash64(n.data(), n.size()) ^ v * 0x9e3779b97f4a7c15U) & (slots_.size() - 1);
    for (; ++steps_, slots_[at] != no_index; at = (at + 1) & (slots_.size() - 1)) {
      const TypeData& type = types[slots_[at]];
      if (type.version == v && type.name == n) break;
    }
    return at;
  };
  if (slots_.size() <= 2 * types.size()) {
    slots_.assign(std::bit_ceil(4 * types.size() + 8), no_index);
    known_ = 0;
  }
  // Readers with a table of types put them there themselves. Of equal ones the first is meant.
  for (; known_ < types.size(); ++known_) {
    std::uint32_t& slot = slots_[slot_of(types[known_].name, types[known_].version)];
    if (slot == no_index) slot = static_cast<std::uint32_t>(known_);
  }
  std::uint32_t& slot = slots_[slot_of(name, version)];
  if (slot == no_index) {
    types.push_back({std::string(name), version});
    slot = static_cast<std::uint32_t>(known_++);
  }
  return slot;
}

}  // namespace detail

// ---- reading --------------------------------------------------------------------------------------------------------

Bytes ReadContext::acquire() {
  if (free_.empty()) {
    free_.reserve(free_.capacity() + 1);  // so that all pieces can be given back without asking for memory
    return Bytes(piece_size);
  }
  Bytes piece = std::move(free_.back());
  free_.pop_back();
  return piece;
}

std::byte* ReadContext::memory(std::size_t block, std::size_t size) {
  Bytes& bytes = memory_.at(block);
  if (bytes.size() < size) bytes = Bytes();  // the old one goes first
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
      return Error(Errc::invalid_argument, "a window that is too large")
          .expected("at most " + std::to_string(piece_size) + " bytes")
          .found(std::to_string(size));
    }
    if (window_.empty()) window_ = Bytes(piece_size);
    const std::uint64_t left = source.size() > offset ? source.size() - offset : 0;
    std::size_t ahead = std::max(size, static_cast<std::size_t>(std::min<std::uint64_t>(left, piece_size)));
    window_source_ = nullptr;
    if (auto read = source.read_at(offset, window_.span().first(ahead)); !read) {
      // What comes after the leaf is not asked for, and may be what cannot be read.
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
std::string LeafView::path() const { return detail::node_path(*data_, data_->leaves[leaf_].node); }

std::span<const std::byte> LeafView::view() const noexcept {
  const Provider& p = data_->leaves[leaf_].provider;
  const auto size = static_cast<std::size_t>(data_->leaves[leaf_].bytes);
  if (p.ops->locate != nullptr) {
    const SourceRange range = p.ops->locate(p.at, p.number);
    const auto all = range.source->view();
    return all.empty() ? all : all.subspan(static_cast<std::size_t>(range.offset), size);
  }
  const std::byte* bytes = p.ops->view != nullptr ? p.ops->view(p.at, p.number) : nullptr;
  if (bytes == nullptr) return {};
  return {bytes, size};
}

Status LeafView::read(std::uint64_t offset, std::span<std::byte> out) const {
  ReadContext context;
  return read(offset, out, context);
}

Status LeafView::read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  if (offset > leaf.bytes || out.size() > leaf.bytes - offset) {
    return Error(Errc::truncated, "a read beyond the end of a tensor")
        .path(path())
        .expected("at most " + std::to_string(leaf.bytes) + " bytes")
        .found(std::to_string(offset) + " + " + std::to_string(out.size()));
  }
  // Packed and unsized dtypes have no element size: their bytes are read as they are.
  if (const unsigned size = element_size(leaf.dtype); size != 0 && (offset % size != 0 || out.size() % size != 0)) {
    return Error(Errc::invalid_argument, "a read that does not begin and end with an element")
        .path(path())
        .expected("multiples of " + std::to_string(size) + " bytes")
        .found(std::to_string(offset) + " + " + std::to_string(out.size()));
  }
  if (out.empty()) return {};
  if (const auto bytes = view(); !bytes.empty()) {
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
  const Provider& p = leaf.provider;
  if (p.ops->locate != nullptr) {
    const SourceRange range = p.ops->locate(p.at, p.number);
    return detail::with_path(range.source->read_at(range.offset + offset, out), *this);
  }
  return detail::with_path(p.ops->read(p.at, p.number, offset, out, context), *this);
}

Status LeafView::stream(PieceSink& sink, ReadContext& context) const {
  const detail::LeafData& leaf = data_->leaves[leaf_];
  const Provider& p = leaf.provider;
  if (p.ops->locate != nullptr) {
    return detail::with_path(detail::stream_range(p.ops->locate(p.at, p.number), leaf.bytes, sink, context), *this);
  }
  if (p.ops->stream != nullptr) {
    return detail::with_path(p.ops->stream(p.at, p.number, leaf.bytes, sink, context), *this);
  }
  if (leaf.bytes == 0) return {};
  if (const auto bytes = view(); !bytes.empty()) return detail::with_path(sink.piece(bytes), *this);
  ReadContext::Piece staging(context);
  for (std::uint64_t done = 0; done < leaf.bytes;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(leaf.bytes - done, ReadContext::piece_size));
    std::byte* to = sink.place(done, n);
    const std::span<std::byte> piece(to != nullptr ? to : staging.data(), n);
    if (auto r = p.ops->read(p.at, p.number, done, piece, context); !r) return detail::with_path(std::move(r), *this);
    if (auto r = sink.piece(piece); !r) return detail::with_path(std::move(r), *this);
    done += n;
  }
  return {};
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
  return ops.data != nullptr ? ops.data(const_cast<void*>(at)) : nullptr;
}

Status module_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const TensorOps& ops = tensor_ops(number);
  const unsigned size = element_size(ops.dtype);
  ops.read(at, offset / size, out.size() / size, out.data());
  return {};
}

}  // namespace

const LeafOps module_leaf_ops{module_view, module_read, nullptr, nullptr, true};

}  // namespace detail

// ---- Snapshot -------------------------------------------------------------------------------------------------------

Snapshot::Snapshot() : data_(std::make_shared<detail::SnapshotData>()) {}
Snapshot::Snapshot(std::shared_ptr<const detail::SnapshotData> data)
    : data_(data != nullptr ? std::move(data) : std::make_shared<detail::SnapshotData>()) {}

std::span<const Node> Snapshot::nodes() const noexcept { return data_->nodes; }
std::size_t Snapshot::leaf_count() const noexcept { return data_->leaves.size(); }
Result<LeafView> Snapshot::at(std::size_t i) const {
  if (i < leaf_count()) return leaf(i);
  return Error(Errc::not_found, "no tensor of that number")
      .expected("less than " + std::to_string(leaf_count()))
      .found(std::to_string(i));
}
const Value& Snapshot::value(const Node& node) const noexcept {
  static const Value null;
  return node.kind == NodeKind::value ? data_->values[node.index] : null;
}
const std::map<std::string, std::string>& Snapshot::metadata() const noexcept { return data_->metadata; }
bool Snapshot::flat() const noexcept { return data_->flat; }

std::string Snapshot::path(std::uint32_t node) const {
  return node < data_->nodes.size() ? detail::node_path(*data_, node) : std::string();
}

std::string_view Snapshot::type_name(const Node& node) const noexcept {
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

// ---- SnapshotBuilder ------------------------------------------------------------------------------------------------

SnapshotBuilder::SnapshotBuilder() : data_(std::make_unique<detail::SnapshotData>()) {}
SnapshotBuilder::~SnapshotBuilder() = default;
SnapshotBuilder::SnapshotBuilder(SnapshotBuilder&&) noexcept = default;
SnapshotBuilder& SnapshotBuilder::operator=(SnapshotBuilder&&) noexcept = default;

void SnapshotBuilder::reserve(std::size_t nodes, std::size_t leaves, std::size_t extents) {
  data_->arena.reserve(nodes * sizeof(Node) + leaves * sizeof(detail::LeafData) + extents * sizeof(Extent));
  data_->nodes.reserve(nodes);
  data_->leaves.reserve(leaves);
  data_->extents.reserve(extents);
}

void SnapshotBuilder::set_flat() {
  data_->flat = true;
  begin(NodeKind::module, "");
}

std::string_view SnapshotBuilder::intern(std::string_view name) { return data_->names.add(name); }
void SnapshotBuilder::keep(std::shared_ptr<const void> thing) { data_->keepers.push_back(std::move(thing)); }

Node& SnapshotBuilder::push(NodeKind kind, Name name, bool conditional, std::uint32_t index) {
  return detail::push_node(*data_, kind, name, conditional, open_, index);
}

std::uint32_t SnapshotBuilder::begin(NodeKind kind, Name name, bool conditional, std::string_view type,
                                     std::uint32_t version) {
  std::uint32_t index = no_index;
  if (!type.empty() || version != 0) {
    // Types of one name come in runs (the elements of a list), so looking at the last one saves nearly every search.
    const auto same = [&](const detail::TypeData& t) { return t.version == version && t.name == type; };
    if (last_type_ < data_->types.size() && same(data_->types[last_type_])) {
      index = last_type_;
    } else {
      last_type_ = index = data_->type_index.find_or_add(data_->types, type, version);
    }
  }
  push(kind, name, conditional, index);
  open_ = static_cast<std::uint32_t>(data_->nodes.size() - 1);
  return open_;
}

void SnapshotBuilder::end() {
  if (open_ == no_index) return;
  Node& node = data_->nodes[open_];
  node.end = static_cast<std::uint32_t>(data_->nodes.size());
  open_ = node.parent;
}

std::uint32_t SnapshotBuilder::tensor(Name name, DType dtype, std::span<const Extent> shape, std::uint64_t bytes,
                                      Provider provider, bool conditional) {
  detail::push_tensor(*data_, name, conditional, open_, dtype, shape, bytes, provider);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::value(Name name, Value value, bool conditional) {
  data_->values.push_back(std::move(value));
  push(NodeKind::value, name, conditional, static_cast<std::uint32_t>(data_->values.size() - 1));
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::none(Name name, bool conditional) {
  push(NodeKind::none, name, conditional, no_index);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

std::uint32_t SnapshotBuilder::alias(Name name, std::uint32_t target, bool conditional) {
  push(NodeKind::alias, name, conditional, target);
  return static_cast<std::uint32_t>(data_->nodes.size() - 1);
}

namespace {
detail::LeafExtra& last_extra(detail::SnapshotData& data) {
  detail::LeafData& leaf = data.leaves.back();
  if (leaf.extra == no_index) {
    leaf.extra = static_cast<std::uint32_t>(data.extras.size());
    data.extras.emplace_back();
  }
  return data.extras[leaf.extra];
}
}  // namespace

void SnapshotBuilder::set_id(const ParamId& id) {
  if (!data_->leaves.empty()) last_extra(*data_).id = id;
}

void SnapshotBuilder::annotate(std::string key, Value value) {
  if (data_->leaves.empty()) return;
  detail::LeafExtra& extra = last_extra(*data_);
  if (!extra.annotations) extra.annotations = std::make_unique<Annotations>();
  // Const for those who read the Snapshot only; a copy for each key would make the time quadratic.
  const_cast<Annotations&>(*extra.annotations).insert_or_assign(std::move(key), std::move(value));
}

void SnapshotBuilder::set_metadata(std::map<std::string, std::string> metadata) {
  data_->metadata = std::move(metadata);
}
void SnapshotBuilder::mark_consumable() { data_->consumable = true; }

Snapshot SnapshotBuilder::finish() {
  while (open_ != no_index) end();
  data_->type_index = {};
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data_)));
}

// ---- transforms -----------------------------------------------------------------------------------------------------

namespace detail {

std::unique_ptr<SnapshotData> derived_data(const Snapshot& base) {
  const SnapshotData& from = *base.data();
  auto data = std::make_unique<SnapshotData>();
  data->arena.reserve(from.nodes.size() * sizeof(Node) + from.leaves.size() * sizeof(LeafData) +
                      from.extents.size() * sizeof(Extent));
  data->nodes = from.nodes;
  data->leaves = from.leaves;
  data->extents = from.extents;
  data->values = from.values;
  data->types = from.types;
  data->metadata = from.metadata;
  data->by_path = from.by_path;
  data->flat = from.flat;
  data->guessed = from.guessed;
  data->guessed_maps = from.guessed_maps;
  data->type = from.type;
  data->origin = from.origin;
  data->verify = from.verify;
  data->in_order = from.in_order;
  data->capacity = from.capacity;
  data->extras.reserve(from.extras.size());
  for (const LeafExtra& extra : from.extras) {
    data->extras.push_back({extra.id, extra.annotations ? std::make_unique<Annotations>(*extra.annotations) : nullptr});
  }
  data->keepers.push_back(base.data());  // names and providers live there
  return data;
}

Error convert_error(const ConvertOutcome& outcome, DType from, DType to, std::uint64_t first) {
  const std::string pair = std::string(name(from)) + " -> " + std::string(name(to));
  const std::string at = "element " + std::to_string(first + outcome.index);
  switch (outcome.status) {
    case ConvertStatus::overflow:
      return Error(Errc::out_of_range, "a number becomes infinite (" + pair + ")")
          .expected("numbers in the range of " + std::string(name(to)))
          .found("too large a number in " + at);
    case ConvertStatus::out_of_range:
      return Error(Errc::out_of_range, "a number does not fit (" + pair + ")")
          .expected("numbers of " + std::string(name(to)))
          .found("another one in " + at);
    case ConvertStatus::bad_bool:
      return Error(Errc::malformed, "a bool that is neither 0 nor 1").expected("0 or 1").found("another byte in " + at);
    case ConvertStatus::ok:
    case ConvertStatus::unsupported:
      break;
  }
  return Error(Errc::dtype_mismatch, "dtypes that do not convert, or only when allowed")
      .expected(std::string(name(to)))
      .found(std::string(name(from)));
}

Status ConvertingSink::piece(std::span<const std::byte> bytes) {
  const std::size_t in = element_size(from_);
  const std::size_t out = element_size(to_);
  for (std::size_t left = bytes.size() / in; left != 0;) {
    const std::size_t n = std::min(left, ReadContext::piece_size / std::max(in, out));
    std::byte* to = next_.place(done_ * out, n * out);
    if (to == nullptr) to = staging_.data();
    const ConvertOutcome outcome = convert(from_, bytes.data() + bytes.size() - left * in, to_, to, n, rules_);
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, from_, to_, done_);
    overflowed_ += outcome.overflowed;
    STELE_TRY(next_.piece({to, n * out}));
    done_ += n;
    left -= n;
  }
  return {};
}

namespace {

/// The step that all converted leaves refer to; a leaf's number is its number in the base.
struct PrecisionStep {
  Snapshot base;
  std::vector<DType> to;  // of each leaf of the base
  ConvertRules rules;
};

Status converted_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                      ReadContext& context) {
  const auto& step = *static_cast<const PrecisionStep*>(at);
  const LeafView base = step.base.leaf(number);
  const DType from = base.dtype();
  const DType to = step.to[static_cast<std::size_t>(number)];
  const std::size_t in_size = element_size(from);
  const std::size_t out_size = element_size(to);
  ReadContext::Piece staging(context);
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = std::min((out.size() - done) / out_size, ReadContext::piece_size / in_size);
    const std::uint64_t first = (offset + done) / out_size;
    STELE_TRY(base.read(first * in_size, {staging.data(), n * in_size}, context));
    const ConvertOutcome outcome = convert(from, staging.data(), to, out.data() + done, n, step.rules);
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, from, to, first);
    done += n * out_size;
  }
  return {};
}

Status converted_stream(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& step = *static_cast<const PrecisionStep*>(at);
  const LeafView base = step.base.leaf(number);
  ConvertingSink converting(base.dtype(), step.to[static_cast<std::size_t>(number)], step.rules, sink, context);
  return base.stream(converting, context);
}

constexpr LeafOps precision_ops{.read = converted_read, .stream = converted_stream};

}  // namespace

Snapshot with_dtypes(const Snapshot& snapshot, std::vector<DType> to, ConvertRules rules) {
  auto data = derived_data(snapshot);
  auto step = std::make_shared<const PrecisionStep>(PrecisionStep{snapshot, std::move(to), rules});
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    LeafData& leaf = data->leaves[i];
    if (step->to[i] == leaf.dtype) continue;
    leaf.bytes = leaf.bytes / element_size(leaf.dtype) * element_size(step->to[i]);
    leaf.dtype = step->to[i];
    leaf.provider = {&precision_ops, step.get(), i};
  }
  data->keepers.push_back(std::move(step));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace detail

Snapshot with_precision(const Snapshot& snapshot, PrecisionSpec precision, ConvertRules rules) {
  if (precision == PrecisionSpec{}) return snapshot;
  std::vector<DType> to;
  bool changes = false;
  for (const detail::LeafData& leaf : snapshot.data()->leaves) {
    to.push_back(precision.apply(leaf.dtype));
    changes = changes || to.back() != leaf.dtype;
  }
  return changes ? detail::with_dtypes(snapshot, std::move(to), rules) : snapshot;
}

Snapshot with_metadata(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata) {
  if (metadata.empty()) return snapshot;
  auto data = detail::derived_data(snapshot);
  for (const auto& [key, text] : metadata) data->metadata.insert_or_assign(key, text);
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

std::string summary(const Snapshot& snapshot) {
  std::string text;
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    text += leaf.path() + "  " + std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()) + "  " +
            std::to_string(leaf.size()) + "\n";
    elements += leaf.size();
  }
  for (const detail::ConstantField& field : snapshot.data()->constants) {
    text += detail::constant_path(*snapshot.data(), field) + "  " + std::string(detail::constant_text) + "\n";
  }
  return text + std::to_string(snapshot.leaf_count()) + " tensors, " + std::to_string(elements) + " parameters, " +
         std::to_string(snapshot.byte_size()) + " bytes\n";
}

}  // namespace v0
}  // namespace stele
