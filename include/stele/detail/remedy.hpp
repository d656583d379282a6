// The compiler's message for a field that cannot be recorded: its name, and the fix for its type. Instantiated only if
// there is such a field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "stele/detail/category.hpp"

namespace stele::inline v0::detail {

enum class Remedy : std::uint8_t {
  list_fields,
  which_integers,
  vector_bool,
  is_volatile,
  smart_pointer,
  string_instead,
  path_as_string,
  const_span,
  vector_instead,
  string_keys,
  one_for_each_key,
  eigen,
  complex_header,
  mdspan,
  xtensor,
  expected,
};

template <class T>
concept LooksLikeComplex = requires(const T& t) {
  typename T::value_type;
  t.real();
  t.imag();
};
template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
template <class T>
concept LooksLikeList = requires(T& t) {
  typename T::value_type;
  t.begin();
  t.end();
};

template <class T, bool Listed>
consteval Remedy remedy_for();

template <bool Listed, template <class...> class L, class... T>
consteval Remedy remedy_for_one_of(L<T...>*) {
  Remedy remedy = Remedy::list_fields;
  ((is_refused(category_of<T, Listed>) ? void(remedy = remedy_for<T, Listed>()) : void()), ...);
  return remedy;
}

/// Returns the remedy for a refused T, or for a refused type that it contains.
template <class T, bool Listed>
consteval Remedy remedy_for() {
  if constexpr (std::is_volatile_v<T>) {
    return Remedy::is_volatile;
  } else if constexpr (std::is_const_v<T>) {
    return remedy_for<std::remove_const_t<T>, Listed>();
  } else if constexpr (category_of<T, Listed> == Category::refused_integers) {
    return Remedy::which_integers;
  } else if constexpr (category_of<T, Listed> == Category::refused_bools) {
    return Remedy::vector_bool;
  } else if constexpr (std::is_pointer_v<T>) {
    return Remedy::smart_pointer;
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return Remedy::string_instead;
  } else if constexpr (requires { T::preferred_separator; }) {
    return Remedy::path_as_string;
  } else if constexpr (is_span<T>) {
    return Remedy::const_span;
  } else if constexpr (requires {
                         typename T::Scalar;
                         T::RowsAtCompileTime;
                       }) {
    return Remedy::eigen;
  } else if constexpr (requires { typename T::xexpression_tag; }) {
    return Remedy::xtensor;
  } else if constexpr (requires {
                         typename T::extents_type;
                         typename T::mapping_type;
                       }) {
    return Remedy::mdspan;
  } else if constexpr (requires {
                         typename T::value_type;
                         typename T::error_type;
                       }) {
    return Remedy::expected;
  } else if constexpr (LooksLikeComplex<T>) {
    return Remedy::complex_header;
  } else if constexpr (requires { typename holder<T>::element; }) {
    return remedy_for<typename holder<T>::element, Listed>();
  } else if constexpr (requires { typename holder<T>::elements; }) {
    return remedy_for_one_of<Listed>(static_cast<typename holder<T>::elements*>(nullptr));
  } else if constexpr (requires {
                         typename T::key_type;
                         typename T::mapped_type;
                       }) {
    if constexpr (!std::is_same_v<typename T::key_type, std::string>) {
      return Remedy::string_keys;
    } else if constexpr (!MapLike<T>) {
      return Remedy::one_for_each_key;
    } else {
      return remedy_for<typename T::mapped_type, Listed>();
    }
  } else if constexpr (LooksLikeList<T>) {
    if constexpr (!ListLike<T> || !is_refused(category_of<typename T::value_type, Listed>)) {
      return Remedy::vector_instead;
    } else {
      return remedy_for<typename T::value_type, Listed>();
    }
  } else {
    return Remedy::list_fields;
  }
}

template <auto Field, class Type, class Module, auto... More>
inline constexpr bool can_be_recorded = false;

/// The error itself: the compiler prints its template arguments first. `More` are further fields that cannot be
/// recorded.
template <auto Field, class Type, class Module, Remedy What, auto... More>
struct field_cannot_be_recorded {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: this field cannot be recorded: list the fields to "
                "record with STELE_MODULE and leave it out, "
                "skip it with stele::attributes, or give its type a field "
                "list, tensor_traits, value_traits or a cereal function");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::which_integers, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a sequence of integers in a plain aggregate may be weights or a constant: list the fields to "
                "record with STELE_MODULE, or skip it with stele::attributes");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::vector_bool, More...> {
  static_assert(
      can_be_recorded<Field, Type, Module, More...>,
      "stele: std::vector<bool> cannot be recorded, because it stores bits: use stele::Tensor<bool, 1> or std::array");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::is_volatile, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a volatile field cannot be recorded: leave it out of the list, or skip it");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::smart_pointer, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a raw pointer cannot be recorded: make it a std::unique_ptr, or a std::shared_ptr where "
                "several fields share the object; or leave it out (STELE_MODULE, or skip it with stele::attributes)");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::string_instead, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a std::string_view cannot be loaded, because it does not own its text: use std::string");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::path_as_string, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a std::filesystem::path cannot be recorded: use std::string, or leave it out (STELE_MODULE, or "
                "skip it with stele::attributes)");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::const_span, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a std::span is recorded if its elements are numbers that a load can write: make them "
                "non-const, or use std::vector or stele::Tensor");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::vector_instead, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: this kind of list cannot be recorded: use std::vector or std::deque");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::string_keys, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a map whose keys are not strings cannot be recorded, because the keys become names: use "
                "std::string, or a cereal function");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::one_for_each_key, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a map with several elements for a key cannot be recorded: use std::map of std::vector");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::eigen, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: this looks like a type of Eigen: include stele/eigen.hpp");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::complex_header, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: complex numbers need a header: include stele/precision/complex.hpp");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::mdspan, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: this looks like an mdspan: include stele/mdspan.hpp");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::xtensor, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: this looks like a type of xtensor: include stele/xtensor.hpp");
};
template <auto Field, class Type, class Module, auto... More>
struct field_cannot_be_recorded<Field, Type, Module, Remedy::expected, More...> {
  static_assert(can_be_recorded<Field, Type, Module, More...>,
                "stele: a std::expected cannot be recorded: use std::optional or std::variant, or leave it out "
                "(STELE_MODULE, or skip it with stele::attributes)");
};

}  // namespace stele::inline v0::detail
