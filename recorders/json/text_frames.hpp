// Opens text in zstd frames that can be read separately. Also has the helpers that this reader and the stream's share.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include <zstd.h>

#include "text_in.hpp"

namespace stele::inline v0::detail::json {

struct FreeDecompressor {
  void operator()(ZSTD_DCtx* c) const { ZSTD_freeDCtx(c); }
};
using Decompressor = std::unique_ptr<ZSTD_DCtx, FreeDecompressor>;

inline ZSTD_DCtx* new_decompressor() {
  ZSTD_DCtx* const made = ZSTD_createDCtx();
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

inline Error damaged(const Source& source, std::uint64_t offset, const char* text) {
  return Error(Errc::malformed, text).file(source.name()).offset(offset);
}

/// Opens text with a seek table. Returns false for another program's file without a usable table. `budget`: maximum
/// memory for the table and an index. Errors: checksum, io, limit, malformed.
Result<bool> open_frames(const SourcePtr& source, std::uint64_t budget, OpenedText& out);

}  // namespace stele::inline v0::detail::json
