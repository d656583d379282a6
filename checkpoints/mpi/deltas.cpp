#include "deltas.hpp"

#include <algorithm>
#include <utility>

#include "base/hex.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::mpi::detail {
namespace {

namespace shards = v0::detail::shards;
namespace steps = v0::detail::steps;

constexpr std::string_view whole_suffix = ".safetensors";

std::string stem_of(std::string_view name) {
  for (const std::string_view suffix : {whole_suffix, shards::delta_suffix}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  return std::string(name);
}

bool lists(const steps::Manifest& manifest, const std::string& name) {
  return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const auto& file) { return file.name == name; });
}

/// Returns the snapshot with its tensors in a flat list, as in a safetensors file.
Snapshot flat(const Snapshot& snapshot) {
  const v0::detail::LeafPaths paths(*snapshot.data());
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(snapshot.data());
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    builder.tensor(builder.intern(paths[i]), leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
  }
  builder.set_metadata(snapshot.metadata());
  return builder.finish();
}

}  // namespace

std::string part_of(const steps::Manifest& manifest, const std::string& key) {
  if (key.empty()) return manifest.parameters;
  const auto kind = std::find_if(manifest.optimizer.begin(), manifest.optimizer.end(),
                                 [&](const auto& one) { return one.first == key; });
  return kind != manifest.optimizer.end() ? kind->second : std::string();
}

Result<PartShards::Found> PartShards::open(std::size_t step, const std::string& stem) const {
  const steps::Manifest& manifest = chain_[step];
  const std::string prefix = part_of(manifest, key_) + "/" + stem;
  if (const std::string whole = prefix + std::string(whole_suffix); lists(manifest, whole)) {
    STELE_TRY_ASSIGN(const SourcePtr source, place_.part(manifest, whole, false));
    STELE_TRY_ASSIGN(Snapshot shard, SafetensorsFormat().open(source, OpenContext(options_, {})));
    return Found{std::move(shard), {}};
  }
  const std::string delta = prefix + std::string(shards::delta_suffix);
  if (!lists(manifest, delta) || step + 1 == chain_.size()) {
    return Error(Errc::not_found, "the step does not have the shard").file(manifest.info.folder).found(stem);
  }
  STELE_TRY_ASSIGN(const Found base, open(step + 1, stem));
  STELE_TRY_ASSIGN(SourcePtr source, place_.part(manifest, delta, false));
  STELE_TRY_ASSIGN(const Snapshot changes, v0::open(Input(std::move(source)), options_));
  const auto info = delta_info(changes);
  if (!info) return Error(Errc::malformed, "the shard is no delta").file(manifest.info.folder).found(delta);
  STELE_TRY_ASSIGN(const Snapshot next, apply_delta(base.shard, changes));
  return Found{flat(next), info->next};
}

Result<Snapshot> PartShards::open(std::string_view name) const {
  STELE_TRY_ASSIGN(Found found, open(0, stem_of(name)));
  return std::move(found.shard);
}

Result<Snapshot> PartShards::open_delta(const shards::ShardFile& file) const {
  STELE_TRY_ASSIGN(Found found, open(0, stem_of(file.name)));
  if (found.next == v0::detail::hex(file.header)) return std::move(found.shard);
  return Error(Errc::checksum, "the shard is not that of the index: the file may belong to another set")
      .expected(v0::detail::hex(file.header))
      .found(found.next);
}

bool same_boxes(const Snapshot& a, const Snapshot& b) {
  const auto places = [](const Snapshot& shard) {
    const auto found = shard.metadata().find(shards::sharding_key);
    return found != shard.metadata().end() ? found->second : std::string();
  };
  if (a.leaf_count() != b.leaf_count() || places(a) != places(b)) return false;
  const v0::detail::LeafPaths names(*a.data());
  for (std::size_t i = 0; i < a.leaf_count(); ++i) {
    const LeafView leaf = a.leaf(i);
    const auto other = b.find(names[i]);
    if (!other || other->dtype() != leaf.dtype() || !std::ranges::equal(other->shape(), leaf.shape())) return false;
  }
  return true;
}

}  // namespace stele::inline v0::mpi::detail
