#include "passes/transpose.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "leaves/blocks.hpp"
#include "leaves/needs.hpp"
#include "snapshot/data.hpp"
#include "stele/quantize.hpp"

namespace stele::inline v0::detail {
namespace {

struct Transposed {
  LeafView base;
  Shape shape;                         // shape of the base
  std::vector<std::uint64_t> strides;  // for each axis of the base: its stride in the result, in elements
  std::size_t size;                    // size of an element

  /// Copies elements [first, first + elements) of the base to their positions in `out`, which begins at byte `from` of
  /// the result. Skips elements outside `out`.
  template <std::size_t Size>
  void scatter(const std::byte* in, std::uint64_t first, std::uint64_t elements, std::uint64_t from,
               std::span<std::byte> out) const {
    const std::size_t rank = shape.rank();
    const Extent row = shape[rank - 1];
    const std::uint64_t stride = strides[rank - 1];
    const std::uint64_t low = from / Size;
    const std::uint64_t count = out.size() / Size;
    for (std::uint64_t done = 0; done < elements;) {
      // Handles one row of the base, or the part of the row in `in`.
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
void transposed_needs(const void* at, std::uint64_t, Needs& needs) {
  needs.add(static_cast<const Transposed*>(at)->base);
}
constexpr LeafOps transposed_ops{.read = read_transposed, .stream = stream_transposed, .needs = transposed_needs};

/// Updates the axis of a per-channel quantization. `order`: the old axis for each new axis.
void move_channels(LeafExtra& extra, std::span<const std::size_t> order) {
  if (extra.annotations == nullptr) return;
  const auto note = extra.annotations->find(std::string(quantization_key));
  if (note == extra.annotations->end() || note->second.find("axis") == nullptr) return;
  auto notes = std::make_unique<Annotations>(*extra.annotations);
  for (auto& [key, value] : *notes->at(std::string(quantization_key)).as_map()) {
    if (key != "axis" || value.as_i64() == nullptr) continue;
    const auto old = static_cast<std::uint64_t>(*value.as_i64());  // a negative axis becomes too large
    const auto now = std::find(order.begin(), order.end(), old);
    if (now != order.end()) value = Value(std::int64_t{now - order.begin()});
  }
  extra.annotations = std::move(notes);
}

}  // namespace

Error packed(std::string_view path, DType dtype) {
  return Error(Errc::unsupported, "a tensor with packed or unknown elements cannot be split, joined or transposed")
      .path(std::string(path))
      .found(std::string(name(dtype)));
}

Result<Snapshot> transpose_where(
    const Snapshot& snapshot,
    const std::function<std::optional<std::vector<std::size_t>>(const LeafView& leaf)>& axes_of) {
  return guarded([&]() -> Result<Snapshot> {
    auto data = derived_data(snapshot);
    for (std::uint32_t i = 0; i < data->leaves.size(); ++i) {
      const LeafView base = snapshot.leaf(i);
      const auto axes = axes_of(base);
      if (!axes) continue;
      const std::size_t rank = base.shape().size();
      std::vector<std::size_t> order(*axes);
      if (order.empty()) {
        order.resize(rank);
        std::iota(order.rbegin(), order.rend(), std::size_t{0});
      }
      std::vector<bool> seen(rank);
      for (const std::size_t axis : order) {
        if (axis < rank) seen[axis] = true;
      }
      if (order.size() != rank || std::find(seen.begin(), seen.end(), false) != seen.end()) {
        return Error(Errc::invalid_argument, "the axes are not a permutation of the tensor's")
            .path(base.path())
            .expected("each of " + std::to_string(rank) + " axes once")
            .found(to_string(std::vector<Extent>(order.begin(), order.end())));
      }
      const std::size_t size = element_size(base.dtype());
      if (size == 0) return packed(base.path(), base.dtype());
      if (rank < 2) continue;
      auto step =
          std::make_shared<Transposed>(Transposed{base, Shape(base.shape()), std::vector<std::uint64_t>(rank), size});
      std::uint64_t stride = 1;
      for (std::size_t k = rank; k-- > 0;) {
        data->extents[data->leaves[i].shape + k] = base.shape()[order[k]];
        step->strides[order[k]] = stride;
        stride *= base.shape()[order[k]];
      }
      if (data->leaves[i].extra != no_index) move_channels(data->extras[data->leaves[i].extra], order);
      if (base.byte_size() == 0) continue;
      data->leaves[i].provider = {&transposed_ops, step.get(), 0};
      data->keepers.push_back(std::move(step));
    }
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  });
}

}  // namespace stele::inline v0::detail
