// Folders of torch.distributed.checkpoint (DCP): metadata, and files of one torch.save file after the other, each with
// a chunk of a tensor or another object. Any number of processes may have written them.
#pragma once

#include "stele/format.hpp"
#include "stele/recorders/pytorch.hpp"

namespace stele::inline v0::detail::pytorch {

/// Returns true for a folder with a `.metadata`, or with those of its processes.
bool is_dcp(const Bundle& folder);

/// Opens such a folder as whole tensors, in the byte order of files. Reads the metadata and the objects that are no
/// tensors; the files of chunks are read with the tensors. Errors: those of Format::open; not_found (a file),
/// unsupported (transformed slices; packed, quantized or sparse tensors).
Result<Snapshot> open_dcp(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options = {});

}  // namespace stele::inline v0::detail::pytorch
