// Determines the category of a field from its type alone (design: what a field is; the first match wins).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/mp11/list.hpp>

#include "stele/module.hpp"
#include "stele/param.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

class Value;
template <class M>
class Record;
template <class T>
class TypedLeaf;

/// Converts a type that is not a tensor or module to a Value and back. stele/cereal.hpp specialises it for every type
/// with a cereal function. Members: `static Value to_value(const T&)`, and `static std::string_view from_value(T&,
/// const Value&)`, which returns the expected type if the value does not fit, else an empty string. Both may throw.
template <class T>
struct value_traits;

namespace detail {

template <class T>
struct is_param : std::false_type {};
template <class T>
struct is_param<Param<T>> : std::true_type {};

template <class T>
concept HasTensorTraits = requires {
  typename tensor_traits<T>::element;
};

template <class T>
concept HasValueTraits = requires(const T& t) {
  value_traits<T>::to_value(t);
};
/// True if T has its own value_traits. The value_traits for all cereal types do not count, because they must not change
/// the category of a list or an aggregate.
template <class T>
concept HasOwnValueTraits = HasValueTraits<T> && !requires {
  value_traits<T>::by_cereal;
};

/// The rows of the table in design section 3. `listed`: the field is in a field list, not in an aggregate.
enum class Category : std::uint8_t {
  refused,
  refused_integers,  // a sequence of integers in a plain aggregate: a stride, or weights?
  refused_bools,     // std::vector<bool>
  constant,          // in a plain aggregate, consists of numbers, enums and strings only: recorded like `value`
  tensor,
  value,
  module,
  tuple,
  list,
  array,
  map,
  variant,
  optional,
  pointer,
  shared,
};

constexpr bool is_refused(Category c) { return c <= Category::refused_bools; }

/// Standard containers that cannot be recognised by their members.
template <class T>
struct holder {
  static constexpr Category category = Category::refused;
};
template <class T>
struct holder<std::optional<T>> {
  static constexpr Category category = Category::optional;
  using element = T;
};
template <class T>
struct holder<std::unique_ptr<T>> {
  static constexpr Category category = Category::pointer;
  using element = T;
};
template <class T>
struct holder<std::shared_ptr<T>> {
  static constexpr Category category = Category::shared;
  using element = T;
};
template <class T, std::size_t N>
struct holder<std::array<T, N>> {
  static constexpr Category category = Category::array;
  using element = T;
};
template <class... T>
struct holder<std::tuple<T...>> {
  static constexpr Category category = Category::tuple;
  using elements = boost::mp11::mp_list<T...>;
};
template <>
struct holder<std::tuple<>> {  // has nothing to record
  static constexpr Category category = Category::refused;
};
template <class A, class B>
struct holder<std::pair<A, B>> {
  static constexpr Category category = Category::tuple;
  using elements = boost::mp11::mp_list<A, B>;
};
// std::variant is recognised by its members, because its header would add a tenth to the compile time of stele's
// headers.
template <class T>
concept VariantLike = requires(T& t) {
  t.valueless_by_exception();
  t.index();
};
template <template <class...> class V, class... T>
requires VariantLike<V<T...>>
struct holder<V<T...>> {
  static constexpr Category category = Category::variant;
  using elements = boost::mp11::mp_list<T...>;
  template <class... U>
  using rebind = V<U...>;
};

/// A pointer to a base class with a list in stele::derived.
template <class P>
concept DerivedPointer =
    (holder<P>::category == Category::pointer || holder<P>::category == Category::shared) && requires {
  typename derived<std::remove_cv_t<typename holder<P>::element>>::classes;
};

// Vectors and string-keyed maps are recognised by their members, so those of other libraries work too, including those
// that move their elements when they grow. Maps with several elements per key have no try_emplace.
template <class T>
concept ListLike = requires(T& t) {
  typename T::value_type;
  t.clear();
  t.size();
  t[std::size_t{}];
  t.back();
}
&&(STELE_HEAP == 0 || requires(T & t) { t.emplace_back(); }) && !requires { typename T::key_type; }
&&!requires { typename T::traits_type; };
template <class T>
concept MapLike = requires(T& t) {
  typename T::mapped_type;
  t.clear();
  t.size();
  t.begin()->second;
  t.try_emplace(std::string());
}
&&std::is_same_v<typename T::key_type, std::string>;

/// Integers, including char, which cannot be a tensor element.
template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
inline constexpr bool is_vector_bool = false;
template <class A>
inline constexpr bool is_vector_bool<std::vector<bool, A>> = true;

/// Contiguous sequences of numbers from the standard library, as opposed to classes that declare themselves tensors.
template <class T>
inline constexpr bool is_sequence = nested_array<T>::value;
template <class T, class A>
inline constexpr bool is_sequence<std::vector<T, A>> = true;
template <class T, std::size_t N>
inline constexpr bool is_sequence<std::span<T, N>> = true;

/// The friend of classes with STELE_MODULE. Uses static functions, because clang 14 checks an alias template of a
/// friend where it is used and finds private types inaccessible.
struct access {
  template <class T>
  static auto self(int) -> std::type_identity<typename T::stele_self_>;
  template <class T>
  static auto self(long) -> std::type_identity<void>;
  template <class T>
  static auto bases() -> std::type_identity<typename T::stele_bases_>;
  template <class T>
  static consteval std::string_view name() {
    return T::stele_name_();
  }
  template <class T>
  static auto record_fields() -> std::type_identity<typename T::template stele_record_<T>>;
  template <class T>
  static auto attribute_list(int) -> decltype((T::stele_attributes));
  template <class T>
  static auto attribute_list(long) -> void;
  template <class T>
  static constexpr const auto& attribute_array() {
    return T::stele_attributes;
  }
  template <class T, class... Args>
  static auto hook(int) -> decltype(T::from_record(std::declval<Record<T>&&>(), std::declval<Args>()...));
  template <class T, class... Args>
  static auto hook(long) -> void;
  template <class T, class... Args>
  static T from_record(Record<T>&& record, Args&&... args) {
    return T::from_record(std::move(record), std::forward<Args>(args)...);
  }
};

template <class T>
inline constexpr bool has_module_macro = std::is_same_v<typename decltype(access::self<T>(0))::type, T>;

// Boost.Describe's own query filters and copies lists; the plain lists suffice and take a third of the compile time.
template <class T>
concept HasDescribe = requires {
  boost_public_member_descriptor_fn(static_cast<T**>(nullptr));
};

/// True for a class whose fields reflected<T> provides (stele/reflect.hpp).
template <class T>
inline constexpr bool is_reflected = false;
/// Members: `members`, a list of classes with `pointer` and `name` like Describe's; `bases`, a ClassList of the bases
/// with field lists; `attributes`, a range of Attribute for these fields.
template <class T>
struct reflected;

template <class T>
inline constexpr bool is_listed = false;
template <class T>
requires std::is_class_v<T>
inline constexpr bool is_listed<T> = [] {
  // If the macro is used, Describe's functions are not called, because a from_record before the macro would be looked
  // up too early.
  if constexpr (has_module_macro<T> || is_reflected<T>) {
    return true;
  } else {
    return HasDescribe<T>;
  }
}();

template <class T>
inline constexpr bool is_record = false;
template <class M>
inline constexpr bool is_record<Record<M>> = true;
template <class T>
inline constexpr bool is_typed_leaf = false;
template <class T>
inline constexpr bool is_typed_leaf<TypedLeaf<T>> = true;

template <class T>
inline constexpr bool is_plain_value =
    (std::is_arithmetic_v<T> && !std::is_same_v<T, long double>) || std::is_enum_v<T> ||
    std::is_same_v<T, std::string> || std::is_same_v<T, Value> || std::is_same_v<T, float16> ||
    std::is_same_v<T, bfloat16>;

template <class T, bool Listed>
consteval Category classify();

/// The category of T, ignoring const. Tables cannot access volatile objects.
template <class T, bool Listed>
inline constexpr Category category_of = std::is_volatile_v<T> ? Category::refused
                                                              : classify<std::remove_cv_t<T>, Listed>();

template <bool Listed, template <class...> class L, class... T>
consteval Category category_of_all(L<T...>*, Category container) {
  Category refused = Category::constant;
  bool recorded = false;
  ((is_refused(category_of<T, Listed>) ? void(refused = category_of<T, Listed>)
                                       : void(recorded = recorded || category_of<T, Listed> != Category::constant)),
   ...);
  if (is_refused(refused)) return refused;
  return recorded ? container : Category::constant;
}

template <class E, bool Listed>
consteval Category category_around(Category container) {
  constexpr Category element = category_of<E, Listed>;
  const bool array = container == Category::list || container == Category::array;
  if (!Listed && array && is_integer<E>) return Category::refused_integers;
  return is_refused(element) || element == Category::constant ? element : container;
}

template <class T, bool Listed>
consteval Category classify() {
  if constexpr (is_typed_leaf<T>) {
    return Category::tensor;
  } else if constexpr (is_record<T>) {
    return Category::module;
  } else if constexpr (is_vector_bool<T>) {
    return Category::refused_bools;
  } else if constexpr (is_param<T>::value) {
    using tensor = decltype(T::value);
    return is_vector_bool<tensor> ? Category::refused_bools
                                  : (HasTensorTraits<tensor> ? Category::tensor : Category::refused);
  } else if constexpr (HasTensorTraits<T>) {
    if constexpr (is_sequence<T>) {
      constexpr DTypeClass element = dtype_class(dtype_of_v<typename tensor_traits<T>::element>);
      if (!Listed && element != DTypeClass::floating && element != DTypeClass::complex) {
        return Category::refused_integers;
      }
    }
    return Category::tensor;
  } else if constexpr (DerivedPointer<T>) {
    return holder<T>::category;
  } else if constexpr (requires { typename holder<T>::element; }) {
    return category_around<typename holder<T>::element, Listed>(holder<T>::category);
  } else if constexpr (requires { typename holder<T>::elements; }) {
    return category_of_all<Listed>(static_cast<typename holder<T>::elements*>(nullptr), holder<T>::category);
  } else if constexpr (is_listed<T>) {
    return Category::module;
  } else if constexpr (is_plain_value<T>) {
    return Listed ? Category::value : Category::constant;
  } else if constexpr (HasOwnValueTraits<T>) {
    if constexpr (requires { value_traits<T>::plain; }) {
      return Listed ? Category::value : Category::constant;
    } else {
      return Listed ? Category::value : Category::refused;
    }
  } else if constexpr (ListLike<T>) {
    return category_around<typename T::value_type, Listed>(Category::list);
  } else if constexpr (MapLike<T>) {
    return category_around<typename T::mapped_type, Listed>(Category::map);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    return Category::module;
  } else if constexpr (HasValueTraits<T>) {
    return Listed ? Category::value : Category::refused;
  } else {
    return Category::refused;
  }
}

/// True for numbers, enums and strings of a plain aggregate. A file need not have them, because other programs keep
/// them in code.
template <class T, bool Listed>
inline constexpr bool is_constant = category_of<T, Listed> == Category::constant;

}  // namespace detail
}  // namespace stele::inline v0
