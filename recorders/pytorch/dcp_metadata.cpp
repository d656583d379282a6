// Reads the metadata of a checkpoint of torch.distributed.checkpoint.
#include "dcp_metadata.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "encodings/pickle/pickle.hpp"
#include "io/cursor.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

constexpr const char* whole_name = ".metadata";
constexpr std::string_view rank_prefix = "__", rank_suffix = ".metadata";

/// Maximum number of attributes searched in a dataclass instance: instances may share attributes, and the known classes
/// have 6.
constexpr std::size_t max_attributes = 64;
/// Maximum length of a path: Linux's maximum.
constexpr std::size_t max_path_bytes = 4096;
/// Maximum number of files: bounds the files that hostile metadata makes the reader open.
constexpr std::size_t max_files = 100'000;

Error malformed(std::string_view message) { return Error(Errc::malformed, message); }
Error too_large() { return index_error("the checkpoint's metadata need more memory than their size allows"); }

/// Returns the number in `__3.metadata`.
std::optional<std::uint64_t> rank_of(std::string_view name) {
  if (!name.starts_with(rank_prefix) || !name.ends_with(rank_suffix)) return std::nullopt;
  name.remove_prefix(rank_prefix.size());
  name.remove_suffix(std::min(rank_suffix.size(), name.size()));
  std::uint64_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(rank) : std::nullopt;
}

/// Returns the names of the processes' metadata files, by rank.
std::vector<std::string> rank_files(const std::vector<std::string>& names) {
  std::vector<std::pair<std::uint64_t, std::string>> ranks;
  for (const std::string& name : names) {
    if (const auto rank = rank_of(name)) ranks.emplace_back(*rank, name);
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> files;
  files.reserve(ranks.size());
  for (auto& [rank, name] : ranks) files.push_back(std::move(name));
  return files;
}

/// The merged metadata of all files so far.
struct Found {
  DcpIndex index;
  std::map<std::string, std::uint32_t, std::less<>> items, files;  // by name
};

/// Reads one file of metadata.
class MetadataReader {
 public:
  /// `rank`: other metadata files may contain the same items.
  MetadataReader(const pickle::Objects& objects, bool rank, Found& found, IndexBudget& memory)
      : objects_(objects),
        rank_(rank),
        found_(found),
        memory_(memory),
        item_of_(objects.size(), unknown),
        file_of_(objects.size(), unknown) {}

  Status run() {
    const Ref root = objects_.root();
    if (!is_instance(root, "Metadata")) return malformed("the pickle is not the metadata of a checkpoint");
    const Ref items = attribute(root, "state_dict_metadata"), places = attribute(root, "storage_data");
    if (!objects_.is(items, Kind::dict) || !objects_.is(places, Kind::dict)) {
      return malformed("the metadata have no state_dict_metadata and storage_data");
    }
    STELE_TRY(read_names(objects_.items(items)));
    STELE_TRY(read_places(objects_.items(places)));
    for (const auto& [number, object] : present_) {
      if (auto read = read_item(number, object); !read) {
        Error error = std::move(read).error();
        return error.path().empty() ? std::move(error).path(found_.index.items[number].name) : std::move(error);
      }
    }
    return {};
  }

 private:
  static constexpr std::uint32_t unknown = 0xffffffffU, absent = 0xfffffffeU;

  /// An entry of storage_data.
  struct StorageEntry {
    std::uint32_t item;
    std::uint32_t rank;
    std::size_t offsets;  // index in offsets_
    Ref info;
  };

  // ---- objects

  /// Returns true for an instance of a class of torch.distributed; its modules have been renamed over time.
  bool is_instance(Ref r, std::string_view name) const {
    if (!objects_.is(r, Kind::object)) return false;
    const Ref type = objects_.callable(r);
    return objects_.is(type, Kind::global) && objects_.name(type) == name &&
           objects_.module(type).starts_with("torch.distributed");
  }

  Ref attribute(Ref r, std::string_view name) const {
    const Ref state = objects_.state(r);
    if (!objects_.is(state, Kind::dict) || objects_.items(state).size() > 2 * max_attributes) return no_ref;
    return objects_.find(state, name);
  }

  Result<std::uint64_t> number(Ref r) const {
    if (!objects_.is(r, Kind::integer) || objects_.integer(r) < 0)
      return malformed("a number of the metadata is invalid");
    return static_cast<std::uint64_t>(objects_.integer(r));
  }

  /// Appends the numbers of a torch.Size, a tuple or a list.
  Status read_size(Ref r, std::vector<Extent>& to) {
    if (objects_.is(r, Kind::object) && objects_.is_global(objects_.callable(r), "torch", "Size")) {
      const Ref args = objects_.args(r);
      r = objects_.is(args, Kind::tuple) && objects_.items(args).size() == 1 ? objects_.items(args)[0] : no_ref;
    }
    if (!objects_.is(r, Kind::tuple) && !objects_.is(r, Kind::list))
      return malformed("a size of the metadata is not a tuple");
    const auto items = objects_.items(r);
    if (items.size() > 0xffff) return Error(Errc::limit, "a tensor has more than 65535 dimensions");
    if (!memory_.take(32 + 3 * sizeof(Extent) * items.size())) return too_large();
    for (const Ref item : items) {
      STELE_TRY_ASSIGN(const std::uint64_t extent, number(item));
      to.push_back(extent);
    }
    return {};
  }

  // ---- names

  Status read_names(std::span<const Ref> items) {
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!objects_.is(items[i], Kind::string)) return malformed("a key of state_dict_metadata is not a string");
      const std::string_view name = objects_.text(items[i]);
      if (!memory_.take(sizeof(DcpItem) + 256 + 4 * name.size())) return too_large();
      const auto next = static_cast<std::uint32_t>(found_.index.items.size());
      const auto [known, fresh] = found_.items.try_emplace(std::string(name), next);
      if (fresh) found_.index.items.push_back({std::string(name)});
      const bool twice = !fresh && (!rank_ || known->second >= first_item_);
      if (twice || item_of_[items[i]] != unknown) {
        return Error(Errc::duplicate, "the metadata list an item twice").path(name);
      }
      item_of_[items[i]] = known->second;
      fresh_.push_back(fresh);
      present_.emplace_back(known->second, items[i + 1]);
    }
    return {};
  }

  /// Returns the index of the item with this name, or `absent`. Objects share names, so each name is looked up once.
  std::uint32_t item_of(Ref name) {
    if (!objects_.is(name, Kind::string)) return absent;
    std::uint32_t& known = item_of_[name];
    if (known == unknown) {
      const auto at = found_.items.find(objects_.text(name));
      known = at != found_.items.end() ? at->second : absent;
    }
    return known;
  }

  // ---- places

  std::span<const Extent> offsets_of(const StorageEntry& place) const {
    return std::span(offsets_).subspan(place.offsets, place.rank);
  }
  bool before(const StorageEntry& place, std::uint32_t item, std::span<const Extent> offsets) const {
    if (place.item != item) return place.item < item;
    const auto own = offsets_of(place);
    return std::lexicographical_compare(own.begin(), own.end(), offsets.begin(), offsets.end());
  }

  Status read_places(std::span<const Ref> items) {
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!is_instance(items[i], "MetadataIndex")) return malformed("a key of storage_data is not a MetadataIndex");
      const std::uint32_t item = item_of(attribute(items[i], "fqn"));
      if (item == absent) continue;
      if (!memory_.take(3 * sizeof(StorageEntry))) return too_large();
      StorageEntry& place = places_.emplace_back(StorageEntry{item, 0, offsets_.size(), items[i + 1]});
      const Ref offset = attribute(items[i], "offset");
      if (offset != no_ref && !objects_.is(offset, Kind::none)) STELE_TRY(read_size(offset, offsets_));
      place.rank = static_cast<std::uint32_t>(offsets_.size() - place.offsets);
    }
    std::sort(places_.begin(), places_.end(),
              [&](const StorageEntry& a, const StorageEntry& b) { return before(a, b.item, offsets_of(b)); });
    return {};
  }

  Result<Slice> slice_of(std::uint32_t item, std::span<const Extent> offsets) {
    const auto at = std::partition_point(places_.begin(), places_.end(),
                                         [&](const StorageEntry& p) { return before(p, item, offsets); });
    const auto own = at != places_.end() && at->item == item ? std::optional(offsets_of(*at)) : std::nullopt;
    if (!own || !std::equal(own->begin(), own->end(), offsets.begin(), offsets.end())) {
      return malformed("the metadata do not contain the place of a chunk")
          .expected("an entry at " + to_string(offsets));
    }
    return read_slice(at->info);
  }

  Result<Slice> read_slice(Ref info) {
    if (!is_instance(info, "_StorageInfo")) return malformed("a value of storage_data is not a _StorageInfo");
    const Ref transforms = attribute(info, "transform_descriptors");
    if (transforms != no_ref && !objects_.is(transforms, Kind::none)) {
      const bool list = objects_.is(transforms, Kind::list) || objects_.is(transforms, Kind::tuple);
      if (!list || !objects_.items(transforms).empty()) {
        const Ref first = list ? objects_.items(transforms)[0] : no_ref;
        return Error(Errc::unsupported, "the checkpoint's slices are transformed, which stele does not read")
            .found(objects_.is(first, Kind::string) ? std::string(objects_.text(first).substr(0, 100)) : "a transform")
            .hint("save without extensions");
      }
    }
    Slice slice;
    STELE_TRY_ASSIGN(slice.file, file_of(attribute(info, "relative_path")));
    STELE_TRY_ASSIGN(slice.offset, number(attribute(info, "offset")));
    STELE_TRY_ASSIGN(slice.length, number(attribute(info, "length")));
    return slice;
  }

  Result<std::uint32_t> file_of(Ref path) {
    if (!objects_.is(path, Kind::string)) return malformed("a slice has no relative_path");
    std::uint32_t& known = file_of_[path];
    if (known != unknown) return known;
    const std::string_view text = objects_.text(path);
    if (text.size() > max_path_bytes)
      return malformed("the path of a file exceeds 4096 bytes").found(text.substr(0, 100));
    std::string_view rest = text;
    bool plain = !text.empty() && text.find('\\') == text.npos && text.find('\0') == text.npos;
    while (plain) {
      const std::string_view part = rest.substr(0, rest.find('/'));
      plain = !part.empty() && part != "." && part != "..";
      if (part.size() == rest.size()) break;
      rest.remove_prefix(part.size() + 1);
    }
    if (!plain) return malformed("the path of a file is not below the folder of the checkpoint").found(text);
    if (!memory_.take(256 + 4 * text.size())) return too_large();
    const auto next = static_cast<std::uint32_t>(found_.index.files.size());
    const auto [at, fresh] = found_.files.try_emplace(std::string(text), next);
    if (fresh) found_.index.files.emplace_back(text);
    if (found_.index.files.size() > max_files) {
      return Error(Errc::limit, "the checkpoint has too many files").expected("at most " + std::to_string(max_files));
    }
    return known = at->second;
  }

  // ---- items

  Status read_item(std::uint32_t number, Ref object) {
    DcpItem& item = found_.index.items[number];
    const bool fresh = fresh_[next_++];
    if (is_instance(object, "BytesStorageMetadata")) {
      if (!fresh && item.type != nullptr) return differs();
      if (!fresh) return {};  // keeps the object of the lowest rank
      STELE_TRY_ASSIGN(const Slice slice, slice_of(number, {}));
      item.slices.push_back(slice);
      return {};
    }
    if (!is_instance(object, "TensorStorageMetadata")) {
      return malformed("an item of the metadata is neither a tensor nor bytes");
    }
    STELE_TRY_ASSIGN(const TorchType* type, type_of(attribute(object, "properties")));
    std::vector<Extent> shape;
    STELE_TRY(read_size(attribute(object, "size"), shape));
    if (!fresh && (item.type != type || item.shape != shape)) return differs();
    item.type = type;
    item.shape = std::move(shape);
    const auto count = element_count(item.shape);
    const auto bytes = count ? checked_mul(*count, 2 * std::uint64_t{type->size}) : std::nullopt;
    if (!bytes || *bytes >> 63 != 0)
      return malformed("the tensor's size does not fit 64 bits").found(to_string(item.shape));
    const Ref chunks = attribute(object, "chunks");
    if (!objects_.is(chunks, Kind::list) && !objects_.is(chunks, Kind::tuple))
      return malformed("a tensor has no chunks");
    for (const Ref chunk : objects_.items(chunks)) STELE_TRY(read_chunk(number, chunk));
    return {};
  }

  static Error differs() { return malformed("two processes saved different items under one name"); }

  Result<const TorchType*> type_of(Ref properties) const {
    const Ref state = is_instance(properties, "TensorProperties") ? objects_.state(properties) : no_ref;
    if (!objects_.is(state, Kind::tuple) || objects_.items(state).size() < 2)
      return malformed("a tensor has no properties");
    const Ref dtype = objects_.items(state)[0];
    const bool named = objects_.is(dtype, Kind::global) && objects_.module(dtype) == "torch";
    const TorchType* const type = named ? type_of_name(objects_.name(dtype)) : nullptr;
    if (type == nullptr || type->packed_bits != 0 || type->quantized_bits != 0) {
      return Error(Errc::unsupported, "stele does not read tensors of this dtype from distributed checkpoints")
          .found(named ? "torch." + std::string(objects_.name(dtype)) : "no name");
    }
    // Either a global or a call of torch.serialization._get_layout.
    Ref layout = objects_.items(state)[1];
    std::string_view text = objects_.is(layout, Kind::global) ? objects_.name(layout) : std::string_view();
    if (objects_.is(layout, Kind::object)) {
      const Ref args = objects_.args(layout);
      layout = objects_.is(args, Kind::tuple) && !objects_.items(args).empty() ? objects_.items(args)[0] : no_ref;
      if (objects_.is(layout, Kind::string)) text = objects_.text(layout);
    }
    if (text != "torch.strided" && text != "strided") {
      return Error(Errc::unsupported, "stele does not read tensors of this layout from distributed checkpoints")
          .expected("torch.strided")
          .found(text.substr(0, 100));
    }
    return type;
  }

  Status read_chunk(std::uint32_t number, Ref object) {
    if (!is_instance(object, "ChunkStorageMetadata"))
      return malformed("a chunk of a tensor is not a ChunkStorageMetadata");
    DcpItem& item = found_.index.items[number];
    if (!memory_.take(3 * (sizeof(Box) + sizeof(Slice)))) return too_large();
    Box box;
    STELE_TRY(read_size(attribute(object, "offsets"), box.start));
    STELE_TRY(read_size(attribute(object, "sizes"), box.length));
    if (box.start.size() != item.shape.size() || box.length.size() != item.shape.size()) {
      return malformed("a chunk's rank differs from that of its tensor")
          .expected(std::to_string(item.shape.size()))
          .found(std::to_string(box.length.size()));
    }
    if (std::find(box.length.begin(), box.length.end(), Extent{0}) != box.length.end()) return {};
    STELE_TRY_ASSIGN(const Slice slice, slice_of(number, box.start));
    item.boxes.push_back(std::move(box));
    item.slices.push_back(slice);
    return {};
  }

  const pickle::Objects& objects_;
  bool rank_;
  Found& found_;
  IndexBudget& memory_;
  std::uint32_t first_item_ = static_cast<std::uint32_t>(found_.index.items.size());
  std::vector<std::uint32_t> item_of_, file_of_;  // numbers by object, set for strings
  std::vector<std::pair<std::uint32_t, Ref>> present_;
  std::vector<bool> fresh_;  // parallel to present_: no earlier file has the item
  std::size_t next_ = 0;
  std::vector<StorageEntry> places_;
  std::vector<Extent> offsets_;
};

Status add_file(const SourcePtr& source, bool rank, Found& found, IndexBudget& memory) {
  memory.admit(source->size(), index_rate::token);
  Cursor cursor(source);
  auto read = [&]() -> Status {
    STELE_TRY_ASSIGN(const pickle::Objects objects, pickle::read(cursor, memory));
    if (cursor.left() != 0) return malformed("bytes follow the pickle").offset(cursor.position());
    if (!memory.take(2 * sizeof(std::uint32_t) * objects.size())) return too_large();
    return MetadataReader(objects, rank, found, memory).run();
  }();
  if (read || !read.error().file().empty()) return read;
  return std::move(read).error().file(source->name());
}

/// Removes duplicate boxes that several processes saved; keeps the first of each.
void remove_copies(DcpItem& item) {
  std::vector<std::uint32_t> order(item.boxes.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto box = [&](std::uint32_t i) { return std::tie(item.boxes[i].start, item.boxes[i].length); };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return box(a) < box(b); });
  order.erase(
      std::unique(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return box(a) == box(b); }),
      order.end());
  if (order.size() == item.boxes.size()) return;
  std::vector<Box> boxes;
  std::vector<Slice> slices;
  for (const std::uint32_t i : order) {
    boxes.push_back(std::move(item.boxes[i]));
    slices.push_back(item.slices[i]);
  }
  item.boxes = std::move(boxes);
  item.slices = std::move(slices);
}

}  // namespace

bool has_index(const Bundle& folder) {
  const auto is_pickle = [&](const std::string& name) {
    const auto source = folder.open(name);
    std::byte head[2]{};
    return source && (*source)->size() > sizeof head && (*source)->read_at(0, head) && pickle::protocol(head);
  };
  if (is_pickle(whole_name)) return true;
  const auto names = folder.names();
  if (!names) return false;
  const std::vector<std::string> ranks = rank_files(*names);
  return !ranks.empty() && is_pickle(ranks.front());
}

Result<DcpIndex> read_index(const Bundle& folder, IndexBudget& memory) {
  Found found;
  STELE_TRY_ASSIGN(const bool whole, folder.contains(whole_name));
  if (whole) {
    STELE_TRY_ASSIGN(const SourcePtr source, folder.open(whole_name));
    STELE_TRY(add_file(source, false, found, memory));
  } else {
    STELE_TRY_ASSIGN(const auto names, folder.names());
    const std::vector<std::string> ranks = rank_files(names);
    if (ranks.empty()) {
      return Error(Errc::not_found, "the folder has no metadata of a checkpoint")
          .expected(".metadata or __0.metadata")
          .hint("the save may not have ended");
    }
    for (const std::string& name : ranks) {
      STELE_TRY_ASSIGN(const SourcePtr source, folder.open(name));
      STELE_TRY(add_file(source, true, found, memory));
    }
    for (DcpItem& item : found.index.items) remove_copies(item);
  }
  for (const DcpItem& item : found.index.items) {
    if (item.type == nullptr) continue;
    if (auto covered = check_cover(item.boxes, item.shape, memory); !covered) {
      Error error = std::move(covered).error().path(item.name);
      return whole ? std::move(error) : std::move(error).hint("the metadata of a process may be missing");
    }
  }
  return std::move(found.index);
}

}  // namespace stele::inline v0::detail::pytorch
