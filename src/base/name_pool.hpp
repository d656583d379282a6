// Memory for names.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Owns names that have no other owner. Their addresses are stable.
class STELE_EXPORT NamePool {
 public:
  std::string_view add(std::string_view name);

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t used_ = 0, capacity_ = 0;
};

}  // namespace stele::inline v0::detail
