// A Source read forward in small steps. Every length is compared with what remains before anything is made of it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>

#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Copies go on from the same place, and share what is read ahead.
class Cursor {
 public:
  explicit Cursor(SourcePtr source) : source_(std::move(source)), size_(source_->size()), view_(source_->view()) {}

  std::uint64_t position() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return size_ - at_; }
  const SourcePtr& source() const noexcept { return source_; }

  /// The next `n` bytes, at most `most`; valid until the next call. Errors: truncated, io.
  Result<const std::byte*> take(std::size_t n) {
    STELE_TRY_ASSIGN(const std::byte* bytes, peek(n));
    at_ += n;
    return bytes;
  }
  /// The same, and stays there.
  Result<const std::byte*> peek(std::size_t n) {
    if (n > left()) return beyond(n);
    if (!view_.empty()) return view_.data() + at_;
    if (at_ < begin_ || at_ + n > begin_ + filled_) STELE_TRY(fill(n));
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
    // Little behind a tensor that was stepped over: another one may be next.
    const bool on = buffer_ != nullptr && at_ <= begin_ + filled_;
    const std::size_t size = std::max(n, on ? std::min(2 * filled_, most) : std::size_t{1} << 10);
    // Others may still read what is there.
    if (buffer_ == nullptr || buffer_.use_count() > 1) buffer_ = std::make_shared<Bytes>(most);
    begin_ = at_;
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(size, left()));
    return source_->read_at(at_, buffer_->span().first(filled_));
  }

  SourcePtr source_;
  std::uint64_t size_, at_ = 0;
  std::span<const std::byte> view_;
  std::shared_ptr<Bytes> buffer_;
  std::uint64_t begin_ = 0;  // of the buffer
  std::size_t filled_ = 0;
};

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
