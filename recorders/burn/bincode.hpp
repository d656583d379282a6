// bincode 2, `config::standard()`. Files store no types, so reader and writer must know them.
//
//  1. u16, u32, u64, usize: one byte if below 251; else fb and u16, fc and u32, or fd and u64, little-endian. i16 to
//     isize: zigzag (0, -1, 1, -2, … become 0, 1, 2, 3, …), then like unsigned integers. u8, i8, bool: one byte. f32,
//     f64: little-endian.
//  2. String, bytes, list, map: the count as in 1, then the elements. Array, tuple, struct: their contents.
//  3. Option: 00, or 01 and the value. Enum: the variant's number as in 1, then its contents. f16: its bits as a u16.
//
// Source: https://github.com/bincode-org/bincode/blob/v2.0.1/docs/spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/cursor.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::bincode {

/// Reads a number in the encoding of item 1. Errors: truncated, malformed, io.
Result<std::uint64_t> read_number(Cursor& in);
/// Reads a count of elements of at least one byte each. Errors: those of read_number(), malformed (more than the
/// remaining bytes).
Result<std::uint64_t> read_count(Cursor& in);
/// Reads a string. Errors: those of read_number(), limit (Cursor::max_taken_bytes).
Status read_text(Cursor& in, std::string& out);
/// Reads a bool, an integer or a float of 16 to 64 bits. Errors: those of read_number(), unsupported (another dtype).
Result<Value> read_scalar(Cursor& in, DType dtype);

/// Appends a number in the encoding of item 1.
void append_number(std::vector<std::byte>& out, std::uint64_t n);
void append_text(std::vector<std::byte>& out, std::string_view text);
/// Appends a value in the encoding that read_scalar() reads. Returns false if the value is not of the dtype.
bool append_scalar(std::vector<std::byte>& out, DType dtype, const Value& value);

}  // namespace stele::inline v0::detail::bincode
