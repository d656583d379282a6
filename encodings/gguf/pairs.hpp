// Key-value pairs: bytes <-> Values. A Value does not show the width of a number, so the types that differ from those
// the writer would choose are kept in Properties::types.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "io/cursor.hpp"
#include "snapshot/data.hpp"
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

/// Returns the type that the writer chooses for a value: the one that llama.cpp's files have where one is usual. u32
/// for an integer, i32 in an array, f32 for a number that is exact in it. Nothing if GGUF cannot hold the value.
std::optional<PairType> usual_type(const Value& value);

/// Reads `count` pairs. `memory` has been admitted the bytes before them. Errors: malformed, duplicate, unsupported,
/// truncated, limit.
Status read_pairs(Cursor& in, std::uint64_t count, Properties& out, IndexBudget& memory);

/// Appends a pair of a value for which usual_type() returned a type. `wanted` is the type that it had in a file, or
/// empty; it applies if the value still fits it.
void write_pair(std::string& out, std::string_view key, const Value& value, std::string_view wanted);

/// Appends a string with its length.
void write_string(std::string& out, std::string_view text);

template <class T>
void write_number(std::string& out, T number) {
  char bytes[sizeof(T)];
  store_le(reinterpret_cast<std::byte*>(bytes), number);
  out.append(bytes, sizeof bytes);
}

/// Reads a string of any length, counting its memory. The budget is raised for its bytes, not for those of its length.
Result<std::string> read_string(Cursor& in, IndexBudget& memory, const char* what);

/// Returns the reason why text cannot be a tensor's name, or nullptr: not UTF-8, or with a zero byte.
const char* bad_name(std::string_view text) noexcept;
/// Returns the reason why text cannot be a key, or nullptr: as for a name, or it is empty or too long.
const char* bad_key(std::string_view text) noexcept;

}  // namespace stele::inline v0::detail::gguf
