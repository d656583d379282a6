// Reads folders into a Snapshot.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/extension.hpp"
#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "encodings/zarr/array.hpp"
#include "encodings/zarr/metadata.hpp"
#include "encodings/zarr/store.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/path_parts.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/layout.hpp"
#include "stele/recorders/zarr.hpp"
#include "zarr.hpp"

namespace stele::inline v0 {
namespace detail::zarr {
namespace {

class Reader {
 public:
  Reader(std::shared_ptr<const Store> store, IndexBudget& memory, const OpenContext& context)
      : store_(std::move(store)), memory_(memory), context_(context), arrays_(std::make_shared<Arrays>(store_)) {}

  Result<Snapshot> run() {
    STELE_TRY_ASSIGN(Hierarchy found, read_hierarchy(*store_, memory_));
    if (found.arrays.empty() && found.groups.empty()) {
      return Error(Errc::missing, "the folder contains no zarr array or group").file(store_->name());
    }
    const bool single = found.arrays.size() == 1 && found.arrays.front().path.empty();
    const std::string path = single ? root_path() : std::string();
    if (!single || !path.empty()) builder_.set_flat();  // an empty path: the loaded object is itself a tensor
    for (Array& array : found.arrays) {
      if (array.path.empty() && !single) {
        return Error(Errc::malformed, "an array contains other arrays").file(store_->name());
      }
      STELE_TRY(add(single ? path : path_of_parts(array.path, "/"), array));
    }
    std::map<std::string, std::string> metadata;
    Skipped skipped;
    for (Group& group : found.groups) {
      if (group.path.empty()) {
        if (group.attributes.as_string() != nullptr) skipped.add("the root: attributes that are not JSON");
        root_attributes(std::move(group.attributes), metadata);
      } else if (const auto* map = group.attributes.as_map();
                 map != nullptr ? !map->empty() : !group.attributes.is_null()) {
        skipped.add(group.path);
      }
    }
    if (builder_.data().flat) STELE_TRY(finish_names(builder_, std::move(metadata), memory_));
    skipped.leave_out(builder_.data().left_out, "attributes of groups");
    builder_.data().notes = arrays_->notes();
    builder_.set_capacity(std::max<std::uint64_t>(arrays_->capacity(), 1));
    builder_.keep(arrays_);
    return in_host_order(builder_.finish());
  }

 private:
  /// Returns the name of an array that is the whole store.
  std::string root_path() const {
    if (const auto layout = context_.layout(); layout && layout->tensors.size() == 1) return layout->tensors[0].path;
    std::string_view stem = file_name(store_->name());
    if (has_extension(stem, ".zarr")) stem.remove_suffix(5);
    std::string path;
    append_segment(path, stem);
    return path;
  }

  Status add(const std::string& path, Array& array) {
    STELE_TRY_ASSIGN(const Provider provider, arrays_->add(array, memory_));
    const bool good = array.unreadable.empty();
    TensorEntry entry{.name = path, .shape = array.shape, .provider = provider, .unreadable = array.unreadable};
    if (good) entry.dtype = array.type->dtype, entry.bytes = array.bytes;
    STELE_TRY(add_entry(builder_, entry, memory_));
    if (const auto* map = array.attributes.as_map();
        (map != nullptr && !map->empty()) || array.attributes.as_string()) {
      builder_.annotate(std::string(attributes_note), std::move(array.attributes));
    }
    if (!array.dimension_names.is_null()) {
      builder_.annotate(std::string(dimensions_note), std::move(array.dimension_names));
    }
    return {};
  }

  void root_attributes(Value attributes, std::map<std::string, std::string>& metadata) {
    Value::Map* const map = attributes.as_map();
    if (map == nullptr) return;
    std::erase_if(*map, [](const auto& entry) { return entry.first == made_here_key; });
    for (const auto& [key, value] : *map) {
      if (const std::string* const text = value.as_string()) metadata.emplace(key, *text);
    }
    std::erase_if(*map, [](const auto& entry) { return entry.first == flat_key; });
    if (!map->empty()) builder_.set_properties(std::move(attributes));
  }

  std::shared_ptr<const Store> store_;
  IndexBudget& memory_;
  const OpenContext& context_;
  std::shared_ptr<Arrays> arrays_;
  SnapshotBuilder builder_;
};

bool contains(const Bundle& folder, std::string_view name) {
  const auto found = folder.contains(name);
  return found && *found;
}

/// Returns true if a folder with the metadata of both Orbax and zarr is a checkpoint of Orbax.
bool is_orbax(const Bundle& folder) {
  return contains(folder, "_METADATA") || contains(folder, "_CHECKPOINT_METADATA") ||
         contains(folder, "manifest.ocdbt");
}

}  // namespace
}  // namespace detail::zarr

bool ZarrFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (!text.starts_with('{')) return false;
  const auto has = [&](std::string_view key) { return text.find(key) != text.npos; };
  return has("\"zarr_format\"") || has("\"zarr_consolidated_format\"") ||
         (has("\"chunk_grid\"") && has("\"data_type\""));
}

bool ZarrFormat::recognises_folder(const Bundle& folder) const {
  using namespace detail::zarr;  // NOLINT(google-build-using-namespace): this file implements the format
  if (is_orbax(folder)) return false;
  return contains(folder, v3_key) || contains(folder, array_key) || contains(folder, group_key) ||
         contains(folder, consolidated_key);
}

Status ZarrFormat::may_replace(const Bundle& folder) const {
  namespace zarr = detail::zarr;
  const auto refuse = [](std::string_view why, std::string_view found) {
    return Error(Errc::exists, "the target folder is not only a model that stele saved: " + std::string(why))
        .found(std::string(found))
        .hint("save to another path, or set FileSinkOptions::allow_nonatomic");
  };
  detail::IndexBudget memory(Limits(), 0);
  STELE_TRY_ASSIGN(const auto store,
                   zarr::open_folder_store({std::shared_ptr<const Bundle>(), &folder}, "", "", memory));
  auto found = zarr::read_hierarchy(*store, memory);
  if (!found) return refuse("it has no zarr hierarchy", found.error().message());
  const bool ours = !found->groups.empty() && found->groups.front().path.empty() &&
                    found->groups.front().attributes.find(zarr::made_here_key) != nullptr;
  if (!ours) return refuse("another program wrote it", "");
  std::size_t known = 0;
  const auto count = [&](const std::string& path, bool array) {
    const std::string at = path.empty() ? "" : path + '/';
    if (store->find(at + std::string(zarr::v3_key))) ++known;
    if (!array) return;
    const auto [first, last] = store->range(at + "c/");
    known += last - first + (store->find(at + 'c') ? 1 : 0);
  };
  for (const auto& group : found->groups) count(group.path, false);
  for (const auto& array : found->arrays) count(array.path, true);
  return known == store->keys().size() ? Status() : Status(refuse("it has other files", ""));
}

Result<Snapshot> ZarrFormat::open(SourcePtr source, const OpenContext& context) const {
  const std::shared_ptr<const Bundle> folder = source->bundle();
  if (folder == nullptr) {
    return Error(Errc::unsupported, "the metadata of a zarr array or group lack their folder")
        .file(source->name())
        .hint("open the folder");
  }
  detail::IndexBudget memory(context.options().limits, 0);
  STELE_TRY_ASSIGN(auto store, detail::zarr::open_folder_store(folder, "", source->name(), memory));
  STELE_TRY_ASSIGN(Snapshot found, detail::zarr::Reader(std::move(store), memory, context).run());
  if (!source->is_folder()) return found;
  return detail::with_unread(std::move(found), *folder);
}

}  // namespace stele::inline v0
