// Compressed blocks of `.stele`. Layout of a block of `length` plain bytes (docs/formats/stele.md):
//
//  1. Frames in order, each of the next 1 MiB of the plain bytes (the last: of the rest). A frame has the bytes
//     shuffled by the element width and compressed by zstd, or the plain bytes if compression does not shrink them.
//  2. u32 for each frame: its size; bit 31 is set if it is plain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "snapshot/leaf_gather.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// A compressed block in a source.
struct FramedBlock {
  const Source& source;
  std::uint64_t offset;  // offset in the source
  std::uint64_t stored;  // size in the source
  std::uint64_t hash;    // XXH3-64 of the stored bytes
  std::uint64_t length;  // number of plain bytes
  unsigned width;        // size of an element in bytes
};

/// A compressed block in the index. Both fields are 0 if the elements are not compressed.
struct StoredBlock {
  std::uint64_t size = 0;
  std::uint64_t hash = 0;
};

/// Returns true if a block of `length` plain bytes can have `stored` bytes.
bool frames_fit(std::uint64_t stored, std::uint64_t length) noexcept;

/// Writes leaves compressed, or plain if compression saves nothing. Deterministic: the bytes do not depend on the
/// number of threads. Reuses its working memory for all leaves.
class FrameWriter {
 public:
  FrameWriter(const Workers& workers, LeafGather& out);
  ~FrameWriter();
  /// Writes a leaf. Sets `hash` to the XXH3-64 of its elements.
  Result<StoredBlock> write(const LeafView& leaf, ReadContext& context, std::uint64_t& hash);

 private:
  class FrameSink;
  std::unique_ptr<FrameSink> sink_;
  LeafGather& out_;
};

/// Passes the plain bytes to `sink` and sets `hash` to their XXH3-64. Errors: checksum (the compressed bytes),
/// malformed, io.
Status stream_frames(const FramedBlock& block, PieceSink& sink, ReadContext& context, std::uint64_t& hash);

/// Reads the plain bytes from `first` on. Reads only the table and the frames with these bytes.
Status read_frames(const FramedBlock& block, std::uint64_t first, std::span<std::byte> out);

}  // namespace stele::inline v0::detail
