// STELE_MODULE: lists the recorded fields of a class. Attributes: declared next to the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include <boost/describe/class.hpp>

#include "stele/config.hpp"
#include "stele/macros.hpp"  // STELE_MODULE, STELE_MODULE_DERIVED

namespace stele::inline v0 {

/// An attribute of a class or of one of its fields, declared outside the class:
///
///     template <> struct stele::attributes<Linear> {
///       static constexpr stele::Attribute list[] = {stele::attr::rename("weight", "kernel"), stele::attr::version(2)};
///     };
///
/// or inside it, as `static constexpr stele::Attribute stele_attributes[] = {…};`. Its field names are checked at
/// compile time.
struct Attribute {
  enum class Kind : std::uint8_t {
    rename,
    alias,
    skip,
    keep_default,
    was_one,
    moved,
    version,
    type_name,
    alternative,
    layout
  };
  Kind kind{};
  std::string_view field{};
  std::string_view text{};
  std::uint32_t number = 0;
};

/// Attributes of a class and its fields, listed in `stele_attributes` or in stele::attributes<T>.
namespace attr {

/// Sets the field's name in paths and files.
constexpr Attribute rename(std::string_view field, std::string_view name) {
  return {Attribute::Kind::rename, field, name, 0};
}
/// Adds a name that the field has in older files; it is tried if the current name is missing.
constexpr Attribute alias(std::string_view field, std::string_view name) {
  return {Attribute::Kind::alias, field, name, 0};
}
/// Excludes the field from the record.
constexpr Attribute skip(std::string_view field) { return {Attribute::Kind::skip, field, {}, 0}; }
/// The field may be missing from the file; it then keeps its constructed value.
constexpr Attribute keep_default(std::string_view field) { return {Attribute::Kind::keep_default, field, {}, 0}; }
/// For a field that is now a list: an older file may store the list's only element instead. For a tensor field, a
/// number or a one-element tensor of any rank loads as a tensor with one element.
constexpr Attribute was_one(std::string_view field) { return {Attribute::Kind::was_one, field, {}, 0}; }
/// Maps the path `now` to its path `then` in older files, which is tried if `now` is missing. Both are paths in files,
/// relative to this class: moved("encoder.weight", "weight").
constexpr Attribute moved(std::string_view now, std::string_view then) {
  return {Attribute::Kind::moved, now, then, 0};
}
/// Sets the class's version, which formats with class versions store.
constexpr Attribute version(std::uint32_t number) { return {Attribute::Kind::version, {}, {}, number}; }
/// Sets the class's name in files; the default is the class's name without namespaces and template arguments.
constexpr Attribute type_name(std::string_view name) { return {Attribute::Kind::type_name, {}, name, 0}; }
/// Sets the name of alternative `index` of a std::variant; the default is the name of its class, or the index if it is
/// not a class.
constexpr Attribute alternative(std::uint32_t index, std::string_view name) {
  return {Attribute::Kind::alternative, {}, name, index};
}

}  // namespace attr

/// Specialise to declare T's attributes. Members: `list` (an array of Attribute), and optionally one or both of these,
/// for files whose class version is older (0 if the file has none):
///
/// - `static std::string_view migrate(std::uint32_t from_version, std::string_view field)`: returns the name of `field`
/// in such a file (empty: unchanged);
/// - `static Result<Snapshot> migrate(std::uint32_t from_version, const Snapshot& old)`: returns this module's part in
/// its current form, built from `old`, the module's part of the file (stele/transform.hpp). It is called first.
template <class T>
struct attributes {};

/// Specialise, with stele/derived.hpp, to list the classes of the objects that pointers to Base may hold.
template <class Base>
struct derived {};

namespace detail {
struct access;
template <class...>
struct ClassList {};
/// Returns Boost.Describe's list of the bases B of C.
template <class C, class... B>
auto base_list() {
  static_assert((std::is_base_of_v<B, C> && ...),
                "stele: STELE_MODULE_DERIVED names a class that is not a base of this one: correct the list of bases");
  return boost::describe::detail::list<boost::describe::detail::base_descriptor<C, B>...>();
}
template <class Field, class Self>
struct record_field_of;
using boost::describe::mod_private;
using boost::describe::mod_protected;
using boost::describe::mod_public;
using boost::describe::detail::member_descriptor_fn_impl;
}  // namespace detail

}  // namespace stele::inline v0
