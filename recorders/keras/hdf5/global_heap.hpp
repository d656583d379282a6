// Global heaps: collections of variable-length strings.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "file.hpp"

namespace stele::inline v0::detail::hdf5 {

class GlobalHeap {
 public:
  explicit GlobalHeap(File& file) : file_(file) {}

  /// Returns the string that an element refers to: {u32 length, u64 address of a collection, u32 index}. Errors:
  /// malformed, truncated, limit.
  Result<std::string> text(View reference);

 private:
  using Collection = std::unordered_map<std::uint32_t, Range>;  // by index

  Result<const Collection*> collection(std::uint64_t address);

  File& file_;
  std::unordered_map<std::uint64_t, Collection> collections_;  // by address
};

}  // namespace stele::inline v0::detail::hdf5
