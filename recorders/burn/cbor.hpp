// The part of CBOR (RFC 8949) that Burnpack's descriptions use: a bounded pull reader and a writer.
//
// Reads integers of any width, floats of 16, 32 and 64 bits, strings, bytes, lists, maps, bool and null. Rejects
// indefinite lengths, tags and other simple values, which Burn does not write.
// Writes definite lengths, the shortest heads, and floats in the shortest width that keeps the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::cbor {

/// Maximum nesting of lists and maps below a value.
inline constexpr unsigned max_depth = 60;

enum class Kind : std::uint8_t { none, natural, negative, bytes, text, list, map, boolean, null, real };

/// Reads CBOR. Functions return false on an error, and the reader keeps the first error, so calls chain with &&.
/// Lengths are checked against the remaining bytes before they are used. The bytes must outlive the reader and its
/// views. Errors: truncated, malformed (another kind, text that is not UTF-8), unsupported, out_of_range, limit (depth,
/// memory), duplicate.
class Reader {
 public:
  /// `base`: offset of the bytes in the file; added to the offsets of errors.
  Reader(std::span<const std::byte> bytes, std::uint64_t base) noexcept : bytes_(bytes), base_(base) {}

  /// Returns the kind of the next value.
  Kind peek() const noexcept;
  /// Begins a map; `entries` keys and values follow, alternately.
  bool begin_map(std::uint64_t& entries) { return one(Kind::map, "a map", entries); }
  bool begin_list(std::uint64_t& elements) { return one(Kind::list, "a list", elements); }
  bool read_text(std::string_view& out);
  bool read_u64(std::uint64_t& out) { return one(Kind::natural, "an unsigned integer", out); }
  bool read_i64(std::int64_t& out);
  bool read_f64(double& out);
  bool read_bool(bool& out);
  bool read_null();
  /// Reads a value of any kind. Subtracts its heap memory from `memory`.
  bool read(Value& out, std::uint64_t& memory, unsigned depth = max_depth);
  /// Skips a value of any kind.
  bool skip(unsigned depth = max_depth);
  /// Checks that all bytes were read.
  bool finish();

  bool ok() const noexcept { return !error_; }
  /// Sets an error about the last value, unless the reader already has an error. Returns false.
  bool fail(Errc code, const char* message);
  bool fail(Error error);
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  struct Head {
    Kind kind = Kind::none;
    std::uint64_t number = 0;  // natural, -1 - negative, length, bool, or the bits of a double
  };
  bool head(Head& out);
  bool one(Kind kind, const char* expected, std::uint64_t& number);
  bool string(std::uint64_t size, bool text, std::string_view& out);
  std::uint64_t remaining() const noexcept { return bytes_.size() - at_; }

  std::span<const std::byte> bytes_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::size_t token_ = 0;  // offset of the last value
  std::optional<Error> error_{};
};

/// Converts the bits of a 2-byte or 4-byte float to the bits of a double. Uses integer operations, so that a signalling
/// NaN remains a signalling NaN.
std::uint64_t widened_float(std::uint64_t bits, unsigned bytes);
/// Converts the bits of a double to a narrower float if that preserves them. Returns nullopt for signalling NaNs,
/// because Burn's writer does not narrow them.
std::optional<std::uint64_t> narrowed_float(std::uint64_t bits, unsigned bytes);

/// Appends CBOR to a string. The caller must write as many values as it passes to begin_map and begin_list.
class Writer {
 public:
  explicit Writer(std::string& out) noexcept : out_(out) {}
  void begin_map(std::uint64_t entries) { head(5, entries); }
  void begin_list(std::uint64_t elements) { head(4, elements); }
  void text(std::string_view text);
  void u64(std::uint64_t n) { head(0, n); }
  void i64(std::int64_t n);
  void f64(double x);
  void boolean(bool b) { out_ += b ? '\xf5' : '\xf4'; }
  void null() { out_ += '\xf6'; }
  void value(const Value& value);

 private:
  void head(unsigned major, std::uint64_t n);
  void number(unsigned head, std::uint64_t n, unsigned bytes);
  std::string& out_;
};

}  // namespace stele::inline v0::detail::cbor
