#include "base/hash.hpp"

#include <new>

#include <xxhash.h>
#if defined(__x86_64__) && !defined(STELE_STATIC_LIBRARIES)  // Debian builds it without this part
// xxHash selects AVX2 or AVX-512 at run time, which is twice as fast as the SSE2 of a plain build.
#include <xxh_x86dispatch.h>
#endif

namespace stele::inline v0::detail {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) STELE_THROW(std::bad_alloc());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

std::uint64_t hash64(const void* data, std::size_t size) { return XXH3_64bits(data, size); }

Hasher::Hasher(Crc32 crc) : state_(crc != nullptr ? nullptr : std::make_unique<State>()), crc_(crc) { reset(); }
Hasher::~Hasher() = default;
void Hasher::reset() {
  sum_ = 0;
  if (state_ != nullptr) XXH3_64bits_reset(state_->xxh);
}
void Hasher::update(const void* data, std::size_t size) {
  if (crc_ != nullptr) {
    sum_ = crc_(sum_, data, size);
  } else {
    XXH3_64bits_update(state_->xxh, data, size);
  }
}
std::uint64_t Hasher::digest() const { return crc_ != nullptr ? sum_ : XXH3_64bits_digest(state_->xxh); }

}  // namespace stele::inline v0::detail
