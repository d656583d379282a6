// The directory, tags, text files and arrays of an open archive.
#include <algorithm>

#include "file.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail::archive {

using samediff::ArrayHead;
using samediff::too_much;

// Size of an entry's first read (512 bytes): its header, and the head of an array with a few axes.
constexpr std::uint64_t first_read = 512;
// Maximum size of a head with many axes (64 KiB). A larger head makes the reader read the whole entry.
constexpr std::uint64_t max_head = std::uint64_t{64} << 10;

const LeafOps stored_ops{.locate = [](const void* at, std::uint64_t) -> SourceRange {
  const Stored& s = *static_cast<const Stored*>(at);
  return {s.source.get(), s.offset, 0, s.crc, s.checked, zip::crc32};
}};

namespace {

Error missing(const std::string& name) { return Error(Errc::malformed, "the archive lacks an entry").expected(name); }

}  // namespace

Result<std::shared_ptr<File>> File::open(SourcePtr source, const Limits& limits) {
  auto file = std::make_shared<File>();
  file->memory_ = IndexBudget(limits, source->size(), index_rate::entry);
  STELE_TRY_ASSIGN(file->directory_, zip::Directory::open(std::move(source), file->memory_.left()));
  file->heads_.emplace(file->directory_, first_read);
  std::uint64_t taken = 0;
  bool compressed = false;
  for (const zip::Entry& e : file->directory_->entries()) {
    taken += sizeof e + 64 + e.name.size();
    compressed = compressed || e.method == zip::deflated;
  }
  if (compressed) file->memory_.admit_compressed();
  if (!file->spend(taken)) return too_much();
  const zip::Entry* tags = file->directory_->find("tags.txt");
  if (tags == nullptr) return Error(Errc::malformed, "the zip file is not an archive of models: it lacks tags.txt");
  STELE_TRY_ASSIGN(const Bytes text, file->directory_->read(*tags, file->memory_.left()));
  // Each line needs three strings and a table entry.
  const auto lines =
      static_cast<std::uint64_t>(std::count(text.span().begin(), text.span().end(), std::byte{'\n'})) + 1;
  if (!file->spend(4 * text.size() + lines * (5 * sizeof(std::string) + sizeof(Folder) + 96))) return too_much();
  STELE_TRY_ASSIGN(file->tags_, parse_tags({reinterpret_cast<const char*>(text.data()), text.size()}));
  for (const std::string& tag : file->tags_) file->folders_.emplace(folded(tag), Folder{tag, tag});
  // A folder in the tag's spelling takes precedence over other folders.
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
  return Error(Errc::not_found, "the archive does not contain the tag")
      .expected(all.substr(0, 500))
      .found(std::string(tag));
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

Result<std::uint64_t> File::place(const zip::Entry& entry) {
  STELE_TRY_ASSIGN(const auto bytes, heads_->head(entry));
  return directory_->data(entry, bytes);
}

Result<Stored> File::open_array(const zip::Entry& entry) {
  Stored out;
  out.entry = &entry;
  std::optional<ArrayHead> head;
  // Computes the CRC-32 of the content. Called when the whole entry was read and checked.
  const auto know = [&](std::span<const std::byte> all) {
    out.crc = zip::crc32(0, all.data() + head->begin, static_cast<std::size_t>(head->end - head->begin));
    out.checked = true;
  };
  if (entry.method == zip::stored) {
    STELE_TRY_ASSIGN(const std::uint64_t data, place(entry));
    out.source = directory_->source();
    out.offset = data;
    STELE_TRY_ASSIGN(auto bytes, heads_->head(entry));
    const auto known = bytes.size() - std::min<std::uint64_t>(bytes.size(), data - entry.header);
    bytes = bytes.last(static_cast<std::size_t>(known));
    bytes = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(known, entry.size)));
    STELE_TRY_ASSIGN(head, samediff::read_head(bytes, entry.size));
    Bytes more;
    if (!head && bytes.size() < entry.size) {
      more = Bytes(static_cast<std::size_t>(std::min(entry.size, max_head)));
      STELE_TRY(out.source->read_at(data, more.span()));
      bytes = more.span();
      STELE_TRY_ASSIGN(head, samediff::read_head(bytes, entry.size));
    }
    if (head && head->end == entry.size && head->begin <= bytes.size()) {
      const std::uint32_t crc = zip::crc32(0, bytes.data(), static_cast<std::size_t>(head->begin));
      out.crc = zip::crc32_joined(crc, entry.crc, head->end - head->begin);
      out.checked = true;
    } else if (head) {
      if (zip::crc32(0, bytes.data(), bytes.size()) != entry.crc)
        return Error(Errc::checksum, "the array's CRC-32 does not match");
      know(bytes);
    }
  } else {
    // An inflating source keeps state: reads the head from a separate source, which is then freed.
    STELE_TRY_ASSIGN(const SourcePtr once, directory_->open(entry));
    for (const std::uint64_t max_bytes : {first_read, max_head}) {
      Bytes bytes(static_cast<std::size_t>(std::min(entry.size, max_bytes)));
      STELE_TRY(once->read_at(0, bytes.span()));
      STELE_TRY_ASSIGN(head, samediff::read_head(bytes.span(), entry.size));
      if (head && bytes.size() == entry.size) know(bytes.span());  // reading to the end has checked the entry
      if (head || entry.size <= max_bytes) break;
    }
    STELE_TRY_ASSIGN(out.source, directory_->open(entry));
  }
  if (!head) {
    // Another program wrote the entry, with bytes after the content. Reads and checks the whole entry once.
    if (entry.size > memory_.left()) return too_much();
    STELE_TRY_ASSIGN(const Bytes bytes, directory_->read(entry, memory_.left()));
    STELE_TRY_ASSIGN(head, samediff::read_head(bytes.span(), entry.size));
    if (!head) return Error(Errc::malformed, "the entry is not an array");
    know(bytes.span());
  }
  out.facts = std::move(head->facts);
  out.content = head->begin;
  out.offset += head->begin;
  if (!head->external.empty()) STELE_TRY(open_external(head->external, out));
  return out;
}

Status File::open_external(const std::string& external, Stored& out) {
  const std::string_view folder = out.entry->name.substr(0, out.entry->name.rfind('/') + 1);
  const std::string name = std::string(folder) + external;
  if (external.find_first_of("/\\") != std::string::npos) {
    return Error(Errc::malformed, "the array's content is in another folder").found(external.substr(0, 200));
  }
  out.external = directory_->find(name);
  if (out.external == nullptr) return missing(name);
  if (out.external->size != out.facts.bytes) {
    return samediff::wrong_length(out.facts.bytes, out.external->size);
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
  return {};
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

}  // namespace stele::inline v0::detail::archive
