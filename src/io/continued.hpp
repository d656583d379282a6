// A source that ends before or after its file: for the repair of damaged files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// The first `size` bytes of a source, followed by other bytes. Reads beyond the source fail.
class Continued : public Source {
 public:
  Continued(SourcePtr source, std::uint64_t size, std::string tail = {})
      : Source(source->name()), source_(std::move(source)), size_(size), tail_(std::move(tail)) {}
  std::uint64_t size() const noexcept override { return size_ + tail_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) {
      return Error(Errc::truncated, "the file ends early").file(name()).offset(offset);
    }
    const auto first = static_cast<std::size_t>(std::min<std::uint64_t>(size_ - std::min(offset, size_), out.size()));
    if (first != 0) STELE_TRY(source_->read_at(offset, out.first(first)));
    if (first == out.size()) return {};
    const auto from = static_cast<std::size_t>(offset + first - size_);
    const auto rest = std::as_bytes(std::span(tail_)).subspan(from, out.size() - first);
    std::copy(rest.begin(), rest.end(), out.begin() + static_cast<std::ptrdiff_t>(first));
    return {};
  }
  std::shared_ptr<const Bundle> bundle() const override { return source_->bundle(); }

 private:
  SourcePtr source_;
  std::uint64_t size_;
  std::string tail_;
};

}  // namespace stele::inline v0::detail
