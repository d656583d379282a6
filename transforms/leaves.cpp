// Derived tensors: permuted, split and joined, piece by piece as they are read.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "concatenate.hpp"
#include "leaves/blocks.hpp"
#include "leaves/needs.hpp"
#include "passes/precision.hpp"
#include "passes/quantize.hpp"
#include "passes/transpose.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"
#include "stele/quantize.hpp"
#include "stele/transform.hpp"

namespace stele::inline v0 {

using detail::Item;
using detail::Items;

namespace {

Extent product(std::span<const Extent> extents) {
  Extent n = 1;
  for (const Extent e : extents) n *= e;  // no overflow: the tensor's bytes fit 64 bits
  return n;
}

// ---- split ----------------------------------------------------------------------------------------------------------

/// From each run of `block` bytes of the base, the `length` bytes that start at `begin`.
struct Cut {
  LeafView base;
  std::uint64_t block, begin, length;
};

const std::byte* view_cut(const void* at, std::uint64_t) {
  const Cut& cut = *static_cast<const Cut*>(at);
  const auto bytes = cut.base.view();
  return bytes.empty() || cut.block != bytes.size() ? nullptr : bytes.data() + cut.begin;
}

Status read_cut(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) {
  const Cut& cut = *static_cast<const Cut*>(at);
  while (!out.empty()) {
    const std::uint64_t within = offset % cut.length;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(cut.length - within, out.size()));
    STELE_TRY(cut.base.read(offset / cut.length * cut.block + cut.begin + within, out.first(n), context));
    out = out.subspan(n);
    offset += n;
  }
  return {};
}

/// Reads the whole base, so that its checksum can be verified.
Status stream_cut(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  class Select final : public PieceSink {
   public:
    Select(const Cut& cut, PieceSink& next, ReadContext& context) : cut_(cut), next_(next), staging_(context) {}
    Status piece(std::span<const std::byte> bytes) override {
      while (!bytes.empty()) {
        const std::uint64_t within = at_ % cut_.block;
        const bool wanted = within >= cut_.begin && within < cut_.begin + cut_.length;
        const std::uint64_t until = within < cut_.begin ? cut_.begin : wanted ? cut_.begin + cut_.length : cut_.block;
        std::uint64_t n = std::min<std::uint64_t>(until - within, bytes.size());
        if (wanted) {
          n = std::min<std::uint64_t>(n, ReadContext::piece_size - used_);
          std::memcpy(staging_.data() + used_, bytes.data(), static_cast<std::size_t>(n));
          used_ += static_cast<std::size_t>(n);
          if (used_ == ReadContext::piece_size) STELE_TRY(flush());
        }
        at_ += n;
        bytes = bytes.subspan(static_cast<std::size_t>(n));
      }
      return {};
    }
    Status flush() {
      const std::size_t n = std::exchange(used_, 0);
      return n != 0 ? next_.piece({staging_.data(), n}) : Status();
    }

   private:
    const Cut& cut_;
    PieceSink& next_;
    ReadContext::Piece staging_;
    std::size_t used_ = 0;
    std::uint64_t at_ = 0;
  };
  if (size == 0) return {};
  const Cut& cut = *static_cast<const Cut*>(at);
  Select select(cut, sink, context);
  STELE_TRY(cut.base.stream(select, context));
  return select.flush();
}
void cut_needs(const void* at, std::uint64_t, detail::Needs& needs) { needs.add(static_cast<const Cut*>(at)->base); }
constexpr LeafOps cut_ops{.view = view_cut, .read = read_cut, .stream = stream_cut, .needs = cut_needs};

// ---- concatenate ----------------------------------------------------------------------------------------------------

/// Each run of `block` bytes consists of one run of each part.
struct Joined {
  struct Part {
    LeafView base;
    std::uint64_t begin, length;
  };
  std::vector<Part> parts;
  std::uint64_t block;

  Status fill(std::uint64_t from, std::span<std::byte> out, ReadContext& context) const {
    class Spread final : public PieceSink {
     public:
      Spread(const Joined& step, const Part& part, std::uint64_t from, std::span<std::byte> out)
          : step_(step), part_(part), from_(from), out_(out) {}
      Status piece(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) {
          const std::uint64_t within = done_ % part_.length;
          const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(part_.length - within, bytes.size()));
          const std::uint64_t to = done_ / part_.length * step_.block + part_.begin + within;
          const std::uint64_t low = std::max(to, from_);
          const std::uint64_t high = std::min<std::uint64_t>(to + n, from_ + out_.size());
          if (low < high) {
            std::memcpy(out_.data() + (low - from_), bytes.data() + (low - to), static_cast<std::size_t>(high - low));
          }
          done_ += n;
          bytes = bytes.subspan(n);
        }
        return {};
      }

     private:
      const Joined& step_;
      const Part& part_;
      std::uint64_t from_;
      std::span<std::byte> out_;
      std::uint64_t done_ = 0;
    };
    for (const Part& part : parts) {
      if (part.length == 0) continue;
      Spread place(*this, part, from, out);
      STELE_TRY(part.base.stream(place, context));
    }
    return {};
  }
};

Status read_joined(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  const Joined& step = *static_cast<const Joined*>(at);
  while (!out.empty()) {
    const std::uint64_t within = offset % step.block;
    const auto part = std::find_if(step.parts.begin(), step.parts.end(), [&](const Joined::Part& p) {
      return within >= p.begin && within < p.begin + p.length;
    });
    const std::uint64_t skip = within - part->begin;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(part->length - skip, out.size()));
    STELE_TRY(part->base.read(offset / step.block * part->length + skip, out.first(n), context));
    out = out.subspan(n);
    offset += n;
  }
  return {};
}

/// Passes the pieces of several tensors on as those of one: offsets and sizes of pieces are those of the whole.
class Gathered final : public PieceSink {
 public:
  Gathered(PieceSink& to, ReadContext& context) : to_(to), bytes_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), ReadContext::piece_size - used_);
      std::memcpy(bytes_.data() + used_, bytes.data(), n);
      used_ += n;
      bytes = bytes.subspan(n);
      if (used_ == ReadContext::piece_size) STELE_TRY(flush());
    }
    return {};
  }
  Status flush() {
    const std::size_t n = std::exchange(used_, 0);
    return n != 0 ? to_.piece({bytes_.data(), n}) : Status();
  }

 private:
  PieceSink& to_;
  ReadContext::Piece bytes_;
  std::size_t used_ = 0;
};

Status stream_joined(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Joined& step = *static_cast<const Joined*>(at);
  if (size != 0 && step.block != size) return detail::stream_blocks<Joined>(at, size, sink, context);
  Gathered whole(sink, context);
  for (const Joined::Part& part : step.parts) {  // one after the other
    if (part.length != 0) STELE_TRY(part.base.stream(whole, context));
  }
  return whole.flush();
}
void joined_needs(const void* at, std::uint64_t, detail::Needs& needs) {
  for (const Joined::Part& part : static_cast<const Joined*>(at)->parts) needs.add(part.base);
}
constexpr LeafOps joined_ops{.read = read_joined, .stream = stream_joined, .needs = joined_needs};

// ---- the tensors of both --------------------------------------------------------------------------------------------

/// Returns the error for a tensor that has an alias, which would lose its target.
Error tied_tensor(std::string_view path, std::string_view alias) {
  return Error(Errc::invalid_argument, "a tied tensor cannot be cut or joined").path(path).found(alias);
}

/// Returns the tensor to split.
Result<Item*> tensor_at(Items& items, std::string_view path) {
  for (const Item& i : items.list) {
    if (i.target == path) return tied_tensor(path, i.path);
  }
  if (Item* item = items.find_tensor(path)) return item;
  return Error(Errc::not_found, "no tensor has this name").path(std::string(path));
}

}  // namespace

Result<Snapshot> transpose(const Snapshot& snapshot, std::string_view pattern, std::span<const std::size_t> axes) {
  bool found = false;
  const std::vector<std::size_t> all(axes.begin(), axes.end());
  auto result = detail::transpose_where(snapshot, [&](const LeafView& leaf) {
    const bool chosen = matches(pattern, leaf.path());
    found = found || chosen;
    return chosen ? std::optional(all) : std::nullopt;
  });
  if (!result || found) return result;
  return Error(Errc::not_found, "the pattern does not match any tensor").path(std::string(pattern));
}

Result<Snapshot> reshape(const Snapshot& snapshot, std::string_view pattern, std::span<const Extent> shape) {
  return detail::guarded([&]() -> Result<Snapshot> {
    auto data = detail::derived_data(snapshot);
    const auto count = element_count(shape);
    bool found = false;
    for (std::size_t i = 0; i < data->leaves.size(); ++i) {
      const LeafView base = snapshot.leaf(i);
      if (!matches(pattern, base.path())) continue;
      found = true;
      if (element_size(base.dtype()) == 0) return detail::packed(base.path(), base.dtype());
      if (!count || *count != base.size()) {
        return Error(Errc::shape_mismatch, "the new shape has a different number of elements")
            .path(base.path())
            .expected(std::to_string(base.size()) + " elements")
            .found(to_string(shape));
      }
      const Annotations* const notes = base.annotations();
      const auto note = notes != nullptr ? notes->find(std::string(quantization_key)) : Annotations::const_iterator();
      if (notes != nullptr && note != notes->end() && note->second.find("axis") != nullptr) {
        return Error(Errc::unsupported, "a tensor that is quantized along an axis cannot be reshaped")
            .path(base.path());
      }
      data->leaves[i].shape = static_cast<std::uint32_t>(data->extents.size());
      data->leaves[i].rank = static_cast<std::uint16_t>(shape.size());
      data->extents.insert(data->extents.end(), shape.begin(), shape.end());
    }
    if (!found) return Error(Errc::not_found, "the pattern does not match any tensor").path(std::string(pattern));
    return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  });
}

Result<Snapshot> split(const Snapshot& snapshot, std::string_view path, std::size_t axis, std::span<const Part> parts) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Items items, Items::of(snapshot));
    STELE_TRY_ASSIGN(Item * item, tensor_at(items, path));
    const LeafView base = item->leaf();
    const auto shape = base.shape();
    if (axis >= shape.size()) {
      return Error(Errc::invalid_argument, "the tensor does not have the axis")
          .path(item->path)
          .expected("an axis below " + std::to_string(shape.size()))
          .found(std::to_string(axis));
    }
    const std::size_t size = element_size(base.dtype());
    if (size == 0) return detail::packed(path, base.dtype());
    std::uint64_t sum = 0;
    for (const Part& p : parts) sum = checked_add(sum, p.extent).value_or(UINT64_MAX);
    if (sum != shape[axis]) {
      return Error(Errc::shape_mismatch, "the parts do not add up to the extent of the axis")
          .path(item->path)
          .expected(std::to_string(shape[axis]))
          .found(std::to_string(sum));
    }
    const Extent inner = product(shape.subspan(axis + 1)) * size;
    std::vector<Item> made;
    std::uint64_t begin = 0;
    for (const Part& p : parts) {
      auto cut = std::make_shared<Cut>(Cut{base, shape[axis] * inner, begin, p.extent * inner});
      std::vector<Extent> extents(shape.begin(), shape.end());
      extents[axis] = p.extent;
      Item& part_item = made.emplace_back(*item);
      part_item.path = p.path;
      part_item.derived = detail::DerivedLeaf{base.dtype(), Shape(std::span<const Extent>(extents)),
                                              product(extents) * size, Provider{&cut_ops, cut.get(), 0}};
      begin += p.extent * inner;
      items.keepers.push_back(std::move(cut));
    }
    const auto at = items.list.erase(items.list.begin() + (item - items.list.data()));
    items.list.insert(at, made.begin(), made.end());
    return items.build();
  });
}

namespace {

/// Returns the tensor that the tensors of a join become, with the name and the notes of the first one.
Result<Item> joined(Items& items, const detail::ItemIndex& index,
                    const std::map<std::string_view, std::string_view>& tied, const detail::Join& join,
                    std::size_t axis) {
  if (join.paths.empty()) return Error(Errc::invalid_argument, "the list of tensors is empty").path(join.path);
  auto step = std::make_shared<Joined>();
  std::vector<Extent> extents;
  std::uint64_t begin = 0;
  Item made;
  std::size_t size = 0;
  for (const std::string& name : join.paths) {
    const auto at = index.find(name);
    if (!at || !items.list[*at].is_tensor())
      return Error(Errc::not_found, "no tensor has this name").path(std::string(name));
    if (const auto alias = tied.find(name); alias != tied.end()) return tied_tensor(name, alias->second);
    const Item& item = items.list[*at];
    const LeafView base = item.leaf();
    const auto shape = base.shape();
    const auto mismatch = [&](Errc code, const char* why, std::string_view expected, std::string_view found) {
      return Error(code, why).path(name).expected(expected).found(found);
    };
    if (axis >= shape.size()) {
      return mismatch(Errc::invalid_argument, "the tensor does not have the axis",
                      "an axis below " + std::to_string(shape.size()), std::to_string(axis));
    }
    if (extents.empty()) {
      made = item;
      extents.assign(shape.begin(), shape.end());
      extents[axis] = 0;
      size = element_size(base.dtype());
      if (size == 0) return detail::packed(name, base.dtype());
    }
    if (base.dtype() != made.leaf().dtype()) {
      return mismatch(Errc::dtype_mismatch, "the tensors have different dtypes",
                      std::string(v0::name(made.leaf().dtype())), std::string(v0::name(base.dtype())));
    }
    std::vector<Extent> other(shape.begin(), shape.end());
    other[axis] = 0;
    const Extent sum_before = std::exchange(extents[axis], 0);
    if (other != extents) {
      return mismatch(Errc::shape_mismatch, "the tensors differ in another axis", to_string(made.leaf().shape()),
                      to_string(shape));
    }
    const auto sum = checked_add(sum_before, shape[axis]);
    extents[axis] = sum.value_or(0);
    const std::uint64_t length = product(shape.subspan(axis)) * size;
    const auto elements = element_count(extents);
    if (!sum || !elements || !checked_mul(*elements, size)) {
      return mismatch(Errc::limit, "the size of the joined tensor overflows 64 bits", "", to_string(extents));
    }
    step->parts.push_back({base, begin, length});
    begin += length;
  }
  step->block = begin;
  made.path = join.path;
  made.derived = detail::DerivedLeaf{made.leaf().dtype(), Shape(std::span<const Extent>(extents)),
                                     product(extents) * size, Provider{&joined_ops, step.get(), 0}};
  items.keepers.push_back(std::move(step));
  return made;
}

}  // namespace

Result<Snapshot> detail::concatenate_each(const Snapshot& snapshot, std::span<const Join> joins, std::size_t axis) {
  return guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Items items, Items::of(snapshot));
    std::map<std::string_view, std::string_view> tied;  // the target of an alias -> the alias
    for (const Item& item : items.list) {
      if (item.target) tied.emplace(*item.target, item.path);
    }
    const ItemIndex index(items.list);
    std::map<std::size_t, Item> made;  // by the number of the item that it replaces
    std::vector<bool> gone(items.list.size());
    for (const Join& join : joins) {
      STELE_TRY_ASSIGN(Item item, joined(items, index, tied, join, axis));
      std::size_t first = items.list.size();
      for (const std::string& path : join.paths) {
        first = std::min(first, *index.find(path));
        gone[*index.find(path)] = true;
      }
      made.emplace(first, std::move(item));
    }
    std::vector<Item> list;
    for (std::size_t i = 0; i < items.list.size(); ++i) {
      if (const auto whole = made.find(i); whole != made.end()) {
        list.push_back(std::move(whole->second));
      } else if (!gone[i]) {
        list.push_back(std::move(items.list[i]));
      }
    }
    items.list = std::move(list);
    return items.build();
  });
}

Result<Snapshot> concatenate(const Snapshot& snapshot, std::span<const std::string> paths, std::size_t axis,
                             std::string_view path) {
  const detail::Join join{{paths.begin(), paths.end()}, std::string(path)};
  return detail::concatenate_each(snapshot, std::span(&join, 1), axis);
}

Snapshot with_precision(const Snapshot& stored, std::span<const PrecisionRule> rules, ConvertRules convert) {
  const auto spec_of = [&](const LeafView& leaf) {
    const std::string path = leaf.path();
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const PrecisionRule& r) { return matches(r.pattern, path); });
    return rule != rules.end() ? rule->precision : PrecisionSpec{};
  };
  const Snapshot snapshot =
      detail::with_floats(stored, [&](const LeafView& leaf) { return spec_of(leaf).floating != DType::none; });
  std::vector<DType> to;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    to.push_back(spec_of(leaf).apply(leaf.dtype()));
  }
  return detail::with_dtypes(snapshot, std::move(to), convert);
}

}  // namespace stele::inline v0
