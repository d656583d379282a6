// zstd's contexts, with an owner. With STELE_ZSTD=0, for programs that do not link zstd, its data are refused.
#pragma once

#ifndef STELE_ZSTD
#define STELE_ZSTD 1
#endif

#include <cstdint>
#include <memory>
#include <new>
#include <string_view>

#if STELE_ZSTD
#include <zstd.h>
#endif

#include "stele/result.hpp"

namespace stele::inline v0::detail::zstd {

// The first four bytes of a frame, and of a skippable frame, whose last digit varies (RFC 8878).
inline constexpr std::uint32_t magic = 0xfd2fb528;
inline constexpr std::uint32_t skippable_magic = 0x184d2a50;

#if STELE_ZSTD

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

#else

/// Returns the error for data that are or would be compressed by zstd.
inline Error left_out(std::string_view file) {
  return Error(Errc::unsupported, "this program was built without zstd")
      .file(file)
      .hint("compile stele with -D STELE_ZSTD=1 and link zstd");
}

#endif

}  // namespace stele::inline v0::detail::zstd
