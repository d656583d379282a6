#include "io/cursor.hpp"

#include <algorithm>
#include <cstring>

namespace stele::inline v0::detail {

Result<std::size_t> read_some(const Source& source, std::uint64_t at, std::span<std::byte> out) {
  const std::uint64_t before = source.size();
  if (at > before)
    return Error(Errc::truncated, "the file ends before the position").file(source.name()).offset(before);
  auto piece = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), before - at)));
  auto read = source.read_at(at, piece);
  if (!read && source.size() < before && source.size() >= at) {
    piece = piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.size() - at)));
    read = source.read_at(at, piece);
  }
  if (!read) return std::move(read).error();
  return piece.size();
}

Result<bool> Cursor::at_end() {
  if (view_.empty() && left() != 0 && (at_ < begin_ || at_ >= begin_ + filled_)) STELE_TRY(fill(0));
  return left() == 0;
}

Status Cursor::text(std::uint64_t n, std::string& out) {
  if (n > max_taken_bytes) {
    return Error(Errc::limit, "the string exceeds 64 KiB").offset(at_).found(std::to_string(n) + " bytes");
  }
  STELE_TRY_ASSIGN(const std::byte* bytes, take(static_cast<std::size_t>(n)));
  out.assign(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
  return {};
}

Error Cursor::beyond(std::uint64_t n) const {
  return Error(Errc::truncated, "the file ends early")
      .offset(at_)
      .expected(std::to_string(n) + " bytes")
      .found(std::to_string(left()));
}

Status Cursor::fill(std::size_t n) {
  // Read little after a skipped tensor, because the next bytes may be skipped too.
  const bool on = buffer_ != nullptr && at_ <= begin_ + filled_;
  const std::size_t size = std::max(n, on ? std::min(2 * filled_, max_taken_bytes) : std::size_t{1} << 10);
  // Keeps the bytes already read, because a gzip file would have to be inflated again.
  const std::size_t kept =
      at_ >= begin_ && at_ < begin_ + filled_ ? filled_ - static_cast<std::size_t>(at_ - begin_) : 0;
  const std::byte* from = kept != 0 ? buffer_->data() + (at_ - begin_) : nullptr;
  if (buffer_ == nullptr || buffer_.use_count() > 1) {  // copies of this cursor may still use the bytes
    auto fresh = std::make_shared<Bytes>(max_taken_bytes);
    if (kept != 0) std::memcpy(fresh->data(), from, kept);
    buffer_ = std::move(fresh);
  } else if (kept != 0) {
    std::memmove(buffer_->data(), from, kept);
  }
  begin_ = at_;
  filled_ = kept;
  const auto rest = buffer_->span().subspan(kept, std::max(size, kept) - kept);
  STELE_TRY_ASSIGN(const std::size_t more, read_some(*source_, at_ + kept, rest));
  filled_ += more;
  return {};
}

}  // namespace stele::inline v0::detail
