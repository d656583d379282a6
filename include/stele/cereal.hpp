// Values of any type with a cereal function: `config` listed in STELE_MODULE is saved as a Value. One bounded pair of
// archives converts between the type and the Value; formats encode Values and never see the type. cereal's own archives
// are not used: they allocate the size that a file declares and overflow the stack (docs/dependencies.md). Needs
// exceptions and RTTI, as cereal does.
//
// Mapping: named values (cereal::make_nvp, CEREAL_NVP) and unnamed ones are the entries of a map ("value0", …). An
// array, or a container that passes its size, is a list. Numbers, bools, strings and the result of save_minimal are
// plain Values. An enum with a Boost.Describe description is its name. cereal::binary_data is bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>

#include "stele/detail/reflect.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {

namespace detail {

/// Maximum nesting of a value, on save and load; the limit of every format that stores values.
inline constexpr int max_archive_depth = 60;

/// The expected type, thrown from cereal's code and caught before it leaves the library.
struct ArchiveError : cereal::Exception {
  using cereal::Exception::Exception;
};

template <class T>
concept ArchiveNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, long double>;

/// cereal::binary_data of a pointer or an array. (For a number type, cereal only checks that the function exists.)
template <class T>
concept ArchiveBytes = std::is_pointer_v<std::remove_reference_t<T>> ||
    (std::is_lvalue_reference_v<T>&& std::is_array_v<std::remove_reference_t<T>>);

/// The facts that an archive needs about a type that opens a level.
struct ArchiveType {
  std::type_index type;
  std::size_t extent = npos;  // of an array
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
};
template <class T>
inline constexpr std::size_t archive_extent = ArchiveType::npos;
template <class T, std::size_t N>
inline constexpr std::size_t archive_extent<T[N]> = N;
template <class T, std::size_t N>
inline constexpr std::size_t archive_extent<std::array<T, N>> = N;

/// The entry with the size of a container whose elements do not imply it.
inline constexpr const char* archive_size_key = "cereal_size";
inline constexpr const char* archive_version_key = "cereal_class_version";

}  // namespace detail

/// Converts a type to a Value. Throws stele::Exception: limit, cycle, duplicate, unsupported.
class ValueWriter : public cereal::OutputArchive<ValueWriter, cereal::AllowEmptyClassElision> {
 public:
  ValueWriter() : OutputArchive(this) { open_.push_back({typeid(void)}); }

  /// Returns the value of the one object that was archived.
  Value take() {
    Value::Map& entries = open_.front().entries;
    return entries.size() == 1 ? std::move(entries.front().second) : Value();
  }
  void name(const char* text) { open_.back().next = text != nullptr ? text : ""; }
  void begin(const detail::ArchiveType& type) {
    if (open_.size() > static_cast<std::size_t>(detail::max_archive_depth)) {
      fail(Errc::limit, "a value nested deeper than 60 levels");
    }
    open_.push_back({type.type});
    if (type.extent != detail::ArchiveType::npos) size(type.extent);
  }
  void end() {
    Level& level = open_.back();
    if (level.shared != nullptr) level.shared->open = false;
    Value inner = level.close();
    open_.pop_back();
    put(std::move(inner));
  }
  void size(std::uint64_t n) {
    Level& level = open_.back();
    if (level.sized) fail(Errc::unsupported, "a cereal function that says two sizes without an object around each");
    level.sized = true;
    level.size = n;
    level.next.clear();
  }
  void put(Value value) { open_.back().put(std::move(value)); }

  /// Replaces cereal's function, which treats objects of different types at one address as one object.
  std::uint32_t registerSharedPointer(const std::shared_ptr<const void>& pointer) {
    if (pointer == nullptr) return 0;
    const auto id = static_cast<std::uint32_t>(shared_.size() + 1);
    const auto [found, fresh] = shared_.try_emplace({pointer.get(), open_.back().type}, Shared{pointer, id, true});
    if (fresh) {
      open_.back().shared = &found->second;
      return id | cereal::detail::msb_32bit;
    }
    if (found->second.open) fail(Errc::cycle, "a shared object contains itself");
    return found->second.id;
  }

 private:
  struct Shared {
    std::shared_ptr<const void> object;  // kept, so that no other object gets its address
    std::uint32_t id;
    bool open;
  };
  struct Level {
    std::type_index type;
    Shared* shared = nullptr;  // the object that is written here
    bool sized = false;
    bool named = false;
    std::uint64_t size = 0;
    std::string next{};
    Value::Map entries{};
    void put(Value value) {
      named = named || !next.empty();
      std::string key = next.empty() ? "value" + std::to_string(entries.size()) : std::exchange(next, {});
      entries.emplace_back(std::move(key), std::move(value));
    }
    Value close() {
      if (sized && !named && size == entries.size()) {
        Value::List items;
        items.reserve(entries.size());
        for (auto& [key, value] : entries) items.push_back(std::move(value));
        return Value(std::move(items));
      }
      if (sized) entries.emplace_back(detail::archive_size_key, Value(size));
      std::vector<std::string_view> keys;
      for (const auto& entry : entries) keys.push_back(entry.first);
      std::sort(keys.begin(), keys.end());
      const auto twice = std::adjacent_find(keys.begin(), keys.end());
      if (twice != keys.end()) fail(Errc::duplicate, "a cereal function that says twice " + std::string(*twice));
      return Value(std::move(entries));
    }
  };
  [[noreturn]] static void fail(Errc code, std::string message) { throw Exception(Error(code, std::move(message))); }

  std::vector<Level> open_;
  std::map<std::pair<const void*, std::type_index>, Shared> shared_;
};

/// Converts a Value to a type; the Value must outlive it. Sizes that a type requests are those of the Value, so that no
/// memory is allocated for absent elements.
class ValueReader : public cereal::InputArchive<ValueReader, cereal::AllowEmptyClassElision> {
 public:
  explicit ValueReader(const Value& value) : InputArchive(this), root_(value) { open_.push_back({typeid(void)}); }

  void name(const char* text) { open_.back().wanted = text != nullptr ? text : ""; }
  void begin(const detail::ArchiveType& type) {
    if (open_.size() > static_cast<std::size_t>(detail::max_archive_depth)) fail("60 levels at most");
    const Value& v = get();
    if (v.as_map() == nullptr && v.as_list() == nullptr) fail("a map or a list");
    if (type.extent != detail::ArchiveType::npos && (v.as_list() == nullptr || v.as_list()->size() != type.extent)) {
      fail("a list of " + std::to_string(type.extent));
    }
    open_.push_back({type.type, v.as_map(), v.as_list()});
  }
  void end() {
    Level& level = open_.back();
    level.at.clear();
    // Entries that the type did not read would be lost silently.
    if (level.used < level.entries()) fail("no further entries");
    if (level.shared != nullptr) level.shared->open = false;
    open_.pop_back();
  }
  /// Returns the number of elements of the open container.
  std::uint64_t size() {
    Level& level = open_.back();
    level.wanted.clear();
    if (level.list != nullptr) return level.list->size();
    std::uint64_t n = 0;
    std::uint64_t most = 0;
    for (const auto& [key, value] : *level.map) {
      most += value.as_bytes() != nullptr ? value.as_bytes()->size() : 1;
      if (key != detail::archive_size_key) continue;
      level.sized = detail::from_value(value, UINT64_MAX, n);
    }
    if (!level.sized || n > most) fail("a list");
    return n;
  }
  /// Called after a container, to detect duplicate keys.
  void check_size(std::size_t size) {
    if (open_.back().list != nullptr && open_.back().list->size() != size) fail("keys that differ");
  }
  const Value& get() {
    Level& level = open_.back();
    std::string wanted = std::exchange(level.wanted, {});
    level.at.clear();
    const std::size_t i = level.used++;
    if (level.list != nullptr) {
      if (!wanted.empty()) fail("a map");
      if (i >= level.list->size()) fail("more elements");
      level.at = std::to_string(i);
      return (*level.list)[i];
    }
    if (level.map == nullptr) return root_;
    if (wanted.empty()) wanted = "value" + std::to_string(i);
    const Value* found = nullptr;
    if (i < level.map->size() && (*level.map)[i].first == wanted) {
      found = &(*level.map)[i].second;
    } else {
      found = level.find(wanted);
    }
    if (found == nullptr) fail("an entry \"" + wanted + "\"");
    level.at = std::move(wanted);
    return *found;
  }
  /// Returns true if the requested name is that of a class's version, and the class had no version when it was saved.
  bool is_unversioned() {
    Level& level = open_.back();
    if (level.wanted != detail::archive_version_key) return false;
    if (level.map != nullptr && level.find(level.wanted) != nullptr) return false;
    level.wanted.clear();
    return true;
  }
  template <class T>
  void number(T& out) {
    const Value& v = get();
    if constexpr (std::is_same_v<T, bool>) {
      if (!detail::from_value(v, out)) fail("a bool");
    } else if constexpr (std::is_floating_point_v<T>) {
      double wide = 0;
      if (!detail::from_value(v, double{std::numeric_limits<T>::max()}, wide)) fail("a number in range");
      out = static_cast<T>(wide);
    } else if constexpr (std::is_signed_v<T>) {
      std::int64_t wide = 0;
      if (!detail::from_value(v, std::int64_t{std::numeric_limits<T>::min()},
                              std::int64_t{std::numeric_limits<T>::max()}, wide)) {
        fail("an integer of the field's range");
      }
      out = static_cast<T>(wide);
    } else {
      std::uint64_t wide = 0;
      if (!detail::from_value(v, std::uint64_t{std::numeric_limits<T>::max()}, wide)) {
        fail("an integer of the field's range");
      }
      out = static_cast<T>(wide);
    }
  }
  /// Throws the expected type and its place in the value.
  [[noreturn]] void fail(std::string_view expected) const {
    std::string text(expected);
    const char* separator = " at ";
    for (const Level& level : open_) {
      if (level.at.empty()) continue;
      text += separator + level.at;
      separator = ".";
    }
    throw detail::ArchiveError(text);
  }

  /// Replaces cereal's function, which returns an object of any type for a number. An object that contains itself would
  /// never be freed.
  void registerSharedPointer(std::uint32_t id, std::shared_ptr<void> pointer) {
    const auto [found, fresh] =
        shared_.try_emplace(id & ~cereal::detail::msb_32bit, Shared{std::move(pointer), open_.back().type, true});
    if (!fresh) fail("a shared object's own number");
    open_.back().shared = &found->second;
  }
  std::shared_ptr<void> getSharedPointer(std::uint32_t id) const {
    if (id == 0) return nullptr;
    const auto found = shared_.find(id);
    if (found == shared_.end() || found->second.open || found->second.type != open_.back().type) {
      fail("the number of a shared object of this type, before");
    }
    return found->second.object;
  }

 private:
  struct Shared {
    std::shared_ptr<void> object;
    std::type_index type;
    bool open;
  };
  struct Level {
    std::type_index type;
    const Value::Map* map = nullptr;
    const Value::List* list = nullptr;
    std::size_t used = 0;
    bool sized = false;
    Shared* shared = nullptr;  // the object that is read here
    std::string wanted{};
    std::string at{};  // the last entry read
    std::size_t entries() const { return list != nullptr ? list->size() : map->size() - (sized ? 1 : 0); }
    const Value* find(std::string_view key) const {
      for (const auto& entry : *map) {
        if (entry.first == key) return &entry.second;
      }
      return nullptr;
    }
  };
  const Value& root_;
  std::vector<Level> open_;
  std::map<std::uint32_t, Shared> shared_;
};

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
  const Value::Bytes* there = archive.get().as_bytes();
  if (there == nullptr || there->size() != bytes.size) archive.fail(std::to_string(bytes.size) + " bytes");
  if (!there->empty()) std::memcpy(bytes.data, there->data(), there->size());
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
/// Loads the elements one by one. cereal's own functions make all of them first, and an element may be large although
/// the file has only one byte for it.
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

/// Returns true for classes and containers, which open a level; types that are a Value by themselves do not. (A class
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

/// Reads an object; returns the expected type if the value does not fit. All other exceptions of cereal or the user's
/// function are also returned like this, except a lack of memory.
inline std::string_view read_archive(const Value& value, void* object, void (*load)(ValueReader&, void*)) {
  // The text must outlive the exception; the loader copies it at once.
  thread_local std::string expected;
  try {
    ValueReader archive(value);
    load(archive, object);
    return {};
  } catch (const ArchiveError& e) {
    expected = e.what();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    expected = std::string("a value that its cereal function takes (it threw: ") + e.what() + ")";
  } catch (...) {
    expected = "a value that its cereal function takes (it threw)";
  }
  return expected;
}

}  // namespace detail

/// Every type that cereal can write and read, except tensors, containers, modules and plain aggregates.
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

}  // namespace v0
}  // namespace stele

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
