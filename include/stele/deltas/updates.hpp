// Weight updates: folders of safetensors files with the differences to the previous version, which slime writes after
// each training step and SGLang applies (docs/formats/delta.md, "Weight updates").
#pragma once

#include <cstdint>
#include <string>

#include "stele/input.hpp"
#include "stele/output.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

/// How save_update() encodes the changes.
struct UpdateOptions {
  std::uint64_t version = 1;          ///< version of the new weights; the old weights have the previous number
  std::string encoding = "xor";       ///< "xor", or "overwrite": positions of bytes, and their new values
  std::string checksum = "xxh3-128";  ///< "xxh3-128" or "adler32"
};

/// Returns true if the folder, or the safetensors file, is an update. Errors: those of opening.
STELE_EXPORT Result<bool> is_update(const Input& update);

/// Returns the weights that an update gives. Its tensors are decoded when they are read; the first read of a part of a
/// tensor checks the whole tensor. Tensors that the update does not name stay unchanged and unchecked: the layout only
/// has checksums of changed tensors. An update that is applied to the result of another one must be its next version.
/// Errors: malformed; unsupported (another compression, encoding or checksum, such as blake3); missing (a tensor that
/// the base lacks); invalid_argument (a version out of order); later, when a tensor is read, checksum (of an
/// update of another base, too).
STELE_EXPORT Result<Snapshot> apply_update(const Snapshot& base, const Input& update,
                                           const LoadOptions& options = default_load_options());

/// Writes the update from `base` to `next` as a folder. Changed tensors are compressed twice, so that no whole tensor
/// is in memory. Errors: not_representable (other names, dtypes or shapes; with SaveOptions::allow_loss not for values,
/// ties and metadata that differ), limit (a changed tensor of more than 4 GiB as "overwrite": positions have 32 bits),
/// invalid_argument (an unknown encoding or checksum), those of reading and writing.
STELE_EXPORT Result<Report> save_update(const Snapshot& base, const Snapshot& next, const Output& to,
                                        const UpdateOptions& update = {},
                                        const SaveOptions& options = default_save_options());

}  // namespace stele::inline v0
