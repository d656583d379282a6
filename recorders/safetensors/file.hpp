// One safetensors file, for the single-file and sharded formats; folders of them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "stele/format.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::safetensors {

/// Maximum size of a header in bytes, for reading and writing: the reference implementation's limit.
inline constexpr std::uint64_t max_header = 100'000'000;

/// Checks that safetensors can store the names, tensors and metadata. Errors: not_representable.
STELE_EXPORT Status check(const Snapshot& snapshot, const LeafPaths& paths);

/// The layout of a file.
struct FilePlan {
  std::string header;                // without the 8 bytes of its length
  std::vector<std::uint32_t> order;  // of the leaves: their bytes follow each other after the header
  std::uint64_t bytes = 0;           // of all leaves
};
/// Plans a file with these leaves of a snapshot that passed check(). Errors: not_representable (a header that is too
/// large).
STELE_EXPORT Result<FilePlan> plan_file(const Snapshot& snapshot, const LeafPaths& paths,
                                        std::span<const std::uint32_t> leaves,
                                        const std::map<std::string, std::string>& metadata);

/// Writes a file with these leaves of a snapshot that passed check(). Does not commit the sink.
Status write(const Snapshot& snapshot, const LeafPaths& paths, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink);

/// Returns true if the folder itself has an index, or if its first safetensors file has boxes of tensors.
bool recognises_folder(const Bundle& folder);

/// Checks that a folder is one complete set of files with an index, as stele::mpi writes them, and contains nothing
/// else. Errors: exists, those of opening it.
STELE_EXPORT Status check_whole(const Bundle& folder);

/// Returns the index of a folder, or null and the names of its safetensors files. Errors: malformed (several indexes),
/// not_found.
Result<SourcePtr> find_index(const Source& folder, std::vector<std::string>& files);

/// Opens the files of a folder without an index: those of torch.distributed.checkpoint, whose boxes are joined, or one
/// file.
Result<Snapshot> open_files(const Source& folder, std::vector<std::string> files, const OpenContext& context);

}  // namespace stele::inline v0::detail::safetensors
