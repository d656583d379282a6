// Opens HDF5 files, and `.keras` files, which contain one.
#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "base/value_memory.hpp"
#include "encodings/zip/zip.hpp"
#include "hdf5/hdf5.hpp"
#include "io/files.hpp"
#include "io/os/os.hpp"
#include "io/text.hpp"
#include "keras.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/shard_set.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/keras.hpp"

namespace stele::inline v0 {
namespace detail::keras {
namespace {

using hdf5::Entry;

class Reader {
 public:
  Reader(SourcePtr source, const Limits& limits)
      : source_(std::move(source)), limits_(limits), memory_(limits, source_->size(), index_rate::entry) {
    builder_.set_flat();
  }

  Result<Snapshot> weights() {
    STELE_TRY(read(source_));
    return finish();
  }

  /// Opens the files of an index, {"weight_map": {path of a group of variables: file or list of files, …}}.
  Result<Snapshot> shards() {
    STELE_TRY_ASSIGN(const std::string text, read_text(*source_, max_index_bytes, "the index is too large"));
    auto parsed = parse_json(text);
    if (!parsed) return std::move(parsed).error().file(source_->name());
    const Value* const map = parsed->find("weight_map");
    if (map == nullptr || map->as_map() == nullptr) return bad_index("the index has no weight_map");
    std::vector<std::string> files;
    for (const auto& [group, listed] : *map->as_map()) {
      const Value::List one{listed};
      for (const Value& item : listed.as_list() != nullptr ? *listed.as_list() : one) {
        const std::string* const file = item.as_string();
        if (file == nullptr) return bad_index("the index lists something other than files").path(group);
        if (!memory_.take(256 + 2 * (group.size() + file->size()))) return too_much();
        const auto [known, fresh] = shard_numbers_.try_emplace(*file, files.size());
        if (fresh) files.push_back(*file);
        listed_[group].emplace(known->second, false);
      }
    }
    const auto bundle = source_->bundle();
    if (bundle == nullptr) {
      return Error(Errc::unsupported, "the source of the index cannot open other files")
          .file(source_->name())
          .hint("open a path, or a source with a bundle");
    }
    for (shard_ = 0; shard_ < files.size(); ++shard_) {
      auto shard = files[shard_].find('/') == std::string::npos ? open_of_set(bundle, files[shard_], shard_)
                                                                : Error(Errc::invalid_argument, "a path");
      if (!shard && shard.error().code() == Errc::invalid_argument) {
        return bad_index("the index lists a name that is not a plain file name").found(files[shard_]);
      }
      if (!shard) return std::move(shard).error();
      memory_.admit((*shard)->size(), index_rate::entry);
      STELE_TRY(in_file(read(*shard), (*shard)->name()));
      builder_.keep(*std::move(shard));
    }
    for (const auto& [group, places] : listed_) {
      if (std::none_of(places.begin(), places.end(), [](const auto& place) { return place.second; })) {
        return bad_index("the variables are not in the files that the index lists for them").path(group);
      }
    }
    return finish();
  }

  Result<Snapshot> model() {
    STELE_TRY_ASSIGN(const auto directory, zip::Directory::open(source_, memory_.left()));
    bool compressed = false, weights = false;
    for (const zip::Entry& entry : directory->entries()) {
      if (!memory_.take(sizeof entry + 64 + entry.name.size())) return too_much();
      compressed = compressed || entry.method != zip::stored;
    }
    if (compressed) memory_.admit_compressed();
    for (const zip::Entry& entry : directory->entries()) {
      if (entry.name == metadata_entry || entry.name == config_entry) {
        // The text is in memory twice: as metadata, and as a property.
        if (!memory_.take(add_scaled(256, entry.size, 4))) return too_much();
        STELE_TRY_ASSIGN(const Bytes bytes, directory->read(entry, entry.size));
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (entry.name == config_entry || text != no_metadata) metadata_.emplace(entry.name, text);
      } else if (entry.name.ends_with(weights_ending)) {
        STELE_TRY_ASSIGN(SourcePtr inside, directory->open(entry));
        if (entry.method != zip::stored) in_order_ = true;
        weights = true;
        STELE_TRY(read(inside));
        builder_.keep(std::move(inside));
      } else {
        skipped_entries_.add(entry.name);
        if (others_.size() < max_others) others_.emplace_back(entry.name);
      }
    }
    if (!weights) {
      return Error(Errc::unsupported, "the model has no weights in HDF5")
          .expected("the entry " + std::string(weights_entry));
    }
    return finish();
  }

 private:
  static Error too_much() {
    return index_error("the names, shapes and attributes need more memory than the file allows");
  }

  Error bad_index(const char* what) const { return Error(Errc::malformed, what).file(source_->name()); }

  /// Checks that the index lists a dataset's group for the file that is being read.
  Status check_listed(std::string_view path) {
    if (listed_.empty()) return {};
    const std::size_t slash = path.rfind('/');
    const auto group = listed_.find("/" + std::string(path.substr(0, slash == path.npos ? 0 : slash)));
    const auto place = group != listed_.end() ? group->second.find(shard_) : Places::iterator();
    if (group == listed_.end() || place == group->second.end()) {
      return Error(Errc::malformed, "the index does not list the tensor for this file").path(name_of(path));
    }
    place->second = true;
    return {};
  }

  Status read(const SourcePtr& source) {
    std::shared_ptr<const void> keeper;
    nodes_.clear();
    STELE_TRY(hdf5::read(source, memory_, keeper, [&](Entry& entry) { return add(entry); }));
    builder_.keep(std::move(keeper));
    return {};
  }

  /// Returns the path of a dataset's tensor.
  static std::string name_of(std::string_view path) {
    std::string name;
    for (;;) {
      const std::size_t slash = path.find('/');
      append_segment(name, path.substr(0, slash));
      if (slash == path.npos) return name;
      name += '.';
      path.remove_prefix(slash + 1);
    }
  }

  Status add(Entry& entry) {
    for (auto& [name, value] : entry.attributes) STELE_TRY(add_attribute(entry.path, name, std::move(value)));
    for (const std::string& name : entry.skipped) {
      skipped_attributes_.add(std::string(entry.path) + attribute_mark + name);
    }
    if (entry.kind == Entry::Kind::group) return {};
    STELE_TRY(check_listed(entry.path));
    const std::string name = name_of(entry.path);
    std::uint64_t taken = sizeof(Node) + 64 + 3 * name.size();
    if (entry.kind == Entry::Kind::text) taken += sizeof(Value);
    if (entry.kind == Entry::Kind::text || entry.kind == Entry::Kind::link) {
      if (!memory_.take(taken)) return too_much();
    }
    switch (entry.kind) {
      case Entry::Kind::text:
        nodes_[entry.object] = builder_.value(builder_.intern(name), std::move(entry.value));
        return {};
      case Entry::Kind::link: {
        const auto target = nodes_.find(entry.object);
        if (target != nodes_.end()) {
          builder_.alias(builder_.intern(name), target->second);
          return {};
        }
        entry.reason = "another link to a group";
        break;
      }
      case Entry::Kind::tensor:
        nodes_[entry.object] = static_cast<std::uint32_t>(builder_.nodes().size());
        break;
      default:
        break;
    }
    const bool tensor = entry.kind == Entry::Kind::tensor;
    swapped_.push_back(tensor && entry.big_endian != (std::endian::native == std::endian::big));
    const TensorEntry added{name,           entry.dtype,
                            entry.shape,    entry.provider.ops != nullptr ? entry.bytes : 0,
                            entry.provider, tensor ? std::string_view() : std::string_view(entry.reason)};
    return add_entry(builder_, added, memory_);
  }

  Status add_attribute(std::string_view path, const std::string& name, Value value) {
    std::string key(path);
    if (!path.empty()) key += attribute_mark;
    key += name;
    if (!memory_.take(256 + 4 * key.size() + 2 * heap_of(value))) return too_much();
    // The variables of a layer may be in two files, each of which has the layer's name.
    if (!listed_.empty() && !known_attributes_.insert(key).second) return {};
    if (const std::string* text = value.as_string()) {
      metadata_.emplace(key, *text);
    } else {
      typed_ = true;
    }
    properties_.emplace_back(std::move(key), std::move(value));
    return {};
  }

  Result<Snapshot> finish() {
    const auto rest = metadata_.find(std::string(properties_key));
    const bool more = rest != metadata_.end();
    if (const auto extras = metadata_.find(std::string(flat_key)); extras != metadata_.end()) {
      memory_.admit(extras->second.size(), index_rate::index);
    }
    STELE_TRY(finish_names(builder_, std::move(metadata_), memory_));
    skipped_attributes_.leave_out(builder_.data().left_out, "attributes that are not real numbers or texts");
    skipped_entries_.leave_out(builder_.data().left_out, "files of the model");
    if (in_order_) builder_.set_in_order();
    builder_.keep(source_);
    Snapshot snapshot = with_unread(builder_.finish(), others_);
    const bool any = std::find(swapped_.begin(), swapped_.end(), true) != swapped_.end();
    if (any) snapshot = with_bytes_swapped(snapshot, &swapped_);
    std::erase_if(properties_,
                  [](const auto& property) { return property.first == flat_key || property.first == properties_key; });
    if (more) {
      STELE_TRY_ASSIGN(snapshot, properties_from_metadata(snapshot, limits_, source_->size()));
      if (const Value::Map* others = snapshot.properties().as_map()) {
        properties_.insert(properties_.end(), others->begin(), others->end());
      }
    }
    if (typed_ || more) snapshot = with_properties(snapshot, Value(std::move(properties_)));
    return snapshot;
  }

  static constexpr std::uint64_t max_index_bytes = std::uint64_t{4} << 20;  // of layers' names

  SourcePtr source_;
  const Limits& limits_;
  IndexBudget memory_;
  // If the source is an index: the numbers of the files that it lists for each group, and whether a file has the group.
  using Places = std::map<std::size_t, bool>;
  std::map<std::string, Places> listed_;
  std::map<std::string, std::size_t> shard_numbers_;
  std::set<std::string> known_attributes_;
  std::size_t shard_ = 0;  // the file that is being read
  SnapshotBuilder builder_;
  std::map<std::string, std::string> metadata_;
  Value::Map properties_;
  bool typed_ = false;                                      // a property is not a text
  bool in_order_ = false;                                   // the weights are deflated
  std::unordered_map<std::uint64_t, std::uint32_t> nodes_;  // nodes of datasets, by the addresses of their headers
  std::vector<bool> swapped_;                               // by leaf
  Skipped skipped_attributes_, skipped_entries_;
  static constexpr std::size_t max_others = 64;  // bounds the memory: a message has fewer
  std::vector<std::string> others_;              // names of other entries
};

}  // namespace
}  // namespace detail::keras

bool Hdf5Format::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return detail::hdf5::is_hdf5(head) || (detail::is_shard_index(head) && detail::lists_hdf5(head));
}

Result<bool> Hdf5Format::recognises_file(const Source& source) const {
  STELE_TRY_ASSIGN(const auto block, detail::hdf5::user_block(source));
  return block.has_value();
}

Result<Snapshot> Hdf5Format::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    std::byte bytes[1024];
    const std::span head(bytes, static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof bytes)));
    STELE_TRY(source->read_at(0, head));
    detail::keras::Reader reader(source, context.options().limits);
    return detail::is_shard_index(head) ? reader.shards() : reader.weights();
  });
}

bool KerasFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  const auto first = detail::zip::first_name(head);
  return first && first->complete &&
         (first->name == detail::keras::metadata_entry || first->name == detail::keras::config_entry ||
          first->name == detail::keras::weights_entry);
}

Result<Snapshot> KerasFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    return detail::keras::Reader(source, context.options().limits).model();
  });
}

Result<Report> KerasFormat::verify(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Report> {
    const LoadOptions& options = context.options();
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
    STELE_TRY(detail::verify_leaves(snapshot, options));
    const std::uint64_t memory = detail::add_scaled(detail::index_base, source->size(), detail::index_rate::file);
    STELE_TRY_ASSIGN(const auto directory, detail::zip::Directory::open(source, memory));
    detail::Meter meter(options.progress, source->size());
    return directory->check(meter);
  });
}

}  // namespace stele::inline v0
