// XXH3-64, the checksum of stele's own formats. Only hash.cpp includes xxHash's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "stele/bytes.hpp"
#include "stele/config.hpp"

namespace stele::inline v0::detail {

/// Returns the XXH3-64, with seed 0, of a block of memory.
STELE_EXPORT std::uint64_t hash64(const void* data, std::size_t size);

/// Computes the XXH3-64, or the CRC-32 if the caller passes a function for it, of bytes that arrive in pieces. Reusable
/// after reset().
class STELE_EXPORT Hasher {
 public:
  explicit Hasher(Crc32 crc = nullptr);
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void reset();
  void update(const void* data, std::size_t size);
  std::uint64_t digest() const;
  /// Returns the checksum of a whole block.
  std::uint64_t of(const void* data, std::size_t size) const {
    return crc_ != nullptr ? crc_(0, data, size) : hash64(data, size);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;  // state of XXH3
  Crc32 crc_;
  std::uint32_t sum_ = 0;  // the CRC so far
};

}  // namespace stele::inline v0::detail
