#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <set>

#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "file.hpp"
#include "io/files.hpp"
#include "json/json.hpp"
#include "shard_index.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele {
inline namespace v0 {
namespace {

namespace json = detail::json;
using detail::safetensors::max_header;

constexpr std::string_view total_size = "total_size";
/// Metadata that transformers requires in each file.
constexpr std::pair<const char*, const char*> framework("format", "pt");

// ---- reading --------------------------------------------------------------------------------------------------------

class ShardsReader {
 public:
  ShardsReader(SourcePtr source, const OpenContext& context) : source_(std::move(source)), context_(context) {}

  Result<Snapshot> run() {
    const auto bundle = source_->bundle();
    if (bundle == nullptr) {
      return Error(Errc::unsupported, "the source of the index cannot open other files")
          .file(source_->name())
          .hint("open a path, or a source with a bundle");
    }
    STELE_TRY(parse());
    STELE_TRY(check_names());
    builder_.set_flat();
    for (std::uint32_t i = 0; i < files_.size(); ++i) STELE_TRY(add_file(bundle, i));
    if (found_ != entries_.size()) return missing();
    std::sort(nodes_.begin(), nodes_.end());
    if (const auto extras = metadata_.find(std::string(detail::flat_key)); extras != metadata_.end()) {
      const auto find = [&](std::string_view name) {
        const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), std::pair(name, std::uint32_t{0}));
        return at != nodes_.end() && at->first == name ? at->second : no_index;
      };
      STELE_TRY(detail::add_flat_extras(extras->second, builder_, find, memory_));
      metadata_.erase(extras);
    }
    builder_.set_metadata(std::move(metadata_));
    return builder_.finish();
  }

  /// Returns the names of the files that the index lists.
  const std::vector<std::string>& files() const noexcept { return files_; }

 private:
  struct Entry {
    std::string_view name;
    std::uint32_t file;
  };

  Status parse() {
    if (source_->size() > max_header) {
      return Error(Errc::limit, "the index is too large")
          .file(source_->name())
          .expected("at most " + std::to_string(max_header) + " bytes")
          .found(std::to_string(source_->size()));
    }
    memory_ = detail::IndexBudget(context_.options().limits, source_->size());
    memory_.admit(source_->size(), detail::index_rate::index);
    text_.resize(static_cast<std::size_t>(source_->size()));
    STELE_TRY(source_->read_at(0, std::as_writable_bytes(std::span(text_))));
    json::Reader in(text_);
    std::string scratch;
    std::string_view key;
    bool map_seen = false;
    bool metadata_seen = false;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      bool& seen = key == "weight_map" ? map_seen : metadata_seen;
      if (key != "weight_map" && key != "metadata") {
        in.skip_value();
        continue;
      }
      if (seen) in.fail(Errc::duplicate, "", "metadata or weight_map occurs twice");
      seen = true;
      key == "weight_map" ? read_map(in) : read_metadata(in);
    }
    if (in.ok() && !map_seen) in.fail(Errc::malformed, "a weight_map");
    if (in.finish()) return {};
    return in.error().file(source_->name());
  }

  /// Counts memory that this reader takes, against the bound of Format::open.
  bool spend(json::Reader& in, std::uint64_t bytes) {
    if (!memory_.take(bytes)) return in.fail(Errc::limit, "", "the index needs more memory than its size allows");
    return true;
  }

  void read_map(json::Reader& in) {
    std::string scratch;
    std::string file_scratch;
    std::string_view key;
    std::string_view file;
    if (!in.begin_object()) return;
    while (in.next_key(key, scratch)) {
      const bool inside = key.data() >= text_.data() && key.data() <= text_.data() + text_.size();
      if (!spend(in, sizeof(Entry) + (inside ? 0 : 3 * key.size()))) return;
      entries_.push_back({inside ? key : builder_.intern(key), 0});
      if (!in.read_string(file, file_scratch)) return;
      const auto [known, fresh] = numbers_.try_emplace(std::string(file), static_cast<std::uint32_t>(files_.size()));
      if (fresh) {
        if (!spend(in, 2 * (sizeof(std::string) + 48 + file.size()))) return;
        files_.push_back(known->first);
      }
      entries_.back().file = known->second;
      // Otherwise, an index could open one file for every few bytes.
      if (files_.size() > max_files) in.fail(Errc::limit, "at most 100000 files");
    }
  }

  void read_metadata(json::Reader& in) {
    std::string key_scratch;
    std::string scratch;
    std::string_view key;
    std::string_view text;
    if (!in.begin_object()) return;
    while (in.next_key(key, key_scratch)) {
      if (in.peek() != json::Kind::string) {
        in.skip_value();  // total_size, which ties make wrong, and additions of other writers
        continue;
      }
      std::string name(key);
      if (!in.read_string(text, scratch)) return;
      if (!spend(in, sizeof(std::pair<std::string, std::string>) + 64 + name.size() + text.size())) return;
      if (!metadata_.emplace(std::move(name), std::string(text)).second) {
        in.fail(Errc::duplicate, "", "a key of metadata occurs twice");
      }
    }
  }

  Status check_names() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    const auto same = std::adjacent_find(entries_.begin(), entries_.end(),
                                         [](const Entry& a, const Entry& b) { return a.name == b.name; });
    if (same == entries_.end()) return {};
    return Error(Errc::duplicate, "the index lists the tensor twice").path(std::string(same->name));
  }

  Status add_file(const std::shared_ptr<const Bundle>& bundle, std::uint32_t number) {
    const auto not_plain = [&]() -> Error {
      return Error(Errc::malformed, "the index lists a name that is not a plain file name")
          .file(source_->name())
          .found(files_[number]);
    };
    // The files of a set are in the folder of its index.
    if (files_[number].find('/') != std::string::npos) return not_plain();
    auto source = detail::open_of_set(bundle, files_[number], number);
    if (!source) {
      if (source.error().code() != Errc::invalid_argument) return std::move(source).error();
      return not_plain();
    }
    STELE_TRY_ASSIGN(const Snapshot shard, SafetensorsFormat().open(*source, context_));
    const std::string& file = (*source)->name();
    if (shard.nodes().size() != shard.leaf_count() + 1) {
      return Error(Errc::unsupported, "a shard has the metadata key stele, which belongs in the index").file(file);
    }
    for (std::size_t i = 0; i < shard.leaf_count(); ++i) {
      const LeafView leaf = shard.leaf(i);
      const Node& node = shard.nodes()[leaf.node()];
      const std::string_view name(node.name, node.name_size);
      const auto entry = std::lower_bound(entries_.begin(), entries_.end(), name,
                                          [](const Entry& e, std::string_view n) { return e.name < n; });
      if (entry == entries_.end() || entry->name != name || entry->file != number) {
        return Error(Errc::malformed, "the index does not list the tensor for this file")
            .path(std::string(name))
            .file(file);
      }
      ++found_;
      nodes_.emplace_back(name, builder_.tensor(name, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider()));
    }
    builder_.keep(shard.data());
    return {};
  }

  /// Returns the error for the first tensor that the index lists and no file has.
  Error missing() {
    std::sort(nodes_.begin(), nodes_.end());
    for (const Entry& e : entries_) {
      const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), std::pair(e.name, std::uint32_t{0}));
      if (at != nodes_.end() && at->first == e.name) continue;
      return Error(Errc::malformed, "the tensor is not in the file that the index lists for it")
          .path(std::string(e.name))
          .file(source_->name())
          .expected(files_[e.file]);
    }
    return Error(Errc::malformed, "the index does not match its files").file(source_->name());
  }

  static constexpr std::size_t max_files = 100'000;
  SourcePtr source_;
  const OpenContext& context_;
  std::string text_;
  SnapshotBuilder builder_;
  std::deque<Entry> entries_;
  std::vector<std::string> files_;
  std::map<std::string, std::uint32_t> numbers_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::pair<std::string_view, std::uint32_t>> nodes_;
  std::size_t found_ = 0;
  detail::IndexBudget memory_;
};

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
  STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot));
  std::map<std::string, std::string> metadata = snapshot.metadata();
  if (!extras.empty()) metadata.emplace(detail::flat_key, std::move(extras));
  for (const auto& [key, value] : metadata) {
    out.key(key);
    out.string(value);
  }
  out.key(total_size);
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

}  // namespace

Status detail::safetensors::check_whole(const Bundle& folder) {
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  std::set<std::string, std::less<>> known;
  STELE_TRY_ASSIGN(const bool boxes, folder.contains(shard_index_name));
  std::string index_name(boxes ? shard_index_name : "model.safetensors.index.json");
  auto index = folder.open(index_name);
  if (!index) return Error(Errc::exists, "the target folder has no index of stele").expected(index_name);
  if (boxes) {
    IndexBudget memory(Limits(), (*index)->size());
    STELE_TRY_ASSIGN(const ShardIndex shards, read_shard_index(**index, memory));
    for (const ShardFile& file : shards.files) known.insert(file.name);
  } else {
    const OpenContext context(default_load_options(), {});
    ShardsReader reader(*std::move(index), context);
    STELE_TRY(reader.run());
    known.insert(reader.files().begin(), reader.files().end());
  }
  known.insert(std::move(index_name));
  for (const std::string& name : names) {
    if (!known.contains(name)) {
      return Error(Errc::exists, "the target folder contains a file that its index does not list").found(name);
    }
  }
  return {};
}

const Capabilities& ShardedSafetensorsFormat::capabilities() const noexcept {
  return SafetensorsFormat().capabilities();
}

bool ShardedSafetensorsFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const auto skip = [&](std::string_view token) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  if (!skip("{")) return false;
  if (skip("\"weight_map\"")) return true;
  // Burn's records have metadata, too.
  return skip("\"metadata\"") && !(skip(":") && skip("{") && skip("\"float\""));
}

Result<Snapshot> ShardedSafetensorsFormat::open(SourcePtr source, const OpenContext& context) const {
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(const bool boxes, source->bundle()->contains(detail::safetensors::shard_index_name));
    if (boxes) return detail::safetensors::open_shards(*source, context);
    std::vector<std::string> files;
    STELE_TRY_ASSIGN(SourcePtr index, detail::safetensors::find_index(*source, files));
    if (index == nullptr) return detail::safetensors::open_files(*source, std::move(files), context);
    source = std::move(index);
  }
  return ShardsReader(std::move(source), context).run();
}

bool ShardedSafetensorsFormat::recognises_folder(const Bundle& folder) const {
  return detail::safetensors::recognises_folder(folder);
}

Status ShardedSafetensorsFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const auto bundle = sink.bundle();
  if (bundle == nullptr) {
    return Error(Errc::unsupported, "a sharded save cannot write to this sink")
        .hint("save to a path, or to a sink with a bundle");
  }
  const detail::LeafPaths paths(*snapshot.data());
  STELE_TRY(detail::safetensors::check(snapshot, paths));
  if (snapshot.metadata().contains(std::string(total_size))) {
    return Error(Errc::not_representable, "the metadata key total_size is reserved for the format");
  }
  const std::string index_name(file_name(sink.name()));
  std::string stem = index_name;
  if (stem.ends_with(extension())) stem.resize(stem.size() - extension().size());

  std::uint64_t total = 0;
  const std::vector<std::vector<std::uint32_t>> shards = split(snapshot, shard_bytes_, total);
  std::vector<std::string> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char number[64];
    std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    files.push_back(stem + number);
  }
  if (!options.file.allow_nonatomic) {
    std::vector<std::string> all = files;
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

  std::map<std::string, std::string> metadata = snapshot.metadata();
  metadata.insert(framework);
  std::map<std::string_view, const std::string*> weight_map;
  const detail::Workers workers = detail::workers_of(options);
  const auto write_file = [&](std::size_t i) -> Status {
    if (!options.file.allow_nonatomic) sink.add_part(files[i]);
    STELE_TRY_ASSIGN(const auto file, bundle->create(files[i]));
    STELE_TRY(detail::safetensors::write(snapshot, paths, shards[i], metadata, workers, *file));
    STELE_TRY(file->commit());
    for (const std::uint32_t leaf : shards[i]) weight_map.emplace(paths[leaf], &files[i]);
    return {};
  };
  for (std::size_t i = 0; i < shards.size(); ++i) STELE_TRY(write_file(i));

  STELE_TRY_ASSIGN(const std::string text, index_of(snapshot, total, weight_map));
  if (text.size() > max_header) return Error(Errc::not_representable, "the index is too large");
  STELE_TRY(sink.reserve(text.size()));
  return sink.write(std::as_bytes(std::span(text)));
}

}  // namespace v0
}  // namespace stele
