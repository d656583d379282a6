// The number of fields of a plain aggregate. Boost.PFR's own count (1.81) fails with a hard error for a std::optional
// of a move-only type, and counts every element of a C array as a field.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace stele::inline v0::detail {

/// Maximum number of fields in the binding tables.
inline constexpr std::size_t aggregate_limit = 100;

/// The size of a type that is not an aggregate class, or has a field that only an object of its own type can
/// initialise.
inline constexpr std::size_t aggregate_uncounted = static_cast<std::size_t>(-1);

namespace probe {

// Algorithm of the field count
//
// T{{}, {}, …} accepts exactly one pair of braces per field of any type: written braces cannot be elided, so a C array
// counts once. This takes few checks for types whose fields can all be initialised from {}. The slow method is only
// needed if a field cannot be (no default constructor, or an explicit one):
//   1. T{any, any, …} gives the number of initialisers; here a C array takes one per element.
//   2. 2. From left to right, a position is one field if a braced initialiser at this position leaves initialisers for
//      all other fields. For an array it never does. {} suffices to show this for most fields, {any_hard} for most
//      others.
//   3. Every other position is an array of k elements if {any × k} replaces exactly k initialisers.

// The only classes that may use the conversions below.
struct lists;
template <std::size_t N>
struct braces;
template <std::size_t Log>
struct braces_among;

// Converts to any type, but only in the initialisation of a field. The conversion is private, so it does not exist for
// the constructors of std::optional and similar types, which test if their element can be constructed from the
// argument. If these constructors were chosen, they would be instantiated, which is an error in the constructor of an
// Eigen matrix, for example.
class any_field {
  friend lists;
  template <std::size_t>
  friend struct braces;
  template <std::size_t>
  friend struct braces_among;
  template <class U>
  operator U() const;
};

template <class U>
concept made_from_braces = requires(void (&take)(U)) {
  take({});
};

// Converts only to classes that cannot be initialised from {}. In braces it therefore selects the copy or move
// constructor of such a class, for which any_field would be ambiguous with the class's other constructors.
class any_hard {
  friend lists;
  template <class U>
  requires(std::is_class_v<U> && !made_from_braces<U>) operator U() const;
};

// Converts only to bases of T. Not const, so that it matches as well as an unconstrained constructor.
template <class T>
class any_base {
  friend lists;
  template <class U>
  requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>) operator U() &&;
};

// Converts to nothing: only an unconstrained constructor accepts it.
struct any_nothing {};

template <std::size_t>
using any_at = any_field;

template <std::size_t N>
using upto = std::make_index_sequence<N>;

struct lists {
  template <class T, std::size_t... A>
  static consteval bool any(std::index_sequence<A...>) {
    return requires { T{any_at<A>{}...}; };
  }

  // T(any × A): elides no braces, so a C array of several elements does not accept its initialiser.
  template <class T, std::size_t... A>
  static consteval bool parens(std::index_sequence<A...>) {
#ifdef __cpp_aggregate_paren_init
    return requires { T(any_at<A>{}...); };
#else
    return false;
#endif
  }

  // T{first, any × A}
  template <class T, class First, std::size_t... A>
  static consteval bool first(std::index_sequence<A...>) {
    return requires { T{First{}, any_at<A>{}...}; };
  }

  // T{any × A, {any × K}, any × B}
  template <class T, std::size_t... A, std::size_t... K, std::size_t... B>
  static consteval bool nested(std::index_sequence<A...>, std::index_sequence<K...>, std::index_sequence<B...>) {
    return requires { T{any_at<A>{}..., {any_at<K>{}...}, any_at<B>{}...}; };
  }

  // T{any × A, {any_hard}, any × B}
  template <class T, std::size_t... A, std::size_t... B>
  static consteval bool hard(std::index_sequence<A...>, std::index_sequence<B...>) {
    return requires { T{any_at<A>{}..., {any_hard{}}, any_at<B>{}...}; };
  }
};

// braces<N>::alone<T, Rest...>() is true if T{{} × N, Rest{}...} is valid. A pack cannot expand to empty braces, so the
// lists are spelled out.
template <>
struct braces<0> {
  template <class T, class... Rest>
  static consteval bool alone() {
    return requires { T{Rest{}...}; };
  }
};

#define STELE_BRACES(count, ...)                      \
  template <>                                         \
  struct braces<count> {                              \
    template <class T, class... Rest>                 \
    static consteval bool alone() {                   \
      return requires { T{__VA_ARGS__, Rest{}...}; }; \
    }                                                 \
  };
#define STELE_BRACES_2 \
  {}, {}
#define STELE_BRACES_3 \
  {}, {}, {}
#define STELE_BRACES_4 \
  {}, {}, {}, {}
#define STELE_BRACES_5 \
  {}, {}, {}, {}, {}
#define STELE_BRACES_8 STELE_BRACES_4, STELE_BRACES_4
#define STELE_BRACES_10 STELE_BRACES_5, STELE_BRACES_5
#define STELE_BRACES_16 STELE_BRACES_8, STELE_BRACES_8
#define STELE_BRACES_20 STELE_BRACES_10, STELE_BRACES_10
#define STELE_BRACES_32 STELE_BRACES_16, STELE_BRACES_16
#define STELE_BRACES_40 STELE_BRACES_20, STELE_BRACES_20
#define STELE_BRACES_64 STELE_BRACES_32, STELE_BRACES_32
#define STELE_BRACES_80 STELE_BRACES_40, STELE_BRACES_40
#define STELE_BRACES_DECADE(tens, ...)                               \
  STELE_BRACES(tens##1, __VA_ARGS__, {})                             \
  STELE_BRACES(tens##2, __VA_ARGS__, STELE_BRACES_2)                 \
  STELE_BRACES(tens##3, __VA_ARGS__, STELE_BRACES_3)                 \
  STELE_BRACES(tens##4, __VA_ARGS__, STELE_BRACES_4)                 \
  STELE_BRACES(tens##5, __VA_ARGS__, STELE_BRACES_5)                 \
  STELE_BRACES(tens##6, __VA_ARGS__, STELE_BRACES_5, {})             \
  STELE_BRACES(tens##7, __VA_ARGS__, STELE_BRACES_5, STELE_BRACES_2) \
  STELE_BRACES(tens##8, __VA_ARGS__, STELE_BRACES_5, STELE_BRACES_3) \
  STELE_BRACES(tens##9, __VA_ARGS__, STELE_BRACES_5, STELE_BRACES_4)
STELE_BRACES(1, {})
STELE_BRACES(2, STELE_BRACES_2)
STELE_BRACES(3, STELE_BRACES_3)
STELE_BRACES(4, STELE_BRACES_4)
STELE_BRACES(5, STELE_BRACES_5)
STELE_BRACES(6, STELE_BRACES_5, {})
STELE_BRACES(7, STELE_BRACES_5, STELE_BRACES_2)
STELE_BRACES(8, STELE_BRACES_5, STELE_BRACES_3)
STELE_BRACES(9, STELE_BRACES_5, STELE_BRACES_4)
STELE_BRACES(10, STELE_BRACES_10)
STELE_BRACES_DECADE(1, STELE_BRACES_10)
STELE_BRACES(20, STELE_BRACES_20)
STELE_BRACES_DECADE(2, STELE_BRACES_20)
STELE_BRACES(30, STELE_BRACES_20, STELE_BRACES_10)
STELE_BRACES_DECADE(3, STELE_BRACES_20, STELE_BRACES_10)
STELE_BRACES(40, STELE_BRACES_40)
STELE_BRACES_DECADE(4, STELE_BRACES_40)
STELE_BRACES(50, STELE_BRACES_40, STELE_BRACES_10)
STELE_BRACES_DECADE(5, STELE_BRACES_40, STELE_BRACES_10)
STELE_BRACES(60, STELE_BRACES_40, STELE_BRACES_20)
STELE_BRACES_DECADE(6, STELE_BRACES_40, STELE_BRACES_20)
STELE_BRACES(70, STELE_BRACES_40, STELE_BRACES_20, STELE_BRACES_10)
STELE_BRACES_DECADE(7, STELE_BRACES_40, STELE_BRACES_20, STELE_BRACES_10)
STELE_BRACES(80, STELE_BRACES_80)
STELE_BRACES_DECADE(8, STELE_BRACES_80)
STELE_BRACES(90, STELE_BRACES_80, STELE_BRACES_10)
STELE_BRACES_DECADE(9, STELE_BRACES_80, STELE_BRACES_10)
STELE_BRACES(100, STELE_BRACES_80, STELE_BRACES_20)
STELE_BRACES(101, STELE_BRACES_80, STELE_BRACES_20, {})

// braces_among<Log>::accepted<T>(A, B) is true if T{any × A, {} × 2^Log, any × B} is valid.
#define STELE_BRACES_AMONG(log, ...)                                                       \
  template <>                                                                              \
  struct braces_among<log> {                                                               \
    template <class T, std::size_t... A, std::size_t... B>                                 \
    static consteval bool accepted(std::index_sequence<A...>, std::index_sequence<B...>) { \
      return requires { T{any_at<A>{}..., __VA_ARGS__, any_at<B>{}...}; };                 \
    }                                                                                      \
  };
STELE_BRACES_AMONG(0, {})
STELE_BRACES_AMONG(1, STELE_BRACES_2)
STELE_BRACES_AMONG(2, STELE_BRACES_4)
STELE_BRACES_AMONG(3, STELE_BRACES_8)
STELE_BRACES_AMONG(4, STELE_BRACES_16)
STELE_BRACES_AMONG(5, STELE_BRACES_32)
STELE_BRACES_AMONG(6, STELE_BRACES_64)

#undef STELE_BRACES
#undef STELE_BRACES_AMONG
#undef STELE_BRACES_DECADE
#undef STELE_BRACES_2
#undef STELE_BRACES_3
#undef STELE_BRACES_4
#undef STELE_BRACES_5
#undef STELE_BRACES_8
#undef STELE_BRACES_10
#undef STELE_BRACES_16
#undef STELE_BRACES_20
#undef STELE_BRACES_32
#undef STELE_BRACES_40
#undef STELE_BRACES_64
#undef STELE_BRACES_80

// Maximum number of initialisers that the slow method tries.
inline constexpr std::size_t initializer_limit = 256;

// The largest N of [Low, High) for which T{{} × N} is valid; T{{} × Low} is.
template <class T, std::size_t Low, std::size_t High>
consteval std::size_t max_braces() {
  if constexpr (High - Low == 1) {
    return Low;
  } else {
    // Tries small steps first, because most types have few fields.
    constexpr std::size_t half = Low + (High - Low) / 2;
    constexpr std::size_t middle = half < 2 * Low + 8 ? half : 2 * Low + 8;
    if constexpr (braces<middle>::template alone<T>()) {
      return max_braces<T, middle, High>();
    } else {
      return max_braces<T, Low, middle>();
    }
  }
}

// The smallest N >= First for which T{any × N} is valid.
template <class T, std::size_t First>
consteval std::size_t min_initializers() {
  if constexpr (First > initializer_limit || First > 8 * sizeof(T)) {
    return aggregate_uncounted;
  } else if constexpr (lists::any<T>(upto<First>{})) {
    return First;
  } else {
    return min_initializers<T, First + 1>();
  }
}

// The largest N of [Low, High) for which T{any × N} is valid; T{any × Low} is.
template <class T, std::size_t Low, std::size_t High>
consteval std::size_t max_initializers() {
  if constexpr (High - Low == 1) {
    return Low;
  } else {
    constexpr std::size_t half = Low + (High - Low) / 2;
    constexpr std::size_t middle = half < 2 * Low + 2 ? half : 2 * Low + 2;
    if constexpr (lists::any<T>(upto<middle>{})) {
      return max_initializers<T, middle, High>();
    } else {
      return max_initializers<T, Low, middle>();
    }
  }
}

// The number of initialisers of the field at position At in a list of Total. The field must not be an array of fewer
// than K elements.
template <class T, std::size_t At, std::size_t Total, std::size_t K = 1>
consteval std::size_t initializers_of_field() {
  if constexpr (At + K > Total) {
    return 1;
  } else if constexpr (lists::nested<T>(upto<At>{}, upto<K>{}, upto<Total - At - 1>{})) {
    return 1;
  } else if constexpr (K > 1 && lists::nested<T>(upto<At>{}, upto<K>{}, upto<Total - At - K>{}) &&
                       !lists::nested<T>(upto<At>{}, upto<K>{}, upto<Total - At - K + 1>{})) {
    return K;
  } else {
    return initializers_of_field<T, At, Total, K + 1>();
  }
}

// The number of fields that use the initialisers from At on. Tries runs of 2^Log fields with {}; Rising is true if a
// longer run may still follow.
template <class T, std::size_t At, std::size_t Total, std::size_t Log = 6, bool Rising = false>
consteval std::size_t fields_from() {
  constexpr std::size_t run = std::size_t{1} << Log;
  if constexpr (At == Total) {
    return 0;
  } else if constexpr (At + run > Total) {
    return fields_from<T, At, Total, Log - 1>();
  } else if constexpr (braces_among<Log>::template accepted<T>(upto<At>{}, upto<Total - At - run>{})) {
    constexpr std::size_t next = Rising && Log < 6 ? Log + 1 : Log;
    return run + fields_from<T, At + run, Total, next, Rising>();
  } else if constexpr (Log > 0) {
    return fields_from<T, At, Total, Log - 1>();
  } else if constexpr (lists::hard<T>(upto<At>{}, upto<Total - At - 1>{})) {
    // Tried only after {}, because {any_hard} makes std::vector of such a class instantiate its list constructor.
    return 1 + fields_from<T, At + 1, Total, 0, true>();
  } else {
    return 1 + fields_from<T, At + initializers_of_field<T, At, Total>(), Total, 0, true>();
  }
}

// Bindings of std::array and of other classes with a tuple_size use the tuple_size, not the fields.
template <class T>
concept field_aggregate = std::is_class_v<T> && std::is_aggregate_v<T> && !requires {
  std::tuple_size<T>::value;
};

struct counts {
  std::size_t fields;        // or aggregate_uncounted
  std::size_t initializers;  // the minimum number that T{any, any, …} needs; 0 if T{} is valid
};

template <class T, std::size_t Min, std::size_t Known>
consteval counts count_slowly() {
  if constexpr (Min == aggregate_uncounted) {
    return {aggregate_uncounted, 0};
  } else {
    constexpr std::size_t total = max_initializers<T, (Min < Known ? Known : Min), initializer_limit + 2>();
    if constexpr (total > initializer_limit) {
      return {aggregate_limit + 1, Min};
    } else if constexpr (lists::nested<T>(upto<total>{}, upto<0>{}, upto<0>{})) {
      // A field that {} can initialise but any_field cannot: the list ends too early.
      return {aggregate_uncounted, Min};
    } else if constexpr (total == 1) {
      return {1, Min};
    } else if constexpr (lists::parens<T>(upto<total>{})) {
      return {total, Min};
    } else {
      return {fields_from<T, 0, total>(), Min};
    }
  }
}

template <class T>
consteval counts count() {
  if constexpr (!field_aggregate<T>) {
    return {aggregate_uncounted, 0};
  } else if constexpr (!braces<0>::alone<T>()) {
    return count_slowly<T, min_initializers<T, 1>(), 0>();
  } else {
    constexpr std::size_t plain = max_braces<T, 0, aggregate_limit + 2>();
    if constexpr (plain > aggregate_limit || !braces<plain>::template alone<T, any_field>()) {
      return {plain, 0};
    } else {
      return count_slowly<T, 0, plain>();
    }
  }
}

template <class T>
inline constexpr counts counted = count<T>();

template <class T>
consteval bool has_base() {
  if constexpr (!field_aggregate<T>) {
    return false;
  } else {
    // Bases come first in the list. An unconstrained field accepts both any_base and any_nothing. An unconstrained base
    // accepts only any_nothing, because any_base is ambiguous for it.
    constexpr std::size_t needed = counted<T>.initializers;
    using rest = upto<needed == 0 ? 0 : needed - 1>;
    return lists::first<T, any_base<T>>(rest{}) != lists::first<T, any_nothing>(rest{});
  }
}

}  // namespace probe

/// The number of fields of the aggregate class T: at most aggregate_limit, aggregate_limit + 1 if there are more, or
/// aggregate_uncounted. Arrays, nested aggregates and base classes count as one each.
template <class T>
inline constexpr std::size_t aggregate_size = probe::counted<std::remove_cv_t<T>>.fields;

/// True if T has a base class, even an empty one; such a type cannot be bound.
template <class T>
inline constexpr bool aggregate_has_base = probe::has_base<std::remove_cv_t<T>>();

/// True if the fields of T can be bound: an aggregate class without bases, of at most aggregate_limit fields.
/// Bit-fields and anonymous unions are not detected here and are errors in Boost.PFR. Const references, and with g++
/// volatile fields, are errors when a name is requested.
template <class T>
inline constexpr bool aggregate_is_bindable = aggregate_size<T> <= aggregate_limit && !aggregate_has_base<T>;

}  // namespace stele::inline v0::detail
