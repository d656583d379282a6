// The pair of cereal archives that converts between a type and a Value (stele/cereal.hpp has the mapping).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <cereal/cereal.hpp>

#include "stele/detail/value_table.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

namespace detail {

/// Maximum nesting of a value, on save and load; the limit of all formats that store values.
inline constexpr int max_archive_depth = 60;

/// Contains the expected type. Thrown from cereal's code and caught before it leaves the library.
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
  std::size_t extent = npos;  // extent of an array
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
};
template <class T>
inline constexpr std::size_t archive_extent = ArchiveType::npos;
template <class T, std::size_t N>
inline constexpr std::size_t archive_extent<T[N]> = N;
template <class T, std::size_t N>
inline constexpr std::size_t archive_extent<std::array<T, N>> = N;

/// The entry with the size of a container whose elements do not determine it.
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
      fail(Errc::limit, "the value nests more than 60 levels deep");
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
    if (level.sized) fail(Errc::unsupported, "the cereal function passes two size tags in one object");
    level.sized = true;
    level.size = n;
    level.next.clear();
  }
  void put(Value value) { open_.back().put(std::move(value)); }

  /// Replaces cereal's function, which treats objects of different types at the same address as one object.
  std::uint32_t registerSharedPointer(const std::shared_ptr<const void>& pointer) {
    if (pointer == nullptr) return 0;
    const auto id = static_cast<std::uint32_t>(shared_.size() + 1);
    const auto [found, fresh] = shared_.try_emplace({pointer.get(), open_.back().type}, Shared{pointer, id, true});
    if (fresh) {
      open_.back().shared = &found->second;
      return id | cereal::detail::msb_32bit;
    }
    if (found->second.open) fail(Errc::cycle, "the shared object contains itself");
    return found->second.id;
  }

 private:
  struct Shared {
    std::shared_ptr<const void> object;  // kept alive, so that no other object gets its address
    std::uint32_t id;
    bool open;
  };
  struct Level {
    std::type_index type;
    Shared* shared = nullptr;  // the object being written
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
      if (twice != keys.end())
        fail(Errc::duplicate, "the cereal function passes two entries named " + std::string(*twice));
      return Value(std::move(entries));
    }
  };
  [[noreturn]] static void fail(Errc code, std::string_view message) { throw Exception(Error(code, message)); }

  std::vector<Level> open_;
  std::map<std::pair<const void*, std::type_index>, Shared> shared_;
};

/// Converts a Value to a type; the Value must outlive it. Returns the sizes of the Value to types that request a size,
/// so that no memory is allocated for elements that do not exist.
class ValueReader : public cereal::InputArchive<ValueReader, cereal::AllowEmptyClassElision> {
 public:
  explicit ValueReader(const Value& value) : InputArchive(this), root_(value) { open_.push_back({typeid(void)}); }

  void name(const char* text) { open_.back().wanted = text != nullptr ? text : ""; }
  void begin(const detail::ArchiveType& type) {
    if (open_.size() > static_cast<std::size_t>(detail::max_archive_depth)) {
      fail("at most " + std::to_string(detail::max_archive_depth) + " levels");
    }
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
    // Entries that the type does not read would otherwise be lost without an error.
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
    std::uint64_t max_elements = 0;
    for (const auto& [key, value] : *level.map) {
      max_elements += value.as_bytes() != nullptr ? value.as_bytes()->size() : 1;
      if (key != detail::archive_size_key) continue;
      level.sized = detail::from_value(value, UINT64_MAX, n);
    }
    if (!level.sized || n > max_elements) fail("a list");
    return n;
  }
  /// Called after a container, to detect duplicate keys.
  void check_size(std::size_t size) {
    if (open_.back().list != nullptr && open_.back().list->size() != size) fail("distinct keys");
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
  /// Returns true if the requested name denotes a class version, and the class had no version when it was saved.
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
  /// Throws the expected type and its position in the value.
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
    if (!fresh) fail("a new shared object's own id");
    open_.back().shared = &found->second;
  }
  std::shared_ptr<void> getSharedPointer(std::uint32_t id) const {
    if (id == 0) return nullptr;
    const auto found = shared_.find(id);
    if (found == shared_.end() || found->second.open || found->second.type != open_.back().type) {
      fail("the id of an earlier shared object of this type");
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
    Shared* shared = nullptr;  // the object being read
    std::string wanted{};
    std::string at{};  // name of the last entry read
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

}  // namespace stele::inline v0
