// Kinds and names of a record's nodes. Freestanding, because the heapless writer uses this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0 {

enum class NodeKind : std::uint8_t {
  tensor = 0,
  value = 1,
  module = 2,
  list = 3,
  array = 4,
  tuple = 5,
  map = 6,
  variant = 7,  // one child, with the name of the alternative
  none = 8,     // an absent optional or null pointer
  alias = 9,    // refers to node `index`
};
inline constexpr std::uint8_t node_kind_count = 10;

inline constexpr std::uint32_t no_index = 0xffffffffU;

/// A path segment without escapes: a string, or the number of an element of a list, array or tuple.
struct NodeName {
  NodeName(std::string_view text) : data(text.data() ? text.data() : ""), size(text.size()) {}  // NOLINT
  NodeName(const char* text) : NodeName(std::string_view(text)) {}                              // NOLINT
  static NodeName element(std::size_t number) { return NodeName(nullptr, number); }
  const char* data;  // null: `size` is the element's number
  std::size_t size;

 private:
  NodeName(const char* d, std::size_t n) : data(d), size(n) {}
};

/// The kind of a Value. Files store these numbers.
enum class ValueKind : std::uint8_t { null, boolean, i64, u64, f64, string, bytes, list, map };

}  // namespace stele::inline v0
