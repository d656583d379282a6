// Writes one tag of an archive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"
#include "encodings/zip/zip.hpp"
#include "file.hpp"
#include "lines.hpp"
#include "pool.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/archive.hpp"

namespace stele::inline v0::detail::archive {

/// The alignment of arrays in the file, in bytes.
inline constexpr std::uint64_t alignment = 64;

std::string entry_of(std::string_view tag, Kind kind, std::uint32_t number, const char* extension);
/// Returns the first part of an entry's name, usually a tag.
std::string_view top_of(const zip::Entry& entry);

/// The existing file of an edit, whose arrays new lines may refer to.
struct Kept {
  const File& file;
  std::string dropped;  // a tag that the edit removes, so that lines cannot refer to its arrays
  // The snapshots to write, before their leaves were wrapped to count bytes. Some leaves may be arrays of the file.
  const Snapshot& parameters;
  const OptimizerState& optimizer;
};

class TagWriter {
 public:
  TagWriter(std::string tag, LeafGather& out, zip::Writer& zip, const ArchiveOptions& options, const Workers& workers)
      : tag_(std::move(tag)), out_(out), zip_(zip), options_(options), context_(workers) {}

  const Kept* kept = nullptr;  // null if there is none
  Pool pool;

  Status write(const Checkpoint& checkpoint);

 private:
  struct Column;
  Result<std::vector<Column>> columns_of(const Checkpoint& checkpoint) const;
  /// Writes the state arrays, in the order of the parameters.
  Result<std::vector<Line>> write_states(const Checkpoint& checkpoint, const LeafPaths& paths,
                                         std::vector<std::string>& keys);
  Status text(std::string_view name, std::string_view content);
  /// Writes an array, or finds it in the file. `plain`: the leaf before it was wrapped to count its bytes.
  Result<Reference> array(Kind kind, const LeafView& leaf, const LeafView& plain, std::string_view path);
  Reference local(Reference r) const;
  /// Finds a leaf's array if the leaf was opened lazily from the edited file and the array's tag stays.
  std::optional<Reference> opened_from_file(Kind kind, const LeafView& leaf);
  Status write_array(Kind kind, std::uint32_t number, const LeafView& leaf, std::optional<std::uint32_t> crc);
  /// Writes an entry with `head` and the leaf's bytes, which are aligned.
  Status write_leaf(const std::string& name, const std::string& head, const LeafView& leaf,
                    std::optional<std::uint32_t> crc);

  std::string tag_;
  LeafGather& out_;
  zip::Writer& zip_;
  const ArchiveOptions& options_;
  ReadContext context_;
  std::uint32_t next_[2] = {0, 0};
  SourcePtr compared_;  // the previous leaf's source; same_ is true if that is the edited file
  bool same_ = false;
};

}  // namespace stele::inline v0::detail::archive
