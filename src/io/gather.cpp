#include "io/gather.hpp"

#include <algorithm>
#include <cstring>

namespace stele::inline v0::detail {

Gather::Gather(Sink& sink) : sink_(sink), staging_(size) { pieces_.reserve(max_pieces); }

Status Gather::write(std::span<const std::byte> bytes) {
  if (bytes.size() >= direct) {
    STELE_TRY(refer(bytes));
    return flush();
  }
  if (bytes.empty()) return {};
  if (bytes.size() > size - used_) STELE_TRY(flush());
  std::byte* to = staging_.data() + used_;
  std::memcpy(to, bytes.data(), bytes.size());
  used_ += bytes.size();
  if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == to) {
    pieces_.back() = {pieces_.back().data(), pieces_.back().size() + bytes.size()};
    waiting_ += bytes.size();
    return {};
  }
  return refer({to, bytes.size()});
}

Status Gather::refer(std::span<const std::byte> bytes) {
  pieces_.push_back(bytes);
  waiting_ += bytes.size();
  // Up to this size, the bytes are still in the cache after hashing.
  return waiting_ >= size || pieces_.size() == max_pieces ? flush() : Status();
}

Status Gather::zeros(std::size_t count) {
  static constexpr std::byte nothing[4096]{};
  while (count != 0) {
    const std::size_t n = std::min(count, sizeof nothing);
    STELE_TRY(write({nothing, n}));
    count -= n;
  }
  return {};
}

Status Gather::flush() {
  if (pieces_.empty()) return {};
  auto written = sink_.write(std::span<const std::span<const std::byte>>(pieces_));
  pieces_.clear();
  used_ = 0;
  flushed_ += waiting_;
  waiting_ = 0;
  return written;
}

Status Gather::copy(const Source& from, std::uint64_t offset, std::uint64_t size) {
  STELE_TRY(flush());
  STELE_TRY(sink_.copy(from, offset, size));
  flushed_ += size;
  return {};
}

Status Gather::patch(std::uint64_t offset, std::span<const std::byte> bytes) {
  STELE_TRY(flush());
  return sink_.patch(offset, bytes);
}

}  // namespace stele::inline v0::detail
