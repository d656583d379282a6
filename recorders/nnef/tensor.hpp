// Reads and writes tensor files: the header, and items that are not stored as elements. stele/recorders/nnef.hpp
// describes the layout.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "io/gather.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::nnef {

inline constexpr std::uint64_t header_size = 128;
inline constexpr std::size_t max_rank = 8;

// Keys of annotations.
inline constexpr std::string_view bits_key = "nnef.bits";
inline constexpr std::string_view quantized_key = "nnef.quantized";
inline constexpr std::string_view vendor_key = "nnef.vendor";
inline constexpr std::string_view type_key = "nnef.type";
inline constexpr std::string_view operation_key =
    "nnef.quantization";  // an operation of graph.quant that is unknown to stele

enum class ItemType : std::uint16_t {
  floating = 0,
  unsigned_integer = 1,
  quantized_unsigned = 2,
  quantized_signed = 3,
  signed_integer = 4,
  boolean = 5,
};

/// The contents of a tensor file.
struct Tensor {
  DType dtype = DType::none;
  unsigned bits = 0;    // width of an item
  bool packed = false;  // items are not stored as elements of `dtype`
  std::uint32_t rank = 0;
  std::array<Extent, max_rank> extents{};
  std::uint64_t data = 0;   // offset of the data
  std::uint64_t bytes = 0;  // size of the data in the file
  std::uint64_t size = 0;   // size of the elements
  Annotations notes;
  std::span<const Extent> shape() const noexcept { return {extents.data(), rank}; }
};

/// Reads a file's header and checks it against the file's size. Errors: bad_magic, truncated, unsupported, malformed,
/// limit.
Result<Tensor> read_header(const Source& source);

/// Adds a file's tensor to the snapshot as a lazy leaf, and keeps the source.
void add(SnapshotBuilder& to, std::string_view name, Tensor tensor, SourcePtr source);

/// Returns a leaf's annotation, or nullptr if the leaf has none with this key.
const Value* note_of(const LeafView& leaf, std::string_view key);

/// The layout of a leaf in a file.
struct Form {
  ItemType type = ItemType::floating;
  std::uint16_t vendor = 0;
  unsigned bits = 0;
  bool packed = false;
  std::uint64_t bytes = 0;  // size of the data
};
/// Returns the layout for a leaf. Errors: not_representable (too large, too many dimensions, an annotation that does
/// not fit its dtype).
Result<Form> form_of(const LeafView& leaf);
std::array<std::byte, header_size> header_of(const Form& form, std::span<const Extent> shape);
/// Writes a whole file: header and items. `leaf` must be in file byte order. Errors: out_of_range (a number with more
/// bits than its annotation allows), those of reading and writing.
Status write(const LeafView& leaf, const Form& form, Sink& sink, ReadContext& context);

}  // namespace stele::inline v0::detail::nnef
