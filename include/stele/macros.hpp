// The macros of stele/module.hpp and stele/result.hpp. A module exports no macros: a source with `import stele;`
// includes this header, which declares nothing.
#pragma once

#include <boost/describe/detail/config.hpp>
#include <boost/describe/detail/pp_for_each.hpp>

#include "stele/config.hpp"

/// Returns the error of `expr` from the enclosing function, if there is one.
#define STELE_TRY(expr)                                                                                        \
  do {                                                                                                         \
    if (auto stele_try_ = (expr); !stele_try_) return static_cast<decltype(stele_try_)&&>(stele_try_).error(); \
  } while (false)

#define STELE_TRY_CAT2_(a, b) a##b
#define STELE_TRY_CAT_(a, b) STELE_TRY_CAT2_(a, b)
/// Declares `target` with the value of `expr`, or returns its error from the enclosing function.
#define STELE_TRY_ASSIGN(target, expr) STELE_TRY_ASSIGN_(STELE_TRY_CAT_(stele_try_, __LINE__), target, expr)
#define STELE_TRY_ASSIGN_(temporary, target, expr)                              \
  auto temporary = (expr);                                                      \
  if (!temporary) return static_cast<decltype(temporary)&&>(temporary).error(); \
  target = *static_cast<decltype(temporary)&&>(temporary)

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
#define STELE_DETAIL_DESCRIBE(stele_type, section, list)                                         \
  BOOST_DESCRIBE_MAYBE_UNUSED friend auto boost_##section##_member_descriptor_fn(stele_type**) { \
    return ::stele::detail::member_descriptor_fn_impl< ::stele::detail::mod_##section>(          \
        0 STELE_DETAIL_EACH(STELE_DETAIL_DESCRIBED, stele_type, list));                          \
  }

#define STELE_DETAIL_FIELD(stele_type, field) \
  typename ::stele::detail::record_field_of<decltype(SteleSelf::field), SteleSelf>::type field{};
#define STELE_DETAIL_ADDRESS(stele_type, field) *stele_out_++ = __builtin_addressof(this->field);
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
  static constexpr const char* stele_name_() {                                                         \
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
