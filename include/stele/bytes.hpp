// Bytes: an owned, 64-byte aligned, uninitialised block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "stele/config.hpp"

namespace stele::inline v0 {

namespace detail {

/// Continues a CRC-32 with more bytes; a `crc` of 0 starts a new one.
using Crc32 = std::uint32_t (*)(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// Returns uninitialised memory aligned to 64 bytes, or nullptr for size 0. Large blocks are aligned to huge pages, and
/// the system is advised to use huge pages. Throws std::bad_alloc. The memory is uninitialised because zeroing costs as
/// much as reading the file (performance.md).
STELE_EXPORT void* allocate(std::size_t size);
/// Frees memory from allocate(); `size` is the requested size.
STELE_EXPORT void deallocate(void* memory, std::size_t size) noexcept;
}  // namespace detail

/// Owned memory whose size is fixed at construction; move-only. The output of the in-memory recorder.
class Bytes {
 public:
  Bytes() noexcept = default;
  /// Allocates `size` bytes with unspecified content. Throws std::bad_alloc.
  explicit Bytes(std::size_t size)
      : data_(static_cast<std::byte*>(detail::allocate(size))), size_(size), capacity_(size) {}
  Bytes(Bytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Bytes& operator=(Bytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Bytes() { detail::deallocate(data_, capacity_); }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// Shortens the content without freeing memory.
  void truncate(std::size_t size) noexcept { size_ = size < size_ ? size : size_; }
  std::span<const std::byte> span() const noexcept { return {data_, size_}; }
  std::span<std::byte> span() noexcept { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace stele::inline v0
