// Reads and writes several files with an index.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "base/extension.hpp"
#include "base/parallel.hpp"
#include "encodings/safetensors/file.hpp"
#include "file.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/shard_index.hpp"
#include "snapshot/shard_set.hpp"
#include "snapshot/unread.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0 {
namespace {

namespace json = detail::json;
using detail::safetensors::max_header;

constexpr std::string_view total_size_key = "total_size";
/// Metadata that the transformers package requires in each file.
constexpr std::pair<const char*, const char*> framework("format", "pt");

/// Distributes the leaves over files of at most `shard_bytes` of data, unless a single leaf is larger.
std::vector<std::vector<std::uint32_t>> split(const Snapshot& snapshot, std::uint64_t shard_bytes,
                                              std::uint64_t& total) {
  std::vector<std::vector<std::uint32_t>> shards(1);
  std::uint64_t size = 0;
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    const std::uint64_t bytes = snapshot.leaf(i).byte_size();
    if (!shards.back().empty() && (size > shard_bytes || bytes > shard_bytes - size)) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(i);
    size += bytes;
    total += bytes;
  }
  return shards;
}

/// Returns the text of the index.
Result<std::string> index_of(const Snapshot& snapshot, std::uint64_t total,
                             const std::map<std::string_view, const std::string*>& weight_map) {
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("metadata");
  out.begin_object();
  std::map<std::string, std::string> metadata = snapshot.metadata();
  std::vector<std::string_view> names;
  names.reserve(weight_map.size());
  for (const auto& [name, file] : weight_map) names.push_back(name);
  STELE_TRY_ASSIGN(std::string extras, detail::safetensors::extras_of(snapshot, metadata, std::move(names)));
  STELE_TRY(detail::add_flat_key(metadata, std::move(extras)));
  for (const auto& [key, value] : metadata) {
    out.key(key);
    out.string(value);
  }
  out.key(total_size_key);
  out.u64(total);
  out.end_object();
  out.key("weight_map");
  out.begin_object();
  for (const auto& [name, file] : weight_map) {
    out.key(name);
    out.string(*file);
  }
  out.end_object();
  out.end_object();
  text += '\n';
  return text;
}

/// A set of files: their names, and the leaves of each.
struct ShardSet {
  std::vector<std::string> files;
  std::vector<std::vector<std::uint32_t>> leaves;
  std::uint64_t total = 0;  // bytes of all tensors
};

/// Plans a set, and checks that safetensors files can store the snapshot.
Result<ShardSet> plan_set(const Snapshot& snapshot, const std::string& stem, std::uint64_t shard_bytes) {
  const detail::LeafPaths paths(*snapshot.data());
  STELE_TRY(detail::safetensors::check(detail::entries_of(snapshot, paths), snapshot.metadata()));
  if (snapshot.metadata().contains(std::string(total_size_key))) {
    return Error(Errc::not_representable, "the metadata key total_size is reserved for the format");
  }
  ShardSet set;
  set.leaves = split(snapshot, shard_bytes, set.total);
  for (std::size_t i = 0; i < set.leaves.size(); ++i) {
    char number[64];
    std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", i + 1, set.leaves.size());
    set.files.push_back(stem + number);
  }
  return set;
}

/// Writes the files of a set. Returns the text of the index.
Result<std::string> write_set(const Snapshot& snapshot, const ShardSet& set, Bundle& bundle, const SaveOptions& options,
                              const std::function<void(const std::string& file)>& begin) {
  const detail::LeafPaths paths(*snapshot.data());
  const std::vector<detail::TensorEntry> tensors = detail::entries_of(snapshot, paths);
  std::map<std::string, std::string> metadata = snapshot.metadata();
  metadata.insert(framework);
  std::map<std::string_view, const std::string*> weight_map;
  const detail::Workers workers = detail::workers_of(options);
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    if (begin) begin(set.files[i]);
    STELE_TRY_ASSIGN(const auto file, bundle.create(set.files[i]));
    std::vector<detail::TensorEntry> mine;
    for (const std::uint32_t leaf : set.leaves[i]) mine.push_back(tensors[leaf]);
    STELE_TRY(detail::safetensors::write(snapshot, mine, set.leaves[i], metadata, workers, *file));
    STELE_TRY(file->commit());
    for (const std::uint32_t leaf : set.leaves[i]) weight_map.emplace(paths[leaf], &set.files[i]);
  }
  STELE_TRY_ASSIGN(std::string text, index_of(snapshot, set.total, weight_map));
  if (text.size() > max_header) return Error(Errc::not_representable, "the index is too large");
  return text;
}

}  // namespace

Status detail::safetensors::write_files(const Snapshot& snapshot, Bundle& folder, const std::string& stem,
                                        std::uint64_t shard_bytes, const SaveOptions& options) {
  STELE_TRY_ASSIGN(const ShardSet set, plan_set(snapshot, stem, shard_bytes));
  if (set.files.size() == 1) {
    const Snapshot framed = snapshot.metadata().contains(framework.first)
                                ? snapshot
                                : with_metadata(snapshot, {{framework.first, framework.second}});
    STELE_TRY_ASSIGN(const auto file, folder.create(stem + ".safetensors"));
    STELE_TRY(SafetensorsFormat().write(framed, *file, options));
    return file->commit();
  }
  STELE_TRY_ASSIGN(const std::string text, write_set(snapshot, set, folder, options, nullptr));
  STELE_TRY_ASSIGN(const auto index, folder.create(stem + ".safetensors.index.json"));
  STELE_TRY(index->write(std::as_bytes(std::span(text))));
  return index->commit();
}

Status ShardedSafetensorsFormat::may_replace(const Bundle& folder) const {
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  std::set<std::string, std::less<>> known;
  STELE_TRY_ASSIGN(const bool boxes, folder.contains(detail::shards::shard_index_name));
  std::string index_name(boxes ? detail::shards::shard_index_name : "model.safetensors.index.json");
  auto index = folder.open(index_name);
  if (!index) return Error(Errc::exists, "the target folder has no index that stele wrote").expected(index_name);
  if (boxes) {
    detail::IndexBudget memory(Limits(), (*index)->size());
    STELE_TRY_ASSIGN(const detail::shards::ShardIndex set, detail::shards::read_shard_index(**index, memory));
    for (const detail::shards::ShardFile& file : set.files) known.insert(file.name);
  } else {
    const OpenContext context(default_load_options(), {});
    STELE_TRY(detail::open_shard_set(*std::move(index), context.options().limits, [&](const SourcePtr& shard) {
      known.insert(shard->name().substr(shard->name().rfind('/') + 1));
      return detail::safetensors::open_file(shard, context);
    }));
  }
  known.insert(std::move(index_name));
  for (const std::string& name : names) {
    if (!known.contains(name)) {
      return Error(Errc::exists, "the target folder contains a file that its index does not list").found(name);
    }
  }
  return {};
}

bool ShardedSafetensorsFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  return detail::is_shard_index(head) && !detail::lists_pickles(head) && !detail::lists_hdf5(head);
}

Result<Snapshot> ShardedSafetensorsFormat::open(SourcePtr source, const OpenContext& context) const {
  const auto open_shard = [&](const SourcePtr& shard) { return detail::safetensors::open_file(shard, context); };
  std::shared_ptr<const Bundle> folder;
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(const bool boxes, source->bundle()->contains(detail::shards::shard_index_name));
    if (boxes) return detail::shards::open_shards(*source, context.options().limits, open_shard);
    std::vector<std::string> files;
    STELE_TRY_ASSIGN(SourcePtr index, detail::safetensors::find_index(*source, files));
    if (index == nullptr) {
      STELE_TRY_ASSIGN(Snapshot all, detail::safetensors::open_files(*source, files, context));
      return detail::with_unread(std::move(all), *source->bundle(), [&](std::string_view name) {
        return std::find(files.begin(), files.end(), name) != files.end();
      });
    }
    folder = source->bundle();
    source = std::move(index);
  }
  STELE_TRY_ASSIGN(Snapshot set, detail::open_shard_set(std::move(source), context.options().limits, open_shard));
  set = detail::safetensors::with_named_ties(set);
  if (folder != nullptr) {
    STELE_TRY_ASSIGN(set, detail::with_unread(std::move(set), *folder));
  }
  // They describe the boxes of these files.
  const std::string boxes(detail::shards::sharding_key), version(detail::shards::version_key);
  if (!set.metadata().contains(boxes)) return set;
  auto data = detail::derived_data(set);
  data->metadata.erase(boxes);
  data->metadata.erase(version);
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

bool ShardedSafetensorsFormat::recognises_folder(const Bundle& folder) const {
  return detail::safetensors::recognises_folder(folder) && !HubFormat().recognises_folder(folder);
}

Status ShardedSafetensorsFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const auto bundle = sink.bundle();
  if (bundle == nullptr) {
    return Error(Errc::unsupported, "a sharded save cannot write to this sink")
        .hint("save to a path, or to a sink with a bundle");
  }
  const std::string index_name(file_name(sink.name()));
  std::string stem = index_name;
  if (detail::has_extension(stem, extension())) stem.resize(stem.size() - extension().size());
  STELE_TRY_ASSIGN(const ShardSet set, plan_set(snapshot, stem, shard_bytes_));
  if (!options.file.allow_nonatomic) {
    std::vector<std::string> all = set.files;
    all.push_back(index_name);
    for (const std::string& file : all) {
      STELE_TRY_ASSIGN(const bool exists, bundle->contains(file));
      if (!exists) continue;
      return Error(Errc::exists, "the set of files exists and cannot be replaced in one step")
          .file(file)
          .hint("save to another path, or set FileSinkOptions::allow_nonatomic");
    }
    sink.add_part(index_name);
  }
  STELE_TRY_ASSIGN(const std::string text, write_set(snapshot, set, *bundle, options, [&](const std::string& file) {
                     sink.add_part(file, !options.file.allow_nonatomic);
                   }));
  STELE_TRY(sink.reserve(text.size()));
  return sink.write(std::as_bytes(std::span(text)));
}

}  // namespace stele::inline v0
