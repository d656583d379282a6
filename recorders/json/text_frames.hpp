// Opens text in zstd frames that can be read separately. Also has the helpers that this reader and the stream's share.
#pragma once

#include <cstdint>

#include "encodings/zstd/contexts.hpp"
#include "text_in.hpp"

namespace stele::inline v0::detail::json {

inline Error damaged(const Source& source, std::uint64_t offset, const char* text) {
  return Error(Errc::malformed, text).file(source.name()).offset(offset);
}

/// Opens text with a seek table. Returns false for another program's file without a usable table. `budget`: maximum
/// memory for the table and an index. Errors: checksum, io, limit, malformed.
Result<bool> open_frames(const SourcePtr& source, std::uint64_t budget, OpenedText& out);

}  // namespace stele::inline v0::detail::json
