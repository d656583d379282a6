// Reads and writes the headers of the records in a Paddle parameter file. stele/recorders/paddle.hpp describes the
// layout.
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
/// Maximum size of a name in a frame (64 KiB): bounds the bytes that a wrong length in a damaged file makes the reader
/// read.
inline constexpr std::uint64_t max_name_bytes = 64 << 10;

/// Returns the dtype for a number of VarType.Type (paddle/phi/core/framework/framework.proto), or DType::none if dense
/// tensors cannot have it.
DType dtype_of(std::uint64_t code) noexcept;
/// Returns the number for a dtype, or 0xff if Paddle does not have the dtype.
std::uint8_t code_of(DType dtype) noexcept;

/// Key of the annotation with the LoD, as a list of lists of numbers.
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

/// Reads a TensorDesc: dtype and extents. Negative extents become -1, which means any extent. Errors: malformed,
/// unsupported (a dtype that dense tensors cannot have).
Status read_desc(protobuf::Reader in, DType& dtype, std::vector<std::int64_t>& extents);

/// Reads the header of the record at `offset`, which ends at `end` or before. Reads a few hundred bytes in addition to
/// the LoD. Subtracts the LoD's memory from `memory`. Errors: truncated, malformed, unsupported, limit (the LoD takes
/// more than `memory`).
Result<Entry> read_record(const Source& source, std::uint64_t offset, std::uint64_t end, IndexBudget& memory);

/// Returns the header of a tensor's record. Errors: not_representable, invalid_argument (an invalid LoD).
Result<std::vector<std::byte>> head_of(DType dtype, std::span<const Extent> shape, const Value* lod);

}  // namespace stele::inline v0::detail::paddle
