// Stores the paths of a load, which may be many and long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stele::inline v0::detail {

/// Paths whose segments are stored once: paths below a long key of a map do not repeat the key.
class PathStore {
 public:
  static constexpr std::uint32_t none = 0xffffffff;
  /// Adds a path: the path `parent` followed by `segment` (with its dot, if it has one), or a first segment.
  std::uint32_t add(std::uint32_t parent, std::string_view segment);
  std::string text(std::uint32_t path) const;
  /// Returns the path, cut as a Report cuts it; takes constant time for long paths.
  std::string shown(std::uint32_t path) const;

 private:
  struct Part {
    std::uint64_t begin, whole;  // offset of its segment in text_; size of the whole path
    std::uint32_t size, parent;
  };
  std::string_view segment(const Part& part) const {
    return std::string_view(text_).substr(static_cast<std::size_t>(part.begin), part.size);
  }
  std::vector<Part> parts_;
  std::string text_;
};

}  // namespace stele::inline v0::detail
