// Opens files and folders of all kinds as Snapshots.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "file.hpp"
#include "stele/format.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// Opens an exported program. Errors: those of Format::open.
Result<Snapshot> open_pt2(const std::shared_ptr<const zip::Directory>& directory, std::string_view root,
                          const PytorchOptions& options, IndexBudget& memory);

/// Opens a folder of torch.distributed.checkpoint as whole tensors, in the byte order of files. The folder has
/// metadata, and files that contain one torch.save file after the other, each with a chunk of a tensor or another
/// object. Reads the metadata and the objects other than tensors; chunks are read with their tensors. Errors: those of
/// Format::open; not_found (a file), unsupported (transformed slices; packed, quantized or sparse tensors).
Result<Snapshot> open_dcp(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options);

/// The kinds of files that open_file() accepts.
enum class Kinds : std::uint8_t {
  all,
  saved,  // inside other files: only files of torch.save, so that the kinds do not nest
};
/// Opens the file that a Source contains as a Snapshot. If the file is a single tensor, its name is "tensor".
Result<Snapshot> open_file(const SourcePtr& source, const PytorchOptions& options, const Limits& limits,
                           IndexBudget& memory, Kinds kinds);

}  // namespace stele::inline v0::detail::pytorch
