// Definitions that the readers and the writer of ExecuTorch's files share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/limits.hpp"
#include "encodings/flatbuffers/flatbuffers.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::executorch {

inline constexpr std::string_view ptd_identifier = "FT01", pte_identifier = "ET12";
/// Offset of the extended header, after the root's offset and the identifier.
inline constexpr std::uint64_t header_at = 8;
/// Size of the extended header of a .ptd file: magic FH01, u32 its size, and four u64: offset and size of the
/// FlatBuffer, offset and size of the segments. In .pte files, eh00, u32 its size, and size of the FlatBuffer, offset
/// of the segments.
inline constexpr std::uint64_t ptd_header = 40, pte_header = 24;
inline constexpr std::string_view ptd_magic = "FH01", pte_magic = "eh00";
/// Alignment of segments, that of ExecuTorch's save_ptd().
inline constexpr std::uint64_t alignment = 16;
/// Maximum rank of ExecuTorch's tensors (kTensorDimensionLimit).
inline constexpr std::uint32_t max_rank = 16;

/// A dtype and its number (scalar_type.fbs).
struct ScalarType {
  DType dtype;
  std::int8_t number;
};
inline constexpr ScalarType scalar_types[] = {
    {DType::u8, 0},       {DType::i8, 1},         {DType::i16, 2},          {DType::i32, 3},          {DType::i64, 4},
    {DType::f16, 5},      {DType::f32, 6},        {DType::f64, 7},          {DType::boolean, 11},     {DType::bf16, 15},
    {DType::f8_e5m2, 23}, {DType::f8_e4m3fn, 24}, {DType::f8_e5m2fnuz, 25}, {DType::f8_e4m3fnuz, 26}, {DType::u16, 27},
    {DType::u32, 28},     {DType::u64, 29},
};
/// Returns the type with this dtype or number, or null.
const ScalarType* type_of(DType dtype) noexcept;
const ScalarType* type_of(std::int8_t number) noexcept;

/// The shape of a tensor in a file.
struct TensorLayout {
  std::int8_t type = 0;
  std::vector<Extent> sizes;
  std::vector<std::size_t> order;  // the axes from the outermost to the innermost
  bool valid = true;

  bool operator==(const TensorLayout&) const = default;
};

/// Data in a file, or the reason why they do not exist.
struct Data {
  std::uint64_t at = 0, size = 0;
};

/// Collects the tensors of a file.
class Tensors {
 public:
  Tensors(SourcePtr source, const Limits& limits);

  /// Reads a layout from the fields of a table. Errors: limit.
  Result<TensorLayout> layout(fb::Reader& in, const fb::Table& table, unsigned type, unsigned sizes, unsigned order);
  /// Adds a tensor. `exact`: the data have no other bytes. Returns its node.
  Result<std::uint32_t> add(std::string_view name, const TensorLayout& layout, const Data& data, bool exact);
  Status add_unreadable(std::string_view name, std::string_view reason, const Data& data);
  /// Adds a further name of a node.
  Status alias(std::string_view name, std::uint32_t node);
  void note(std::string text);
  /// Lists a part of the file that is not read; a save reports it as lost.
  void leave_out(std::string part);
  Status take(std::uint64_t bytes);
  /// Adds bytes of the file to those that the tensors have.
  void count(std::uint64_t bytes) { bytes_ += bytes; }
  Result<Snapshot> finish();

 private:
  SourcePtr source_;
  IndexBudget memory_;
  SnapshotBuilder builder_;
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> axes_;  // axes of transposed leaves
  std::uint64_t bytes_ = 0;
};

/// Returns the bytes of `segments[number]`, which begin at `base`. An error of `in` if they are outside the file.
Data segment(fb::Reader& in, const fb::Vector& segments, std::uint64_t number, std::uint64_t base);

}  // namespace stele::inline v0::detail::executorch
