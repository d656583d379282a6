// Compressed blocks of `.stele`. Layout of a block of `length` plain bytes (docs/formats/stele.md):
//
//  1. Frames, each of the next 1 MiB of the plain bytes (the last: of the rest), one after the other: the bytes
//  shuffled
//     by the width of an element and compressed by zstd, or the plain bytes where that does not shrink them.
//  2. u32 for each frame: its size; bit 31: it is plain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "snapshot/leaf_gather.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A compressed block in a source.
struct FramedBlock {
  const Source& source;
  std::uint64_t offset;  // in the source
  std::uint64_t stored;  // its bytes there
  std::uint64_t hash;    // XXH3-64 of them
  std::uint64_t length;  // plain bytes
  unsigned width;        // of an element
};

/// What the index says of a compressed block; both 0: the elements are there as they are.
struct StoredBlock {
  std::uint64_t size = 0;
  std::uint64_t hash = 0;
};

/// Whether a block can have this size at all.
bool frames_fit(std::uint64_t stored, std::uint64_t length) noexcept;

/// Writes leaves compressed, or as they are where that saves nothing. Deterministic: the bytes do not depend on the
/// number of threads. Keeps its working memory from leaf to leaf.
class FrameWriter {
 public:
  FrameWriter(const Workers& workers, LeafGather& out);
  ~FrameWriter();
  /// `hash` becomes the XXH3-64 of the elements.
  Result<StoredBlock> write(const LeafView& leaf, ReadContext& context, std::uint64_t& hash);

 private:
  class FrameSink;
  std::unique_ptr<FrameSink> sink_;
  LeafGather& out_;
};

/// Passes the plain bytes to `sink`; `hash` becomes their XXH3-64. Errors: checksum (of the
/// compressed bytes), malformed, io.
Status stream_frames(const FramedBlock& block, PieceSink& sink, ReadContext& context, std::uint64_t& hash);

/// Plain bytes from `first` on; reads the frames that they lie in, and the table.
Status read_frames(const FramedBlock& block, std::uint64_t first, std::span<std::byte> out);

}  // namespace detail
}  // namespace v0
}  // namespace stele
