// Views with the interface of std::mdspan as tensors: std::mdspan itself, Kokkos::mdspan, or any class with these
// members. This header includes none of them. A view points into the user's memory, so loading fills it and cannot
// change its shape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "stele/detail/strided.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

namespace detail {
template <class T>
concept Mdspan = requires(const T& t) {
  typename T::element_type;
  typename T::data_handle_type;
  T::extents_type::rank_dynamic();
  T::mapping_type::is_always_strided();
  T::rank();
  t.extent(0);
  t.mapping();
  t.data_handle();
};

/// Returns true if the layout is row-major without gaps, independent of its name. Checks the strides of a mapping whose
/// extents are 2 if the type leaves them open, because extents of 0 and 1 do not determine the strides.
template <class T>
consteval bool mdspan_row_major() {
  using Extents = typename T::extents_type;
  using Mapping = typename T::mapping_type;
  if constexpr (Extents::rank() == 0) {
    return true;
  } else if constexpr (!Mapping::is_always_exhaustive() || !std::is_constructible_v<Mapping, const Extents&>) {
    return false;
  } else {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      const Mapping mapping{Extents((static_cast<typename Extents::index_type>(2 + 0 * I))...)};
      std::size_t expected = 1;
      for (std::size_t d = Extents::rank(); d-- > 0;) {
        const auto extent = static_cast<std::size_t>(mapping.extents().extent(d));
        if (extent > 1 && static_cast<std::size_t>(mapping.stride(d)) != expected) return false;
        expected *= extent;
      }
      return true;
    }
    (std::make_index_sequence<Extents::rank_dynamic()>{});
  }
}

template <class T>
struct MdspanContiguous {
  static typename T::element_type* data(const T& t) { return t.data_handle(); }
};

template <class T>
struct MdspanStrided : MdspanContiguous<T> {
  static auto extents(const T& t) {
    std::array<Extent, T::rank()> extents{};
    for (std::size_t d = 0; d < T::rank(); ++d) extents[d] = static_cast<Extent>(t.extent(d));
    return extents;
  }
  static auto strides(const T& t) {
    std::array<std::ptrdiff_t, T::rank()> strides{};
    for (std::size_t d = 0; d < T::rank(); ++d) strides[d] = static_cast<std::ptrdiff_t>(t.mapping().stride(d));
    return strides;
  }
};
}  // namespace detail

/// A view of mutable elements with a strided mapping and the default accessor. Row-major views (layout_right) are read
/// and written in place, others (layout_left, layout_stride, padded layouts) element by element.
template <detail::Mdspan T>
struct tensor_traits<T>
    : std::conditional_t<detail::mdspan_row_major<T>(), detail::MdspanContiguous<T>,
                         detail::StridedElements<T, typename T::element_type, detail::MdspanStrided<T>>> {
  using element = std::remove_const_t<typename T::element_type>;
  static_assert(!std::is_const_v<typename T::element_type>,
                "stele: a module's mdspan must be of mutable elements: loading writes to them");
  static_assert(std::is_same_v<typename T::data_handle_type, typename T::element_type*> &&
                    std::is_same_v<typename T::reference, typename T::element_type&>,
                "stele: a module's mdspan must have the default accessor: elements behind a pointer");
  static_assert(T::mapping_type::is_always_strided(), "stele: a module's mdspan must have a strided layout");
  static constexpr int rank = static_cast<int>(T::rank());
  /// Throws std::logic_error if the view's pointer is null, so that invalid memory is never read or written.
  static Shape shape(const T& t) {
    const auto extents = detail::MdspanStrided<T>::extents(t);
    if (t.data_handle() == nullptr && element_count(extents) != 0U) {
      STELE_THROW(std::logic_error("the mdspan's pointer is null"));
    }
    return Shape(extents);
  }
};

}  // namespace stele::inline v0
