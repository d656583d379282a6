// Converts key-value pairs between bytes and Values. A Value does not store the width of a number, so Properties::types
// keeps the types that differ from the writer's choice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "base/properties.hpp"
#include "io/cursor.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::gguf {

/// The type of a pair's value, and of its elements if it is an array.
struct PairType {
  Type type = Type::u8;
  Type element = Type::u8;
  friend bool operator==(PairType, PairType) = default;
};

/// Returns "u32", "[string]", …
std::string spelled(PairType type);

/// Returns the type that the writer chooses for a value: the type that llama.cpp's files use, if there is one.
/// Otherwise u32 for an integer, i32 for integers in an array, and f32 for a number that f32 represents exactly.
/// Returns nullopt if GGUF cannot store the value.
std::optional<PairType> usual_type(const Value& value);

/// Reads `count` pairs. The caller has already admitted the preceding bytes to `memory`. Errors: malformed, duplicate,
/// unsupported, truncated, limit.
Status read_pairs(Cursor& in, std::uint64_t count, Properties& out, IndexBudget& memory);

/// Appends a pair whose value has a usual_type(). `wanted` is its type in the original file, or empty; it applies if
/// the value still fits it.
void write_pair(std::string& out, std::string_view key, const Value& value, std::string_view wanted);

/// Appends a string with its length.
void write_string(std::string& out, std::string_view text);

template <class T>
void write_number(std::string& out, T number) {
  char bytes[sizeof(T)];
  store_le(reinterpret_cast<std::byte*>(bytes), number);
  out.append(bytes, sizeof bytes);
}

/// Reads a string of any length and counts its memory. The budget grows by the string's bytes, without its length
/// field.
Result<std::string> read_string(Cursor& in, IndexBudget& memory, const char* what);

/// Returns the reason why `text` cannot be a tensor's name (not UTF-8, or with a zero byte), or nullptr.
const char* bad_name(std::string_view text) noexcept;
/// Returns the reason why `text` cannot be a key (the reasons of bad_name(), or it is empty or too long), or nullptr.
const char* bad_key(std::string_view text) noexcept;

}  // namespace stele::inline v0::detail::gguf
