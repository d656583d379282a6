// Steps as deltas: the file of a process is a delta of the same process's file in another step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/place.hpp"
#include "snapshot/shard_index.hpp"
#include "stele/options.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::mpi::detail {

/// A step, its base step, and so on to a whole step. All manifests are ready for Place::part().
using Chain = std::vector<v0::detail::steps::Manifest>;

/// Returns the file or folder of a part in a step: of the parameters, or of the optimizer state with a key; empty if
/// the step does not have it.
std::string part_of(const v0::detail::steps::Manifest& manifest, const std::string& key);

/// The shards of one part of a step. `place` and `chain` must outlive it.
class PartShards {
 public:
  PartShards(const v0::detail::steps::Place& place, const Chain& chain, std::string key, const LoadOptions& options)
      : place_(place), chain_(chain), key_(std::move(key)), options_(options) {}
  /// Opens a shard as the safetensors file that it is or that the delta decodes to. `name`: the file's name in the
  /// folder of the part, or the name of the whole shard. Errors: not_found (the step has no such shard), errors of
  /// opening and of apply_delta().
  Result<Snapshot> open(std::string_view name) const;
  /// Opens a shard that is a delta, and compares it with the index.
  Result<Snapshot> open_delta(const v0::detail::shards::ShardFile& file) const;
  /// Returns the source of the part's folder in the newest step.
  Result<SourcePtr> folder() const { return place_.part(chain_.front(), part_of(chain_.front(), key_), false); }

 private:
  struct Found {
    Snapshot shard;
    std::string next;  // the digest of a delta's result; empty for a whole file
  };
  Result<Found> open(std::size_t step, const std::string& stem) const;

  const v0::detail::steps::Place& place_;
  const Chain& chain_;
  std::string key_;
  LoadOptions options_;
};

/// Returns true if both shards have the same boxes, so that a delta is worthwhile.
bool same_boxes(const Snapshot& a, const Snapshot& b);

}  // namespace stele::inline v0::mpi::detail
