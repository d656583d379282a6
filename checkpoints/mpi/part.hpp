// One part of a distributed checkpoint, which all processes save and load together.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/place.hpp"
#include "deltas.hpp"
#include "exchange.hpp"
#include "plan.hpp"
#include "shard_file.hpp"
#include "stele/mpi.hpp"

namespace stele::inline v0::mpi::detail {

/// The files of a part, with whole-file checksums and the names that they have in the step; empty except in process 0.
using PartFiles = std::vector<v0::detail::steps::ManifestFile>;

/// A snapshot that is ready to be written, with its table of tensors.
struct LocalPart {
  Snapshot snapshot;
  std::vector<LocalTensor> tensors;
  std::string extras;  // values and ties
};

/// The tensors of a part in all processes, and the share of this process.
struct Plan {
  TensorTable table;
  std::vector<const LocalTensor*> mine;  // by the table's numbers; null if this process has no box of the tensor
  std::vector<std::uint32_t> writes;     // the tensors whose boxes this process writes, by the table's numbers
  std::vector<BoxHashes> hashes;         // the checksums of `mine`
  ShardIndex index;                      // empty except in process 0
};

/// The files that this process writes, and the name of the part, which is the prefix of its files' names:
/// "parameters/".
struct PartPlace {
  v0::detail::steps::Share* share = nullptr;  // null on a dry run
  std::string prefix;
  const PartShards* base =
      nullptr;  // the same part of the base step, if the new step is a delta; null in all processes otherwise
};

/// Writes a part. Collective.
Result<PartFiles> write_part(Exchange& exchange, const Result<Snapshot>& snapshot, PrecisionSpec precision,
                             const Options& options, const PartPlace& place, Report& report);

/// Writes the shards of a part as whole files with the same names and contents. Collective.
Result<PartFiles> write_whole_part(Exchange& exchange, const PartShards& part, const Options& options,
                                   const PartPlace& place);

/// Writes the boxes into files of whole tensors. Collective. Process 0 gets the files of all processes.
Result<PartFiles> write_whole_files(Exchange& exchange, const LocalPart& part, const Plan& plan, const Options& options,
                                    const PartPlace& place);

/// An opened checkpoint, with boxes instead of whole tensors.
struct OpenedBoxes {
  Snapshot snapshot;
  v0::detail::shards::CheckBoxes check;  // null unless stele::mpi wrote the folder
  Snapshot whole;                        // the opened file, if stele::mpi did not write it
  bool deltas = false;                   // true if files are deltas, which `check` does not check
  bool cut = false;                      // true if a box is only a part of a tensor of `whole`
};
/// Opens a checkpoint in any format, with the boxes of `live`. `deltas`: opens shards that are deltas; may be null. Not
/// collective.
Result<OpenedBoxes> open_boxes(const Input& from, const Snapshot& live, const LoadOptions& options,
                               const PartShards* deltas = nullptr);

/// Checks the bytes of the opened tensors, so that a damaged file changes no process's module. Set `whole_files` if the
/// processes have already compared all files with their checksums. Returns the options for loading the tensors
/// afterwards. Not collective.
Result<LoadOptions> verify_boxes(const OpenedBoxes& opened, const Snapshot& live, const LoadOptions& options,
                                 bool whole_files);

/// Checks the tensors of a file from which processes need only boxes, because the checksums cover whole tensors. Each
/// tensor is checked by one process. `live` has the tensors of the module. Collective.
Status verify_whole(Exchange& exchange, const OpenedBoxes& opened, const Snapshot& live, const LoadOptions& options);

}  // namespace stele::inline v0::mpi::detail
