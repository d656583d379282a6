#include <algorithm>
#include <map>

#include "base/meter.hpp"
#include "file.hpp"
#include "graph_fb.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/flat.hpp"
#include "stele/recorders/archive.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace archive {

using samediff::ArrayHead;

// Headers of neighbouring small entries are read together.
constexpr std::uint64_t small_entry = 4096;
constexpr std::uint64_t window_size = std::uint64_t{64} << 10;
// Bytes of an entry's first read: its header, and the head of an array with a few axes.
constexpr std::uint64_t first_read = 512;
// Maximum size of a head, with many axes. If it does not suffice, the whole entry is read.
constexpr std::uint64_t largest_head = std::uint64_t{64} << 10;

const LeafOps stored_ops{.locate = [](const void* at, std::uint64_t) -> SourceRange {
  const Stored& s = *static_cast<const Stored*>(at);
  return {s.source.get(), s.offset, 0, s.crc, s.checked, zip::crc32};
}};

namespace {

Error too_much() { return index_error("more names, arrays and texts than a file of this size may have"); }

Error too_many_kinds() {
  return Error(Errc::limit, "more kinds of optimizer state than there may be").expected(std::to_string(most_kinds));
}

Error missing(std::string name) { return Error(Errc::malformed, "an entry is missing").expected(std::move(name)); }

}  // namespace

Result<std::shared_ptr<File>> File::open(SourcePtr source, const Limits& limits) {
  auto file = std::make_shared<File>();
  file->memory_ = IndexBudget(limits, source->size(), index_rate::entry);
  STELE_TRY_ASSIGN(file->directory_, zip::Directory::open(std::move(source), file->memory_.left()));
  std::uint64_t taken = 0;
  bool compressed = false;
  for (const zip::Entry& e : file->directory_->entries()) {
    taken += sizeof e + 64 + e.name.size();
    compressed = compressed || e.method == zip::deflated;
  }
  if (compressed) file->memory_.admit_compressed();
  if (!file->spend(taken)) return too_much();
  const zip::Entry* tags = file->directory_->find("tags.txt");
  if (tags == nullptr) return Error(Errc::malformed, "not an archive of models: it has no tags.txt");
  STELE_TRY_ASSIGN(const Bytes text, file->directory_->read(*tags, file->memory_.left()));
  // Each line needs three strings and a table entry.
  const auto lines =
      static_cast<std::uint64_t>(std::count(text.span().begin(), text.span().end(), std::byte{'\n'})) + 1;
  if (!file->spend(4 * text.size() + lines * (5 * sizeof(std::string) + sizeof(Folder) + 96))) return too_much();
  STELE_TRY_ASSIGN(file->tags_, parse_tags({reinterpret_cast<const char*>(text.data()), text.size()}));
  for (const std::string& tag : file->tags_) file->folders_.emplace(folded(tag), Folder{tag, tag});
  // A folder in the tag's spelling takes precedence over others.
  std::string_view last;
  for (const zip::Entry& e : file->directory_->entries()) {
    const std::string_view name = e.name.substr(0, e.name.find('/'));
    if (name.size() == e.name.size() || name == last) continue;
    last = name;
    const auto found = file->folders_.find(folded(name));
    if (found == file->folders_.end()) continue;
    Folder& folder = found->second;
    folder.exact = folder.exact || name == folder.tag;
    folder.name = folder.exact ? folder.tag : name;
  }
  return file;
}

Result<std::string> File::find_tag(std::string_view tag) const {
  if (tag.empty()) return tags_.back();
  const auto found = std::find_if(tags_.begin(), tags_.end(), [&](const std::string& t) { return same_tag(t, tag); });
  if (found != tags_.end()) return *found;
  std::string all;
  for (const std::string& t : tags_) all += (all.empty() ? "" : ", ") + t;
  return Error(Errc::not_found, "the archive has no such tag").expected(all.substr(0, 500)).found(std::string(tag));
}

std::string File::entry_name(std::string_view tag, std::string_view rest) const {
  const auto folder = folders_.find(folded(tag));
  return (folder != folders_.end() ? folder->second.name : std::string(tag)) + '/' + std::string(rest);
}

Result<std::optional<Bytes>> File::read(std::string_view tag, std::string_view rest) {
  const std::string name = entry_name(tag, rest);
  const zip::Entry* entry = directory_->find(name);
  if (entry == nullptr) return std::optional<Bytes>();
  if (entry->size > memory_.left()) return too_much().path(name);
  auto bytes = directory_->read(*entry, memory_.left());
  if (!bytes) return std::move(bytes).error().path(name);
  spend(bytes->size());
  return std::optional(*std::move(bytes));
}

Result<std::vector<Line>> File::lines(std::string_view tag, Kind kind) {
  const std::string rest = std::string(folder_of(kind)) + ".txt";
  STELE_TRY_ASSIGN(const std::optional<Bytes> bytes, read(tag, rest));
  if (!bytes) {
    if (kind == Kind::updater) return std::vector<Line>();
    return missing(entry_name(tag, rest));
  }
  auto lines = parse_lines({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, memory_.left());
  if (!lines) return std::move(lines).error().file(entry_name(tag, rest));
  std::uint64_t taken = 0;
  for (const Line& l : *lines) taken += sizeof l + l.name.size() + l.kind.size() + l.arrays.size() * 64;
  if (!spend(taken)) return too_much();
  return lines;
}

/// Returns bytes of the file from the entry's local header on.
Result<std::span<const std::byte>> File::window(const zip::Entry& entry) {
  const Source& source = *directory_->source();
  const std::uint64_t room = entry.end - entry.header;
  if (const auto all = source.view(); !all.empty()) {
    return all.subspan(static_cast<std::size_t>(entry.header), static_cast<std::size_t>(room));
  }
  const auto within = [&]() -> std::span<const std::byte> {
    if (entry.header < window_begin_ || entry.header >= window_begin_ + window_.size()) return {};
    const auto there = window_.span().subspan(static_cast<std::size_t>(entry.header - window_begin_));
    return there.first(static_cast<std::size_t>(std::min<std::uint64_t>(there.size(), room)));
  };
  const std::uint64_t wanted = std::min(room, 30 + entry.name.size() + first_read);
  if (within().size() >= wanted) return within();
  // Include the small entries that follow.
  const auto entries = directory_->entries();
  std::uint64_t end = entry.header + wanted;
  for (auto e = static_cast<std::size_t>(&entry - entries.data()); e < entries.size(); ++e) {
    if (entries[e].end - entries[e].header > small_entry || entries[e].end - entry.header > window_size) break;
    end = std::max(end, entries[e].end);
  }
  if (window_.size() != end - entry.header) window_ = Bytes(static_cast<std::size_t>(end - entry.header));
  window_begin_ = entry.header;
  STELE_TRY(source.read_at(entry.header, window_.span()));
  return within();
}

Result<std::uint64_t> File::place(const zip::Entry& entry) {
  STELE_TRY_ASSIGN(const auto bytes, window(entry));
  return directory_->data(entry, bytes);
}

Result<Stored> File::open_array(const zip::Entry& entry) {
  Stored out;
  out.entry = &entry;
  std::optional<ArrayHead> head;
  // Called when the whole entry was read and checked: computes the CRC-32 of its content.
  const auto know = [&](std::span<const std::byte> all) {
    out.crc = zip::crc32(0, all.data() + head->begin, static_cast<std::size_t>(head->end - head->begin));
    out.checked = true;
  };
  if (entry.method == zip::stored) {
    STELE_TRY_ASSIGN(const std::uint64_t data, place(entry));
    out.source = directory_->source();
    out.offset = data;
    STELE_TRY_ASSIGN(auto bytes, window(entry));
    const auto known = bytes.size() - std::min<std::uint64_t>(bytes.size(), data - entry.header);
    bytes = bytes.last(static_cast<std::size_t>(known));
    bytes = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(known, entry.size)));
    STELE_TRY_ASSIGN(head, samediff::read_head(bytes, entry.size));
    Bytes more;
    if (!head && bytes.size() < entry.size) {
      more = Bytes(static_cast<std::size_t>(std::min(entry.size, largest_head)));
      STELE_TRY(out.source->read_at(data, more.span()));
      bytes = more.span();
      STELE_TRY_ASSIGN(head, samediff::read_head(bytes, entry.size));
    }
    if (head && head->end == entry.size && head->begin <= bytes.size()) {
      const std::uint32_t crc = zip::crc32(0, bytes.data(), static_cast<std::size_t>(head->begin));
      out.crc = zip::crc32_joined(crc, entry.crc, head->end - head->begin);
      out.checked = true;
    } else if (head) {
      if (zip::crc32(0, bytes.data(), bytes.size()) != entry.crc) return Error(Errc::checksum, "an array is damaged");
      know(bytes);
    }
  } else {
    // Inflating keeps state: read the head from a separate source, which is then freed.
    STELE_TRY_ASSIGN(const SourcePtr once, directory_->open(entry));
    for (const std::uint64_t most : {first_read, largest_head}) {
      Bytes bytes(static_cast<std::size_t>(std::min(entry.size, most)));
      STELE_TRY(once->read_at(0, bytes.span()));
      STELE_TRY_ASSIGN(head, samediff::read_head(bytes.span(), entry.size));
      if (head && bytes.size() == entry.size) know(bytes.span());  // reading to the end has checked it
      if (head || entry.size <= most) break;
    }
    STELE_TRY_ASSIGN(out.source, directory_->open(entry));
  }
  if (!head) {
    // Written by another program: bytes follow the content. Read and check the whole entry once.
    if (entry.size > memory_.left()) return too_much();
    STELE_TRY_ASSIGN(const Bytes bytes, directory_->read(entry, memory_.left()));
    STELE_TRY_ASSIGN(head, samediff::read_head(bytes.span(), entry.size));
    if (!head) return Error(Errc::malformed, "not an array");
    know(bytes.span());
  }
  out.facts = std::move(head->facts);
  out.content = head->begin;
  out.offset += head->begin;
  if (head->external.empty()) return out;

  const std::string_view folder = entry.name.substr(0, entry.name.rfind('/') + 1);
  const std::string name = std::string(folder) + head->external;
  if (head->external.find_first_of("/\\") != std::string::npos) {
    return Error(Errc::malformed, "an array in a file of another folder").found(head->external.substr(0, 200));
  }
  out.external = directory_->find(name);
  if (out.external == nullptr) return missing(name);
  if (out.external->size != out.facts.bytes) {
    return Error(Errc::malformed, "an array whose length is not that of its type and shape")
        .expected(std::to_string(out.facts.bytes) + " bytes")
        .found(std::to_string(out.external->size));
  }
  if (out.external->method == zip::stored) {
    STELE_TRY_ASSIGN(out.offset, place(*out.external));
    out.source = directory_->source();
    out.crc = out.external->crc;
    out.checked = true;
  } else {
    STELE_TRY_ASSIGN(out.source, directory_->open(*out.external));
    out.offset = 0;
    out.checked = false;
  }
  return out;
}

Result<const Stored*> File::array(std::string_view tag, Kind kind, const Reference& reference) {
  const std::string_view of = reference.tag.empty() ? tag : std::string_view(reference.tag);
  const std::string name =
      entry_name(of, std::string(folder_of(kind)) + '/' + std::to_string(reference.number) + ".fb");
  const zip::Entry* entry = directory_->find(name);
  if (entry == nullptr) return missing(name);
  const auto [found, fresh] = known_.emplace(entry, static_cast<std::uint32_t>(arrays_.size()));
  if (fresh) {
    auto opened = open_array(*entry);
    if (!opened) {
      known_.erase(found);
      Error error = std::move(opened).error();
      return error.offset() ? std::move(error) : std::move(error).offset(entry->header);
    }
    const std::uint64_t inflates = opened->source != directory_->source() ? 256 + 2 * entry->name.size() : 0;
    if (!spend(sizeof(Stored) + 96 + inflates + opened->facts.shape.size() * sizeof(Extent))) return too_much();
    arrays_.push_back(*std::move(opened));
  }
  return &arrays_[found->second];
}

namespace {

Status read_metadata(std::string_view text, std::map<std::string, std::string>& metadata) {
  json::Reader in(text);
  std::string key_scratch, value_scratch;
  std::string_view key, value;
  in.begin_object();
  while (in.next_key(key, key_scratch)) {
    std::string name(key);
    if (!in.read_string(value, value_scratch)) break;
    if (!metadata.emplace(std::move(name), std::string(value)).second) in.fail(Errc::duplicate, "each key once");
  }
  return in.finish() ? Status() : in.status();
}

Status add(samediff::Arrays& to, const std::string& name, const Stored& array) {
  if (array.facts.dtype != DType::string) return to.add(name, array.facts, {&stored_ops, &array, 0});
  Bytes bytes(static_cast<std::size_t>(array.facts.bytes));
  STELE_TRY(array.source->read_at(array.offset, bytes.span()));
  if (array.checked && zip::crc32(0, bytes.data(), bytes.size()) != array.crc) {
    return Error(Errc::checksum, "an array of texts is damaged");
  }
  STELE_TRY_ASSIGN(const auto texts, samediff::texts_of(array.facts, bytes.span()));
  to.add(name, samediff::value_of(texts, array.facts.shape));
  return {};
}

}  // namespace

Result<Snapshot> File::parameters(std::string_view tag) {
  STELE_TRY_ASSIGN(const std::vector<Line> lines, this->lines(tag, Kind::params));
  samediff::Arrays arrays;
  for (const Line& line : lines) {
    if (!line.kind.empty()) continue;  // from a later version
    const auto of_line = [&](Error error) { return std::move(error).path(line.name); };
    if (line.arrays.size() != 1) {
      return of_line(Error(Errc::malformed, "a parameter with another number of arrays than one"));
    }
    auto array = this->array(tag, Kind::params, line.arrays.front());
    if (!array) return of_line(std::move(array).error());
    const auto& facts = (*array)->facts;
    const std::uint64_t text = facts.dtype == DType::string ? 8 * facts.bytes : 0;
    if (!spend(3 * (sizeof(Node) + sizeof(LeafData) + line.name.size()) + 64 + 8 * facts.shape.size() + text)) {
      return of_line(too_much());
    }
    if (auto r = add(arrays, line.name, **array); !r) return of_line(std::move(r).error());
  }
  STELE_TRY_ASSIGN(const std::optional<Bytes> bytes, read(tag, "metadata.json"));
  if (bytes) {
    // Compressed entries have a memory bound of their own.
    const zip::Entry* entry = directory_->find(entry_name(tag, "metadata.json"));
    memory_.admit(entry->compressed, index_rate::index);
    if (!spend(3 * bytes->size())) return too_much();
    std::map<std::string, std::string> metadata;
    STELE_TRY(read_metadata({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, metadata));
    if (const auto extras = metadata.find(std::string(flat_key)); extras != metadata.end()) {
      STELE_TRY(add_flat_extras(
          extras->second, arrays.builder(), [&](std::string_view n) { return arrays.node(n); }, memory_));
      metadata.erase(extras);
    }
    arrays.builder().set_metadata(std::move(metadata));
  }
  return arrays.finish(shared_from_this());
}

Result<Checkpoint> File::checkpoint(std::string_view tag) {
  Checkpoint out;
  STELE_TRY_ASSIGN(out.parameters, parameters(tag));
  Training training;
  STELE_TRY_ASSIGN(const std::optional<Bytes> config, read(tag, "trainingConfig.fb"));
  if (config) {
    auto read = read_training(config->span(), memory_.left());
    if (!read) return std::move(read).error().file(entry_name(tag, "trainingConfig.fb"));
    training = *std::move(read);
    if (!training.json.empty()) {
      STELE_TRY_ASSIGN(out.training, TrainingConfig::parse(training.json));
    }
  }
  STELE_TRY_ASSIGN(const std::optional<Bytes> graph, read(tag, "graph.fb"));
  if (graph) {
    // Strings and lists as values take many times their size in the file, more than opening parameters may.
    const std::string name = entry_name(tag, "graph.fb");
    auto read = read_graph(graph->span(), memory_.left() + 16 * directory_->find(name)->compressed);
    if (!read) return std::move(read).error().file(name);
    out.graph = *std::move(read);
  }

  STELE_TRY_ASSIGN(const std::vector<Line> lines, this->lines(tag, Kind::updater));
  if (training.state_keys.empty() && out.training) {
    if (const auto keys = updater_state_keys(out.training->updater.type)) {
      training.state_keys.assign(keys->begin(), keys->end());
    }
  }
  std::vector<std::pair<std::string, samediff::Arrays>> kinds;
  std::unordered_map<std::string, std::uint32_t> leaves;
  for (std::uint32_t i = 0; !lines.empty() && i < out.parameters.leaf_count(); ++i) {
    leaves.emplace(out.parameters.leaf(i).path(), i);
  }
  for (const Line& line : lines) {
    if (!line.kind.empty()) continue;
    const auto of_line = [&](Error error) { return std::move(error).path(line.name); };
    const auto& keys = line.keys.empty() ? training.state_keys : line.keys;
    if (keys.size() > most_kinds) return of_line(too_many_kinds());
    if (keys.size() != line.arrays.size()) {
      return of_line(Error(Errc::malformed, "another number of state arrays than the updater has")
                         .expected(std::to_string(keys.size()))
                         .found(std::to_string(line.arrays.size())));
    }
    const auto found = leaves.find(line.name);
    if (found == leaves.end()) {
      return of_line(Error(Errc::malformed, "optimizer state of a parameter that is not there"));
    }
    const LeafView parameter = out.parameters.leaf(found->second);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) !=
          keys.begin() + static_cast<std::ptrdiff_t>(i)) {
        return of_line(Error(Errc::duplicate, "two state arrays of one kind").found(keys[i]));
      }
      auto array = this->array(tag, Kind::updater, line.arrays[i]);
      if (!array) return of_line(std::move(array).error());
      const auto& shape = (*array)->facts.shape;
      if (!std::equal(shape.begin(), shape.end(), parameter.shape().begin(), parameter.shape().end())) {
        return of_line(Error(Errc::shape_mismatch, "optimizer state of another shape than its parameter")
                           .expected(to_string(parameter.shape()))
                           .found(to_string(shape)));
      }
      if (!spend(3 * (sizeof(Node) + sizeof(LeafData) + line.name.size()) + 64 + 8 * shape.size())) {
        return of_line(too_much());
      }
      auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == keys[i]; });
      if (kind == kinds.end()) {
        if (kinds.size() == most_kinds) return of_line(too_many_kinds());
        kind = kinds.emplace(kinds.end(), keys[i], samediff::Arrays());
      }
      if (auto r = add(kind->second, line.name, **array); !r) return of_line(std::move(r).error());
    }
  }
  for (auto& [key, arrays] : kinds) {
    STELE_TRY_ASSIGN(Snapshot snapshot, arrays.finish(shared_from_this()));
    out.optimizer.set_snapshot(key, std::move(snapshot));
  }
  return out;
}

Status File::check_tags(const LoadOptions& options, Meter& meter) {
  // Reads an array once, even if several tags refer to it, unless it has a transform.
  std::unordered_set<const void*> seen;
  const auto is_new = [&](const LeafView& leaf) {
    return leaf.provider().ops != &stored_ops || seen.insert(leaf.provider().at).second;
  };
  const IndexBudget memory = memory_;
  for (const std::string& tag : tags_) {
    memory_ = memory;  // the memory of the last tag was freed
    STELE_TRY_ASSIGN(const Checkpoint checkpoint, this->checkpoint(tag));
    STELE_TRY(check_leaves(checkpoint.parameters, options, meter, is_new));
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
      STELE_TRY(check_leaves(arrays, options, meter, is_new));
    }
  }
  for (const Stored& s : arrays_) {
    if (s.checked) checked_.insert(s.external != nullptr ? s.external : s.entry);
  }
  return {};
}

}  // namespace archive
}  // namespace detail

const Capabilities& ArchiveFormat::capabilities() const noexcept {
  static constexpr Capabilities can{false, true, true, false, false, false, true, true, 32, detail::samediff::holds};
  return can;
}

bool ArchiveFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  constexpr std::string_view magic("PK\3\4", 4);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.size() < 31 || !text.starts_with(magic)) return false;
  // Archives store entries in folders, except tags.txt. DL4J's SDZ files contain `model`, or shards of it.
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(text[26])) |
                      static_cast<std::size_t>(static_cast<unsigned char>(text[27])) << 8;
  const std::string_view name = text.substr(30, length);
  return name == "tags.txt" || name.find('/') != name.npos ||
         (length > name.size() && !name.starts_with("model.shard"));
}

Result<Snapshot> ArchiveFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), context.options().limits));
  STELE_TRY_ASSIGN(const std::string tag, file->find_tag(options_.tag));
  return file->parameters(tag);
}

Result<Report> ArchiveFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                     const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(source, context.options().limits));
  STELE_TRY(file->find_tag(options_.tag));
  detail::Meter meter(context.options().progress, source->size());
  STELE_TRY(file->check_tags(context.options(), meter));
  STELE_TRY_ASSIGN(const Report report, file->directory().check(meter, [&](const detail::zip::Entry& entry) {
    return file->has_checked(entry);
  }));
  STELE_TRY(meter.add(source->size()));  // counts bytes that are not in an array or another entry
  return report;
}

Result<std::vector<std::string>> archive_tags(const Input& from) {
  return detail::guarded([&]() -> Result<std::vector<std::string>> {
    STELE_TRY_ASSIGN(SourcePtr source, from.open(".zip", default_load_options()));
    STELE_TRY(detail::check_kind(*source, false));
    STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), {}));
    return file->tags();
  });
}

Result<Checkpoint> open_archive(const Input& from, std::string_view tag, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Checkpoint> {
    STELE_TRY_ASSIGN(SourcePtr source, from.open(".zip", options));
    STELE_TRY(detail::check_kind(*source, false));
    STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), options.limits));
    STELE_TRY_ASSIGN(const std::string name, file->find_tag(tag));
    return file->checkpoint(name);
  });
}

}  // namespace v0
}  // namespace stele
