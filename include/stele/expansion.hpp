// Limits the size of tensors that share their bytes in a file.
#pragma once

#include <cstdint>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

/// Checks that the tensors of an opened file take at most 16 MiB plus 64 bytes for each tensor byte in the file. A file
/// stores the elements of an expanded tensor (a stride of 0), or of tensors at the same offset, once: a kilobyte can
/// declare terabytes. Compressed bytes count with their expanded size. Every save calls this function; programs that
/// read all elements of an untrusted file should call it too. Limits::total_bytes of the open call raises the limit.
/// Errors: limit.
STELE_EXPORT Status check_expansion(const Snapshot& snapshot);

/// The stored elements of a file's tensors.
struct Unexpanded {
  Snapshot snapshot;
  std::vector<std::uint64_t> times;  // for each leaf of the file: repetitions of each stored element
};

/// Returns a snapshot in which each expanded tensor (a stride of 0) has one dimension and contains each stored element
/// once, in any order. For code that counts elements, such as statistics. Leaves keep their numbers.
STELE_EXPORT Unexpanded unexpanded(const Snapshot& snapshot);

}  // namespace stele::inline v0
