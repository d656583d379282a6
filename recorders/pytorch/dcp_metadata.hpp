// The metadata of a checkpoint of torch.distributed.checkpoint: pickled dataclasses
// (torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.15).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "leaves/boxes.hpp"
#include "stele/bundle.hpp"
#include "storage.hpp"

namespace stele::inline v0::detail::pytorch {

/// A file range with one saved object: a chunk of a tensor, or any other object.
struct Slice {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, length = 0;
};

/// An entry of a checkpoint. Its chunks cover the tensor; chunks without elements are omitted.
struct DcpItem {
  std::string name;
  const TorchType* type = nullptr;  // null: not a tensor; then `slices` has one element
  std::vector<Extent> shape{};
  std::vector<Box> boxes{};
  std::vector<Slice> slices{};  // the slices of the boxes
};

struct DcpIndex {
  std::deque<DcpItem> items;
  std::vector<std::string> files;  // paths below the folder
};

/// Reads `.metadata`; without it, the `__RANK.metadata` of all processes (use_collectives=False). If several processes
/// saved the whole of one tensor or object, the lowest rank's is used. Errors: not_found, malformed, unsupported (a
/// dtype, a layout, transformed slices), duplicate, limit, io.
Result<DcpIndex> read_index(const Bundle& folder, IndexBudget& memory);

/// Returns true for a folder with DCP metadata.
bool has_index(const Bundle& folder);

}  // namespace stele::inline v0::detail::pytorch
