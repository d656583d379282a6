// Protobuf's wire format (https://protobuf.dev/programming-guides/encoding/). Reads messages from memory field by
// field, and writes fields. Builds no message objects, so reading a gigabyte needs memory only for names. Rejects
// groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::protobuf {

/// Reads the fields of a message in order.
class Reader {
 public:
  /// `base`: the offset of the first byte in the file, for errors.
  explicit Reader(std::span<const std::byte> bytes, std::uint64_t base = 0) noexcept : bytes_(bytes), base_(base) {}

  /// Reads the next field. Returns false at the end of the message, or after an error.
  bool next() noexcept;
  /// Returns true if the current field has this number.
  bool is(std::uint32_t field) const noexcept { return field_ == field; }
  /// Returns true if the current field is length-delimited: bytes, a string, a message or packed numbers.
  bool has_length() const noexcept { return type_ == 2; }

  /// Returns the current field's varint, bytes, string or message. A field of a different wire type is an error.
  std::uint64_t number() noexcept;
  std::span<const std::byte> bytes() noexcept;
  std::string_view text() noexcept;
  Reader message() noexcept;
  /// Returns the current 4-byte field as a number.
  std::uint32_t fixed32() noexcept;

  /// Reads the next packed varint of a span from message(). Returns false at the end, or after an error.
  bool varint(std::uint64_t& out) noexcept { return fault_ == nullptr && at_ != bytes_.size() && take_varint(out); }

  /// Returns the first error. Errors: malformed.
  Status status() const;

 private:
  bool fail(const char* why) noexcept;
  bool take(std::uint64_t size) noexcept;
  bool take_varint(std::uint64_t& out) noexcept;

  std::span<const std::byte> bytes_;
  std::span<const std::byte> taken_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
  std::uint32_t field_ = 0;
  unsigned type_ = 0;
  const char* fault_ = nullptr;  // the error's message
};

/// Appends a field with a varint.
void put_number(std::vector<std::byte>& message, std::uint32_t field, std::uint64_t number);
/// Appends a field with a float.
void put_float(std::vector<std::byte>& message, std::uint32_t field, float number);
/// Appends the tag and length of a field whose `size` bytes follow.
void put_length(std::vector<std::byte>& message, std::uint32_t field, std::uint64_t size);
/// Appends a field with a string.
void put_text(std::vector<std::byte>& message, std::uint32_t field, std::string_view text);

}  // namespace stele::inline v0::detail::protobuf
