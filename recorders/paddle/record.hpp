// One record of a Paddle parameter file: its head, read and written. The layout stands in
// stele/recorders/paddle.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"
#include "wire.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace paddle {

inline constexpr std::size_t max_rank = 9;  // phi::DDim::kMaxRank

/// DType::none: no dtype of dense tensors (VarType.Type of paddle/phi/core/framework/framework.proto).
DType dtype_of(std::uint64_t code) noexcept;
/// 0xff: none.
std::uint8_t code_of(DType dtype) noexcept;

/// An annotation: LoD, as a list of lists of numbers.
inline constexpr std::string_view lod_key = "paddle.lod";

struct Entry {
  DType dtype = DType::none;
  std::uint32_t rank = 0;
  std::array<Extent, max_rank> extents{};
  std::uint64_t data = 0;   // offset of the elements
  std::uint64_t bytes = 0;  // of the elements
  Value lod;                // null, or as the annotation
  std::span<const Extent> shape() const noexcept { return {extents.data(), rank}; }
  std::uint64_t end() const noexcept { return data + bytes; }
};

/// The description of a tensor, a TensorDesc: dtype, extents (negative ones are -1, any). Errors: malformed,
/// unsupported (a dtype of no dense tensor).
Status read_desc(Wire in, DType& dtype, std::vector<std::int64_t>& extents);

/// Reads the record's head at `offset`; its end is at most `end`. Reads a few hundred bytes, LoD apart. Errors:
/// truncated, malformed, unsupported, limit (LoD that takes more than `memory`, which is counted down).
Result<Entry> read_record(const Source& source, std::uint64_t offset, std::uint64_t end, IndexBudget& memory);

/// The head of a tensor's record. Errors: not_representable, invalid_argument (a LoD that is none).
Result<std::vector<std::byte>> head_of(DType dtype, std::span<const Extent> shape, const Value* lod);

}  // namespace paddle
}  // namespace detail
}  // namespace v0
}  // namespace stele
