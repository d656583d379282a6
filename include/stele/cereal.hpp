// Values of any type with a cereal function: `config` listed in STELE_MODULE is saved as a Value. One bounded pair of
// archives converts between the type and the Value; formats encode Values and never depend on the type. stele does not
// use cereal's own archives, because they allocate the size that a file declares and overflow the stack
// (docs/dependencies.md). Like cereal, this header needs exceptions and RTTI.
//
// Mapping: named values (cereal::make_nvp, CEREAL_NVP) and unnamed values are the entries of a map ("value0", …). An
// array, or a container that passes its size, is a list. Numbers, bools, strings and the result of save_minimal are
// plain Values. An enum with a Boost.Describe description is stored as its name, and cereal::binary_data as bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>

#include "stele/detail/reflect.hpp"
#include "stele/detail/value_archive.hpp"
#include "stele/detail/value_table.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

// The functions that cereal calls for each kind of type (its documented customisation points).
template <detail::ArchiveNumber T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const T& number) {
  Value v;
  if constexpr (std::is_same_v<T, bool>) {
    v = Value(number);
  } else if constexpr (std::is_floating_point_v<T>) {
    v = Value(static_cast<double>(number));
  } else {
    v = Value(static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(number));
  }
  archive.put(std::move(v));
}
template <detail::ArchiveNumber T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, T& number) {
  archive.number(number);
}
inline void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const std::string& text) { archive.put(Value(text)); }
inline void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, std::string& text) {
  if (!detail::from_value(archive.get(), text)) archive.fail("a string");
}
template <detail::DescribedEnum E>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const E& e) {
  const std::string_view name = detail::enum_name(detail::enum_names<E>, static_cast<std::uint64_t>(e));
  if (name.empty()) {
    archive(static_cast<std::underlying_type_t<E>>(e));
  } else {
    archive.put(Value(name));
  }
}
template <detail::DescribedEnum E>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, E& e) {
  const std::string_view expected = detail::ValueTable<E>::from(&e, archive.get());
  if (!expected.empty()) archive.fail(expected);
}
template <detail::ArchiveBytes T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const cereal::BinaryData<T>& bytes) {
  const auto* at = static_cast<const std::byte*>(bytes.data);
  archive.put(Value(Value::Bytes(at, at + bytes.size)));
}
template <detail::ArchiveBytes T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, cereal::BinaryData<T>& bytes) {
  const Value::Bytes* read = archive.get().as_bytes();
  if (read == nullptr || read->size() != bytes.size) archive.fail(std::to_string(bytes.size) + " bytes");
  if (!read->empty()) std::memcpy(bytes.data, read->data(), read->size());
}
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const cereal::NameValuePair<T>& pair) {
  archive.name(pair.name);
  archive(pair.value);
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, cereal::NameValuePair<T>& pair) {
  archive.name(pair.name);
  if constexpr (std::is_same_v<std::decay_t<T>, std::uint32_t>) {
    if (archive.is_unversioned()) {
      pair.value = 0;
      return;
    }
  }
  archive(pair.value);
}
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const cereal::SizeTag<T>& tag) {
  archive.size(tag.size);
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, cereal::SizeTag<T>& tag) {
  tag.size = static_cast<std::decay_t<T>>(archive.size());
}

namespace detail {
/// Loads the elements one by one. cereal's own functions create all elements first, and an element may be large
/// although the file has only one byte for it.
template <class C>
void load_elements(ValueReader& archive, C& elements) {
  const std::uint64_t n = archive.size();
  if (elements.size() > n) elements.resize(static_cast<std::size_t>(n));
  for (auto& element : elements) archive(element);
  while (elements.size() < n) archive(elements.emplace_back());
}
}  // namespace detail
template <class T, class A>
requires(!std::is_same_v<T, bool>) void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, std::vector<T, A>& elements) {
  detail::load_elements(archive, elements);
}
template <class T, class A>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, std::deque<T, A>& elements) {
  detail::load_elements(archive, elements);
}
template <class T, class A>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, std::list<T, A>& elements) {
  detail::load_elements(archive, elements);
}

namespace detail {

template <class T>
inline constexpr bool is_archive_wrapper = false;
template <class T>
inline constexpr bool is_archive_wrapper<cereal::NameValuePair<T>> = true;
template <class T>
inline constexpr bool is_archive_wrapper<cereal::SizeTag<T>> = true;
template <class T>
inline constexpr bool is_archive_wrapper<cereal::BinaryData<T>> = true;
template <class T>
inline constexpr bool is_deferred = false;
template <class T>
inline constexpr bool is_deferred<cereal::DeferredData<T>> = true;

/// Returns true for classes and containers, which open a level; types that are a Value themselves do not. (A class
/// version turns the result of save_minimal into an entry of a level.)
template <class T>
consteval bool opens_level() {
  static_assert(!is_deferred<T>, "stele: cereal::defer cannot be part of a value: archive the data in its place");
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_enum_v<T> ||
                is_archive_wrapper<T>) {
    return false;
  } else {
    return !cereal::traits::has_minimal_output_serialization<T, ValueWriter>::value ||
           cereal::traits::has_member_versioned_save_minimal<T, ValueWriter>::value ||
           cereal::traits::has_non_member_versioned_save_minimal<T, ValueWriter>::value;
  }
}

}  // namespace detail

template <class T>
void prologue(ValueWriter& archive, const T&) {
  if constexpr (detail::opens_level<T>()) archive.begin({typeid(T), detail::archive_extent<T>});
}
template <class T>
void epilogue(ValueWriter& archive, const T&) {
  if constexpr (detail::opens_level<T>()) archive.end();
}
template <class T>
void prologue(ValueReader& archive, const T&) {
  if constexpr (detail::opens_level<T>()) archive.begin({typeid(T), detail::archive_extent<T>});
}
template <class T>
void epilogue(ValueReader& archive, const T& object) {
  if constexpr (detail::opens_level<T>()) {
    if constexpr (requires {
                    typename T::key_type;
                    object.size();
                  }) {
      archive.check_size(object.size());
    }
    archive.end();
  }
}

namespace detail {

/// Reads an object; returns the expected type if the value does not fit. Returns all other exceptions of cereal or of
/// the user's function in the same form, except std::bad_alloc.
inline std::string_view read_archive(const Value& value, void* object, void (*load)(ValueReader&, void*)) {
  // The text must outlive the exception; the loader copies it immediately. Not a std::string, because MinGW's g++
  // destroys a thread's objects too late (gcc.gnu.org/PR80816).
  thread_local std::array<char, 1024> expected;
  const auto said = [](std::string_view before, std::string_view what, std::string_view after) -> std::string_view {
    std::size_t size = 0;
    for (const std::string_view part : {before, what, after}) {
      size += part.copy(expected.data() + size, std::min(part.size(), expected.size() - size));
    }
    return {expected.data(), size};
  };
  try {
    ValueReader archive(value);
    load(archive, object);
    return {};
  } catch (const ArchiveError& e) {
    return said(e.what(), "", "");
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return said("a value that its cereal function accepts (it threw: ", e.what(), ")");
  } catch (...) {
    return "a value that its cereal function accepts (it threw)";
  }
}

}  // namespace detail

/// All types that cereal can write and read, except tensors, containers, modules and plain aggregates.
template <class T>
requires(!detail::is_plain_value<T> && cereal::traits::is_output_serializable<T, ValueWriter>::value &&
         cereal::traits::is_input_serializable<T, ValueReader>::value) struct value_traits<T> {
  static constexpr bool by_cereal = true;
  static Value to_value(const T& object) {
    ValueWriter archive;
    archive(object);
    return archive.take();
  }
  /// Returns the expected type if the value does not fit, else an empty string.
  static std::string_view from_value(T& object, const Value& value) {
    return detail::read_archive(value, &object, [](ValueReader& archive, void* p) { archive(*static_cast<T*>(p)); });
  }
};

}  // namespace stele::inline v0

#ifndef STELE_API_PAGES  // doxygen cannot parse a template of another namespace
// Takes precedence over cereal's own function, which accepts every enum.
template <stele::detail::DescribedEnum E>
struct cereal::specialize<stele::ValueWriter, E, cereal::specialization::non_member_load_save> : std::true_type {};
template <stele::detail::DescribedEnum E>
struct cereal::specialize<stele::ValueReader, E, cereal::specialization::non_member_load_save> : std::true_type {};
#endif

CEREAL_REGISTER_ARCHIVE(stele::ValueWriter)
CEREAL_REGISTER_ARCHIVE(stele::ValueReader)
CEREAL_SETUP_ARCHIVE_TRAITS(stele::ValueReader, stele::ValueWriter)
