// The operations that walks perform on values: numbers, bools, enums, strings, and types with value_traits. One
// constant table of functions per type.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "stele/detail/category.hpp"
#include "stele/detail/type_info.hpp"

namespace stele::inline v0::detail {

// Defined in src/base/value.cpp. Integers are converted through the widest type of their signedness.
STELE_EXPORT void assign_value(const Value& from, Value& to);
STELE_EXPORT bool from_value(const Value& in, std::int64_t low, std::int64_t high, std::int64_t& out);
STELE_EXPORT bool from_value(const Value& in, std::uint64_t high, std::uint64_t& out);
STELE_EXPORT bool from_value(const Value& in, bool& out);
STELE_EXPORT bool from_value(const Value& in, double highest, double& out);
STELE_EXPORT bool from_value(const Value& in, std::string& out);

/// A described enum, whose values have names. This header does not include Describe's headers; users who describe an
/// enum include them.
template <class E>
concept DescribedEnum = std::is_enum_v<E> && requires {
  boost_enum_descriptor_fn(static_cast<E**>(nullptr));
};
struct EnumName {
  std::string_view text;
  std::uint64_t bits = 0;
};
template <class List>
struct EnumList;
template <template <class...> class L, class... D>
struct EnumList<L<D...>> {
  static constexpr std::array<EnumName, sizeof...(D)> names{EnumName{D::name, static_cast<std::uint64_t>(D::value)}...};
};
template <DescribedEnum E>
inline constexpr std::span<const EnumName> enum_names =
    EnumList<decltype(boost_enum_descriptor_fn(static_cast<E**>(nullptr)))>::names;

/// The string "one of relu, tanh", for messages; a long list is shortened.
template <DescribedEnum E>
struct EnumText {
  static constexpr std::size_t max_listed = 20;
  // Calls `put` with each piece.
  static constexpr void compose(auto put) {
    put(std::string_view("one of "));
    for (std::size_t i = 0; i < enum_names<E>.size() && i < max_listed; ++i) {
      if (i != 0) put(std::string_view(", "));
      put(enum_names<E>[i].text);
    }
    if (enum_names<E>.size() > max_listed) put(std::string_view(", …"));
  }
  static constexpr std::size_t size = [] {
    std::size_t n = 0;
    compose([&](std::string_view piece) { n += piece.size(); });
    return n;
  }();
  static constexpr auto text = [] {
    std::array<char, size> out{};
    std::size_t n = 0;
    compose([&](std::string_view piece) {
      for (const char c : piece) out[n++] = c;
    });
    return out;
  }();
  static constexpr std::string_view view{text.data(), size};
};

/// Returns the name of a described enum's value; empty if it has none.
constexpr std::string_view enum_name(std::span<const EnumName> names, std::uint64_t bits) {
  for (const EnumName& name : names) {
    if (name.bits == bits) return name.text;
  }
  return {};
}
/// Finds the value whose name is in `in`.
STELE_EXPORT bool from_value(const Value& in, std::span<const EnumName> names, std::uint64_t& bits);
STELE_EXPORT bool is_text(const Value& in);

template <class T>
struct ValueTable {
  static constexpr bool is_plain = !HasValueTraits<T> && !std::is_same_v<T, Value>;

  static PlainValue plain(const void* p) {
    const T& t = *static_cast<const T*>(p);
    if constexpr (std::is_same_v<T, std::string>) {
      return {ValueKind::string, 0, t};
    } else if constexpr (std::is_same_v<T, bool>) {
      return {ValueKind::boolean, t, {}};
    } else if constexpr (std::is_enum_v<T>) {
      if constexpr (DescribedEnum<T>) {
        const std::string_view name = enum_name(enum_names<T>, static_cast<std::uint64_t>(t));
        if (!name.empty()) return {ValueKind::string, 0, name};
      }
      const auto number = static_cast<std::underlying_type_t<T>>(t);
      return ValueTable<std::underlying_type_t<T>>::plain(&number);
    } else if constexpr (std::is_integral_v<T>) {
      // As in Value, u64 is used only above the range of i64.
      const bool large = std::is_unsigned_v<T> && static_cast<std::uint64_t>(t) > static_cast<std::uint64_t>(INT64_MAX);
      return {large ? ValueKind::u64 : ValueKind::i64, static_cast<std::uint64_t>(t), {}};
    } else {
      return {ValueKind::f64, std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float_of<T>>(t))), {}};
    }
  }
  static void to(const void* p, Value& out) {
    const T& t = *static_cast<const T*>(p);
    if constexpr (HasValueTraits<T>) {
      assign_value(value_traits<T>::to_value(t), out);
    } else {
      assign_value(t, out);
    }
  }
  static std::string_view from(void* p, const Value& in) {
    T& t = *static_cast<T*>(p);
    if constexpr (HasValueTraits<T>) {
      return value_traits<T>::from_value(t, in);
    } else if constexpr (std::is_same_v<T, Value>) {
      assign_value(in, t);
      return {};
    } else if constexpr (std::is_same_v<T, bool>) {
      return from_value(in, t) ? "" : "a bool";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return from_value(in, t) ? "" : "a string";
    } else if constexpr (std::is_enum_v<T>) {
      if constexpr (DescribedEnum<T>) {
        // Also accepts a number: the enum was not described when the file was written, or the value has no name.
        if (is_text(in)) {
          std::uint64_t bits = 0;
          if (!from_value(in, enum_names<T>, bits)) return EnumText<T>::view;
          t = static_cast<T>(bits);
          return {};
        }
      }
      std::underlying_type_t<T> number{};
      const std::string_view expected = ValueTable<std::underlying_type_t<T>>::from(&number, in);
      if (expected.empty()) t = static_cast<T>(number);
      return expected;
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      std::int64_t wide = 0;
      if (!from_value(in, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), wide)) return integer_text();
      t = static_cast<T>(wide);
      return {};
    } else if constexpr (std::is_integral_v<T>) {
      std::uint64_t wide = 0;
      if (!from_value(in, std::numeric_limits<T>::max(), wide)) return integer_text();
      t = static_cast<T>(wide);
      return {};
    } else {
      double wide = 0;
      constexpr double highest = sizeof(T) == 8               ? 1.7976931348623157e308
                                 : std::is_same_v<T, float16> ? 65504.0
                                                              : 3.4028234663852886e38;
      if (!from_value(in, highest, wide)) return "a number in range";
      t = static_cast<T>(static_cast<float_of<T>>(wide));
      return {};
    }
  }
  static std::string_view check(const Value& in) {
    T scratch{};
    return from(&scratch, in);
  }
  static constexpr ValueOps make() {
    ValueOps ops;
    if constexpr (is_plain) ops.plain = plain;
    if constexpr (std::is_same_v<T, std::string>) {
      ops.dtype = DType::string;
    } else if constexpr (std::is_enum_v<T>) {
      ops.dtype = dtype_of_v<std::underlying_type_t<T>>;
    } else if constexpr (is_plain) {
      ops.dtype = dtype_of_v<T>;
    }
    if constexpr (STELE_HEAP != 0) {
      if constexpr (!is_plain) ops.to_value = to;
      ops.from_value = from;
      if constexpr (std::is_default_constructible_v<T>) ops.check = check;
    }
    return ops;
  }
  static constexpr ValueOps value = make();

 private:
  template <class F>
  using float_of = std::conditional_t<std::is_same_v<F, double>, double, float>;
  static constexpr std::string_view integer_text() {
    constexpr std::string_view texts[2][4] = {
        {"an unsigned integer of 8 bits", "an unsigned integer of 16 bits", "an unsigned integer of 32 bits",
         "an unsigned integer of 64 bits"},
        {"an integer of 8 bits", "an integer of 16 bits", "an integer of 32 bits", "an integer of 64 bits"}};
    return texts[std::is_signed_v<T>][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
  }
};

}  // namespace stele::inline v0::detail
