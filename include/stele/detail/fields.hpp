// The fields of a module: their names, types, addresses and attributes, from Boost.Describe's lists, Boost.PFR's tables
// or C++26's reflection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "stele/detail/aggregate.hpp"
#include "stele/detail/category.hpp"
#include "stele/detail/remedy.hpp"
#include "stele/module.hpp"

namespace stele::inline v0::detail {

// ---- the fields of a module -----------------------------------------------------------------------------------------

template <class Pointer>
struct member_type;
template <class C, class T>
struct member_type<T C::*> {
  using type = T;
};

/// The reason why the fields of an aggregate cannot be found.
enum class AggregateFault : std::uint8_t { none, base, uncounted, array, is_volatile };

template <class T>
consteval AggregateFault aggregate_fault() {
  if constexpr (aggregate_has_base<T>) {
    return AggregateFault::base;
  } else if constexpr (!aggregate_is_bindable<T> || aggregate_size<T> > aggregate_limit) {
    return AggregateFault::uncounted;
  } else if constexpr (aggregate_has_array<T>) {
    return AggregateFault::array;
  } else if constexpr (aggregate_has_volatile<T>) {
    return AggregateFault::is_volatile;
  } else {
    return AggregateFault::none;
  }
}

/// Its static_assert.
template <class T>
struct unusable_aggregate {
  static constexpr AggregateFault fault = aggregate_fault<T>();
  static_assert(fault != AggregateFault::base,
                "stele: a plain aggregate with base classes cannot be recorded: list its fields with "
                "STELE_MODULE_DERIVED, or make the base a field");
  static_assert(fault != AggregateFault::array,
                "stele: a plain aggregate with a C array cannot be recorded: use std::array, or list the fields with "
                "STELE_MODULE");
  static_assert(fault != AggregateFault::is_volatile,
                "stele: a plain aggregate with a volatile field cannot be recorded: list the fields to record with "
                "STELE_MODULE and leave it out");
  static_assert(fault != AggregateFault::uncounted,
                "stele: the fields of this plain aggregate cannot be counted (more than 100, or a reference): list "
                "those to record with STELE_MODULE");
};

/// All fields of a module, recorded or not: `types` (an mp_list), `names`, `addresses`, and the form of a field in an
/// error message.
template <class T>
struct fields_of {
  static constexpr bool listed = false;
  static constexpr bool usable = aggregate_fault<T>() == AggregateFault::none;
  static constexpr std::size_t count = usable ? aggregate_size<T> : 0;
  template <std::size_t... I>
  static auto list(std::index_sequence<I...>) -> boost::mp11::mp_list<aggregate_field_t<T, I>...>;
  using types = decltype(list(std::make_index_sequence<count>{}));
  static constexpr std::array<std::string_view, count + 1> names = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string_view, count + 1>{aggregate_name<T, I>...};
  }
  (std::make_index_sequence<count>{});
  static void addresses(void* object, void** out) {
    if constexpr (usable) aggregate_addresses(*static_cast<T*>(object), out);
  }
};

template <class List>
struct descriptors;
template <template <class...> class L, class... D>
struct descriptors<L<D...>> {
  static constexpr bool listed = true;
  static constexpr bool usable = true;
  static constexpr std::size_t count = sizeof...(D);
  template <std::size_t I>
  using descriptor = boost::mp11::mp_at_c<L<D...>, I>;
  using types = boost::mp11::mp_list<typename member_type<std::remove_cv_t<decltype(D::pointer)>>::type...>;
  static constexpr std::array<std::string_view, count + 1> names{D::name...};
  template <class T>
  static void addresses_in(T& object, void** out) {
    static_cast<void>(object);
    ((*out++ = const_cast<void*>(static_cast<const volatile void*>(std::addressof(object.*(D::pointer))))), ...);
  }
};

template <class D>
using is_data_member = std::is_member_object_pointer<std::remove_cv_t<decltype(D::pointer)>>;

template <class T>
auto described_members()
    -> boost::mp11::mp_append<decltype(boost_public_member_descriptor_fn(static_cast<T**>(nullptr))),
                              decltype(boost_protected_member_descriptor_fn(static_cast<T**>(nullptr))),
                              decltype(boost_private_member_descriptor_fn(static_cast<T**>(nullptr)))>;

template <class T>
auto own_descriptors() {
  if constexpr (has_module_macro<T>) {
    return std::type_identity<decltype(described_members<T>())>{};  // the macro lists only data members
  } else if constexpr (is_reflected<T>) {
    return std::type_identity<typename reflected<T>::members>{};
  } else {
    return std::type_identity<boost::mp11::mp_copy_if<decltype(described_members<T>()), is_data_member>>{};
  }
}

template <class T>
consteval auto find_bases() {
  if constexpr (has_module_macro<T>) {
    return decltype(access::bases<T>()){};
  } else if constexpr (is_reflected<T>) {
    return std::type_identity<typename reflected<T>::bases>{};
  } else {
    return []<template <class...> class L, class... D>(L<D...>*) {
      return std::type_identity<ClassList<typename D::type...>>{};
    }(static_cast<decltype(boost_base_descriptor_fn(static_cast<T**>(nullptr)))*>(nullptr));
  }
}
/// The base classes in a class's field list, as a ClassList.
template <class T>
using bases_of = typename decltype(find_bases<T>())::type;

/// The classes with T's fields, bases first, each once (a virtual base may be reachable on two paths).
template <class Seen, class T>
struct add_class {
  static_assert(is_listed<T>, "stele: a base class of a module has no field list: give it STELE_MODULE");
  template <class S, class B>
  using add_base = typename add_class<S, B>::type;
  using with_bases = boost::mp11::mp_fold<bases_of<T>, Seen, add_base>;
  using type = boost::mp11::mp_if<boost::mp11::mp_contains<Seen, T>, Seen, boost::mp11::mp_push_back<with_bases, T>>;
};
template <class T>
using classes_of = typename add_class<boost::mp11::mp_list<>, T>::type;

template <class... C>
auto descriptors_of(boost::mp11::mp_list<C...>)
    -> boost::mp11::mp_append<boost::mp11::mp_list<>, typename decltype(own_descriptors<C>())::type...>;

template <class T>
consteval auto listed_descriptors() {
  if constexpr (boost::mp11::mp_empty<bases_of<T>>::value) {
    return own_descriptors<T>();
  } else {
    return std::type_identity<decltype(descriptors_of(classes_of<T>{}))>{};
  }
}

/// Converts to the parameter of Describe's functions for each base class of T, except Named and the bases of Named.
template <class T, class Named>
struct other_base;
template <class T, class... Named>
struct other_base<T, ClassList<Named...>> {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T> && !(std::is_base_of_v<B, Named> || ...)) operator B**()
      const;
};
void boost_base_descriptor_fn(...);  // selected if there is no such base
/// True if T's field list names every class with a field list that T inherits from.
template <class T>
inline constexpr bool names_all_bases = requires(other_base<T, bases_of<T>> other) {
  requires std::is_void_v<decltype(boost_base_descriptor_fn(other))>;
};
template <class T, class... C>
consteval bool reaches(boost::mp11::mp_list<C...>) {
  return (std::is_convertible_v<T*, C*> && ...);
}
template <class T>
consteval bool reaches_bases() {
  if constexpr (boost::mp11::mp_empty<bases_of<T>>::value) {
    return true;
  } else {
    return reaches<T>(classes_of<T>{});
  }
}

template <class T>
requires(is_listed<T>) struct fields_of<T> : descriptors<typename decltype(listed_descriptors<T>())::type> {
  static_assert(names_all_bases<T>,
                "stele: a base of this class has a field list, and this class's list does not name the base: write "
                "STELE_MODULE_DERIVED(Class, (Base), fields...); skip the fields of the base that are not recorded");
  static constexpr bool usable = reaches_bases<T>();
  static_assert(usable,
                "stele: a base of this module is private, or occurs twice: inherit publicly (virtually), or make it a "
                "member");
  static void addresses(void* object, void** out) {
    if constexpr (usable) fields_of::addresses_in(*static_cast<T*>(object), out);
  }
};

// ---- attributes -----------------------------------------------------------------------------------------------------

/// Returns the attributes declared for T: outside T, or in T or one of its bases.
template <class T>
constexpr auto declared_attributes() {
  if constexpr (requires { attributes<T>::list; }) {
    return std::span<const Attribute>(attributes<T>::list);
  } else if constexpr (std::is_class_v<T> && !std::is_void_v<decltype(access::attribute_list<T>(0))>) {
    return std::span<const Attribute>(access::attribute_array<T>());
  } else {
    return std::span<const Attribute>();
  }
}

/// Returns the attributes that annotate T's fields.
template <class T>
constexpr auto annotated_attributes() {
  if constexpr (is_reflected<T>) {
    return std::span<const Attribute>(reflected<T>::attributes);
  } else {
    return std::span<const Attribute>();
  }
}

/// The attributes of T, followed by the attributes of its bases' fields.
template <class T, class... C>
constexpr auto join_attributes(boost::mp11::mp_list<C...>) {
  // The last class is T itself. A list in a base is also found through T.
  constexpr auto own = declared_attributes<T>();
  constexpr bool inherited =
      ((!std::is_same_v<C, T> && !own.empty() && declared_attributes<C>().data() == own.data()) || ...);
  constexpr std::size_t max_count = ((declared_attributes<C>().size() + annotated_attributes<C>().size()) + ...);
  std::pair<std::array<Attribute, max_count + 1>, std::size_t> all{};
  const auto add = [&](std::span<const Attribute> list, bool fields_only) {
    for (const Attribute& a : list) {
      if (!fields_only || !a.field.empty()) all.first[all.second++] = a;
    }
  };
  if (!inherited) add(own, false);
  add(annotated_attributes<T>(), true);
  ((std::is_same_v<C, T> ? void() : (add(declared_attributes<C>(), true), add(annotated_attributes<C>(), true))), ...);
  return all;
}
template <class T>
inline constexpr auto joined_attributes = join_attributes<T>(classes_of<T>{});

template <class T>
constexpr std::span<const Attribute> attributes_of() {
  if constexpr (is_listed<T>) {
    if constexpr (is_reflected<T> || !boost::mp11::mp_empty<bases_of<T>>::value) {
      return {joined_attributes<T>.first.data(), joined_attributes<T>.second};
    } else {
      return declared_attributes<T>();
    }
  } else {
    return declared_attributes<T>();
  }
}

/// Returns the index of the field's first attribute of that kind, or the list's size. An index instead of a pointer,
/// because g++ with -fsanitize=undefined does not treat a comparison of a pointer with null as constant.
constexpr std::size_t find_attribute(std::span<const Attribute> list, Attribute::Kind kind,
                                     std::string_view field = {}) {
  std::size_t i = 0;
  while (i < list.size() && !(list[i].kind == kind && list[i].field == field)) ++i;
  return i;
}
constexpr bool has_attribute(std::span<const Attribute> list, Attribute::Kind kind, std::string_view field) {
  return find_attribute(list, kind, field) != list.size();
}

/// Returns the unqualified name: "ns::Linear<float>" → "Linear".
consteval std::string_view unqualified(std::string_view text) {
  std::size_t end = text.size();
  // Removes only the last name's arguments: "ns::Outer<int>::Inner" → "Inner".
  for (int depth = 0; end > 0 && (depth > 0 || text[end - 1] == '>'); --end) {
    depth += text[end - 1] == '>' ? 1 : text[end - 1] == '<' ? -1 : 0;
  }
  const std::size_t colon = text.substr(0, end).rfind(':');
  const std::size_t begin = colon == std::string_view::npos ? 0 : colon + 1;
  return text.substr(begin, end - begin);
}

template <class T>
consteval std::string_view pretty_name() {
  // "… [with T = ns::Linear; …]" on g++, "… [T = ns::Linear]" on clang.
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::size_t begin = text.find("T = ") + 4;
  constexpr std::size_t semicolon = text.find(';', begin);
  constexpr std::size_t end = semicolon == std::string_view::npos ? text.rfind(']') : semicolon;
  return unqualified(text.substr(begin, end - begin));
}

/// Stored separately, so that the long pretty name is not part of the program.
template <std::size_t N>
struct FixedText {
  char text[N + 1] = {};
  constexpr std::string_view view() const { return {text, N}; }
};
/// A name in static storage of the program.
struct GivenText {
  std::string_view text;
  constexpr std::string_view view() const { return text; }
};
template <class T>
consteval auto fixed_type_name() {
  constexpr std::span<const Attribute> list = attributes_of<T>();
  constexpr std::size_t given = find_attribute(list, Attribute::Kind::type_name);
  if constexpr (given != list.size()) {
    return GivenText{list[given].text};
  } else if constexpr (std::is_class_v<T> && has_module_macro<T>) {
    return GivenText{unqualified(access::name<T>())};
  } else {
    constexpr std::string_view name = pretty_name<T>();
    FixedText<name.size()> fixed;
    for (std::size_t i = 0; i < name.size(); ++i) fixed.text[i] = name[i];
    return fixed;
  }
}
template <class T>
inline constexpr auto type_name_text = fixed_type_name<T>();

/// The form of a field in error messages: a string on g++; a pointer on clang, which prints strings as numbers.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T, std::size_t I>
consteval auto field_in_message() {
#ifdef __clang__
  if constexpr (is_listed<T>) {
    return fields_of<T>::template descriptor<I>::pointer;
  } else {
    constexpr auto fields = aggregate_tie(probe::unreal<T>.value);
    return probe::field_pointer{__builtin_addressof(boost::pfr::detail::sequence_tuple::get_impl<I>(fields))};
  }
#else
  constexpr std::string_view name = fields_of<T>::names[I];
  FixedText<name.size()> text;
  for (std::size_t i = 0; i < name.size(); ++i) text.text[i] = name[i];
  return text;
#endif
}
#ifdef __clang__
#pragma clang diagnostic pop
#endif

/// Selects the recorded fields of T, and checks that each can be recorded.
template <class T>
struct recorded_fields {
  using of = fields_of<T>;
  static constexpr std::size_t all = of::count;
  static constexpr bool listed = of::listed;
  /// A field list without attributes skips the filter, so the filter costs nothing per field.
  static constexpr bool plain = listed && attributes_of<T>().empty();

  static constexpr std::array<bool, all + 1> wanted = [] {
    std::array<bool, all + 1> w{};
    for (std::size_t i = 0; i < all; ++i) {
      w[i] = attributes_of<T>().empty() || !has_attribute(attributes_of<T>(), Attribute::Kind::skip, of::names[i]);
    }
    return w;
  }();
  static constexpr std::array<bool, all + 1> refused = []<class... F>(boost::mp11::mp_list<F...>) {
    return std::array<bool, all + 1>{is_refused(category_of<F, listed>)...};
  }(typename of::types{});
  // If a field is refused, the list is empty, so that one error does not cause further errors.
  static constexpr bool ok = [] {
    for (std::size_t i = 0; i < all; ++i) {
      if (wanted[i] && refused[i]) return false;
    }
    return of::usable;
  }();
  template <std::size_t First, std::size_t... More>
  static auto error_of(std::index_sequence<First, More...>) {
    using first = boost::mp11::mp_at_c<typename of::types, First>;
    return std::type_identity<field_cannot_be_recorded<field_in_message<T, First>(), first, T,
                                                       remedy_for<first, listed>(), field_in_message<T, More>()...>>{};
  }
  template <std::size_t I, std::size_t... Found>
  static auto find_error(std::index_sequence<Found...> found) {
    if constexpr (I == all) {
      return error_of(found);
    } else if constexpr (wanted[I] && refused[I]) {
      return find_error<I + 1>(std::index_sequence<Found..., I>{});
    } else {
      return find_error<I + 1>(found);
    }
  }
  /// Returns the type whose instantiation is the error about the refused fields; an unrelated type if no field is
  /// refused.
  static auto complaints() {
    if constexpr (ok) {
      return std::type_identity<char>{};
    } else if constexpr (!of::usable) {
      return std::type_identity<unusable_aggregate<T>>{};
    } else {
      return find_error<0>(std::index_sequence<>{});
    }
  }

  static constexpr std::size_t count = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; ok && i < all; ++i) n += wanted[i] ? 1U : 0U;
    return n;
  }();
  static constexpr std::array<std::uint16_t, count + 1> index = [] {
    std::array<std::uint16_t, count + 1> kept{};
    for (std::size_t i = 0, n = 0; ok && i < all; ++i) {
      if (wanted[i]) kept[n++] = static_cast<std::uint16_t>(i);
    }
    return kept;
  }();
  template <std::size_t... K>
  static auto pick(std::index_sequence<K...>)
      -> boost::mp11::mp_list<boost::mp11::mp_at_c<typename of::types, index[K]>...>;
  static consteval auto picked() {
    if constexpr (count == all) {
      return std::type_identity<typename of::types>{};
    } else {
      return std::type_identity<decltype(pick(std::make_index_sequence<count>{}))>{};
    }
  }
  /// The types of the recorded fields, as an mp_list.
  using types = typename decltype(picked())::type;
  static constexpr std::array<std::string_view, count + 1> names = [] {
    std::array<std::string_view, count + 1> kept{};
    for (std::size_t k = 0; k < count; ++k) kept[k] = of::names[index[k]];
    return kept;
  }();

  /// Moves the addresses of the recorded fields to the front of the addresses of all fields.
  static void compact(void** out) {
    if constexpr (count != all) {
      for (std::size_t k = 0; k < count; ++k) out[k] = out[index[k]];
    }
  }
  /// `out` must have space for `all` addresses; the first `count` then point to the recorded fields.
  static void addresses(void* object, void** out) {
    of::addresses(object, out);
    compact(out);
  }
};

/// Returns true if the path `now` of moved() begins with the file name of `field`.
template <class T>
consteval bool moved_begins(std::string_view now, std::string_view field) {
  constexpr std::span<const Attribute> list = attributes_of<T>();
  const std::size_t renamed = find_attribute(list, Attribute::Kind::rename, field);
  const std::string_view name = renamed != list.size() ? list[renamed].text : field;
  return now.starts_with(name) && (now.size() == name.size() || now[name.size()] == '.');
}

template <class T>
consteval bool attributes_name_fields() {
  for (const Attribute& a : attributes_of<T>()) {
    bool known = a.field.empty();
    for (std::size_t i = 0; i < fields_of<T>::count; ++i) {
      const std::string_view field = fields_of<T>::names[i];
      known = known || (a.kind == Attribute::Kind::moved ? moved_begins<T>(a.field, field) : a.field == field);
    }
    if (!known) return false;
  }
  return true;
}

}  // namespace stele::inline v0::detail
