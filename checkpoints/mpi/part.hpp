// One part of a distributed checkpoint, saved and loaded by all processes together.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/manifest.hpp"
#include "exchange.hpp"
#include "plan.hpp"
#include "shard_file.hpp"
#include "stele/mpi.hpp"

namespace stele::inline v0::mpi::detail {

/// The files that a part consists of, with whole-file checksums; of process 0 only.
using PartFiles = std::vector<v0::detail::steps::ManifestFile>;

/// A snapshot that is ready to be written, and the tables about it.
struct LocalPart {
  Snapshot snapshot;
  std::vector<LocalTensor> tensors;
  std::string extras;  // values and ties
};

/// The tensors of a part in all processes, and the share of this one.
struct Plan {
  TensorTable table;
  std::vector<const LocalTensor*> mine;  // by the table's numbers; null: this process has no part of it
  std::vector<std::uint32_t> writes;     // the tensors whose boxes this process writes, by the table's numbers
  std::vector<BoxHashes> hashes;         // of `mine`
  ShardIndex index;                      // of process 0 only
};

/// Writes a part into an existing folder. Collective.
Result<PartFiles> write_part(Exchange& exchange, const Result<Snapshot>& snapshot, PrecisionSpec precision,
                             const Options& options, const std::string& folder, Report& report);

/// Writes the boxes into files of whole tensors. Collective. Returns the files of all processes to process 0.
Result<PartFiles> write_whole_files(Exchange& exchange, const LocalPart& part, const Plan& plan, const Options& options,
                                    const std::string& folder);

/// An opened checkpoint, with boxes instead of whole tensors.
struct OpenedBoxes {
  Snapshot snapshot;
  v0::detail::shards::CheckBoxes check;  // of a folder of ours; else null
  Snapshot whole;                        // of any other file, and
  bool cut = false;                      // true if a box is a part of a tensor of it
};
/// Opens a checkpoint of any kind, with the boxes of `live`. Not collective.
Result<OpenedBoxes> open_boxes(const std::string& path, const Snapshot& live, const LoadOptions& options);

/// Checks the bytes of the opened tensors, so that a damaged file changes no module of any process; `whole_files`: the
/// processes have compared all files with their checksums, each its share. Returns the options with which they are then
/// loaded. Not collective.
Result<LoadOptions> verify_boxes(const OpenedBoxes& opened, const Snapshot& live, const LoadOptions& options,
                                 bool whole_files);

/// Checks the tensors of a file of which a process needs parts, each in one process: their checksums are those of the
/// whole. `live`: the tensors of the module. Collective.
Status verify_whole(Exchange& exchange, const OpenedBoxes& opened, const Snapshot& live, const LoadOptions& options);

}  // namespace stele::inline v0::mpi::detail
