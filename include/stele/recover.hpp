// Opens what is left of damaged files.
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

/// Returns the reason why a file's entry is no readable tensor; nothing for other leaves.
STELE_EXPORT std::string_view unreadable_reason(const LeafView& leaf) noexcept;

struct Recovered {
  Snapshot snapshot;
  std::string format{};              // name
  std::vector<std::string> notes{};  // what is wrong with the file
};

/// Opens a file that open() may refuse. A tensor that is known to be lost is an opaque leaf with the annotation
/// `unreadable`; the others are checked when they are read, except the padding after them. Beyond open(), it reads:
///
/// - zip files (.npz, .pt, archives, .sdz) without their end: from the local headers of the entries. Tensors of a .pt
///   whose storages were at that end are known to be lost
/// - files that end early, of formats with the index at the beginning
/// - `.stele` files, whose index is at the end, if the trailer after it (64 bytes) is lost or damaged, in whole or in
///   part, or if the index does not match its checksum but can be parsed
/// - files that other bytes follow
/// - indexes of shards (x.index.json) with missing files, or names that no file has. Values, ties and metadata of the
///   index and of the files are kept
///
/// Errors: those of open(), if nothing can be read.
STELE_EXPORT Result<Recovered> recover(const Input& from, const LoadOptions& options = default_load_options());
/// Opens a file in a format with settings of its own, such as the tag of an archive.
STELE_EXPORT Result<Recovered> recover(const Format& format, const Input& from,
                                       const LoadOptions& options = default_load_options());

}  // namespace stele::inline v0
