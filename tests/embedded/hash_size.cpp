// XXH3-64 of xxHash's header: its size is printed.
#include "hash.hpp"

extern "C" std::uint64_t hash(const void* data, std::size_t size) { return xxh3(data, size); }
