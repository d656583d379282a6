// Collects the parts of a graph that no rule covers, for a single error.
#pragma once

#include <cstddef>
#include <string>

#include "stele/result.hpp"

namespace stele::inline v0::detail::ir {

class Refused {
 public:
  bool empty() const noexcept { return count_ == 0; }
  void add(const std::string& node, const Error& error) {
    constexpr std::size_t max_listed = 32;
    if (++count_ > max_listed) return;
    if (count_ != 1) list_ += "; ";
    list_ += node + ": " + std::string(error.message());
    if (!error.path().empty()) list_ += ": " + std::string(error.path());
    if (!error.expected().empty()) list_ += ", expected " + std::string(error.expected());
    if (!error.found().empty()) list_ += ", found " + std::string(error.found());
    listed_ = count_;
  }
  Error error(std::string_view message) const {
    const std::string more = count_ > listed_ ? "; and " + std::to_string(count_ - listed_) + " more" : "";
    return Error(Errc::unsupported, message).found(list_ + more);
  }

 private:
  std::string list_;
  std::size_t count_ = 0, listed_ = 0;
};

}  // namespace stele::inline v0::detail::ir
