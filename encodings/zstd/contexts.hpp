// zstd's contexts, with an owner.
#pragma once

#include <memory>
#include <new>

#include <zstd.h>

namespace stele::inline v0::detail::zstd {

struct Free {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};
using Compressor = std::unique_ptr<ZSTD_CCtx, Free>;
using Decompressor = std::unique_ptr<ZSTD_DCtx, Free>;

/// Throws std::bad_alloc.
inline Compressor new_compressor() {
  Compressor made(ZSTD_createCCtx());
  if (made == nullptr) STELE_THROW(std::bad_alloc());
  return made;
}
/// Throws std::bad_alloc.
inline Decompressor new_decompressor() {
  Decompressor made(ZSTD_createDCtx());
  if (made == nullptr) STELE_THROW(std::bad_alloc());
  return made;
}

}  // namespace stele::inline v0::detail::zstd
