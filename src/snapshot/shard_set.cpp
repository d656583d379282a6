#include "snapshot/shard_set.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "base/value_memory.hpp"
#include "io/files.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::detail {
namespace {

class SetReader {
 public:
  SetReader(SourcePtr source, const Limits& limits, const OpenShard& open, std::vector<std::string>* notes, bool extras)
      : source_(std::move(source)), limits_(limits), open_(open), notes_(notes), extras_(extras) {}

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
    for (std::uint32_t i = 0; i < files_.size(); ++i) {
      auto added = add_file(bundle, i);
      if (!added && notes_ == nullptr) return std::move(added).error();
      if (!added) note(i, added.error().message());
    }
    if (notes_ != nullptr) {
      add_missing();
    } else if (found_ != entries_.size()) {
      return missing();
    }
    if (!extras_) metadata_.erase(std::string(flat_key));
    STELE_TRY(finish_names(builder_, std::move(metadata_), memory_));
    skipped_.leave_out(builder_.data().left_out, "unknown keys of the index");
    builder_.set_capacity(capacity_);
    return builder_.finish();
  }

 private:
  struct Entry {
    std::string_view name;
    std::uint32_t file;
  };

  Status parse() {
    STELE_TRY_ASSIGN(text_, read_text(*source_, max_index, "the index is too large"));
    memory_ = IndexBudget(limits_, source_->size());
    memory_.admit(source_->size(), index_rate::index);
    json::Reader in(text_);
    std::string scratch;
    std::string_view key;
    bool map_seen = false;
    bool metadata_seen = false;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      bool& seen = key == "weight_map" ? map_seen : metadata_seen;
      if (key != "weight_map" && key != "metadata") {
        skipped_.add(key);
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

  /// Counts memory of this reader against the limit of Format::open.
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
      // Without this limit, an index could open one file for every few bytes.
      if (files_.size() > max_files) in.fail(Errc::limit, "at most 100000 files");
    }
  }

  void read_metadata(json::Reader& in) {
    std::string key_scratch;
    std::string scratch;
    std::string_view key;
    std::string_view text;
    if (in.peek() == json::Kind::null) {
      in.read_null();
      return;
    }
    if (!in.begin_object()) return;
    while (in.next_key(key, key_scratch)) {
      if (in.peek() != json::Kind::string) {
        // The tensors also show these numbers; ties make total_size wrong.
        if (key != "total_size" && key != "total_parameters") skipped_.add("metadata." + std::string(key));
        in.skip_value();
        continue;
      }
      std::string name(key);
      if (!in.read_string(text, scratch)) return;
      if (!spend(in, sizeof(std::pair<std::string, std::string>) + 64 + name.size() + text.size())) return;
      if (metadata_.emplace(std::move(name), std::string(text)).second) continue;
      constexpr const char* why = "a key of metadata occurs twice";
      if (notes_ == nullptr) in.fail(Errc::duplicate, "", why);
      if (notes_ != nullptr) notes_->emplace_back(why);
    }
  }

  Status check_names() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    const auto same = std::adjacent_find(entries_.begin(), entries_.end(),
                                         [](const Entry& a, const Entry& b) { return a.name == b.name; });
    if (same == entries_.end()) return {};
    if (notes_ != nullptr) {
      notes_->emplace_back("the index lists tensors twice");
      const auto equal = [](const Entry& a, const Entry& b) { return a.name == b.name; };
      entries_.erase(std::unique(entries_.begin(), entries_.end(), equal), entries_.end());
      return {};
    }
    return Error(Errc::duplicate, "the index lists the tensor twice").path(std::string(same->name));
  }

  Status add_file(const std::shared_ptr<const Bundle>& bundle, std::uint32_t number) {
    const auto not_plain = [&]() -> Error {
      return Error(Errc::malformed, "the index lists a name that is not a plain file name")
          .file(source_->name())
          .found(files_[number]);
    };
    // The files of a set must be in the folder of its index.
    if (files_[number].find('/') != std::string::npos) return not_plain();
    auto source = open_of_set(bundle, files_[number], number);
    if (!source) {
      if (source.error().code() != Errc::invalid_argument) return std::move(source).error();
      return not_plain();
    }
    STELE_TRY_ASSIGN(const Snapshot shard, in_file(open_(*source), (*source)->name()));
    memory_.admit((*source)->size(), index_rate::index);
    const auto nodes = shard.nodes();
    std::vector<std::uint32_t> added(nodes.size(), no_index);
    std::size_t again = 0, others = 0;  // in a recovery: names that another file also has, and nodes that are not added
    for (std::uint32_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const std::string_view name =
          shard.flat() ? std::string_view(node.name, node.name_size) : builder_.intern(shard.path(i));
      if (notes_ != nullptr && names_.contains(name)) {
        ++again;
        continue;
      }
      const auto entry = std::lower_bound(entries_.begin(), entries_.end(), name,
                                          [](const Entry& e, std::string_view n) { return e.name < n; });
      const bool listed = entry != entries_.end() && entry->name == name;
      // Indexes list tensors; a PyTorch file may also have values.
      if (notes_ == nullptr && (listed ? entry->file != number : node.kind != NodeKind::value)) {
        return Error(Errc::malformed, "the index does not list the tensor for this file")
            .path(std::string(name))
            .file((*source)->name());
      }
      if (node.kind == NodeKind::tensor) {
        added[i] = add_leaf(builder_, name, shard.leaf(node.index));
      } else if (node.kind == NodeKind::alias && added[node.index] != no_index) {
        added[i] = builder_.alias(name, added[node.index]);
      } else if (node.kind == NodeKind::value) {
        const Value& value = shard.value(node);
        if (!memory_.take(sizeof value + heap_of(value))) {
          return index_error("the values of the shards need more memory than their sizes allow")
              .path(std::string(name));
        }
        added[i] = builder_.value(name, value);
      } else if (notes_ != nullptr) {
        // In a nested shard, names show the containers that have members.
        others += shard.flat() || node.kind == NodeKind::none || node.kind == NodeKind::alias || node.end == i + 1;
        continue;
      } else {
        return Error(Errc::unsupported, "a shard has containers, which belong in the index")
            .path(std::string(name))
            .file((*source)->name());
      }
      found_ += listed ? 1 : 0;
      if (notes_ != nullptr) names_.insert(name);
    }
    if (again != 0) note(number, "names that another file also has: " + std::to_string(again));
    if (others != 0) note(number, "containers, nulls and ties of containers are lost: " + std::to_string(others));
    STELE_TRY(add_metadata(shard, number));
    if (const auto& properties = shard.data()->properties; builder_.data().properties == nullptr) {
      builder_.data().properties = properties;
    }
    add_left_out(builder_.data().left_out, shard.data()->left_out);
    capacity_ = checked_add(capacity_, held_bytes(*shard.data())).value_or(UINT64_MAX);
    if (shard.in_order()) builder_.set_in_order();
    builder_.keep(shard.data());
    return {};
  }

  /// Keeps the metadata of a file, except `format`, which only names a framework. If a key already has a different
  /// text, adds the file's name to the key.
  Status add_metadata(const Snapshot& shard, std::uint32_t number) {
    for (const auto& [key, text] : shard.metadata()) {
      if (key == "format") continue;
      std::string name = key;
      auto known = metadata_.find(name);
      while (known != metadata_.end() && known->second != text) {
        name.append(" (").append(files_[number]).append(")");
        known = metadata_.find(name);
      }
      if (known != metadata_.end()) continue;
      constexpr std::uint64_t each = sizeof(std::pair<std::string, std::string>) + 64;
      if (!memory_.take(each + name.size() + text.size())) {
        return index_error("the metadata of the shards needs more memory than the index allows");
      }
      metadata_.emplace(std::move(name), text);
    }
    return {};
  }

  void note(std::uint32_t file, std::string_view text) {
    notes_->push_back(std::string(files_[file]).append(": ").append(text));
  }

  /// Adds a leaf for each tensor that the index lists but no file has.
  void add_missing() {
    for (const Entry& e : entries_) {
      if (names_.contains(e.name)) continue;
      add_unreadable(builder_, builder_.intern(e.name), "the tensor is not in its file " + files_[e.file]);
    }
  }

  /// Returns the error for the first tensor that the index lists but no file has.
  Error missing() {
    std::vector<std::string_view> all;
    all.reserve(builder_.nodes().size());
    for (const Node& node : builder_.nodes()) all.emplace_back(node.name, node.name_size);
    std::sort(all.begin(), all.end());
    for (const Entry& e : entries_) {
      if (std::binary_search(all.begin(), all.end(), e.name)) continue;
      return Error(Errc::malformed, "the tensor is not in the file that the index lists for it")
          .path(std::string(e.name))
          .file(source_->name())
          .expected(files_[e.file]);
    }
    return Error(Errc::malformed, "the index does not match its files").file(source_->name());
  }

  static constexpr std::size_t max_files = 100'000;
  SourcePtr source_;
  const Limits& limits_;
  const OpenShard& open_;
  std::vector<std::string>* notes_;   // in a recovery, receives the faults; null: a fault is an error
  bool extras_;                       // read the values and ties of the index
  std::set<std::string_view> names_;  // in a recovery, the names of nodes
  std::string text_;
  SnapshotBuilder builder_;
  std::deque<Entry> entries_;
  std::vector<std::string> files_;
  std::map<std::string, std::uint32_t> numbers_;
  std::map<std::string, std::string> metadata_;
  Skipped skipped_;  // unknown keys of the index
  std::size_t found_ = 0;
  std::uint64_t capacity_ = 0;
  IndexBudget memory_;
};

/// Returns true if an index lists a file with this ending before any of safetensors.
bool lists_first(std::span<const std::byte> head, std::string_view ending) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const std::size_t map = text.find("\"weight_map\"");
  return map != text.npos && text.find(ending, map) < text.find(".safetensors\"", map);
}

}  // namespace

bool is_shard_index(std::span<const std::byte> head) noexcept {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const auto skip = [&](std::string_view token) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  if (!skip("{")) return false;
  if (skip("\"weight_map\"")) return true;
  // Burn's records also have metadata.
  return skip("\"metadata\"") && !(skip(":") && skip("{") && skip("\"float\""));
}

bool lists_pickles(std::span<const std::byte> head) noexcept { return lists_first(head, ".bin\""); }

bool lists_hdf5(std::span<const std::byte> head) noexcept { return lists_first(head, ".weights.h5\""); }

Result<Snapshot> open_shard_set(SourcePtr index, const Limits& limits, const OpenShard& open) {
  return SetReader(std::move(index), limits, open, nullptr, true).run();
}

Result<Snapshot> recover_shard_set(const SourcePtr& index, const Limits& limits, const OpenShard& open,
                                   std::vector<std::string>& notes) {
  const std::size_t count = notes.size();
  auto whole = SetReader(index, limits, open, &notes, true).run();
  if (whole) return whole;
  notes.resize(count);
  notes.push_back("the values and ties of the index are lost: " + std::string(whole.error().message()));
  return SetReader(index, limits, open, &notes, false).run();
}

}  // namespace stele::inline v0::detail
