// Matches tensors and values.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/limits.hpp"
#include "module/matcher.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/undecoded.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0::detail {

namespace {

/// A number or bool as a tensor of one element.
struct ValueTensor {
  DType dtype = DType::none;
  std::array<std::byte, 8> bytes{};

  explicit ValueTensor(const Value& value) {
    const auto set = [&](DType type, auto number) {
      dtype = type;
      std::memcpy(bytes.data(), &number, sizeof number);
    };
    if (const auto* b = value.as_bool()) set(DType::boolean, *b);
    if (const auto* i = value.as_i64()) set(DType::i64, *i);
    if (const auto* u = value.as_u64()) set(DType::u64, *u);
    if (const auto* f = value.as_f64()) set(DType::f64, *f);
  }
};
constexpr LeafOps value_tensor_ops{
    .view = [](const void* at, std::uint64_t) { return static_cast<const ValueTensor*>(at)->bytes.data(); }};

/// Returns a node's only element as a tensor of that rank (-1: its stored rank). Returns nullopt if the node already is
/// such a tensor, or does not have exactly one element.
std::optional<Snapshot> one_element(const Snapshot& file, std::uint32_t number, int rank) {
  const Node& node = file.nodes()[number];
  SnapshotBuilder builder;
  const auto shape = [&](std::size_t own) {
    return std::vector<Extent>(rank >= 0 ? static_cast<std::size_t>(rank) : own, 1);
  };
  const std::string_view path = builder.intern(file.path(number));
  if (node.kind == NodeKind::tensor) {
    const LeafView leaf = file.leaf(node.index);
    if (rank < 0 || leaf.size() != 1 || leaf.shape().size() == static_cast<std::size_t>(rank)) return std::nullopt;
    builder.tensor(path, leaf.dtype(), shape(0), leaf.byte_size(), leaf.provider());
    if (const auto id = leaf.id()) builder.set_id(*id);
    builder.keep(file.data());
    return builder.finish();
  }
  if (node.kind != NodeKind::value) return std::nullopt;
  auto tensor = std::make_shared<const ValueTensor>(file.value(node));
  if (tensor->dtype == DType::none) return std::nullopt;
  builder.tensor(path, tensor->dtype, shape(0), element_size(tensor->dtype), {&value_tensor_ops, tensor.get(), 0});
  builder.keep(std::move(tensor));
  return builder.finish();
}

}  // namespace

/// Returns the file's Snapshot with the leaves of `ones` appended.
Snapshot with_leaves(const Snapshot& file, const std::vector<OneElement>& ones) {
  auto data = derived_data(file);
  for (const OneElement& one : ones) {
    LeafData leaf = one.snapshot.data()->leaves[0];
    leaf.shape = static_cast<std::uint32_t>(data->extents.size());
    leaf.node = one.node;
    leaf.extra = no_index;
    if (const auto id = one.snapshot.leaf(0).id()) {
      leaf.extra = static_cast<std::uint32_t>(data->extras.size());
      data->extras.push_back({id, nullptr});
    }
    for (const Extent e : one.snapshot.leaf(0).shape()) data->extents.push_back(e);
    data->leaves.push_back(leaf);
    data->keepers.push_back(one.snapshot.data());
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

void Matcher::visit_tensor(const TensorOps& ops, void* object, const Place& place, bool was_one) {
  if (!place.exists || place.node == no_index) {
    if (place.exists)
      return mismatch(Errc::kind_mismatch, "the file has another kind of node", "tensor", describe(place));
    return missing(path_);
  }
  const Node& node = tree_.node(place.node);
  if (node.kind == NodeKind::none) return missing(path_);
  std::optional<Snapshot> one;
  if (was_one) one = one_element(tree_.snapshot(), place.node, rank_of(ops, object));
  if (!one && node.kind != NodeKind::tensor) {
    return mismatch(Errc::kind_mismatch, "the file has another kind of node", "tensor", std::string(name(node.kind)));
  }
  const LeafView leaf = one ? one->leaf(0) : tree_.snapshot().leaf(node.index);
  if (const std::string_view reason = unreadable(leaf); !reason.empty()) {
    return mismatch(Errc::unsupported, "the entry of the file is not a tensor that can be read", "tensor",
                    shown_unreadable(reason));
  }
  if (ops.bind != nullptr) {
    if (object != nullptr && tie_.first == PathStore::none) {
      ops.bind(object, one ? one->data() : tree_.snapshot().data(), one ? 0 : node.index);
    }
    row(Report::What::applied, path_);
    return;
  }
  if (!shape_fits(ops, object, leaf) || !dtype_fits(ops, leaf)) return;
  std::uint32_t number = node.index;
  if (one) {
    number = static_cast<std::uint32_t>(tree_.snapshot().leaf_count() + plan_.ones.size());
    plan_.ones.push_back({*std::move(one), place.node});
  }
  if (tie_.first != PathStore::none) return note_tie(&ops, nullptr, number);
  plan_.tensors.push_back({number, &ops, object, keep_path()});
}

std::uint64_t Matcher::capacity() {
  if (!capacity_) {
    const SnapshotData& data = *tree_.snapshot().data();
    std::uint64_t leaves = 0;
    for (const LeafData& leaf : data.leaves) leaves = checked_add(leaves, leaf.bytes).value_or(UINT64_MAX);
    capacity_ = data.capacity != 0 ? std::min(data.capacity, leaves) : leaves;
  }
  return *capacity_;
}

int Matcher::rank_of(const TensorOps& ops, const void* object) const {
  if (ops.rank >= 0 || object == nullptr || ops.shape == nullptr || mode_ == LoadMode::fresh) return ops.rank;
  Shape shape;
  ops.shape(object, shape);
  return static_cast<int>(shape.rank());
}

std::uint32_t Matcher::keep_path() {
  if (open_.empty())
    return root_path_ != PathStore::none ? root_path_ : root_path_ = plan_.paths.add(PathStore::none, "");
  std::size_t first = open_.size();
  while (first != 0 && open_[first - 1].stored == PathStore::none) --first;
  for (; first != open_.size(); ++first) {
    const std::size_t end = first + 1 != open_.size() ? open_[first + 1].begin : path_.size();
    const std::string_view segment = std::string_view(path_).substr(open_[first].begin, end - open_[first].begin);
    open_[first].stored = plan_.paths.add(first != 0 ? open_[first - 1].stored : PathStore::none, segment);
  }
  return open_.back().stored;
}

bool Matcher::shape_fits(const TensorOps& ops, void* object, const LeafView& leaf) {
  if (ops.rank >= 0 && leaf.shape().size() != static_cast<std::size_t>(ops.rank)) {
    mismatch(Errc::shape_mismatch, "the tensor has another rank in the file", "rank " + std::to_string(ops.rank),
             "rank " + std::to_string(leaf.shape().size()) + " " + to_string(leaf.shape()));
    return false;
  }
  const auto elements = element_count(leaf.shape());
  // An integer instead of an optional, for which g++-12 -O3 gives a false warning.
  const std::uint64_t bytes =
      (elements ? byte_length(loaded_dtype(ops, leaf.dtype()), *elements) : std::nullopt).value_or(UINT64_MAX);
  const bool countable = bytes != UINT64_MAX;
  if (countable) total_ = checked_add(total_, bytes).value_or(UINT64_MAX);
  stored_ = checked_add(stored_, leaf.byte_size()).value_or(UINT64_MAX);
  const Limits& limits = options_.limits;
  const auto above = [](std::uint64_t n, std::uint64_t limit) { return limit != 0 && n > limit; };
  // Without a limit from the caller, the limit is the amount that the file can hold, independent of the module's
  // dtypes.
  const bool multiplied = limits.total_bytes == 0 && stored_ > add_scaled(tensor_base, capacity(), max_tied_copies);
  const bool beyond = limits.tensor_bytes == 0 && leaf.byte_size() > add_scaled(tensor_base, capacity(), 1);
  if (!countable || above(bytes, limits.tensor_bytes) || above(total_, limits.total_bytes) || multiplied || beyond) {
    fail(Error(Errc::limit, multiplied || beyond ? "the tensors take more memory than a file of this size can declare"
                                                 : "the tensors exceed LoadOptions::limits")
             .path(path_)
             .found(countable ? std::to_string(bytes) + " bytes" : "2^64 bytes or more")
             .hint("raise LoadOptions::limits.tensor_bytes and total_bytes"));
    return false;
  }
  if (object == nullptr && ops.fresh_shape == nullptr) return true;
  Shape global, start;
  const bool placed = object != nullptr && ops.place != nullptr && ops.place(object, global, start);
  const bool free = !ops.fixed_shape && !placed && (mode_ == LoadMode::fresh || options_.rebuild || ops.unset(object));
  if (free) return true;
  Shape shape;
  if (object != nullptr) {
    ops.shape(object, shape);
  } else {
    ops.fresh_shape(shape);
  }
  if (std::equal(shape.begin(), shape.end(), leaf.shape().begin(), leaf.shape().end())) return true;
  mismatch(Errc::shape_mismatch, "the tensor has another shape in the file", to_string(shape), to_string(leaf.shape()),
           ops.fixed_shape ? std::string_view() : set_rebuild);
  return false;
}

bool Matcher::dtype_fits(const TensorOps& ops, const LeafView& leaf) {
  const bool encoded = is_block(leaf.dtype()) || is_plain_float(leaf.dtype());
  if (ops.dtype_of != nullptr && encoded && loaded_dtype(ops, leaf.dtype()) == leaf.dtype()) return true;
  const std::string_view scheme = undecoded(leaf);  // scales are numbers, codes are not
  if (!scheme.empty() && !is_plain_float(leaf.dtype()) && dtype_class(ops.dtype) == DTypeClass::floating &&
      ops.dtype != leaf.dtype()) {
    mismatch(Errc::dtype_mismatch, "the codes of a quantized weight, whose scheme is not decoded, are no numbers",
             std::string(name(leaf.dtype())) + ", the stored dtype",
             std::string(scheme) + ", for a field of " + std::string(name(ops.dtype)),
             "open the file, and load the snapshot of stele::raw_codes");
    return false;
  }
  if (ops.dtype == DType::none || is_block(ops.dtype)) {
    mismatch(Errc::dtype_mismatch, "blocks are only loaded at their stored dtype",
             ops.dtype == DType::none ? "blocks or floats" : std::string(name(ops.dtype)),
             std::string(name(leaf.dtype())), is_block(leaf.dtype()) ? "make the field a stele::Quantized<>" : "");
    return false;
  }
  if (element_size(leaf.dtype()) != 0 && convertible(leaf.dtype(), ops.dtype, options_.convert)) return true;
  ConvertRules other_kinds = options_.convert;
  other_kinds.allow_kind_change = true;
  const bool allowable = element_size(leaf.dtype()) != 0 && convertible(leaf.dtype(), ops.dtype, other_kinds);
  mismatch(Errc::dtype_mismatch, "the dtypes do not convert", std::string(name(ops.dtype)),
           std::string(name(leaf.dtype())),
           allowable                ? "set LoadOptions::convert.allow_kind_change"
           : is_block(leaf.dtype()) ? "set LoadOptions::dequantize"
                                    : "");
  return false;
}

void Matcher::visit_value(const ValueOps& ops, void* object, const Place& place) {
  // A format without kinds stores a null value as an absent entry.
  const bool may_be_null = place.exists && ops.dtype == DType::none && tree_.guessed() && accepts_null(ops);
  if (tree_.absent(place) && !may_be_null) return missing(path_);
  const Value* found = nullptr;
  const NodeKind kind = place.node != no_index ? tree_.node(place.node).kind : NodeKind::none;
  if (kind == NodeKind::value) {
    found = &tree_.snapshot().value(tree_.node(place.node));
  } else if (kind == NodeKind::tensor) {
    found = number_of(ops, tree_.snapshot().leaf(tree_.node(place.node).index));
    if (found == nullptr) return;
  } else if (ops.dtype == DType::none && tree_.guessed()) {
    found = put_together(place);
  }
  if (found == nullptr) {
    if (constant_) return row(Report::What::defaulted, path_, "the file has another kind of node");
    if (place.node == no_index) return missing(path_);
    return mismatch(Errc::kind_mismatch, "the file has another kind of node", "value", describe(place));
  }
  const Value& value = *found;
  if (tie_.first != PathStore::none) return note_tie(nullptr, &value, no_index);
  const auto fits = [&](auto read) {
    std::string_view expected;
    auto done = guarded([&]() -> Status {  // user code, which may throw
      expected = read();
      return {};
    });
    if (!done) {
      fail(std::move(done).error().path(path_));
      return false;
    }
    if (!expected.empty()) bad_value(expected, value);
    return expected.empty();
  };
  if (object != nullptr && mutate_) {
    if (fits([&] { return ops.from_value(object, value); })) report_.add(Report::What::applied, path_);
    return;
  }
  if (ops.check != nullptr && !fits([&] { return ops.check(value); })) return;
  plan_.values.push_back({&ops, object, &value, keep_path()});
}

namespace {

/// Keeps the bytes of one element.
class OneElementSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    const std::size_t n = std::min(bytes.size(), element_.size() - size_);
    std::copy_n(bytes.begin(), n, element_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += n;
    return {};
  }
  const std::byte* element() const noexcept { return element_.data(); }

 private:
  std::array<std::byte, 8> element_{};
  std::size_t size_ = 0;
};

/// Returns the dtype of a Value for numbers of a dtype; none for a dtype without numbers.
DType dtype_of_values(DType dtype) {
  if (dtype == DType::boolean || dtype == DType::u64) return dtype;
  if (is_plain_float(dtype)) return DType::f64;
  return element_size(dtype) != 0 && convertible(dtype, DType::i64) ? DType::i64 : DType::none;
}

/// Returns a number as a Value. `element` has the dtype `from`.
Value value_of(DType from, const std::byte* element, DType to) {
  const auto read = [&](auto number) {
    convert(from, element, to, reinterpret_cast<std::byte*>(&number), 1);
    return Value(number);
  };
  switch (to) {
    case DType::boolean:
      return Value(*element != std::byte{0});
    case DType::u64:
      return read(std::uint64_t{});
    case DType::i64:
      return read(std::int64_t{});
    default:
      return read(double{});
  }
}

}  // namespace

const Value* Matcher::number_of(const ValueOps& ops, const LeafView& leaf) {
  const auto refuse = [&](Errc code, const char* text, const std::string& expected, std::string_view hint = {}) {
    mismatch(code, text, expected, std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()), hint);
    return nullptr;
  };
  const DType of_values = dtype_of_values(ops.dtype);
  if (of_values == DType::none) return refuse(Errc::kind_mismatch, "the file has another kind of node", "value");
  if (const std::string_view reason = unreadable(leaf); !reason.empty()) {
    mismatch(Errc::unsupported, "the entry of the file is not a tensor that can be read", "value",
             shown_unreadable(reason));
    return nullptr;
  }
  if (element_count(leaf.shape()) != std::uint64_t{1}) {
    return refuse(Errc::shape_mismatch, "the field has one number, and the file a tensor of another size",
                  "a tensor of one element");
  }
  ConvertRules other_kinds = options_.convert;
  other_kinds.allow_kind_change = true;
  if (element_size(leaf.dtype()) == 0 || !convertible(leaf.dtype(), ops.dtype, options_.convert)) {
    const bool allowable = element_size(leaf.dtype()) != 0 && convertible(leaf.dtype(), ops.dtype, other_kinds);
    return refuse(Errc::dtype_mismatch, "the dtypes do not convert", std::string(name(ops.dtype)),
                  allowable ? "set LoadOptions::convert.allow_kind_change" : "");
  }
  OneElementSink element;
  ReadContext context;
  const auto overflowed = stream_as(leaf, ops.dtype, options_.convert, element, context);
  if (!overflowed) {
    fail(Error(overflowed.error()).path(path_));
    return nullptr;
  }
  if (*overflowed != 0) row(Report::What::overflowed, path_, "1 numbers");
  return &plan_.put_together.emplace_back(value_of(ops.dtype, element.element(), of_values));
}

const Value* Matcher::put_together(const Place& place) {
  std::vector<std::uint32_t> parts;
  auto value = value_at(place, 0, parts);
  if (!value) return nullptr;
  for (const std::uint32_t node : parts) used_[node] = true;
  return &plan_.put_together.emplace_back(*std::move(value));
}

std::optional<Value> Matcher::value_at(const Place& place, int depth, std::vector<std::uint32_t>& parts) {
  if (depth > max_value_depth || place.alias != no_index) return std::nullopt;
  NodeKind kind = tree_.kind(place);
  if (place.node != no_index) parts.push_back(place.node);
  if (kind == NodeKind::tensor) return std::nullopt;
  if (kind == NodeKind::value) return tree_.snapshot().value(tree_.node(place.node));
  if (kind == NodeKind::none) return Value();
  std::vector<std::pair<std::uint32_t, std::pair<std::string, Value>>> found;
  bool whole = true;
  tree_.each(place, [&](std::string_view key, const Place& at) {
    const std::size_t first = parts.size();
    auto part = whole ? value_at(at, depth + 1, parts) : std::nullopt;
    whole = part.has_value() && first != parts.size();
    if (whole) found.push_back({parts[first], {std::string(key), *std::move(part)}});
  });
  if (!whole) return std::nullopt;
  // Flat names are sorted; the file's order is closer to the original order of the map.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Value::Map entries;
  entries.reserve(found.size());
  for (auto& [node, entry] : found) entries.push_back(std::move(entry));
  // Flat names do not show a list: its numbers 0, 1, … are sorted as text.
  std::size_t n = 0;
  std::size_t gap = 0;
  const bool named = place.node != no_index && !(tree_.flat() && !entries.empty());
  const bool list =
      named ? kind == NodeKind::list : !entries.empty() && tree_.count(place, n, gap) && n == entries.size();
  if (!list) return Value(std::move(entries));
  Value::List elements(entries.size());
  for (auto& [key, part] : entries) {
    std::size_t number = 0;
    if (!parse_index(key, number) || number >= elements.size()) return std::nullopt;
    elements[number] = std::move(part);
  }
  return Value(std::move(elements));
}

void Matcher::bad_value(std::string_view expected, const Value& value) {
  std::string found(name(value.kind()));
  if (value.as_i64() != nullptr) found += " " + std::to_string(*value.as_i64());
  mismatch(Errc::value_mismatch, "the value does not fit the field", std::string(expected), found);
}

}  // namespace stele::inline v0::detail
