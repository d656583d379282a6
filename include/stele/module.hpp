// STELE_MODULE: lists the recorded fields of a class. Attributes: declared next to the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include <boost/describe/class.hpp>

#include "stele/config.hpp"

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
}  // namespace detail

}  // namespace stele::inline v0

// clang-format off: generated lists of 52 names each, the maximum of one Describe list
#define STELE_DETAIL_PICK(                                                                                             \
    a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24,     \
    a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, \
    a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58, a59, a60, a61, a62, a63, a64, a65, a66, a67, a68, a69, a70, \
    a71, a72, a73, a74, a75, a76, a77, a78, a79, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a90, a91, a92, a93, \
    a94, a95, a96, a97, a98, a99, a100, a101, a102, a103, a104, a105, a106, a107, a108, a109, a110, a111, a112, a113,  \
    a114, a115, a116, a117, a118, a119, a120, a121, a122, a123, a124, a125, a126, a127, a128, a129, a130, a131, a132,  \
    a133, a134, a135, a136, a137, a138, a139, a140, a141, a142, a143, a144, a145, a146, a147, a148, a149, a150, a151,  \
    a152, a153, a154, a155, a156, a157, a158, a159, a160, a161, a162, a163, a164, a165, a166, a167, a168, a169, a170,  \
    a171, a172, a173, a174, a175, a176, a177, a178, a179, a180, a181, a182, a183, a184, a185, a186, a187, a188, a189,  \
    a190, a191, a192, a193, a194, a195, a196, a197, a198, a199, a200, chosen, ...)                                     \
  chosen
#define STELE_DETAIL_CHOOSE(...)                                                                                      \
  STELE_DETAIL_PICK(                                                                                                  \
      __VA_ARGS__ __VA_OPT__(, ) STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG,  \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST_TOO_LONG, \
      STELE_DETAIL_LIST_TOO_LONG, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,     \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3,             \
      STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST3, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2, STELE_DETAIL_LIST2,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1,             \
      STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, STELE_DETAIL_LIST1, unused)
#define STELE_DETAIL_LIST1(...) (__VA_ARGS__), (), ()
#define STELE_DETAIL_LIST2(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,  \
                           a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38,   \
                           a39, a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, ...)                  \
  (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, \
   a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48,  \
   a49, a50, a51, a52),                                                                                                \
      (__VA_ARGS__), ()
#define STELE_DETAIL_LIST3(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,  \
                           a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38,   \
                           a39, a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56,   \
                           a57, a58, a59, a60, a61, a62, a63, a64, a65, a66, a67, a68, a69, a70, a71, a72, a73, a74,   \
                           a75, a76, a77, a78, a79, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a90, a91, a92,   \
                           a93, a94, a95, a96, a97, a98, a99, a100, a101, a102, a103, a104, ...)                       \
  (a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, \
   a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48,  \
   a49, a50, a51, a52),                                                                                                \
      (a53, a54, a55, a56, a57, a58, a59, a60, a61, a62, a63, a64, a65, a66, a67, a68, a69, a70, a71, a72, a73, a74,   \
       a75, a76, a77, a78, a79, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a90, a91, a92, a93, a94, a95, a96,   \
       a97, a98, a99, a100, a101, a102, a103, a104),                                                                   \
      (__VA_ARGS__)
#define STELE_DETAIL_LIST_TOO_LONG(...) (stele_more_than_156_fields_are_listed), (), ()
// clang-format on

#define STELE_DETAIL_PLAIN(...) __VA_ARGS__
#define STELE_DETAIL_UNPACK(...) __VA_OPT__(, ) __VA_ARGS__
#define STELE_DETAIL_EACH_(...) BOOST_DESCRIBE_PP_FOR_EACH(__VA_ARGS__)
#define STELE_DETAIL_EACH(macro, stele_type, list) STELE_DETAIL_EACH_(macro, stele_type STELE_DETAIL_UNPACK list)

// Boost.Describe's lists, written as BOOST_DESCRIBE_CLASS writes them, but with rooted names (the user's namespace may
// contain a namespace `boost`) and bases that may contain commas.
#define STELE_DETAIL_DESCRIBED(stele_type, field)                             \
  , [] {                                                                      \
    struct stele_field_ {                                                     \
      static constexpr auto pointer() noexcept { return &stele_type::field; } \
      static constexpr auto name() noexcept { return #field; }                \
    };                                                                        \
    return stele_field_();                                                    \
  }()
#define STELE_DETAIL_DESCRIBE(stele_type, section, list)                                            \
  BOOST_DESCRIBE_MAYBE_UNUSED friend auto boost_##section##_member_descriptor_fn(stele_type**) {    \
    return ::boost::describe::detail::member_descriptor_fn_impl< ::boost::describe::mod_##section>( \
        0 STELE_DETAIL_EACH(STELE_DETAIL_DESCRIBED, stele_type, list));                             \
  }

#define STELE_DETAIL_FIELD(stele_type, field) \
  typename ::stele::detail::record_field_of<decltype(SteleSelf::field), SteleSelf>::type field{};
#define STELE_DETAIL_ADDRESS(stele_type, field) *stele_out_++ = ::std::addressof(this->field);
#define STELE_DETAIL_POINTER(stele_type, field) static_cast<void>(&SteleSelf::field);

// All members of T are accessed through detail::access, so the macro may be used in a private section. The bodies of
// the record and the check are templates over SteleSelf, so they are instantiated, and cost compile time, only if used.
#define STELE_DETAIL_MODULE(stele_type, bases, list1, list2, list3)                                    \
  friend struct ::stele::detail::access;                                                               \
  using stele_self_ = stele_type;                                                                      \
  using stele_bases_ = ::stele::detail::ClassList<STELE_DETAIL_PLAIN bases>;                           \
  template <class SteleSelf>                                                                           \
  struct stele_record_ {                                                                               \
    STELE_DETAIL_EACH(STELE_DETAIL_FIELD, stele_type, list1)                                           \
    STELE_DETAIL_EACH(STELE_DETAIL_FIELD, stele_type, list2)                                           \
    STELE_DETAIL_EACH(STELE_DETAIL_FIELD, stele_type, list3)                                           \
    void** stele_addresses_([[maybe_unused]] void** stele_out_) {                                      \
      STELE_DETAIL_EACH(STELE_DETAIL_ADDRESS, stele_type, list1)                                       \
      STELE_DETAIL_EACH(STELE_DETAIL_ADDRESS, stele_type, list2)                                       \
      STELE_DETAIL_EACH(STELE_DETAIL_ADDRESS, stele_type, list3)                                       \
      return stele_out_;                                                                               \
    }                                                                                                  \
  };                                                                                                   \
  template <class SteleSelf>                                                                           \
  static consteval bool stele_addressable_() {                                                         \
    return requires {                                                                                  \
      sizeof(SteleSelf);                                                                               \
      STELE_DETAIL_EACH(STELE_DETAIL_POINTER, stele_type, list1)                                       \
      STELE_DETAIL_EACH(STELE_DETAIL_POINTER, stele_type, list2)                                       \
      STELE_DETAIL_EACH(STELE_DETAIL_POINTER, stele_type, list3)                                       \
    };                                                                                                 \
  }                                                                                                    \
  static constexpr ::std::string_view stele_name_() {                                                  \
    static_assert(stele_addressable_<stele_type>(),                                                    \
                  "stele: a field of module '" #stele_type                                             \
                  "' does not exist, or is a reference or a bit-field (the compiler names it below): " \
                  "correct its name, make it an ordinary member, or leave it out of the list");        \
    return #stele_type;                                                                                \
  }                                                                                                    \
  BOOST_DESCRIBE_MAYBE_UNUSED friend auto boost_base_descriptor_fn(stele_type**) {                     \
    return ::stele::detail::base_list<stele_type STELE_DETAIL_UNPACK bases>();                         \
  }                                                                                                    \
  STELE_DETAIL_DESCRIBE(stele_type, public, list1)                                                     \
  STELE_DETAIL_DESCRIBE(stele_type, protected, list2)                                                  \
  STELE_DETAIL_DESCRIBE(stele_type, private, list3)
#define STELE_DETAIL_MODULE_(...) STELE_DETAIL_MODULE(__VA_ARGS__)
#define STELE_DETAIL_SPLIT(...) STELE_DETAIL_CHOOSE(__VA_ARGS__)(__VA_ARGS__)

/// Lists the recorded fields of class `Type`, in the order of the record. Used inside the class, after the fields, in
/// any section; does not change the access specifier. Unlisted fields may have any type. Up to 156 fields.
#define STELE_MODULE(Type, ...) STELE_DETAIL_MODULE_(Type, (), STELE_DETAIL_SPLIT(__VA_ARGS__))

/// Lists the fields of a class whose bases also have field lists: `STELE_MODULE_DERIVED(Type, (Base1, Base2),
/// fields…)`. The bases' fields come first, at the level of this class.
#define STELE_MODULE_DERIVED(Type, Bases, ...) STELE_DETAIL_MODULE_(Type, Bases, STELE_DETAIL_SPLIT(__VA_ARGS__))
