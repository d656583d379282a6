// Writes single safetensors files, for the single-file and sharded formats, and opens folders of them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/format.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::safetensors {

/// Writes a file with these leaves of a snapshot; `tensors` describes them, in the same order, and passed check(). Does
/// not commit the sink.
Status write(const Snapshot& snapshot, std::span<const TensorEntry> tensors, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink);

/// Opens one file, without the ties that its metadata name. Errors: those of Format::open.
Result<Snapshot> open_file(SourcePtr source, const OpenContext& context);

/// Returns the snapshot of a whole model with an alias for each pair {removed name: kept name} of its metadata, which
/// it keeps.
Snapshot with_named_ties(const Snapshot& file);
/// Returns the text of the key `stele` of a file with tensors of these names: empty if the names and the metadata show
/// all. A file with the key has its ties there, so that no other pair of its metadata is taken for one. Errors: those
/// of flat_extras().
Result<std::string> extras_of(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata,
                              std::vector<std::string_view> names);

/// Writes `stem`.safetensors, or several files and their index if the tensors have more than `shard_bytes`.
Status write_files(const Snapshot& snapshot, Bundle& folder, const std::string& stem, std::uint64_t shard_bytes,
                   const SaveOptions& options);

/// Returns true if the folder itself has an index, if it has one safetensors file and a configuration of the Hugging
/// Face hub, or if its first safetensors file has boxes of tensors.
bool recognises_folder(const Bundle& folder);

/// Returns the index of a folder. If the folder has no index, returns null and sets `files` to the names of its
/// safetensors files. Errors: malformed (several indexes), not_found.
Result<SourcePtr> find_index(const Source& folder, std::vector<std::string>& files);

/// Opens the files of a folder without an index: one file, or the files of torch.distributed.checkpoint, whose boxes
/// are joined.
Result<Snapshot> open_files(const Source& folder, std::vector<std::string> files, const OpenContext& context);

}  // namespace stele::inline v0::detail::safetensors
