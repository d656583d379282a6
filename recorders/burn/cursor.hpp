// Reads a Source forward in small steps. Every length is checked against the remaining bytes before it is used.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Reads the next bytes, fewer only at the end. A gzip file's size is a bound until its end has been read.
inline Result<std::size_t> read_some(const Source& source, std::uint64_t at, std::span<std::byte> out) {
  const std::uint64_t before = source.size();
  if (at > before) return Error(Errc::truncated, "the bytes end before").file(source.name()).offset(before);
  auto piece = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), before - at)));
  auto read = source.read_at(at, piece);
  if (!read && source.size() < before && source.size() >= at) {
    piece = piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), source.size() - at)));
    read = source.read_at(at, piece);
  }
  if (!read) return std::move(read).error();
  return piece.size();
}

/// Copies continue at the same offset and share the bytes read ahead.
class Cursor {
 public:
  explicit Cursor(SourcePtr source) : source_(std::move(source)), view_(source_->view()) {}

  std::uint64_t position() const noexcept { return at_; }
  /// Returns the remaining bytes; for a gzip file, a bound until its end has been read.
  std::uint64_t left() const noexcept {
    const std::uint64_t size = source_->size();
    return size > at_ ? size - at_ : 0;
  }
  /// Returns true if no bytes remain. Errors: truncated (skipped bytes do not exist), io.
  Result<bool> at_end() {
    if (view_.empty() && left() != 0 && (at_ < begin_ || at_ >= begin_ + filled_)) STELE_TRY(fill(0));
    return left() == 0;
  }
  const SourcePtr& source() const noexcept { return source_; }

  /// Returns the next `n` bytes, at most `most`; valid until the next call. Errors: truncated, io.
  Result<const std::byte*> take(std::size_t n) {
    STELE_TRY_ASSIGN(const std::byte* bytes, peek(n));
    at_ += n;
    return bytes;
  }
  /// Returns the next `n` bytes without moving on.
  Result<const std::byte*> peek(std::size_t n) {
    if (n > left()) return beyond(n);
    if (!view_.empty()) return view_.data() + at_;
    if (at_ < begin_ || at_ + n > begin_ + filled_) {
      STELE_TRY(fill(n));
      if (n > filled_) return beyond(n);
    }
    return buffer_->data() + (at_ - begin_);
  }
  Status skip(std::uint64_t n) {
    if (n > left()) return beyond(n);
    at_ += n;
    return {};
  }
  Status text(std::uint64_t n, std::string& out) {
    if (n > most) return Error(Errc::limit, "a text that is too long").offset(at_).found(std::to_string(n) + " bytes");
    STELE_TRY_ASSIGN(const std::byte* bytes, take(static_cast<std::size_t>(n)));
    out.assign(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
    return {};
  }
  template <class T>
  Result<T> little() {
    STELE_TRY_ASSIGN(const std::byte* bytes, take(sizeof(T)));
    return load_le<T>(bytes);
  }
  template <class T>
  Result<T> big() {
    STELE_TRY_ASSIGN(const std::byte* bytes, take(sizeof(T)));
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value << 4 << 4 | static_cast<T>(bytes[i]));
    return value;
  }

  static constexpr std::size_t most = std::size_t{64} << 10;

 private:
  Error beyond(std::uint64_t n) const {
    return Error(Errc::truncated, "a file that ends early")
        .offset(at_)
        .expected(std::to_string(n) + " bytes")
        .found(std::to_string(left()));
  }
  Status fill(std::size_t n) {
    // Read little after a skipped tensor: another one may be next.
    const bool on = buffer_ != nullptr && at_ <= begin_ + filled_;
    const std::size_t size = std::max(n, on ? std::min(2 * filled_, most) : std::size_t{1} << 10);
    // Keep the bytes already read: a gzip file would have to be inflated again.
    const std::size_t kept =
        at_ >= begin_ && at_ < begin_ + filled_ ? filled_ - static_cast<std::size_t>(at_ - begin_) : 0;
    const std::byte* from = kept != 0 ? buffer_->data() + (at_ - begin_) : nullptr;
    if (buffer_ == nullptr || buffer_.use_count() > 1) {  // copies of this cursor may still use the bytes
      auto fresh = std::make_shared<Bytes>(most);
      if (kept != 0) std::memcpy(fresh->data(), from, kept);
      buffer_ = std::move(fresh);
    } else if (kept != 0) {
      std::memmove(buffer_->data(), from, kept);
    }
    begin_ = at_;
    filled_ = kept;
    const auto room = buffer_->span().subspan(kept, std::max(size, kept) - kept);
    STELE_TRY_ASSIGN(const std::size_t more, read_some(*source_, at_ + kept, room));
    filled_ += more;
    return {};
  }

  SourcePtr source_;
  std::uint64_t at_ = 0;
  std::span<const std::byte> view_;
  std::shared_ptr<Bytes> buffer_;
  std::uint64_t begin_ = 0;  // offset of the buffer
  std::size_t filled_ = 0;
};

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
