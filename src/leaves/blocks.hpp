// Streams leaves that are assembled out of order, block by block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Size of the block in which data is assembled out of order. Each block takes one pass over the source tensors. The
/// size is large enough that nearly every tensor needs one pass, and small compared to a model.
inline constexpr std::size_t assembly_bytes = std::size_t{32} << 20;

/// Streams the output of `step.fill(first, block, context)`, block by block.
template <class Step>
Status stream_blocks(const void* at, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Step& step = *static_cast<const Step*>(at);
  Bytes block(static_cast<std::size_t>(std::min<std::uint64_t>(size, assembly_bytes)));
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, block.size()));
    STELE_TRY(step.fill(done, block.span().first(n), context));
    for (std::size_t passed = 0; passed < n; passed += ReadContext::piece_size) {
      STELE_TRY(sink.piece(block.span().subspan(passed, std::min(ReadContext::piece_size, n - passed))));
    }
    done += n;
  }
  return {};
}

}  // namespace stele::inline v0::detail
