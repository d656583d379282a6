// XXH3-64, the checksum of the library's own formats. xxHash's header stays in hash.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "stele/bytes.hpp"
#include "stele/config.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// XXH3-64 with seed 0 of a block of memory.
STELE_EXPORT std::uint64_t hash64(const void* data, std::size_t size);

/// The same, or the CRC-32 where that is given, of bytes that come in pieces. Reusable after reset().
class STELE_EXPORT Hasher {
 public:
  explicit Hasher(Crc32 crc = nullptr);
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void reset();
  void update(const void* data, std::size_t size);
  std::uint64_t digest() const;
  /// Of a whole block.
  std::uint64_t of(const void* data, std::size_t size) const {
    return crc_ != nullptr ? crc_(0, data, size) : hash64(data, size);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;  // of XXH3
  Crc32 crc_;
  std::uint32_t sum_ = 0;  // of the CRC
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
