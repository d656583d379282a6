// The index of a folder of safetensors shards with boxes, which stele::mpi writes next to the files of PyTorch's
// layout: global shapes, the position of every box, checksums (docs/formats/safetensors.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "base/skipped.hpp"
#include "leaves/boxes.hpp"
#include "snapshot/shard_set.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::shards {

inline constexpr std::string_view shard_index_name = "stele-shards.json";
/// Keys of a shard's metadata. The first two are PyTorch's. The other two contain checksums (XXH3-64 in hexadecimal):
/// of each box, and of the pieces of boxes that are larger than a piece.
inline constexpr const char *sharding_key = "DCP_SHARDING_INFO", *version_key = "DCP_VERSION",
                            *hashes_key = "stele_xxh3", *pieces_key = "stele_xxh3_pieces";
/// Size of a piece (1 MiB): a process that needs a part of a box reads at most one further piece at each end of it, and
/// the checksums take 16 bytes per MiB.
inline constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header = 0;  // XXH3-64 of the length and the header, which contains the checksums of the boxes
};

/// The file is a delta of the file of the same process in another step. Its `header` is the digest of the result.
inline constexpr std::string_view delta_suffix = ".stele";
/// Opens a file that is a delta, and its base, as the decoded safetensors file.
using OpenDelta = std::function<Result<Snapshot>(const ShardFile& file)>;

/// The boxes of a tensor of this shape. Many tensors share a layout.
struct ShardLayout {
  std::vector<Extent> shape;
  std::vector<std::uint64_t> boxes;  // for each box: the file's number, the start and the extent along each axis

  std::size_t stride() const noexcept { return 1 + 2 * shape.size(); }
  std::size_t size() const noexcept { return boxes.size() / stride(); }
  std::uint32_t file(std::size_t box) const noexcept { return static_cast<std::uint32_t>(boxes[box * stride()]); }
  Box box(std::size_t number) const;
};

struct ShardTensor {
  std::string name;
  DType dtype = DType::none;
  std::uint32_t layout = 0;
};

struct ShardIndex {
  std::vector<ShardFile> files;
  std::vector<ShardLayout> layouts;
  std::vector<ShardTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::string extras;  // values and ties (snapshot/flat.hpp)
  Skipped skipped{};   // unknown keys
};

/// Returns the bytes of the index.
STELE_EXPORT std::string to_text(const ShardIndex& index);
/// Parses an index and checks that each layout covers its shape. Errors: truncated, checksum, malformed, unsupported,
/// limit.
STELE_EXPORT Result<ShardIndex> parse_shard_index(std::string_view text, IndexBudget& memory);
/// Reads the whole index of a folder. Errors: those of parse_shard_index() and of reading.
Result<ShardIndex> read_shard_index(const Source& source, IndexBudget& memory);

/// Returns the box of a tensor that the caller needs, or nullopt for the whole tensor.
using WantedBox = std::function<std::optional<Box>(std::string_view name, std::span<const Extent> shape)>;
/// Returns true for the tensors to verify.
using WhichTensors = std::function<bool(std::string_view name)>;
/// Verifies the checksums of all boxes that overlap the requested boxes; if only a part of a box is needed, the
/// checksums of the pieces that contain the part. Reads bytes only for this verification. Errors: checksum, those of
/// reading, cancelled.
using CheckBoxes = std::function<Status(const WhichTensors& which, Meter& meter, const Workers& workers)>;

/// Opens a folder with an index. Reads, with `open`, the headers of only those files that overlap the requested boxes.
/// `check` receives a function that verifies the files' bytes, because streams of the leaves verify only boxes that are
/// read as a whole; it does not verify deltas, whose boxes are compared with their checksums when they are read.
/// Errors: those of the index and of its files; checksum (a file of another set); unsupported (deltas, without
/// `open_delta`).
STELE_EXPORT Result<Snapshot> open_shards(const Source& folder, const Limits& limits, const OpenShard& open,
                                          const WantedBox& wanted = {}, CheckBoxes* check = nullptr,
                                          const OpenDelta& open_delta = {});

}  // namespace stele::inline v0::detail::shards
