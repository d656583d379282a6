// Attributes, and the elements of small datasets, as Values.
#pragma once

#include "global_heap.hpp"
#include "messages.hpp"
#include "object_header.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::hdf5 {

struct Entry;

class AttributeReader {
 public:
  explicit AttributeReader(File& file) : file_(file), heap_(file) {}

  /// Returns a number or string, or a list of them. Errors: malformed, truncated, limit.
  Result<Value> value_of(const Type& type, const Space& space, View bytes);
  /// Adds the attributes of an object to its entry. Errors: malformed, truncated, limit.
  Status add(const Header& header, Entry& entry);

 private:
  Status add_all(const Header& header, Entry& entry);
  Status add_one(const Message& message, Entry& entry);
  Result<Value> element(const Type& type, View bytes);

  File& file_;
  GlobalHeap heap_;
};

}  // namespace stele::inline v0::detail::hdf5
