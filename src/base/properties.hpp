// The typed properties of a file: a Value, and the types that it does not show.
#pragma once

#include <map>
#include <string>

#include "stele/value.hpp"

namespace stele::inline v0::detail {

/// The typed properties of a file.
struct Properties {
  Value values;                              // a map
  std::map<std::string, std::string> types;  // key -> its type in the file, for keys whose type the Value does not show
};

}  // namespace stele::inline v0::detail
