// Fractal heaps: links or attributes of an object that are not in its header.
#pragma once

#include <string_view>

#include "file.hpp"
#include "object_header.hpp"

namespace stele::inline v0::detail::hdf5 {

/// The messages of an object that are in a fractal heap.
struct Dense {
  Header header{};
  bool ordered = false;       // the messages are in the order of their creation, else in no particular order
  std::string_view reason{};  // why the messages cannot be read, as a noun phrase
};

/// Reads the links or attributes to which a link info or attribute info message refers; none if all of them are in the
/// object's header. Errors: malformed, truncated, limit.
Result<Dense> read_dense(File& file, const Message& info);

}  // namespace stele::inline v0::detail::hdf5
