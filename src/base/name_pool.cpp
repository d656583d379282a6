// Keeps names in blocks of memory.
#include "base/name_pool.hpp"

#include <algorithm>
#include <cstring>

namespace stele::inline v0::detail {

std::string_view NamePool::add(std::string_view name) {
  if (name.empty()) return "";
  if (used_ + name.size() > capacity_) {
    capacity_ = std::max<std::size_t>(name.size(), 16384);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(capacity_));
    used_ = 0;
  }
  char* at = blocks_.back().get() + used_;
  std::memcpy(at, name.data(), name.size());
  used_ += name.size();
  return {at, name.size()};
}

}  // namespace stele::inline v0::detail
