// Metadata of zarr arrays and groups. docs/formats/zarr.md describes the documents.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "encodings/zarr/codecs.hpp"
#include "encodings/zarr/store.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::zarr {

/// A dtype and its names.
struct ItemType {
  std::string_view name;  // in zarr v3, NumPy and ml_dtypes
  std::string_view code;  // in zarr v2, without the byte order; empty: `name`
  DType dtype = DType::none;
  unsigned swapped = 1;  // bytes of the numbers that an element consists of, which have a byte order
  unsigned bits = 0;     // low bits of a byte that have the number, as TensorStore stores small integers; 0: all
};
/// Returns the type that stores elements of a dtype; nullptr if there is none.
const ItemType* type_of(DType dtype) noexcept;

/// Maximum rank: NumPy 2's maximum, and more than other programs allow.
inline constexpr std::size_t max_rank = 64;

/// An array: how its elements are cut into chunks, and how a chunk is encoded.
struct Array {
  std::string path{};  // segments separated by '/'; empty: the root
  const ItemType* type = nullptr;
  std::vector<Extent> shape{};
  std::vector<Extent> chunk{};       // the box that is decoded at once
  bool sharded = false;              // a stored value contains several chunks
  std::vector<Extent> shard{};       // the box of a stored value, if `sharded`
  std::vector<std::size_t> order{};  // the array's axis for each axis of an encoded chunk; empty: equal axes
  bool big_endian = false;
  std::vector<Codec> codecs{};               // codecs of chunks, in the order of encoding
  bool index_crc = false;                    // a shard's index has a CRC-32C
  bool index_first = false;                  // a shard's index is at its start
  std::array<std::byte, 16> fill{};          // the element of absent chunks, little-endian
  bool complete = false;                     // the array's writer stores all chunks: an absent one is lost
  bool prefix = false;                       // keys of chunks begin with "c"
  char separator = '.';                      // between the numbers in keys of chunks
  std::string unreadable{};                  // the reason why the elements cannot be read; else empty
  Value attributes{};                        // a map, or null
  Value dimension_names{};                   // a list, or null
  std::uint64_t bytes = 0, chunk_bytes = 0;  // sizes of the decoded array and of a chunk
};

struct Group {
  std::string path{};
  Value attributes{};  // a map, or null
};

/// All arrays and groups of a store, sorted by path.
struct Hierarchy {
  std::vector<Array> arrays{};
  std::vector<Group> groups{};
};

/// Reads the metadata in a store. `memory` counts the memory. Errors: malformed, limit, unsupported (another version of
/// zarr), those of the store.
Result<Hierarchy> read_hierarchy(const Store& store, IndexBudget& memory);

/// The names of the documents.
inline constexpr std::string_view v3_key = "zarr.json", array_key = ".zarray", group_key = ".zgroup",
                                  attributes_key = ".zattrs", consolidated_key = ".zmetadata";

}  // namespace stele::inline v0::detail::zarr
