// Fields by C++26's reflection (P2996, annotations P3394): a class with the annotation stele::attr::reflect needs no
// STELE_MODULE, and may have any number of fields, including private fields.
//
// Written to the text of the C++ draft: no compiler has compiled it yet. Empty for compilers without reflection (GCC 16
// has it with -freflection).
#pragma once

#include "stele/module.hpp"

#if defined(__cpp_impl_reflection) && __has_include(<meta>)
#define STELE_HAS_REFLECTION 1
#else
#define STELE_HAS_REFLECTION 0
#endif

#if STELE_HAS_REFLECTION
// clang-format off
#include <array>
#include <cstddef>
#include <meta>
#include <string_view>
#include <vector>

#include <boost/mp11/list.hpp>

#include "stele/detail/category.hpp"

namespace stele::inline v0 {

namespace detail {
// The types of annotations are structural, which Attribute is not.
struct ReflectNote {};
struct FieldNote {
  Attribute::Kind kind;
  const char* text;
};
consteval FieldNote note(Attribute::Kind kind, std::string_view text = {}) {
  return {kind, std::define_static_string(text)};
}
}  // namespace detail

namespace attr {

/// Annotates a class: all its fields and its bases' fields are recorded, as if STELE_MODULE_DERIVED listed them.
///
///     class [[=stele::attr::reflect]] Linear {
///       [[=stele::attr::rename("kernel")]] stele::Tensor<float, 2> weight;
///       [[=stele::attr::skip()]] std::vector<float> scratch;
///     };
///
/// The functions below annotate fields. Attributes of the class, such as version(2), remain in stele::attributes or in
/// `stele_attributes`; the latter, and a from_record hook, must be public.
inline constexpr detail::ReflectNote reflect{};
consteval auto rename(std::string_view name) { return detail::note(Attribute::Kind::rename, name); }
consteval auto alias(std::string_view name) { return detail::note(Attribute::Kind::alias, name); }
consteval auto skip() { return detail::note(Attribute::Kind::skip); }
consteval auto keep_default() { return detail::note(Attribute::Kind::keep_default); }
consteval auto was_one() { return detail::note(Attribute::Kind::was_one); }

}  // namespace attr

namespace detail {

consteval bool has_reflect_note(std::meta::info type) {
  return std::meta::is_class_type(type) && !std::meta::annotations_of_with_type(type, ^^ReflectNote).empty();
}
template <class T>
requires(has_reflect_note(^^T)) inline constexpr bool is_reflected<T> = true;

template <std::meta::info Member>
struct ReflectedMember {
  static constexpr auto pointer = &[:Member:];
  static constexpr std::string_view name = std::meta::identifier_of(Member);
};

consteval std::vector<std::meta::info> data_members_of(std::meta::info type) {
  return std::meta::nonstatic_data_members_of(type, std::meta::access_context::unchecked());
}
consteval std::vector<FieldNote> notes_of(std::meta::info member) {
  std::vector<FieldNote> notes;
  for (std::meta::info found : std::meta::annotations_of_with_type(member, ^^FieldNote)) {
    notes.push_back(std::meta::extract<FieldNote>(found));
  }
  return notes;
}
consteval bool is_skipped(std::meta::info member) {
  if (!std::meta::has_identifier(member)) return std::meta::is_bit_field(member);  // padding
  for (const FieldNote& note : notes_of(member)) {
    if (note.kind == Attribute::Kind::skip) return true;
  }
  return false;
}

/// Adds the ReflectedMember of each recorded member of `type`. Returns false if a member has no name or no address.
consteval bool add_members(std::meta::info type, std::vector<std::meta::info>& to) {
  bool complete = true;
  for (std::meta::info member : data_members_of(type)) {
    if (is_skipped(member)) continue;
    if (std::meta::has_identifier(member) && !std::meta::is_bit_field(member) &&
        !std::meta::is_reference_type(std::meta::type_of(member))) {
      to.push_back(std::meta::substitute(^^ReflectedMember, {std::meta::reflect_constant(member)}));
    } else {
      complete = false;
    }
  }
  return complete;
}

/// Adds the nearest classes with field lists that `type` is derived from. Returns false if another base has fields.
consteval bool add_bases(std::meta::info type, std::vector<std::meta::info>& to) {
  bool complete = true;
  for (std::meta::info relation : std::meta::bases_of(type, std::meta::access_context::unchecked())) {
    const std::meta::info base = std::meta::type_of(relation);
    if (std::meta::extract<bool>(std::meta::substitute(^^is_listed, {base}))) {
      to.push_back(base);
    } else {
      complete = add_bases(base, to) && data_members_of(base).empty() && complete;
    }
  }
  return complete;
}

consteval std::vector<Attribute> attributes_of_members(std::meta::info type) {
  std::vector<Attribute> list;
  for (std::meta::info member : data_members_of(type)) {
    if (is_skipped(member) || !std::meta::has_identifier(member)) continue;
    for (const FieldNote& note : notes_of(member)) {
      list.push_back({note.kind, std::meta::identifier_of(member), note.text, 0});
    }
  }
  return list;
}

using AddTypes = bool (*)(std::meta::info type, std::vector<std::meta::info>& to);
consteval std::meta::info list_of(std::meta::info list_template, AddTypes add, std::meta::info type) {
  std::vector<std::meta::info> types;
  add(type, types);
  return std::meta::substitute(list_template, types);
}
consteval bool is_complete(AddTypes add, std::meta::info type) {
  std::vector<std::meta::info> types;
  return add(type, types);
}

template <class T>
requires is_reflected<T>
struct reflected<T> {
  static_assert(is_complete(add_members, ^^T),
                "stele: a field of this class is a reference, a bit-field or an anonymous union: make it an ordinary "
                "member, or skip it with [[=stele::attr::skip()]]");
  static_assert(is_complete(add_bases, ^^T),
                "stele: a base of this class has fields and no field list: annotate it with stele::attr::reflect");
  using members = typename [:list_of(^^boost::mp11::mp_list, add_members, ^^T):];
  using bases = typename [:list_of(^^ClassList, add_bases, ^^T):];
  static constexpr auto attributes = []() consteval {
    std::array<Attribute, attributes_of_members(^^T).size()> list{};
    std::size_t n = 0;
    for (const Attribute& attribute : attributes_of_members(^^T)) list[n++] = attribute;
    return list;
  }();
};

}  // namespace detail
}  // namespace stele::inline v0
// clang-format on
#endif
