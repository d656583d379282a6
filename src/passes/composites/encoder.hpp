// Encodes the numbers of a weight: scales, zero points and codes, as the bytes of its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/composites/encoded_weight.hpp"
#include "passes/differences.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/codes.hpp"

namespace stele::inline v0::detail::composites {

/// Encodes blocks of units.
class Encoder {
 public:
  Encoder(const Weight& weight, ReadContext& context) : w_(weight), context_(context) {}

  /// Calls put(first unit, bytes) for blocks of units [first, end) of a part.
  template <class Put>
  Status run(const Weight::PartData& part, std::uint64_t first, std::uint64_t end, const Put& put) {
    if (w_.scheme->scaling == Scaling::of_weight) {
      STELE_TRY_ASSIGN(global_, global_of(w_, context_));
    }
    const std::uint64_t floats = w_.by_columns() ? w_.rows * w_.group : w_.columns * w_.row_group;
    const std::uint64_t at_once = w_.by_columns() ? std::uint64_t{4} << 20 : std::uint64_t{1} << 20;
    const std::uint64_t units = std::max<std::uint64_t>(1, at_once / floats);
    for (std::uint64_t u = first; u < end; u += units) {
      const std::uint64_t n = std::min(units, end - u);
      STELE_TRY(w_.by_columns() ? load_columns(u * w_.group, n * w_.group) : load_rows(u * w_.row_group, n));
      STELE_TRY(encode(part.kind == PartKind::codes));
      STELE_TRY(pack(part));
      STELE_TRY(put(u, packed_));
    }
    return {};
  }
  const Differences& differences() const { return differences_; }

  /// Returns the scale of the whole weight.
  static Result<float> global_of(const Weight& w, ReadContext& context);

 private:
  /// Reads elements [first, first + count) of the weight to `out`.
  Status read(std::uint64_t first, std::uint64_t count, float* out);
  Status to_floats(const std::byte* bytes, std::uint64_t first, std::size_t count, float* out);
  /// Loads `units` units of rows.
  Status load_rows(std::uint64_t row, std::uint64_t units);
  /// Loads columns of all rows.
  Status load_columns(std::uint64_t column, std::uint64_t count);

  /// Calls f(cell, offset, count) for each run of elements of a row in each group.
  template <class F>
  void each_run(const F& f);
  /// Determines the scales and the codes of the loaded numbers.
  Status encode(bool measure);
  /// Returns the scale of a group before it is rounded to its dtype.
  float scale_of(const Extremes& e) const;
  /// Rounds the scales to the dtype that stores them. Replaces a scale of 0 by one with which all codes are 0.
  Status round_scales();
  Status convert_scales(DType to, std::byte* out) const;
  void encode_run(const float* x, float scale, float zero, std::uint8_t* codes, std::size_t n);
  void add_differences(std::size_t cell, std::size_t at, std::size_t n);

  /// Sets `packed_` to the bytes of a part.
  Status pack(const Weight::PartData& part);
  void pack_rows(const Weight::PartData& part);
  /// GPTQ: a column of the part has 8 codes of a row in a word. AWQ: a word has the codes of 8 rows.
  void pack_columns();
  Status pack_scales(const Weight::PartData& part);
  /// Packs the zero points of all rows, for each group of columns. GPTQ stores one less.
  void pack_zeros();

  const Weight& w_;
  ReadContext& context_;
  float global_ = 1;
  std::uint64_t width_ = 0;  // columns of the loaded numbers
  std::vector<float> floats_, rows_, stored_, scales_, zeros_, divided_, turned_;
  std::vector<Extremes> found_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::byte> packed_, bytes_of_scales_;
  Bytes bytes_;
  Differences differences_;
};

}  // namespace stele::inline v0::detail::composites
