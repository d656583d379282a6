// Eigen matrices, arrays and vectors as tensors. Column-major objects are written row-major and read back by blocks,
// without a second copy. Vectors (one column or row at compile time) have rank 1, all other objects rank 2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <Eigen/Core>

#include "stele/detail/strided.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

namespace detail {
/// True for plain objects only, because modules do not store expressions and maps.
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

template <class T>
struct EigenColumnMajor {
  static const typename T::Scalar* data(const T& t) { return t.data(); }
  static typename T::Scalar* data(T& t) { return t.data(); }
  static auto extents(const T& t) { return std::array{static_cast<Extent>(t.rows()), static_cast<Extent>(t.cols())}; }
  static auto strides(const T& t) { return std::array{std::ptrdiff_t{1}, static_cast<std::ptrdiff_t>(t.rows())}; }
};
}  // namespace detail

template <detail::EigenPlain T>
struct tensor_traits<T>
    : detail::EigenTraits<T>,
      std::conditional_t<detail::EigenTraits<T>::vector || T::IsRowMajor, detail::EigenContiguous<T>,
                         detail::StridedElements<T, typename T::Scalar, detail::EigenColumnMajor<T>>>,
      std::conditional_t<T::SizeAtCompileTime == Eigen::Dynamic, detail::EigenResize<T>, detail::EigenFixed> {
  using element = typename T::Scalar;
};

}  // namespace stele::inline v0
