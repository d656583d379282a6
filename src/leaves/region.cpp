// Reads a box of a leaf.
#include "leaves/region.hpp"

#include <algorithm>
#include <cstring>

#include "leaves/provider.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

RegionLeaf::RegionLeaf(const Provider& base, std::span<const Extent> shape, std::size_t element, const Box& box)
    : base_(base), base_bytes_(element * element_count(shape).value_or(0)) {
  std::vector<std::uint64_t> strides(shape.size(), element);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  for (std::size_t d = 0; d < shape.size(); ++d) first_ += box.start[d] * strides[d];
  std::size_t axis = shape.size();  // the axes from here on are contiguous
  run_ = element;
  while (axis > 0) {
    --axis;
    run_ = strides[axis] * box.length[axis];
    if (box.length[axis] != shape[axis]) break;
  }
  strides_.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(axis));
  lengths_.assign(box.length.begin(), box.length.begin() + static_cast<std::ptrdiff_t>(axis));
  for (const Extent length : lengths_) runs_ *= length;
}

std::uint64_t RegionLeaf::place(std::uint64_t run) const noexcept {
  std::uint64_t at = first_;
  for (std::size_t d = lengths_.size(); d-- > 0; run /= lengths_[d]) at += run % lengths_[d] * strides_[d];
  return at;
}

Status RegionLeaf::read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const {
  if (const auto all = view_bytes(base_, base_bytes_); !all.empty()) {
    while (!out.empty()) {
      const std::uint64_t within = offset % run_;
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), run_ - within));
      std::memcpy(out.data(), all.data() + place(offset / run_) + within, n);
      out = out.subspan(n);
      offset += n;
    }
    return {};
  }
  while (!out.empty()) {
    const std::uint64_t within = offset % run_, from = place(offset / run_) + within;
    auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), run_ - within));
    // Reads the runs that end within one piece of the base at once, if that reads at most four times their bytes.
    std::uint64_t last = offset / run_;
    while (last + 1 < runs_ && place(last + 1) + run_ - from <= ReadContext::piece_size &&
           place(last + 1) + run_ - from <= 4 * ((last + 2) * run_ - offset) &&
           (last + 1) * run_ - offset < out.size()) {
      ++last;
    }
    if (last == offset / run_) {
      STELE_TRY(read_bytes(base_, base_bytes_, from, out.first(n), context));
    } else {
      ReadContext::Piece staging(context);
      const auto size = static_cast<std::size_t>(place(last) + run_ - from);
      STELE_TRY(read_bytes(base_, base_bytes_, from, {staging.data(), size}, context));
      const auto all = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), (last + 1) * run_ - offset));
      for (std::size_t done = 0; done < all;) {
        const std::uint64_t at = offset + done;
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(all - done, run_ - at % run_));
        std::memcpy(out.data() + done, staging.data() + (place(at / run_) + at % run_ - from), part);
        done += part;
      }
      n = all;
    }
    out = out.subspan(n);
    offset += n;
  }
  return {};
}

Provider RegionLeaf::provider() const noexcept {
  static constexpr LeafOps stored{.locate = [](const void* at, std::uint64_t) {
    const auto& self = *static_cast<const RegionLeaf*>(at);
    const SourceRange base = self.base_.ops->locate(self.base_.at, self.base_.number);
    return SourceRange{base.source, base.offset + self.first_};
  }};
  static constexpr LeafOps computed{
      .read = [](const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) {
        return static_cast<const RegionLeaf*>(at)->read(offset, out, context);
      }};
  return {runs_ == 1 && base_.ops->locate != nullptr ? &stored : &computed, this, 0};
}

bool intersect(const Box& a, const Box& b, Box& in_b, Box& within) {
  const std::size_t rank = a.start.size();
  for (Box* box : {&in_b, &within}) {
    box->start.resize(rank);
    box->length.resize(rank);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const Extent first = std::max(a.start[d], b.start[d]);
    const Extent end = std::min(a.start[d] + a.length[d], b.start[d] + b.length[d]);
    if (first >= end) return false;
    in_b.start[d] = first - b.start[d];
    within.start[d] = first - a.start[d];
    in_b.length[d] = within.length[d] = end - first;
  }
  return true;
}

}  // namespace stele::inline v0::detail
