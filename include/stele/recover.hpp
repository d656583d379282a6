// Opens the intact parts of damaged files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stele/input.hpp"
#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

class Format;  // stele/format.hpp

/// Returns the reason why an entry of a file is not a readable tensor; an empty string for other leaves.
STELE_EXPORT std::string_view unreadable_reason(const LeafView& leaf) noexcept;

struct Recovered {
  Snapshot snapshot;
  std::string format{};              // name of the format
  std::vector<std::string> notes{};  // the faults of the file
};

/// Opens a file that open() may refuse. A tensor that is known to be lost is an opaque leaf with the annotation
/// `unreadable`; other tensors are verified when they are read, except the padding after them. In addition to open(),
/// it reads:
///
/// - zip files (.npz, .pt, archives, .sdz) that have lost their end: from the local headers of the entries. Tensors of
/// a .pt file whose storages were in the lost part are known to be lost
/// - files that end early, of formats with the index at the beginning
/// - `.stele` files, whose index is at the end, if the trailer after the index (64 bytes) is partly or wholly lost or
/// damaged, or if the index does not match its checksum but can be parsed
/// - files that are followed by other bytes
/// - shard indexes (x.index.json) with missing files, or with names that no file has. Values, ties and metadata of the
/// index and of the files are kept
///
/// Errors: those of open(), if nothing can be read.
STELE_EXPORT Result<Recovered> recover(const Input& from, const LoadOptions& options = default_load_options());
/// Opens a file in a format object with options, such as the tag of an archive.
STELE_EXPORT Result<Recovered> recover(const Format& format, const Input& from,
                                       const LoadOptions& options = default_load_options());

}  // namespace stele::inline v0
