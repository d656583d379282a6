// Values of any type with a cereal function: `config` listed in STELE_MODULE is saved as a Value. One bounded pair of
// archives, type <-> Value; formats encode Values and never see the type. cereal's own archives are not used: they
// allocate what a file claims and overflow the stack (docs/dependencies.md). Needs exceptions and RTTI, as cereal does.
//
// What becomes what: named values (cereal::make_nvp, CEREAL_NVP) and unnamed ones are the entries of a map ("value0",
// …); a container that says its size is a list; numbers, bools and strings are themselves; raw bytes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>

#include "stele/detail/reflect.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {

namespace detail {

/// Deepest nesting of a value, both ways; the bound of every format that holds values.
inline constexpr int max_archive_depth = 60;

/// Thrown out of cereal's code and caught at the border of the library.
struct ArchiveError : cereal::Exception {
  using cereal::Exception::Exception;
};

template <class T>
concept ArchiveNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, long double>;

}  // namespace detail

/// type -> Value
class ValueWriter : public cereal::OutputArchive<ValueWriter, cereal::AllowEmptyClassElision> {
 public:
  ValueWriter() : OutputArchive(this) { open_.push_back({}); }

  /// The value of the one object that was archived.
  Value take() {
    Value whole = open_.front().close();
    Value::Map* map = whole.as_map();
    return map != nullptr && map->size() == 1 ? std::move(map->front().second) : Value();
  }
  void name(const char* text) { open_.back().next = text != nullptr ? text : ""; }
  void begin() {
    if (open_.size() > static_cast<std::size_t>(detail::max_archive_depth)) {
      throw detail::ArchiveError("a value nested deeper than 60 levels");
    }
    open_.push_back({});
  }
  void end() {
    Value inner = open_.back().close();
    open_.pop_back();
    put(std::move(inner));
  }
  void list() { open_.back().is_list = true; }
  void put(Value value) { open_.back().put(std::move(value)); }

 private:
  struct Level {
    bool is_list = false;
    std::string next{};
    Value::Map entries{};
    void put(Value value) {
      std::string key = next.empty() ? "value" + std::to_string(entries.size()) : std::move(next);
      next.clear();
      entries.emplace_back(std::move(key), std::move(value));
    }
    Value close() {
      if (!is_list) return Value(std::move(entries));
      Value::List items;
      items.reserve(entries.size());
      for (auto& [key, value] : entries) items.push_back(std::move(value));
      return Value(std::move(items));
    }
  };
  std::vector<Level> open_;
};

/// Value -> type. Sizes that a type asks for are those of the Value, so nothing is allocated that is not there.
class ValueReader : public cereal::InputArchive<ValueReader, cereal::AllowEmptyClassElision> {
 public:
  explicit ValueReader(const Value& value) : InputArchive(this), root_{{"", value}} {
    open_.push_back({&root_, nullptr, 0, {}});
  }

  void name(const char* text) { open_.back().wanted = text != nullptr ? text : ""; }
  void begin() {
    if (open_.size() > static_cast<std::size_t>(detail::max_archive_depth)) {
      throw detail::ArchiveError("a value nested deeper than 60 levels");
    }
    const Value& v = get();
    if (v.as_map() == nullptr && v.as_list() == nullptr) throw detail::ArchiveError("a map or a list");
    open_.push_back({v.as_map(), v.as_list(), 0, {}});
  }
  void end() {
    const Level& level = open_.back();
    const std::size_t there = level.list != nullptr ? level.list->size() : level.map->size();
    // What the type did not ask for would be lost unseen.
    if (level.used < there) throw detail::ArchiveError("no further entries");
    open_.pop_back();
  }
  std::size_t size() const {
    const Level& level = open_.back();
    if (level.list == nullptr) throw detail::ArchiveError("a list");
    return level.list->size();
  }
  const Value& get() {
    Level& level = open_.back();
    const std::string wanted = std::exchange(level.wanted, {});
    const std::size_t i = level.used++;
    if (level.list != nullptr) {
      if (i >= level.list->size()) throw detail::ArchiveError("more elements");
      return (*level.list)[i];
    }
    if (wanted.empty()) {
      if (i >= level.map->size()) throw detail::ArchiveError("more entries");
      return (*level.map)[i].second;
    }
    if (i < level.map->size() && (*level.map)[i].first == wanted) return (*level.map)[i].second;
    for (const auto& [key, value] : *level.map) {
      if (key == wanted) return value;
    }
    throw detail::ArchiveError("an entry \"" + wanted + "\"");
  }
  template <class T>
  void number(T& out) {
    const Value& v = get();
    if constexpr (std::is_same_v<T, bool>) {
      if (!detail::from_value(v, out)) throw detail::ArchiveError("a bool");
    } else if constexpr (std::is_floating_point_v<T>) {
      double wide = 0;
      if (!detail::from_value(v, double{std::numeric_limits<T>::max()}, wide)) throw detail::ArchiveError("a number");
      out = static_cast<T>(wide);
    } else if constexpr (std::is_signed_v<T>) {
      std::int64_t wide = 0;
      if (!detail::from_value(v, std::int64_t{std::numeric_limits<T>::min()},
                              std::int64_t{std::numeric_limits<T>::max()}, wide)) {
        throw detail::ArchiveError("an integer of the field's range");
      }
      out = static_cast<T>(wide);
    } else {
      std::uint64_t wide = 0;
      if (!detail::from_value(v, std::uint64_t{std::numeric_limits<T>::max()}, wide)) {
        throw detail::ArchiveError("an integer of the field's range");
      }
      out = static_cast<T>(wide);
    }
  }

 private:
  struct Level {
    const Value::Map* map;
    const Value::List* list;
    std::size_t used;
    std::string wanted;
  };
  Value::Map root_;
  std::vector<Level> open_;
};

// What cereal calls for each kind of thing (its documented customisation points).
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
  if (!detail::from_value(archive.get(), text)) throw detail::ArchiveError("a string");
}
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const cereal::NameValuePair<T>& pair) {
  archive.name(pair.name);
  archive(pair.value);
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, cereal::NameValuePair<T>& pair) {
  archive.name(pair.name);
  archive(pair.value);
}
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueWriter& archive, const cereal::SizeTag<T>&) {
  archive.list();
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueReader& archive, cereal::SizeTag<T>& tag) {
  tag.size = static_cast<std::decay_t<T>>(archive.size());
}

// Classes and containers open a level; what is a Value by itself does not.
template <class T>
inline constexpr bool archive_leaf =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_enum_v<T> || std::is_null_pointer_v<T>;
template <class T>
inline constexpr bool archive_leaf<cereal::NameValuePair<T>> = true;
template <class T>
inline constexpr bool archive_leaf<cereal::SizeTag<T>> = true;

template <class T>
requires(!archive_leaf<T>) void prologue(ValueWriter& archive, const T&) { archive.begin(); }
template <class T>
requires(!archive_leaf<T>) void epilogue(ValueWriter& archive, const T&) { archive.end(); }
template <class T>
requires(!archive_leaf<T>) void prologue(ValueReader& archive, const T&) { archive.begin(); }
template <class T>
requires(!archive_leaf<T>) void epilogue(ValueReader& archive, const T&) { archive.end(); }
template <class T>
requires archive_leaf<T>
void prologue(ValueWriter&, const T&) {}
template <class T>
requires archive_leaf<T>
void epilogue(ValueWriter&, const T&) {}
template <class T>
requires archive_leaf<T>
void prologue(ValueReader&, const T&) {}
template <class T>
requires archive_leaf<T>
void epilogue(ValueReader&, const T&) {}

/// Every type that cereal can write and read, and that is no tensor, container, module or plain aggregate.
template <class T>
requires(cereal::traits::is_output_serializable<T, ValueWriter>::value&&
             cereal::traits::is_input_serializable<T, ValueReader>::value) struct value_traits<T> {
  static constexpr bool by_cereal = true;
  static Value to_value(const T& object) {
    ValueWriter archive;
    archive(object);
    return archive.take();
  }
  /// What was expected, where the value does not fit.
  static std::string_view from_value(T& object, const Value& value) {
    try {
      ValueReader archive(value);
      archive(object);
      return {};
    } catch (const cereal::Exception& e) {
      // The text must outlive the exception; the loader copies it at once.
      thread_local std::string expected;
      expected = e.what();
      return expected;
    }
  }
};

}  // namespace v0
}  // namespace stele

CEREAL_REGISTER_ARCHIVE(stele::ValueWriter)
CEREAL_REGISTER_ARCHIVE(stele::ValueReader)
CEREAL_SETUP_ARCHIVE_TRAITS(stele::ValueReader, stele::ValueWriter)
