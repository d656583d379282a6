// A small class with the members of std::mdspan, which g++ 12 and clang 14 do not have. It omits index sequences, size
// checks, and everything that stele/mdspan.hpp does not use.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

namespace md {

inline constexpr std::size_t dynamic = static_cast<std::size_t>(-1);

template <class Index, std::size_t... E>
class extents {
 public:
  using index_type = Index;
  using rank_type = std::size_t;
  static constexpr std::size_t rank() { return sizeof...(E); }
  static constexpr std::size_t rank_dynamic() { return (std::size_t{0} + ... + (E == dynamic ? 1 : 0)); }
  static constexpr std::size_t static_extent(std::size_t d) { return std::array<std::size_t, rank()>{E...}[d]; }

  constexpr extents() { assign({}); }
  template <class... I>
  requires(sizeof...(I) == rank_dynamic() && sizeof...(I) != 0) constexpr explicit extents(I... dynamic_extents) {
    assign({static_cast<Index>(dynamic_extents)...});
  }
  constexpr Index extent(std::size_t d) const { return all_[d]; }

 private:
  constexpr void assign(std::array<Index, rank_dynamic()> given) {
    std::size_t next = 0;
    for (std::size_t d = 0; d < rank(); ++d) {
      if constexpr (rank_dynamic() != 0) {
        all_[d] = static_extent(d) == dynamic ? given[next++] : static_cast<Index>(static_extent(d));
      } else {
        all_[d] = static_cast<Index>(static_extent(d));
      }
    }
    static_cast<void>(next), static_cast<void>(given);
  }
  std::array<Index, rank()> all_{};
};

/// Mappings of the three layouts. Strides are computed from the extents, or given by the caller.
template <class Layout, class Extents, bool Exhaustive>
class strided_mapping {
 public:
  using extents_type = Extents;
  using index_type = typename Extents::index_type;
  using layout_type = Layout;
  static constexpr bool is_always_strided() { return true; }
  static constexpr bool is_always_exhaustive() { return Exhaustive; }
  static constexpr bool is_always_unique() { return true; }
  constexpr strided_mapping() : strided_mapping(Extents()) {}
  constexpr strided_mapping(const Extents& e) : extents_(e) {
    index_type next = 1;
    for (std::size_t i = 0; i < Extents::rank(); ++i) {
      const std::size_t d = Layout::outermost_first ? Extents::rank() - 1 - i : i;
      strides_[d] = next;
      next *= e.extent(d);
    }
  }
  constexpr strided_mapping(const Extents& e,
                            const std::array<index_type, Extents::rank()>& strides) requires(!Exhaustive)
      : extents_(e), strides_(strides) {}
  constexpr const Extents& extents() const { return extents_; }
  constexpr index_type stride(std::size_t d) const requires(Extents::rank() != 0) { return strides_[d]; }

 private:
  Extents extents_;
  std::array<index_type, Extents::rank()> strides_{};
};

struct layout_right {
  static constexpr bool outermost_first = true;
  template <class E>
  using mapping = strided_mapping<layout_right, E, true>;
};
struct layout_left {
  static constexpr bool outermost_first = false;
  template <class E>
  using mapping = strided_mapping<layout_left, E, true>;
};
struct layout_stride {
  static constexpr bool outermost_first = true;
  template <class E>
  using mapping = strided_mapping<layout_stride, E, false>;
};

template <class T, class Extents, class Layout = layout_right>
class mdspan {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using extents_type = Extents;
  using index_type = typename Extents::index_type;
  using layout_type = Layout;
  using mapping_type = typename Layout::template mapping<Extents>;
  using data_handle_type = T*;
  using reference = T&;
  static constexpr std::size_t rank() { return Extents::rank(); }
  constexpr mdspan() requires(Extents::rank_dynamic() != 0) = default;
  template <class... I>
  requires(sizeof...(I) == Extents::rank_dynamic()) constexpr explicit mdspan(T* data, I... dynamic_extents)
      : data_(data), mapping_(Extents(dynamic_extents...)) {}
  constexpr mdspan(T* data, const mapping_type& mapping) : data_(data), mapping_(mapping) {}
  constexpr index_type extent(std::size_t d) const { return mapping_.extents().extent(d); }
  constexpr const mapping_type& mapping() const { return mapping_; }
  constexpr T* data_handle() const { return data_; }

 private:
  T* data_ = nullptr;
  mapping_type mapping_;
};

}  // namespace md
