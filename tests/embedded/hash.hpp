// XXH3-64 as the reader and writer of `.stele` take it. xxHash's header alone, without its library.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

inline std::uint64_t xxh3(const void* data, std::size_t size) { return XXH3_64bits(data, size); }
