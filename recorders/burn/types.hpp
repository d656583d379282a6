// Dtypes for all of Burn's encodings, with each era's spellings and numbers.
//
// A dtype is the name of a variant, `F32`, or a variant with a value, {"Bool":"Native"}, {"QFloat":SCHEME}; in bincode
// it is the number of the variant (burn-std/src/tensor/dtype.rs of 0.21; docs/formats/burn.md has all eras).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ids.hpp"
#include "stele/dtype.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {

class Cursor;

namespace burn {

/// Keys of annotations. `dtype`: the file's spelling of a dtype that has no DType: Flex32; {"Bool":"U32"}, whose
/// elements are u32; {"QFloat":…} (in bincode, its bytes), whose bytes are a list of u8 and whose own shape is `shape`.
/// `id`: an id in a form that Burn no longer writes. `bare`: a tensor without an id and `param`.
inline constexpr std::string_view dtype_note = "burn.dtype";
inline constexpr std::string_view shape_note = "burn.shape";
inline constexpr std::string_view id_note = "burn.id";
inline constexpr std::string_view bare_note = "burn.bare";

/// A dtype and its spelling in a file.
struct Spelled {
  DType dtype = DType::none;
  Value note{};         // value for dtype_note, or null
  bool opaque = false;  // elements may have any number of bytes
};
/// Reads a dtype from a string or a map with one entry. Errors: unsupported (another dtype), malformed.
Result<Spelled> read_dtype(const Value& spelled);
/// Reads a dtype in bincode, stored as its number in the era. Errors: unsupported, malformed.
Result<Spelled> read_dtype(Cursor& in, BurnEra era);
/// Appends a dtype's number. Errors: not_representable (the era does not have the dtype).
Status append_dtype(std::vector<std::byte>& out, const Value& spelled, BurnEra era);
/// Returns the spelling of a leaf's dtype in the era. Errors: not_representable.
Result<Value> spell_dtype(const LeafView& leaf, BurnEra era);
/// Returns true if Burn has the dtype.
bool holds(DType dtype) noexcept;
/// Returns a leaf's shape in the file, which differs from its own for opaque dtypes. Errors: malformed (invalid
/// annotations).
Result<std::vector<Extent>> shape_of(const LeafView& leaf);

/// A tensor read from a file.
struct Tensor {
  Spelled dtype{};
  std::vector<Extent> shape{};
  std::uint64_t bytes = 0;
  Provider provider{};
};
/// Adds a tensor to a Snapshot. Errors: malformed (its bytes do not fit its dtype and shape).
Status add(SnapshotBuilder& builder, NodeName name, Tensor tensor, bool conditional = false);

}  // namespace burn
}  // namespace stele::inline v0::detail
