// Tensors made of others: permuted, cut and joined, piece by piece as they are read.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "items.hpp"
#include "leaves.hpp"
#include "stele/transform.hpp"

namespace stele {
inline namespace v0 {

using detail::Item;
using detail::Items;

namespace {

/// What is put together out of order is put together in a block of this size, with one pass over the tensors that it
/// comes from for each: large enough for nearly every tensor to need one pass, small beside a model.
constexpr std::size_t block_size = std::size_t{32} << 20;

/// Passes on what `step` puts together block by block: `fill(step, first, block, context)`.
template <class Step>
Status stream_blocks(const void* at, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Step& step = *static_cast<const Step*>(at);
  Bytes block(static_cast<std::size_t>(std::min<std::uint64_t>(size, block_size)));
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, block.size()));
    STELE_TRY(step.fill(done, block.span().first(n), context));
    for (std::size_t passed = 0; passed < n; passed += ReadContext::piece_size) {
      STELE_TRY(sink.piece(block.span().subspan(passed, std::min(ReadContext::piece_size, n - passed))));
    }
    done += n;
  }
  return {};
}

Extent product(std::span<const Extent> extents) {
  Extent n = 1;
  for (const Extent e : extents) n *= e;  // of a tensor whose bytes fit 64 bits
  return n;
}

// ---- transpose ------------------------------------------------------------------------------------------------------

struct Transposed {
  LeafView base;
  Shape shape;                        // of the base
  std::vector<std::uint64_t> strides;  // in the result, of each axis of the base, in elements
  std::size_t size;                   // of an element

  /// Puts elements [first, first + elements) of the base where they belong, as far as that is in `out`, which begins
  /// at byte `from` of the result.
  template <std::size_t Size>
  void scatter(const std::byte* in, std::uint64_t first, std::uint64_t elements, std::uint64_t from,
               std::span<std::byte> out) const {
    const std::size_t rank = shape.rank();
    const Extent row = shape[rank - 1];
    const std::uint64_t stride = strides[rank - 1];
    const std::uint64_t low = from / Size;
    const std::uint64_t count = out.size() / Size;
    for (std::uint64_t done = 0; done < elements;) {
      // One row of the base, or what is there of it.
      std::uint64_t left = (first + done) / row;
      const std::uint64_t column = (first + done) % row;
      std::uint64_t to = column * stride;
      for (std::size_t axis = rank - 1; axis-- > 0; left /= shape[axis]) to += left % shape[axis] * strides[axis];
      const std::uint64_t n = std::min(row - column, elements - done);
      const std::byte* at = in + done * Size;
      for (std::uint64_t i = 0; i < n; ++i, to += stride, at += Size) {
        if (to - low < count) std::memcpy(out.data() + (to - low) * Size, at, Size);
      }
      done += n;
    }
  }
  void scatter_any(const std::byte* in, std::uint64_t first, std::uint64_t elements, std::uint64_t from,
                   std::span<std::byte> out) const {
    switch (size) {
      case 1:
        return scatter<1>(in, first, elements, from, out);
      case 2:
        return scatter<2>(in, first, elements, from, out);
      case 4:
        return scatter<4>(in, first, elements, from, out);
      case 8:
        return scatter<8>(in, first, elements, from, out);
      default:
        return scatter<16>(in, first, elements, from, out);
    }
  }

  Status fill(std::uint64_t from, std::span<std::byte> out, ReadContext& context) const {
    class Scatter final : public PieceSink {
     public:
      Scatter(const Transposed& step, std::uint64_t from, std::span<std::byte> out)
          : step_(step), from_(from), out_(out) {}
      Status piece(std::span<const std::byte> bytes) override {
        step_.scatter_any(bytes.data(), done_, bytes.size() / step_.size, from_, out_);
        done_ += bytes.size() / step_.size;
        return {};
      }

     private:
      const Transposed& step_;
      std::uint64_t from_;
      std::span<std::byte> out_;
      std::uint64_t done_ = 0;
    } sink(*this, from, out);
    return base.stream(sink, context);
  }
};

Status read_transposed(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                       ReadContext& context) {
  return static_cast<const Transposed*>(at)->fill(offset, out, context);
}
Status stream_transposed(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  return stream_blocks<Transposed>(at, size, sink, context);
}
constexpr LeafOps transposed_ops{.read = read_transposed, .stream = stream_transposed};

// ---- split ----------------------------------------------------------------------------------------------------------

/// Of each run of `block` bytes of the base, the `length` from `begin` on.
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

/// Reads the whole base: so its checksum is checked.
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
constexpr LeafOps cut_ops{view_cut, read_cut, stream_cut};

// ---- concatenate ----------------------------------------------------------------------------------------------------

/// Each run of `block` bytes is made of one run of each part.
struct Joined {
  struct Part {
    LeafView base;
    std::uint64_t begin, length;
  };
  std::vector<Part> parts;
  std::uint64_t block;

  Status fill(std::uint64_t from, std::span<std::byte> out, ReadContext& context) const {
    class Place final : public PieceSink {
     public:
      Place(const Joined& step, const Part& part, std::uint64_t from, std::span<std::byte> out)
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
      Place place(*this, part, from, out);
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
Status stream_joined(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  return size == 0 ? Status() : stream_blocks<Joined>(at, size, sink, context);
}
constexpr LeafOps joined_ops{.read = read_joined, .stream = stream_joined};

// ---- shared by them -------------------------------------------------------------------------------------------------

Error packed(std::string_view path, DType dtype) {
  return Error(Errc::unsupported, "tensors of packed or unknown elements cannot be taken apart")
      .path(std::string(path))
      .found(std::string(name(dtype)));
}

/// The tensor to take apart: one without a second name, which would be left with nothing to stand for.
Result<Item*> tensor_at(Items& items, std::string_view path) {
  for (const Item& i : items.list) {
    if (i.target != path) continue;
    return Error(Errc::invalid_argument, "a tied tensor cannot be cut or joined").path(std::string(path)).found(i.path);
  }
  if (Item* item = items.find_tensor(path)) return item;
  return Error(Errc::not_found, "no tensor has this name").path(std::string(path));
}

}  // namespace

namespace detail {

Result<Snapshot> transpose_where(const Snapshot& snapshot, const std::function<bool(std::string_view path)>& chosen,
                                 std::span<const std::size_t> axes) {
  return guarded([&]() -> Result<Snapshot> {
    auto data = derived_data(snapshot);
    for (std::uint32_t i = 0; i < data->leaves.size(); ++i) {
      const LeafView base = snapshot.leaf(i);
      const std::string path = base.path();
      if (!chosen(path)) continue;
      const std::size_t rank = base.shape().size();
      std::vector<std::size_t> order(axes.begin(), axes.end());
      if (order.empty()) {
        order.resize(rank);
        std::iota(order.rbegin(), order.rend(), std::size_t{0});
      }
      std::vector<bool> seen(rank);
      for (const std::size_t axis : order) {
        if (axis < rank) seen[axis] = true;
      }
      if (order.size() != rank || std::find(seen.begin(), seen.end(), false) != seen.end()) {
        return Error(Errc::invalid_argument, "no permutation of the tensor's axes")
            .path(path)
            .expected("each of " + std::to_string(rank) + " axes once")
            .found(to_string(std::vector<Extent>(order.begin(), order.end())));
      }
      const std::size_t size = element_size(base.dtype());
      if (size == 0) return packed(path, base.dtype());
      if (rank < 2) continue;
      auto step = std::make_shared<Transposed>(
          Transposed{base, Shape(base.shape()), std::vector<std::uint64_t>(rank), size});
      std::uint64_t stride = 1;
      for (std::size_t k = rank; k-- > 0;) {
        data->extents[data->leaves[i].shape + k] = base.shape()[order[k]];
        step->strides[order[k]] = stride;
        stride *= base.shape()[order[k]];
      }
      if (base.byte_size() == 0) continue;
      data->leaves[i].provider = {&transposed_ops, step.get(), 0};
      data->keepers.push_back(std::move(step));
    }
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  });
}

}  // namespace detail

Result<Snapshot> transpose(const Snapshot& snapshot, std::string_view pattern, std::span<const std::size_t> axes) {
  bool found = false;
  auto result = detail::transpose_where(
      snapshot, [&](std::string_view path) { return matches(pattern, path) && (found = true); }, axes);
  if (!result || found) return result;
  return Error(Errc::not_found, "no tensor has such a name").path(std::string(pattern));
}

Result<Snapshot> split(const Snapshot& snapshot, std::string_view path, std::size_t axis,
                       std::span<const Part> parts) {
  return detail::guarded([&]() -> Result<Snapshot> {
    Items items(snapshot);
    STELE_TRY_ASSIGN(Item * item, tensor_at(items, path));
    const LeafView base = item->leaf();
    const auto shape = base.shape();
    if (axis >= shape.size()) {
      return Error(Errc::invalid_argument, "a tensor without this axis")
          .path(item->path)
          .expected("an axis below " + std::to_string(shape.size()))
          .found(std::to_string(axis));
    }
    const std::size_t size = element_size(base.dtype());
    if (size == 0) return packed(path, base.dtype());
    std::uint64_t sum = 0;
    for (const Part& p : parts) sum = checked_add(sum, p.extent).value_or(UINT64_MAX);
    if (sum != shape[axis]) {
      return Error(Errc::shape_mismatch, "parts that are not the whole axis")
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

Result<Snapshot> concatenate(const Snapshot& snapshot, std::span<const std::string> paths, std::size_t axis,
                             std::string_view path) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (paths.empty()) return Error(Errc::invalid_argument, "nothing to concatenate").path(std::string(path));
    Items items(snapshot);
    auto step = std::make_shared<Joined>();
    std::vector<Extent> extents;
    std::uint64_t begin = 0;
    Item made;
    std::size_t size = 0;
    for (const std::string& name : paths) {
      STELE_TRY_ASSIGN(const Item* item, tensor_at(items, name));
      const LeafView base = item->leaf();
      const auto shape = base.shape();
      const auto mismatch = [&](Errc code, const char* text, std::string expected, std::string found) {
        return Error(code, text).path(name).expected(std::move(expected)).found(std::move(found));
      };
      if (axis >= shape.size()) {
        return mismatch(Errc::invalid_argument, "a tensor without this axis",
                        "an axis below " + std::to_string(shape.size()), std::to_string(axis));
      }
      if (extents.empty()) {
        made = *item;
        extents.assign(shape.begin(), shape.end());
        extents[axis] = 0;
        size = element_size(base.dtype());
        if (size == 0) return packed(name, base.dtype());
      }
      if (base.dtype() != made.leaf().dtype()) {
        return mismatch(Errc::dtype_mismatch, "tensors of different dtypes do not join",
                        std::string(v0::name(made.leaf().dtype())), std::string(v0::name(base.dtype())));
      }
      std::vector<Extent> other(shape.begin(), shape.end());
      other[axis] = 0;
      const Extent joined = std::exchange(extents[axis], 0);
      if (other != extents) {
        return mismatch(Errc::shape_mismatch, "tensors that differ in another axis", to_string(made.leaf().shape()),
                        to_string(shape));
      }
      const auto sum = checked_add(joined, shape[axis]);
      extents[axis] = sum.value_or(0);
      const std::uint64_t length = product(shape.subspan(axis)) * size;
      const auto elements = element_count(extents);
      if (!sum || !elements || !checked_mul(*elements, size)) {
        return mismatch(Errc::limit, "a tensor of 2^64 bytes or more", "less", to_string(extents));
      }
      step->parts.push_back({base, begin, length});
      begin += length;
    }
    step->block = begin;
    const std::uint64_t bytes = product(extents) * size;
    made.path = path;
    made.derived = detail::DerivedLeaf{made.leaf().dtype(), Shape(std::span<const Extent>(extents)), bytes,
                                       Provider{&joined_ops, step.get(), 0}};
    items.keepers.push_back(std::move(step));
    const auto is_part = [&](const Item& i) { return std::find(paths.begin(), paths.end(), i.path) != paths.end(); };
    const auto first = std::find_if(items.list.begin(), items.list.end(), is_part);
    *first = std::move(made);
    items.list.erase(std::remove_if(std::next(first), items.list.end(), is_part), items.list.end());
    return items.build();
  });
}

Snapshot with_precision(const Snapshot& snapshot, std::span<const PrecisionRule> rules, ConvertRules convert) {
  std::vector<DType> to;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::string path = leaf.path();
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const PrecisionRule& r) { return matches(r.pattern, path); });
    to.push_back(rule != rules.end() ? rule->precision.apply(leaf.dtype()) : leaf.dtype());
  }
  return detail::with_dtypes(snapshot, std::move(to), convert);
}

}  // namespace v0
}  // namespace stele
