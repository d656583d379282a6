// Leaves whose data are stored in a JSON document.
#pragma once

#include <memory>
#include <vector>

#include "skeleton.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::json {

/// An opened document; the leaves refer to its data by number.
struct Document {
  std::string file;  // name for error messages
  std::unique_ptr<const Text> text;
  Skeleton skeleton;           // names point into it
  std::vector<Extent> shapes;  // the ranks and extents of tensors written as numbers
};

const LeafOps& ops_of(const Data& data) noexcept;

}  // namespace stele::inline v0::detail::json
