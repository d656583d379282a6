#include "module/path_store.hpp"

#include <algorithm>

#include "base/shortened.hpp"
#include "stele/report.hpp"

namespace stele::inline v0::detail {

std::uint32_t PathStore::add(std::uint32_t parent, std::string_view segment) {
  const std::uint64_t above = parent != none ? parts_[parent].whole : 0;
  parts_.push_back({text_.size(), above + segment.size(), static_cast<std::uint32_t>(segment.size()), parent});
  text_ += segment;
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

std::string PathStore::text(std::uint32_t path) const {
  std::string whole(static_cast<std::size_t>(parts_[path].whole), '\0');
  for (; path != none; path = parts_[path].parent) {
    const Part& part = parts_[path];
    segment(part).copy(whole.data() + part.whole - part.size, part.size);
  }
  return whole;
}

std::string PathStore::shown(std::uint32_t path) const {
  constexpr std::size_t max = Report::max_part_bytes;
  if (parts_[path].whole <= 2 * max) return text(path);
  // Builds only the two ends that are shown, because shortened() removes the part between them.
  std::string both(2 * max, '\0');
  for (std::uint32_t p = path; p != none; p = parts_[p].parent) {
    const Part& part = parts_[p];
    const std::uint64_t begin = part.whole - part.size;
    const std::string_view all = segment(part);
    if (begin < max) all.substr(0, static_cast<std::size_t>(max - begin)).copy(both.data() + begin, all.size());
    const std::uint64_t tail = parts_[path].whole - max;  // offset of the last bytes
    if (part.whole <= tail) continue;
    const std::uint64_t from = std::max(begin, tail);
    all.substr(static_cast<std::size_t>(from - begin)).copy(both.data() + max + (from - tail), all.size());
  }
  return shortened(both, max);
}

}  // namespace stele::inline v0::detail
