// Eigen matrices, arrays and vectors as tensors. Column-major ones are written row-major and read back by blocks,
// without a second copy; vectors (one column or row at compile time) are rank 1, all others rank 2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include <Eigen/Core>

#include "stele/tensor.hpp"

namespace stele {
inline namespace v0 {

namespace detail {
/// Plain objects only: expressions and maps are not what a module stores.
template <class T>
concept EigenPlain = std::is_base_of_v<Eigen::PlainObjectBase<T>, T> && Element<typename T::Scalar>;

template <class T>
struct EigenTraits {
  using element = typename T::Scalar;
  static constexpr bool vector = T::ColsAtCompileTime == 1 || T::RowsAtCompileTime == 1;
  static constexpr int rank = vector ? 1 : 2;
  static Shape shape(const T& t) {
    if constexpr (vector) {
      return {static_cast<Extent>(t.size())};
    } else {
      return {static_cast<Extent>(t.rows()), static_cast<Extent>(t.cols())};
    }
  }
};

template <class T>
struct EigenResize {
  static void resize(T& t, const Shape& shape) {
    const auto at = [&](std::size_t i) { return static_cast<Eigen::Index>(shape[i]); };
    if constexpr (EigenTraits<T>::vector) {
      t.resize(at(0));
    } else {
      t.resize(at(0), at(1));
    }
  }
};
struct EigenFixed {};

template <class T>
struct EigenContiguous {
  static const typename T::Scalar* data(const T& t) { return t.data(); }
  static typename T::Scalar* data(T& t) { return t.data(); }
};

/// Walks row-major through column-major memory. Whole rows of a block are done column by column, so that each cache
/// line of the matrix is used for up to 16 rows at a time.
template <class T>
struct EigenBlocks {
  using element = typename T::Scalar;
  static void read(const T& t, std::uint64_t first, std::span<element> out) {
    walk(t.rows(), t.cols(), first, out.size(),
         [&](Eigen::Index row, Eigen::Index column, std::size_t i) { out[i] = t.coeff(row, column); });
  }
  static void write(T& t, std::uint64_t first, std::span<const element> in) {
    walk(t.rows(), t.cols(), first, in.size(),
         [&](Eigen::Index row, Eigen::Index column, std::size_t i) { t.coeffRef(row, column) = in[i]; });
  }

 private:
  template <class Visit>
  static void walk(Eigen::Index, Eigen::Index columns, std::uint64_t first, std::size_t count, Visit visit) {
    const auto width = static_cast<std::uint64_t>(columns);
    std::size_t done = 0;
    const auto part_of_row = [&](std::size_t n) {
      const auto row = static_cast<Eigen::Index>((first + done) / width);
      const auto column = static_cast<Eigen::Index>((first + done) % width);
      for (std::size_t i = 0; i < n; ++i) visit(row, column + static_cast<Eigen::Index>(i), done + i);
      done += n;
    };
    if (count != 0 && first % width != 0)
      part_of_row(std::min<std::size_t>(count, static_cast<std::size_t>(width - first % width)));
    while (count - done >= width && width != 0) {
      const std::size_t rows = std::min<std::size_t>(16, (count - done) / static_cast<std::size_t>(width));
      const auto top = static_cast<Eigen::Index>((first + done) / width);
      for (std::size_t c = 0; c < width; ++c) {
        for (std::size_t r = 0; r < rows; ++r) {
          visit(top + static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(c),
                done + r * static_cast<std::size_t>(width) + c);
        }
      }
      done += rows * static_cast<std::size_t>(width);
    }
    if (done != count) part_of_row(count - done);
  }
};
}  // namespace detail

template <detail::EigenPlain T>
struct tensor_traits<T>
    : detail::EigenTraits<T>,
      std::conditional_t<detail::EigenTraits<T>::vector || T::IsRowMajor, detail::EigenContiguous<T>,
                         detail::EigenBlocks<T>>,
      std::conditional_t<T::SizeAtCompileTime == Eigen::Dynamic, detail::EigenResize<T>, detail::EigenFixed> {
  using element = typename T::Scalar;
};

}  // namespace v0
}  // namespace stele
