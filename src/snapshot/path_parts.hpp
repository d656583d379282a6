// Paths that are made of parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the path of a name whose parts are separated by any of these characters. Dots in a part are escaped.
inline std::string path_of_parts(std::string_view name, std::string_view separators) {
  std::string path;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of(separators, begin), name.size());
    if (begin != 0) path += '.';
    append_segment(path, name.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

/// Appends a part to a path, as it is, for the lifetime of this object.
class PathPart {
 public:
  PathPart(std::string& path, std::string_view part) : path_(path), size_(path.size()) {
    if (size_ != 0) path_ += '.';
    path_ += part;
  }
  ~PathPart() { path_.resize(size_); }
  PathPart(const PathPart&) = delete;
  PathPart& operator=(const PathPart&) = delete;

 private:
  std::string& path_;
  std::size_t size_;
};

}  // namespace stele::inline v0::detail
