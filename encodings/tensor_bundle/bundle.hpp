// A TensorFlow checkpoint ("tensor bundle") by its keys, for the recorder, and for importers of graphs with weights in
// a checkpoint. docs/formats/tensorflow.md describes the files.
//
//   const Bundle bundle = *open_bundle(source, options);
//   if (const Entry* entry = bundle.find("dense/kernel")) …   // lazy: entry->provider reads its bytes
//
// Elements have the byte order of files: call in_host_order() (passes/byte_order.hpp) once on a Snapshot of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "leaves/boxes.hpp"
#include "stele/dtype.hpp"
#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::tensorflow {

/// A dtype of tensorflow/core/framework/types.proto.
struct TfType {
  std::uint32_t code = 0;
  std::string_view name;       // "DT_FLOAT"
  DType dtype = DType::none;   // dtype of leaves; DType::opaque: stele has no such elements; none: not stored in shards
  unsigned opaque_bytes = 0;   // size of an opaque element; 0: elements have different sizes
  unsigned narrow_bits = 0;    // if each byte stores one element in its low bits: the number of these bits; else 0
  bool narrow_signed = false;  // narrow elements are signed

  /// Returns the size of an element; 0 if elements have different sizes.
  unsigned width() const noexcept { return dtype == DType::opaque ? opaque_bytes : element_size(dtype); }
};
/// Returns nullptr for an unknown code.
const TfType* type_of(std::uint64_t code) noexcept;
/// Returns true if checkpoints can store elements of this dtype.
bool holds(DType dtype) noexcept;
inline constexpr std::uint64_t string_code = 7, variant_code = 21;

/// The annotation with the name of the TfType, for leaves whose dtype does not identify it.
inline constexpr std::string_view dtype_key = "tensorflow.dtype";

/// An entry of the index: a tensor, or strings. A partitioned variable is one tensor.
struct Entry {
  std::string_view key;
  const TfType* type = nullptr;
  Shape shape;
  std::uint32_t shard = 0;
  std::uint32_t crc = 0;  // CRC-32C of the bytes, unmasked
  std::uint64_t offset = 0, size = 0;
  const Source* source = nullptr;  // the shard; null if `slices` is not empty
  std::vector<Box> slices{};       // slices of a partitioned variable, which has no bytes itself
  std::uint64_t bytes = 0;         // size in memory
  Provider provider{};             // empty for strings
  Value strings{};                 // a string, or bytes if it is not UTF-8, or lists of them

  /// Returns true if this is the data of a slice of another tensor, with a key of slice_key().
  bool is_slice() const noexcept { return key.starts_with('\0'); }
  bool has_strings() const noexcept { return type->code == string_code; }
};

/// An open checkpoint. Copies share it.
class Bundle {
 public:
  /// Returns the entries, sorted by key.
  const std::deque<Entry>& entries() const noexcept { return *entries_; }
  /// Returns the entry of a key; nullptr if there is none.
  const Entry* find(std::string_view key) const noexcept;
  /// Returns an owner of the entries and of the data that their providers point to.
  std::shared_ptr<const void> owner() const noexcept { return entries_; }
  /// Returns the name of the index, for messages.
  const std::string& name() const noexcept { return name_; }

 private:
  friend class BundleReader;
  std::shared_ptr<const std::deque<Entry>> entries_ = std::make_shared<std::deque<Entry>>();
  std::string name_;
};

/// Returns the index of the checkpoint that `source` names: PREFIX.index, a text file `checkpoint`, or a folder (with a
/// file `checkpoint`, of a SavedModel, or with exactly one .index). Errors: not_found, malformed, unsupported, io.
Result<SourcePtr> find_index(SourcePtr source);

/// Opens the checkpoint that find_index() finds, and its shards. Reads the index and the string tensors. `memory`
/// counts the memory for opening; open_bundle() admits the bytes of the index and the strings to it. Errors: those of
/// find_index(), bad_magic, truncated, malformed, checksum, limit, unsupported.
Result<Bundle> open_bundle(SourcePtr source, IndexBudget& memory);
inline Result<Bundle> open_bundle(SourcePtr source, const LoadOptions& options) {
  IndexBudget memory(options.limits, 0);
  return open_bundle(std::move(source), memory);
}

}  // namespace stele::inline v0::detail::tensorflow
