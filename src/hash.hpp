// XXH3-64, the checksum of the library's own formats. xxHash's header stays in hash.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// XXH3-64 with seed 0 of a block of memory.
STELE_EXPORT std::uint64_t hash64(const void* data, std::size_t size);

/// The same of bytes that come in pieces. Reusable after reset().
class STELE_EXPORT Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void reset();
  void update(const void* data, std::size_t size);
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
