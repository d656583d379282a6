// One record of a Paddle parameter file: reads and writes its header. stele/recorders/paddle.hpp describes the layout.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "encodings/protobuf/protobuf.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::paddle {

inline constexpr std::size_t max_rank = 9;  // phi::DDim::kMaxRank
/// Maximum size of a name in a frame (64 KiB): bounds what a length in a damaged file makes the reader read.
inline constexpr std::uint64_t max_name_bytes = 64 << 10;

/// Returns the dtype for a number of VarType.Type (paddle/phi/core/framework/framework.proto); DType::none if dense
/// tensors do not have it.
DType dtype_of(std::uint64_t code) noexcept;
/// Returns the number for a dtype; 0xff if Paddle has none.
std::uint8_t code_of(DType dtype) noexcept;

/// An annotation: the LoD as a list of lists of numbers.
inline constexpr std::string_view lod_key = "paddle.lod";

struct Entry {
  DType dtype = DType::none;
  std::uint32_t rank = 0;
  std::array<Extent, max_rank> extents{};
  std::uint64_t data = 0;   // offset of the elements
  std::uint64_t bytes = 0;  // size of the elements
  Value lod;                // null, or the annotation's value
  std::span<const Extent> shape() const noexcept { return {extents.data(), rank}; }
  std::uint64_t end() const noexcept { return data + bytes; }
};

/// Reads a TensorDesc: dtype and extents (negative ones become -1, any). Errors: malformed, unsupported (a dtype that
/// dense tensors do not have).
Status read_desc(protobuf::Reader in, DType& dtype, std::vector<std::int64_t>& extents);

/// Reads a record's header at `offset`; the record ends at `end` or before. Reads a few hundred bytes in addition to
/// the LoD. Subtracts the LoD's memory from `memory`. Errors: truncated, malformed, unsupported, limit (the LoD takes
/// more than `memory`).
Result<Entry> read_record(const Source& source, std::uint64_t offset, std::uint64_t end, IndexBudget& memory);

/// Returns the header of a tensor's record. Errors: not_representable, invalid_argument (an invalid LoD).
Result<std::vector<std::byte>> head_of(DType dtype, std::span<const Extent> shape, const Value* lod);

}  // namespace stele::inline v0::detail::paddle
