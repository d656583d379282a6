// Reads integers of 2 or 4 bits, each in the low bits of a byte, as integers of 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::tensorflow {

Status read_narrow(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context);
Status stream_narrow(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context);

/// `at` is the Entry.
inline constexpr LeafOps narrow_ops{.read = read_narrow, .stream = stream_narrow};

}  // namespace stele::inline v0::detail::tensorflow
