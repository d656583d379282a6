// Reflection of plain aggregates: the addresses, types and names of their fields.
//
// The structured bindings come from Boost.PFR (detail names, as of Boost 1.81). The count (detail/aggregate_count.hpp)
// and the names do not, because PFR in Boost 1.81 cannot provide names.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/pfr/detail/core17_generated.hpp>

#include "stele/detail/aggregate_count.hpp"

namespace stele::inline v0::detail {

namespace probe {

// Bit-fields and anonymous unions are errors in Boost.PFR below here: the compiler's message contains this name.
template <std::size_t N, class T>
constexpr auto stele_finds_a_bit_field_or_an_anonymous_union_list_the_fields_with_STELE_MODULE(T& object) noexcept {
  return boost::pfr::detail::tie_as_tuple(object, boost::pfr::detail::size_t_<N>{});
}

}  // namespace probe

/// Returns references to all fields of the object, as a tuple of Boost.PFR.
template <class T>
constexpr auto aggregate_tie(T& object) noexcept {
  static_assert(aggregate_size<T> != aggregate_uncounted,
                "T is not an aggregate class, or has a field that cannot be counted, such as a reference");
  static_assert(aggregate_size<T> == aggregate_uncounted || aggregate_size<T> <= aggregate_limit,
                "the aggregate has more than 100 fields");
  if constexpr (aggregate_is_bindable<T> && !aggregate_has_base<T>) {
    return probe::stele_finds_a_bit_field_or_an_anonymous_union_list_the_fields_with_STELE_MODULE<aggregate_size<T>>(
        object);
  } else {
    return boost::pfr::detail::sequence_tuple::tuple<>{};
  }
}

namespace probe {

template <class Tuple>
struct tied_fields;

template <class... Field>
struct tied_fields<boost::pfr::detail::sequence_tuple::tuple<Field&...>> {
  static constexpr bool has_array = (std::is_array_v<Field> || ...);
  static constexpr bool has_volatile = (std::is_volatile_v<Field> || ...);
};

template <class T>
using tied = decltype(aggregate_tie(std::declval<T&>()));

template <std::size_t I, class Field>
Field& field_of(const boost::pfr::detail::sequence_tuple::base_from_member<I, Field&>&);

template <class T>
consteval bool has_array() {
  if constexpr (aggregate_is_bindable<T>) {
    return tied_fields<tied<T>>::has_array;
  } else {
    return false;
  }
}

template <class T>
consteval bool has_volatile() {
  if constexpr (aggregate_is_bindable<T>) {
    return tied_fields<tied<T>>::has_volatile;
  } else {
    return false;
  }
}

}  // namespace probe

/// True if a field of T is a C array. False if T cannot be bound.
template <class T>
inline constexpr bool aggregate_has_array = probe::has_array<T>();

/// True if a field of T is volatile: g++ cannot provide the field's name. False if T cannot be bound.
template <class T>
inline constexpr bool aggregate_has_volatile = probe::has_volatile<T>();

/// The type of field I of T; const if the field or T is const.
template <class T, std::size_t I>
using aggregate_field_t = std::remove_reference_t<decltype(probe::field_of<I>(std::declval<const probe::tied<T>&>()))>;

namespace probe {

template <class T, std::size_t... I>
void addresses(T& object, void** out, std::index_sequence<I...>) noexcept {
  [[maybe_unused]] auto fields = aggregate_tie(object);
  ((out[I] = const_cast<void*>(static_cast<const volatile void*>(
        __builtin_addressof(boost::pfr::detail::sequence_tuple::get_impl<I>(fields))))),
   ...);
}

}  // namespace probe

/// Writes the address of each field of the object to `out`, which has aggregate_size<T> elements.
template <class T>
void aggregate_addresses(T& object, void** out) noexcept {
  static_assert(aggregate_is_bindable<T>, "the fields of T cannot be bound");
  if constexpr (aggregate_is_bindable<T> && aggregate_size<T> != 0) {
    probe::addresses(object, out, probe::upto<aggregate_size<T>>{});
  }
}

namespace probe {

// The name of a field is read from the pretty name of a function whose template argument is the field's address. The
// object is only declared, so T need not be constructible; Clang nevertheless requires definitions.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif

template <class T>
struct holder {
  T value;
};

template <class T>
extern const holder<T> unreal;

// Clang 14 rejects the address of a subobject as a template argument unless a class wraps it.
template <class Field>
struct field_pointer {
  Field* pointer;
};
template <class Field>
field_pointer(Field*) -> field_pointer<Field>;

struct name_view {
  const char* text;
  std::size_t length;
};

template <auto Pointer>
consteval name_view name_at() {
  // On both compilers the field is last: "… = {&unreal.value.weight}]", "… value.Linear::weight)}]".
  const char* const text = __PRETTY_FUNCTION__;
  std::size_t end = sizeof(__PRETTY_FUNCTION__) - 1;
  while (text[end - 1] == ']' || text[end - 1] == '}' || text[end - 1] == ')') --end;
  std::size_t begin = end;
  while (text[begin - 1] != '.' && text[begin - 1] != ':') --begin;
  return {text + begin, end - begin};
}

template <std::size_t N>
struct name_views {
  name_view items[N];
};

template <class T, std::size_t... I>
consteval auto find_names(std::index_sequence<I...>) {
  constexpr auto fields = aggregate_tie(unreal<T>.value);
  return name_views<sizeof...(I)>{
      {name_at<field_pointer{__builtin_addressof(boost::pfr::detail::sequence_tuple::get_impl<I>(fields))}>()...}};
}

#ifdef __clang__
#pragma clang diagnostic pop
#endif

// Stores all names of a type in one string, so that the long source strings are not part of the program.
template <std::size_t N, std::size_t Size>
struct name_table {
  char text[Size];
  std::size_t ends[N];  // each one past the zero that ends the name
};

template <class T>
consteval auto make_names() {
  constexpr std::size_t count = aggregate_size<T>;
  constexpr name_views<count> views = find_names<T>(upto<count>{});
  constexpr std::size_t size = [&] {
    std::size_t sum = 0;
    for (const name_view& view : views.items) sum += view.length + 1;
    return sum;
  }();
  name_table<count, size> table{};
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < views.items[i].length; ++k) table.text[end++] = views.items[i].text[k];
    table.ends[i] = ++end;
  }
  return table;
}

template <class T>
inline constexpr auto names = make_names<T>();

template <class T, std::size_t I>
consteval std::string_view name_of() {
  if constexpr (aggregate_is_bindable<T>) {
    constexpr std::size_t begin = I == 0 ? 0 : names<T>.ends[I - (I != 0)];
    return {names<T>.text + begin, names<T>.ends[I] - begin - 1};
  } else {
    return {};
  }
}

}  // namespace probe

/// The name of field I of T, followed by a zero character. Empty if T cannot be bound.
template <class T, std::size_t I>
inline constexpr std::string_view aggregate_name = probe::name_of<std::remove_cv_t<T>, I>();

}  // namespace stele::inline v0::detail
