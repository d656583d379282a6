// Announces ranges of sources before leaves are read.
#include "leaves/needs.hpp"

#include <algorithm>

namespace stele::inline v0::detail {

Needs::~Needs() {
  if (unread_ == Unread::kept) return;
  for (const PerSource& at : found_) at.source->will_read({});
}

void Needs::add(const Snapshot& snapshot) {
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) add(snapshot.leaf(i));
}

void Needs::add_stored(const Provider& leaf, std::uint64_t size) {
  if (leaf.ops->locate == nullptr) {
    // Steps on steps; a deeper leaf announces itself when it is read.
    constexpr unsigned deepest = 64;
    if (depth_ == deepest) return;
    ++depth_;
    leaf.ops->needs(leaf.at, leaf.number, *this);
    --depth_;
    return;
  }
  const SourceRange range = leaf.ops->locate(leaf.at, leaf.number);
  if (range.source != last_) {
    last_ = range.source;
    ranges_ = nullptr;
    if (!last_->plans()) return;
    auto at = std::find_if(found_.begin(), found_.end(), [&](const PerSource& p) { return p.source == last_; });
    if (at == found_.end()) at = found_.insert(at, PerSource{last_, {}});
    ranges_ = &at->ranges;
  }
  if (ranges_ != nullptr && size + range.zeros != 0) ranges_->push_back({range.offset, size + range.zeros});
}

void Needs::announce() {
  last_ = nullptr;
  for (PerSource& at : found_) {
    std::sort(at.ranges.begin(), at.ranges.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
    at.source->will_read(at.ranges);
    at.ranges = {};
  }
}

}  // namespace stele::inline v0::detail
