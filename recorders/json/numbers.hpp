// Tensors as readable numbers: nested arrays of the shortest decimals that read back as the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace json {

/// f64 f32 f16 bf16, integers of 8 to 64 bits, bool.
bool has_numbers(DType dtype) noexcept;

/// Writes elements that come in pieces. A tensor without dimensions is written as one with a single element.
class NumberWriter {
 public:
  /// `indent`: each innermost row begins a line with so many spaces; below 0: everything in one line. The shape has at
  /// least one element.
  NumberWriter(DType dtype, std::span<const Extent> shape, int indent);
  /// Appends the elements' text; `bytes` are whole elements, little-endian.
  void add(std::span<const std::byte> bytes, std::string& out);

 private:
  void open(std::string& out);
  DType dtype_;
  std::vector<Extent> shape_;
  std::vector<Extent> at_;  // of each axis
  int indent_;
  bool begun_ = false;
};

/// Reads what NumberWriter or anybody else wrote; the text comes in pieces.
class NumberReader {
 public:
  NumberReader(DType dtype, std::span<const Extent> shape);
  /// Reads from the front of `text` all that is whole, at most as many elements as `out` holds, into `out`. `last`: no
  /// more text follows. The error's offset counts from the front of `text`. Errors: malformed, out_of_range,
  /// truncated.
  Status read(std::string_view text, bool last, std::span<std::byte> out);
  std::size_t consumed() const noexcept { return consumed_; }
  /// Bytes that were put into `out`.
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

}  // namespace json
}  // namespace detail
}  // namespace v0
}  // namespace stele
