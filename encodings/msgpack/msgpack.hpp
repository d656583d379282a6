// MessagePack: a pull reader of tokens, and a writer. The first byte of a value declares its type:
//
//  1. 00-7f, e0-ff: the integer itself. c0: nil. c2, c3: false, true.
//  2. cc, cd, ce, cf: u8 to u64. d0, d1, d2, d3: i8 to i64. ca, cb: f32, f64. All big-endian, as are lengths.
//  3. a0-bf: a string of up to 31 bytes; d9, da, db: u8, u16, u32 length, string.
//  4. c4, c5, c6: u8, u16, u32 length, bytes.
//  5. 90-9f, dc, dd: a list of up to 15, u16, u32 values. 80-8f, de, df: a map with as many keys and values.
//
//  6. d4, d5, d6, d7, d8: an extension of 1, 2, 4, 8, 16 bytes; c7, c8, c9: u8, u16, u32 length. Its type in one
//     byte, then its content.
//
// The reader rejects keys that are not strings, and extensions unless the caller accepts them. Source:
// https://github.com/msgpack/msgpack/blob/master/spec.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/cursor.hpp"
#include "io/gather.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::msgpack {

/// Maximum nesting of lists and maps.
inline constexpr unsigned max_depth = 64;
/// Maximum length of a string or key in bytes.
inline constexpr std::size_t max_string_bytes = Cursor::max_taken_bytes;

struct Token {
  enum class Kind : std::uint8_t {
    nil,
    text,       // `text`; also the keys of maps
    scalar,     // `scalar`: bool, i64, u64, f64
    bytes,      // `size` bytes from offset `at` on, which the reader skips
    list,       // its values follow, then `end`
    map,        // its keys and values follow alternately, then `end`
    end,        // ends a list, a map, an entered extension or the document
    extension,  // `type`, and `size` bytes from offset `at` on, which the reader skips unless enter() follows
  };
  Kind kind = Kind::nil;
  std::string text{};
  Value scalar{};
  std::int8_t type = 0;
  std::uint64_t size = 0;
  std::uint64_t at = 0;
  std::uint64_t offset = 0;  // offset of the token in the file
};

/// Reads one value and the end of the file. Bounded: checks depth, strings and lengths before it uses them. Allocates
/// only strings. A copy continues at the same token.
class Reader {
 public:
  explicit Reader(SourcePtr source, bool extensions = false) : in_(std::move(source)), extensions_(extensions) {}
  /// Reads the next token. Errors: truncated, malformed, unsupported, limit, io.
  Status next(Token& token);
  /// Continues inside the extension that was read last, whose content is one value and an end token. Errors: limit.
  Status enter(const Token& token);
  const SourcePtr& source() const noexcept { return in_.source(); }

 private:
  Status value(Token& token, unsigned mark);
  Status extension(Token& token, std::uint64_t size);
  Status text(Token& token, std::uint64_t size);
  Status open(Token& token, Token::Kind kind, std::uint64_t entries);

  Status deeper(std::uint64_t offset);

  Cursor in_;
  bool extensions_;
  std::uint64_t skip_ = 0;  // bytes of the last extension, if enter() was not called
  unsigned depth_ = 0;
  std::array<std::uint64_t, max_depth + 1> left_{1};  // remaining values at each depth
  std::array<bool, max_depth + 1> map_{};             // true for a map, in which keys and values alternate
  std::array<std::uint64_t, max_depth + 1> end_{};    // offset of the end of an entered extension; else 0
};

/// Writes values in their shortest encodings. The caller must write as many values as it passes to begin_map and
/// begin_list. Errors: those of the sink; not_representable (a length of 4 GiB or more).
class Writer {
 public:
  /// Without `out`, writes nothing and counts the length.
  explicit Writer(Gather* out) noexcept : out_(out) {}
  Status begin_map(std::size_t entries) { return sized(entries, 0x80, 16, 0xde, 1); }
  Status begin_list(std::size_t entries) { return sized(entries, 0x90, 16, 0xdc, 1); }
  /// Writes the header of `size` bytes, and counts those bytes. The caller appends them to the Gather.
  Status begin_bytes(std::uint64_t size);
  /// Writes the header of an extension whose content has `size` bytes. The caller writes the content.
  Status begin_extension(std::int8_t type, std::uint64_t size);
  /// Errors: also not_representable (the string exceeds the reader's limit).
  Status text(std::string_view text);
  Status nil() { return byte(0xc0); }
  Status value(const Value& value);
  /// Returns the number of bytes written or counted so far.
  std::uint64_t size() const noexcept { return size_; }

 private:
  Status put(std::span<const std::byte> bytes);
  Status byte(unsigned b);
  Status number(unsigned mark, unsigned log, std::uint64_t n);
  Status integer(std::int64_t n);
  Status sized(std::uint64_t n, unsigned small, unsigned few, unsigned large, unsigned min_log);

  Gather* out_;
  std::uint64_t size_ = 0;
};

}  // namespace stele::inline v0::detail::msgpack
