// The bound of tensors that share their bytes in a file.
#pragma once

#include <cstdint>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

/// Checks that the tensors of an opened file take at most 16 MiB and 64 bytes for each byte that the file holds for
/// tensors. A file stores the elements of an expanded tensor (a stride of 0), or of tensors at one offset, once: a
/// kilobyte can declare terabytes. Compressed bytes count as what they expand to. Every save calls this function;
/// programs that read all elements of a file from elsewhere should too. Limits::total_bytes of the open raises the
/// bound. Errors: limit.
STELE_EXPORT Status check_expansion(const Snapshot& snapshot);

/// The stored elements of a file's tensors.
struct Unexpanded {
  Snapshot snapshot;
  std::vector<std::uint64_t> times;  // how often each leaf of the file has each of its stored elements
};

/// Returns a snapshot in which each expanded tensor (a stride of 0) has its stored elements only, once each, in any
/// order, as one dimension: for what counts elements, as statistics do. Leaves keep their numbers.
STELE_EXPORT Unexpanded unexpanded(const Snapshot& snapshot);

}  // namespace stele::inline v0
