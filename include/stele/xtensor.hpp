// xtensor's containers as tensors: xt::xtensor, xt::xarray and xt::xtensor_fixed. Row-major containers are read and
// written in place; others are written row-major and read back by blocks, without a second copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <xtensor/xarray.hpp>
#include <xtensor/xfixed.hpp>
#include <xtensor/xtensor.hpp>

#include "stele/detail/strided.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

namespace detail {
template <class T, int Rank>
struct XtensorTraits {
  using element = typename T::value_type;
  static constexpr int rank = Rank;
  static Shape shape(const T& t) {
    const std::vector<Extent> extents(t.shape().begin(), t.shape().end());
    return Shape(extents);
  }
};

template <class T>
struct XtensorContiguous {
  static const typename T::value_type* data(const T& t) { return t.data(); }
  static typename T::value_type* data(T& t) { return t.data(); }
};

template <class T>
struct XtensorStrided : XtensorContiguous<T> {
  static auto extents(const T& t) { return std::vector<Extent>(t.shape().begin(), t.shape().end()); }
  static auto strides(const T& t) { return std::vector<std::ptrdiff_t>(t.strides().begin(), t.strides().end()); }
};

template <class T>
using XtensorElements = std::conditional_t<T::static_layout == xt::layout_type::row_major, XtensorContiguous<T>,
                                           StridedElements<T, typename T::value_type, XtensorStrided<T>>>;

template <class T>
struct XtensorResize {
  static void resize(T& t, const Shape& shape) {
    typename T::shape_type extents{};
    xt::resize_container(extents, shape.rank());
    for (std::size_t i = 0; i < shape.rank(); ++i) extents[i] = static_cast<std::size_t>(shape[i]);
    t.resize(extents);
  }
};
}  // namespace detail

/// xt::xtensor<T, N>, of rank N. Empty by default, so it takes any shape of that rank.
template <class Storage, std::size_t N, xt::layout_type L>
requires Element<typename Storage::value_type>
struct tensor_traits<xt::xtensor_container<Storage, N, L>>
    : detail::XtensorTraits<xt::xtensor_container<Storage, N, L>, static_cast<int>(N)>,
      detail::XtensorElements<xt::xtensor_container<Storage, N, L>>,
      detail::XtensorResize<xt::xtensor_container<Storage, N, L>> {
  using element = typename Storage::value_type;
};

/// xt::xarray<T>, of any rank. Its default is a scalar, [], so no other shape loads into it in place.
template <class Storage, xt::layout_type L, class Extents>
requires Element<typename Storage::value_type>
struct tensor_traits<xt::xarray_container<Storage, L, Extents>>
    : detail::XtensorTraits<xt::xarray_container<Storage, L, Extents>, dynamic_rank>,
      detail::XtensorElements<xt::xarray_container<Storage, L, Extents>>,
      detail::XtensorResize<xt::xarray_container<Storage, L, Extents>> {
  using element = typename Storage::value_type;
};

/// `xt::xtensor_fixed<T, xt::xshape<…>>`, with the shape of its type.
template <class T, std::size_t... N, xt::layout_type L, bool Sharable>
requires Element<T>
struct tensor_traits<xt::xfixed_container<T, xt::fixed_shape<N...>, L, Sharable>>
    : detail::XtensorTraits<xt::xfixed_container<T, xt::fixed_shape<N...>, L, Sharable>,
                            static_cast<int>(sizeof...(N))>,
      detail::XtensorElements<xt::xfixed_container<T, xt::fixed_shape<N...>, L, Sharable>> {
  using element = T;
};

}  // namespace stele::inline v0
