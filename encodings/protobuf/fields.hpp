// Reads the fields of messages in a source, forward, without reading the contents of long fields. Computes the lengths
// of fields for writers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/cursor.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::protobuf {

/// The fields of one message. A message inside a field is another Fields with the same cursor.
class Fields {
 public:
  /// The message extends from the cursor's position to `end`, an offset in the source.
  Fields(Cursor& in, std::uint64_t end) noexcept : in_(in), end_(end), next_(in.position()) {}

  /// Advances to the next field from any position in the current one. Returns false at the end of the message. Errors:
  /// malformed, io.
  Result<bool> next();
  std::uint32_t field() const noexcept { return field_; }
  bool is_number() const noexcept { return type_ == 0; }
  bool has_length() const noexcept { return type_ == 2; }
  /// Returns the varint of this field, or 0 if the field is not a varint.
  std::uint64_t number() const noexcept { return number_; }
  /// Offsets in the source of the field's tag, of its content and of its end.
  std::uint64_t tag() const noexcept { return tag_; }
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t end() const noexcept { return next_; }
  std::uint64_t size() const noexcept { return next_ - begin_; }
  /// Returns the message in this field; the cursor must be at the field's beginning.
  Fields message() noexcept { return Fields(in_, next_); }
  /// Reads the next packed varint of this field; nullopt at the end. Errors: malformed, io.
  Result<std::optional<std::uint64_t>> element();
  /// Appends the field's varint, or its packed varints. Errors: malformed, io.
  Status integers(std::vector<std::int64_t>& out);
  /// Appends the field's float, or its packed floats. Errors: malformed, io.
  Status floats(std::vector<float>& out);
  /// Reads the bytes of this field. Errors: limit (more than 64 KiB), malformed (the field has no length).
  Status text(std::string& out);

 private:
  Error bad(const char* message) const;
  Result<std::uint64_t> varint();

  Cursor& in_;
  std::uint64_t end_;
  std::uint64_t next_;  // offset of the next field
  std::uint64_t tag_ = 0, begin_ = 0, number_ = 0;
  std::uint32_t field_ = 0;
  unsigned type_ = 0;
};

/// Calls `take(fields)` for each field of a message.
template <class Take>
Status each(Fields fields, Take take) {
  for (;;) {
    STELE_TRY_ASSIGN(const bool more, fields.next());
    if (!more) return {};
    STELE_TRY(take(fields));
  }
}

/// Returns the number of bytes of a varint.
constexpr std::uint64_t varint_bytes(std::uint64_t value) noexcept {
  std::uint64_t n = 1;
  for (; value >= 0x80; value >>= 7) ++n;
  return n;
}
/// Returns the size in bytes of a length-delimited field: tag, length and content.
constexpr std::uint64_t field_bytes(std::uint32_t field, std::uint64_t size) noexcept {
  return varint_bytes(std::uint64_t{field} << 3) + varint_bytes(size) + size;
}

}  // namespace stele::inline v0::detail::protobuf
