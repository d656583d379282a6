// Visits memory in row-major order if it is stored in another order: column-major, padded, transposed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stele/config.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail {

/// Calls `visit(offset, i)` for the elements `first` + i, i < `count`, in row-major order of `extents`. `offset` is the
/// element's position in memory, in elements, computed from `strides` (as many as extents). Whole rows are visited in
/// blocks of up to 16, column by column, so that a cache line of column-major memory serves all rows of a block.
template <class Visit>
void walk_strided(std::span<const Extent> extents, std::span<const std::ptrdiff_t> strides, std::uint64_t first,
                  std::size_t count, Visit visit) {
  if (count == 0) return;
  const std::size_t rank = extents.size();
  const std::uint64_t width = rank == 0 ? 1 : extents[rank - 1];
  const std::ptrdiff_t step = rank == 0 ? 0 : strides[rank - 1];
  const auto row_offset = [&](std::uint64_t row) {
    std::ptrdiff_t offset = 0;
    for (std::size_t d = rank; d-- > 1; row /= extents[d - 1]) {
      offset += static_cast<std::ptrdiff_t>(row % extents[d - 1]) * strides[d - 1];
    }
    return offset;
  };
  std::size_t done = 0;
  const auto part_of_row = [&](std::size_t n) {
    std::ptrdiff_t at = row_offset((first + done) / width) + static_cast<std::ptrdiff_t>((first + done) % width) * step;
    for (std::size_t i = 0; i < n; ++i, at += step) visit(at, done + i);
    done += n;
  };
  if (first % width != 0) {
    part_of_row(static_cast<std::size_t>(std::min<std::uint64_t>(count, width - first % width)));
  }
  while (count - done >= width) {
    std::array<std::ptrdiff_t, 16> at;
    const auto columns = static_cast<std::size_t>(width);
    const std::size_t rows = std::min(step == 1 ? 1 : at.size(), (count - done) / columns);
    for (std::size_t r = 0; r < rows; ++r) at[r] = row_offset((first + done) / width + r);
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t r = 0; r < rows; ++r)
        visit(at[r] + static_cast<std::ptrdiff_t>(c) * step, done + r * columns + c);
    }
    done += rows * columns;
  }
  if (done != count) part_of_row(count - done);
}

/// read() and write() of tensor_traits<T> for elements that are not in row-major order. `Layout` locates the elements
/// of a T: data(t), extents(t), strides(t).
template <class T, class Element, class Layout>
struct StridedElements {
  static void read(const T& t, std::uint64_t first, std::span<Element> out) {
    const auto* data = Layout::data(t);
    walk_strided(Layout::extents(t), Layout::strides(t), first, out.size(),
                 [&](std::ptrdiff_t at, std::size_t i) { out[i] = data[at]; });
  }
  static void write(T& t, std::uint64_t first, std::span<const Element> in) {
    auto* data = Layout::data(t);
    walk_strided(Layout::extents(t), Layout::strides(t), first, in.size(),
                 [&](std::ptrdiff_t at, std::size_t i) { data[at] = in[i]; });
  }
};

}  // namespace stele::inline v0::detail
