// Reads a Source forward in small steps. Every length is checked against the remaining bytes before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// Reads the next bytes; returns fewer only at the end. The size of a gzip file is only an upper bound until its end
/// has been read.
Result<std::size_t> read_some(const Source& source, std::uint64_t at, std::span<std::byte> out);

/// A cursor. Copies continue at the same offset and share the bytes read ahead.
class Cursor {
 public:
  /// Maximum number of bytes taken at once, and maximum string length (64 KiB): the size of the buffer.
  static constexpr std::size_t max_taken_bytes = std::size_t{64} << 10;

  explicit Cursor(SourcePtr source) : source_(std::move(source)), view_(source_->view()) {}

  std::uint64_t position() const noexcept { return at_; }
  /// Returns the number of remaining bytes; for a gzip file, an upper bound until its end has been read.
  std::uint64_t left() const noexcept {
    const std::uint64_t size = source_->size();
    return size > at_ ? size - at_ : 0;
  }
  /// Returns true if no bytes remain. Errors: truncated (skipped bytes do not exist), io.
  Result<bool> at_end();
  const SourcePtr& source() const noexcept { return source_; }

  /// Returns the next `n` bytes, at most max_taken_bytes; valid until the next call. Errors: truncated, io.
  Result<const std::byte*> take(std::size_t n) {
    STELE_TRY_ASSIGN(const std::byte* bytes, peek(n));
    at_ += n;
    return bytes;
  }
  /// Returns the next `n` bytes without advancing.
  Result<const std::byte*> peek(std::size_t n) {
    if (buffer_ != nullptr && at_ >= begin_ && n <= filled_ && at_ - begin_ <= filled_ - n)
      return buffer_->data() + (at_ - begin_);
    if (n > left()) return beyond(n);
    if (!view_.empty()) return view_.data() + at_;
    STELE_TRY(fill(n));
    if (n > filled_) return beyond(n);
    return buffer_->data() + (at_ - begin_);
  }
  /// Returns the next bytes that are already in memory; may be empty.
  std::span<const std::byte> ready() const noexcept {
    if (!view_.empty()) return at_ < view_.size() ? view_.subspan(static_cast<std::size_t>(at_)) : view_.last(0);
    if (at_ < begin_ || at_ - begin_ >= filled_) return {};
    return {buffer_->data() + (at_ - begin_), filled_ - static_cast<std::size_t>(at_ - begin_)};
  }
  /// Advances by `n` bytes, which must be ready().
  void pass(std::size_t n) noexcept { at_ += n; }
  Status skip(std::uint64_t n) {
    if (n > left()) return beyond(n);
    at_ += n;
    return {};
  }
  /// Reads a string of `n` bytes. Errors: limit (more than max_taken_bytes), truncated, io.
  Status text(std::uint64_t n, std::string& out);
  template <class T>
  Result<T> little() {
    STELE_TRY_ASSIGN(const std::byte* bytes, take(sizeof(T)));
    return load_le<T>(bytes);
  }
  /// Reads a big-endian number of `size` bytes, at most 8.
  Result<std::uint64_t> big(std::size_t size) {
    STELE_TRY_ASSIGN(const std::byte* bytes, take(size));
    std::uint64_t n = 0;
    for (const std::byte b : std::span(bytes, size)) n = n << 8 | std::to_integer<std::uint64_t>(b);
    return n;
  }

 private:
  Error beyond(std::uint64_t n) const;
  Status fill(std::size_t n);

  SourcePtr source_;
  std::uint64_t at_ = 0;
  std::span<const std::byte> view_;
  std::shared_ptr<Bytes> buffer_;
  std::uint64_t begin_ = 0;  // offset of the buffer
  std::size_t filled_ = 0;
};

}  // namespace stele::inline v0::detail
