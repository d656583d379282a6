// CBOR (RFC 8949), as much of it as Burnpack's descriptions have: a bounded pull reader and a writer.
//
// Read: integers of any width, floats of 16, 32 and 64 bits, texts, bytes, lists, maps, bool, null. Indefinite lengths,
// tags and other simple values are refused; Burn writes none.
// Written: definite lengths and the shortest heads; floats in the shortest width that gives the same bits back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Deepest nesting of lists and maps below a value.
inline constexpr unsigned cbor_depth = 60;

enum class CborKind : std::uint8_t { none, natural, negative, bytes, text, list, map, boolean, null, real };

/// Functions return false on an error, and the first error stays: calls chain with &&. Lengths are compared with what
/// remains before they are used. The bytes must outlive the reader and all views it gave. Errors: truncated, malformed
/// (another kind, text that is not UTF-8), unsupported, out_of_range, limit (depth, memory), duplicate.
class CborReader {
 public:
  /// `base`: where the bytes begin in the file; added to the offsets of errors.
  CborReader(std::span<const std::byte> bytes, std::uint64_t base) noexcept : bytes_(bytes), base_(base) {}

  /// The kind of the value that is due.
  CborKind peek() const noexcept;
  /// So many keys and values follow, in turn.
  bool begin_map(std::uint64_t& entries) { return one(CborKind::map, "a map", entries); }
  bool begin_list(std::uint64_t& elements) { return one(CborKind::list, "a list", elements); }
  bool read_text(std::string_view& out);
  bool read_u64(std::uint64_t& out) { return one(CborKind::natural, "a natural number", out); }
  bool read_i64(std::int64_t& out);
  bool read_f64(double& out);
  bool read_bool(bool& out);
  bool read_null();
  /// A value of any kind. What it takes on the heap is subtracted from `memory`.
  bool read(Value& out, std::uint64_t& memory, unsigned depth = cbor_depth);
  /// Steps over a value of any kind.
  bool skip(unsigned depth = cbor_depth);
  /// Whether all bytes are used up.
  bool finish();

  bool ok() const noexcept { return !error_; }
  /// Makes a caller's finding about the last value the error, unless there is one already. Returns false.
  bool fail(Errc code, const char* expected);
  bool fail(Error error);
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  struct Head {
    CborKind kind = CborKind::none;
    std::uint64_t number = 0;  // natural, -1 - negative, length, bool, the bits of a double
  };
  bool head(Head& out);
  bool one(CborKind kind, const char* expected, std::uint64_t& number);
  bool string(std::uint64_t size, bool text, std::string_view& out);
  std::uint64_t remaining() const noexcept { return bytes_.size() - at_; }

  std::span<const std::byte> bytes_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::size_t token_ = 0;  // where the last value began
  std::optional<Error> error_{};
};

/// The bits of a double from those of a float of 2 or 4 bytes: as integers, so that a signalling NaN stays one.
std::uint64_t widened_float(std::uint64_t bits, unsigned bytes);
/// The way back, where it gives the same bits. Nothing for NaNs that are not quiet: Burn's writer does not narrow them.
std::optional<std::uint64_t> narrowed_float(std::uint64_t bits, unsigned bytes);

/// Appends to a string. As many values must follow as begin_map and begin_list say.
class CborWriter {
 public:
  explicit CborWriter(std::string& out) noexcept : out_(out) {}
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

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
