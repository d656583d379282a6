// Files and folders of all kinds, as Snapshots.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "encodings/pytorch/file.hpp"
#include "stele/format.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// Opens an exported program. Errors: those of Format::open.
Result<Snapshot> open_pt2(const std::shared_ptr<const zip::Directory>& directory, std::string_view root,
                          const PytorchOptions& options, IndexBudget& memory);

/// Opens a folder of torch.distributed.checkpoint as whole tensors, in the byte order of files: metadata, and files of
/// one torch.save file after the other, each with a chunk of a tensor or another object. Reads the metadata and the
/// objects that are no tensors; the files of chunks are read with the tensors. Errors: those of Format::open; not_found
/// (a file), unsupported (transformed slices; packed, quantized or sparse tensors).
Result<Snapshot> open_dcp(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options);

/// The kinds of files that may be in a place.
enum class Kinds : std::uint8_t {
  all,
  saved,  // in other files: those of torch.save alone, so that nothing nests
};
/// Opens the file that a Source contains as a Snapshot; a tensor alone has the name "tensor".
Result<Snapshot> open_file(const SourcePtr& source, const PytorchOptions& options, const Limits& limits,
                           IndexBudget& memory, Kinds kinds);

}  // namespace stele::inline v0::detail::pytorch
