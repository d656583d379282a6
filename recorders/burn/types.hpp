// What all of Burn's encodings share: identities, dtypes and how each era spells or counts them.
//
//  1. ParamId: base32hex in lower case of the u64's 8 little-endian bytes, the first bit first: 13 characters. Older
//     files: of 6 bytes, 10 characters; or a UUID of 36 characters.
//  2. dtype: the name of a variant, `F32`, or one with a value, {"Bool":"Native"}, {"QFloat":SCHEME}; in bincode the
//     number of the variant (burn-std/src/tensor/dtype.rs of 0.21; docs/formats/burn.md has all eras).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/param.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Annotations. `dtype`: how the file spells it, where a DType does not say all: Flex32; {"Bool":"U32"}, whose elements
/// are u32; {"QFloat":…} (in bincode its bytes), whose bytes are a list of u8, and whose own shape is `shape`. `id`:
/// the text of an id that is not written as Burn writes it today. `bare`: a tensor without id and `param`.
inline constexpr std::string_view dtype_note = "burn.dtype";
inline constexpr std::string_view shape_note = "burn.shape";
inline constexpr std::string_view id_note = "burn.id";
inline constexpr std::string_view bare_note = "burn.bare";

/// Of 13, 10 or 36 characters; nothing where the text is no id.
std::optional<ParamId> parse_id(std::string_view text);
/// 13 characters, or a UUID.
std::string id_text(const ParamId& id);
/// Of a tensor that has none: follows from its path alone, so that equal modules give equal files.
ParamId made_id(std::string_view path);

/// A dtype as a file has it.
struct Spelled {
  DType dtype = DType::none;
  Value note{};         // of dtype_note; null: none
  bool opaque = false;  // any number of bytes
};
/// Of a text or a map of one entry. Errors: unsupported (another dtype), malformed.
Result<Spelled> read_dtype(const Value& spelled);
/// How a leaf's dtype is spelled in that era. Errors: not_representable.
Result<Value> spell_dtype(const LeafView& leaf, BurnEra era);
/// Whether Burn has it.
bool holds(DType dtype) noexcept;
/// The shape that a file says of a leaf: its own, but of opaque ones. Errors: malformed (annotations of another kind).
Result<std::vector<Extent>> shape_of(const LeafView& leaf);

/// A tensor that was read.
struct Tensor {
  Spelled dtype{};
  std::vector<Extent> shape{};
  std::uint64_t bytes = 0;
  Provider provider{};
};
/// Adds it to a Snapshot. Errors: malformed (more or fewer bytes than dtype and shape say).
Status add(SnapshotBuilder& builder, NodeName name, Tensor tensor, bool conditional = false);

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
