// Datasets: in one place of the file, in chunks, or without stored bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "attribute.hpp"
#include "file.hpp"
#include "hdf5.hpp"
#include "object_header.hpp"

namespace stele::inline v0::detail::hdf5 {

class Datasets {
 public:
  Datasets(const SourcePtr& source, File& file, AttributeReader& values);

  /// Returns the owner of the data that providers point to.
  std::shared_ptr<const void> keeper() const { return keeper_; }
  /// Makes an entry of an object with a layout message, whose attributes have been added. Errors: malformed, truncated,
  /// limit.
  Status add(const Header& header, Entry& entry);

 private:
  struct Keeper;

  /// Reads the strings of a small dataset.
  Status texts(Entry& entry, const Type& type, const Space& space, bool in_place);
  Status chunked(const Header& header, const Layout& layout, std::uint64_t offset, const Type& type, const Space& space,
                 Entry& entry);

  std::shared_ptr<Keeper> keeper_;
  File& file_;
  AttributeReader& values_;
  std::uint64_t filled_ = 0;  // bytes of tensors that are not stored
};

}  // namespace stele::inline v0::detail::hdf5
