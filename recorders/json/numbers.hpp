// Writes and reads tensors as nested arrays of numbers: the shortest decimals that read back as the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::json {

/// Returns true for f64, f32, f16, bf16, integers of 8 to 64 bits, and bool.
bool has_numbers(DType dtype) noexcept;

/// Writes elements that arrive in pieces. A tensor without dimensions is written as an array with a single element.
class NumberWriter {
 public:
  /// `indent`: the number of spaces before each innermost row; if negative, all rows are on one line. The shape must
  /// have at least one element.
  NumberWriter(DType dtype, std::span<const Extent> shape, int indent);
  /// Appends the text of the elements in `bytes`, which are whole and little-endian.
  void add(std::span<const std::byte> bytes, std::string& out);

 private:
  void open(std::string& out);
  DType dtype_;
  std::vector<Extent> shape_;
  std::vector<Extent> at_;  // index in each axis
  int indent_;
  bool begun_ = false;
};

/// Reads arrays of numbers written by NumberWriter or another program. The text arrives in pieces.
class NumberReader {
 public:
  NumberReader(DType dtype, std::span<const Extent> shape);
  /// Reads complete elements from the front of `text` into `out`, at most as many as `out` holds. `last`: true if no
  /// text follows. The error's offset counts from the front of `text`. Errors: malformed, out_of_range, truncated.
  Status read(std::string_view text, bool last, std::span<std::byte> out);
  std::size_t consumed() const noexcept { return consumed_; }
  /// Returns the number of bytes written to `out`.
  std::size_t produced() const noexcept { return produced_; }
  bool done() const noexcept { return begun_ && depth_ == 0; }

 private:
  Status token(std::string_view text, std::size_t at, std::byte* out) const;
  DType dtype_;
  unsigned width_;
  std::vector<Extent> shape_;
  std::vector<Extent> at_;
  std::size_t depth_ = 0;
  bool begun_ = false;
  bool value_due_ = true;
  std::size_t consumed_ = 0, produced_ = 0;
};

}  // namespace stele::inline v0::detail::json
