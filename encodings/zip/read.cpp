// Reads the central directory, and the local header of an entry.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/limits.hpp"
#include "base/name_order.hpp"
#include "io/os/os.hpp"
#include "json/json.hpp"
#include "records.hpp"
#include "stele/detail/little_endian.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::zip {
namespace {

// Flags for encryption, patches, strong encryption and a masked directory.
constexpr std::uint16_t encryption_flags = 1U << 0 | 1U << 5 | 1U << 6 | 1U << 13;

std::uint16_t u16(const std::byte* at) noexcept { return load_le<std::uint16_t>(at); }
std::uint32_t u32(const std::byte* at) noexcept { return load_le<std::uint32_t>(at); }
std::uint64_t u64(const std::byte* at) noexcept { return load_le<std::uint64_t>(at); }

std::string_view text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error refused(const Source& source, Errc code, std::uint64_t offset, const char* why) {
  return Error(code, why).file(source.name()).offset(offset);
}

/// Returns a range of the source, which must exist, as a view or in `buffer`.
Result<std::span<const std::byte>> bytes_at(const Source& source, std::uint64_t offset, std::size_t count,
                                            Bytes& buffer) {
  if (const auto all = source.view(); !all.empty()) return all.subspan(static_cast<std::size_t>(offset), count);
  if (buffer.size() < count) buffer = Bytes(count);
  STELE_TRY(source.read_at(offset, buffer.span().first(count)));
  return std::span<const std::byte>(buffer.span().first(count));
}

/// The directory's position, as the end record declares it.
struct End {
  std::uint64_t offset, size, count;
};

class EndFinder {
 public:
  explicit EndFinder(const Source& source) : source_(source) {}

  Result<End> run() {
    // Usually the file has no comment: then the end record is the last in the file, and all readers use it.
    auto length = static_cast<std::size_t>(std::min<std::uint64_t>(source_.size(), locator_size + end_size));
    STELE_TRY_ASSIGN(auto tail, bytes_at(source_, source_.size() - length, length, buffer_));
    std::size_t at = length - std::min(length, end_size);
    if (length < end_size || u32(tail.data() + at) != end_magic || u16(tail.data() + at + 20) != 0) {
      length = static_cast<std::size_t>(std::min<std::uint64_t>(source_.size(), locator_size + end_size + 0xffff));
      STELE_TRY_ASSIGN(tail, bytes_at(source_, source_.size() - length, length, buffer_));
      STELE_TRY_ASSIGN(at, find(tail));
    }
    const std::uint64_t begin = source_.size() - length;
    const std::byte* end = tail.data() + at;
    const std::uint64_t place = begin + at;
    End found{u32(end + 16), u32(end + 12), u16(end + 10)};
    std::uint64_t directory_end = place;
    const std::byte* locator = end - locator_size;
    const bool is_wide = at >= locator_size && u32(locator) == locator_magic;
    const auto disk = [&](const std::byte* p) { return u16(p) == 0 || (is_wide && u16(p) == wide_count); };
    if (!disk(end + 4) || !disk(end + 6)) return bad(place, "the zip file spans several disks");
    if (u16(end + 8) != u16(end + 10)) return bad(place, "the end record declares two different numbers of entries");
    if (is_wide) {
      STELE_TRY_ASSIGN(found, widen(found, locator, place - locator_size));
      directory_end = u64(locator + 8);
    }
    if (found.size > directory_end || found.offset != directory_end - found.size) {
      return Error(Errc::malformed, "the directory does not end at the end record")
          .file(source_.name())
          .offset(directory_end)
          .expected(std::to_string(found.size) + " bytes at " + std::to_string(found.offset));
    }
    return found;
  }

 private:
  Error bad(std::uint64_t offset, const char* why) const { return refused(source_, Errc::malformed, offset, why); }

  /// Returns the position of the end record: the record whose comment ends with the file, or else the record that other
  /// bytes follow (Python and PyTorch accept such files). If two records fit, readers choose differently, so each
  /// record could hide content; this is an error.
  Result<std::size_t> find(std::span<const std::byte> tail) const {
    constexpr std::string_view magic = "PK\x05\x06";
    const std::string_view all = text(tail);
    struct Found {
      std::size_t at = 0, count = 0;
    };
    Found last, followed;
    for (std::size_t at = all.find(magic); at != all.npos && all.size() - at >= end_size;
         at = all.find(magic, at + 1)) {
      const std::size_t comment = u16(tail.data() + at + 20), rest = all.size() - at - end_size;
      if (comment > rest) continue;
      Found& found = comment == rest ? last : followed;
      found = {at, found.count + 1};
    }
    const Found& found = last.count != 0 ? last : followed;
    if (found.count > 1) return bad(source_.size() - all.size() + found.at, "the file has two valid end records");
    if (found.count == 0) return bad(source_.size(), "the file has no end record: it is truncated or not a zip file");
    return found.at;
  }

  /// Applies zip64's end record, which may differ from the end record only in numbers that do not fit there.
  Result<End> widen(const End& narrow, const std::byte* locator, std::uint64_t place) {
    const std::uint64_t at = u64(locator + 8);
    if (u32(locator + 4) != 0 || u32(locator + 16) > 1) return bad(place, "the zip file spans several disks");
    if (place < wide_end_size || at > place - wide_end_size) return bad(place, "the zip64 end record is missing");
    Bytes buffer;
    STELE_TRY_ASSIGN(const auto bytes, bytes_at(source_, at, wide_end_size, buffer));
    const std::byte* p = bytes.data();
    if (u32(p) != wide_end_magic) return bad(at, "the zip64 end record is missing");
    if (place - at < 12 || u64(p + 4) != place - at - 12) return bad(at, "the size of the zip64 end record is invalid");
    if (u32(p + 16) != 0 || u32(p + 20) != 0) return bad(at, "the zip file spans several disks");
    const End end{u64(p + 48), u64(p + 40), u64(p + 32)};
    const auto agree = [](std::uint64_t a, std::uint64_t b, std::uint64_t none) { return a == b || a == none; };
    if (u64(p + 24) != end.count || !agree(narrow.count, end.count, wide_count) ||
        !agree(narrow.size, end.size, wide) || !agree(narrow.offset, end.offset, wide)) {
      return bad(at, "the zip64 end record differs from the end record");
    }
    return end;
  }

  const Source& source_;
  Bytes buffer_;
};

/// Replaces the `fields` (size, compressed size, offset) that are 0xffffffff, and `disk` if it is 0xffff, by the
/// numbers in zip64's extra field. Returns the error message, or nullptr.
const char* widen(std::span<const std::byte> extra, std::span<std::uint64_t> fields, std::uint32_t& disk) {
  const auto missing = static_cast<std::size_t>(std::count(fields.begin(), fields.end(), wide));
  const bool no_disk = disk == wide_count;
  bool found = false;
  while (extra.size() >= 4) {
    const std::uint16_t id = u16(extra.data());
    const std::size_t length = u16(extra.data() + 2);
    extra = extra.subspan(4);
    if (length > extra.size()) return "an extra field exceeds its record";
    const std::byte* p = extra.data();
    extra = extra.subspan(length);
    if (id != zip64_id) continue;
    if (found) return "the record has two zip64 extra fields";
    found = true;
    // The field has only the missing numbers. Some programs write all numbers; the other fields must then be equal.
    if (length == 8 * missing + (no_disk ? 4 : 0)) {
      for (std::uint64_t& field : fields) {
        if (field == wide) field = u64(p), p += 8;
      }
      if (no_disk) disk = u32(p);
      continue;
    }
    if (length != 28 && (length % 8 != 0 || length > 24)) return "the size of the zip64 extra field is invalid";
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool present = 8 * i + 8 <= length;
      if (fields[i] == wide && !present) return "the zip64 extra field lacks a number";
      if (fields[i] != wide && present && fields[i] != u64(p + 8 * i))
        return "the zip64 extra field differs from its record";
      if (present) fields[i] = u64(p + 8 * i);
    }
    if (no_disk && length != 28) return "the zip64 extra field lacks a number";
    if (length == 28) disk = u32(p + 24);
  }
  // Some programs pad with zeros, too few to form a field.
  if (std::any_of(extra.begin(), extra.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return "an extra field exceeds its record";
  }
  return !found && (missing != 0 || no_disk) ? "the zip64 extra field is missing" : nullptr;
}

bool is_folder(const Entry& entry) { return entry.name.ends_with('/'); }

/// Reads the records of the directory in order.
class RecordReader {
 public:
  RecordReader(const Source& source, std::uint64_t offset, std::span<const std::byte> records)
      : source_(source), offset_(offset), records_(records) {}

  bool at_end() const { return at_ == records_.size(); }
  Error bad(const char* why) const { return refused(source_, Errc::malformed, offset_ + at_, why); }

  Result<Entry> next() {
    const auto rest = records_.subspan(at_);
    const std::byte* p = rest.data();
    if (rest.size() < central_size || u32(p) != central_magic) return bad("a record of the directory is missing");
    const std::size_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    if (rest.size() - central_size < name + extra + comment) return bad("a record exceeds the directory");
    Entry entry;
    entry.version = u16(p + 6);
    entry.flags = u16(p + 8);
    entry.method = u16(p + 10);
    entry.modified = u32(p + 12);
    entry.crc = u32(p + 16);
    entry.name = text(rest.subspan(central_size, name));
    std::uint64_t fields[] = {u32(p + 24), u32(p + 20), u32(p + 42)};
    std::uint32_t disk = u16(p + 34);
    if (const char* why = widen(rest.subspan(central_size + name, extra), fields, disk)) return bad(why);
    if (disk != 0) return bad("the zip file spans several disks");
    entry.size = fields[0];
    entry.compressed = fields[1];
    entry.header = fields[2];
    if (const auto [code, why] = fault(entry); why != nullptr) {
      return refused(source_, code, offset_ + at_, why).path(std::string(entry.name));
    }
    at_ += central_size + name + extra + comment;
    return entry;
  }

 private:
  const Source& source_;
  std::uint64_t offset_;
  std::span<const std::byte> records_;
  std::size_t at_ = 0;
};

}  // namespace

const char* unreadable_name(std::string_view name) noexcept {
  if (name.empty()) return "the entry name is empty";
  if (name.find('\0') != name.npos) return "the entry name contains a zero byte";
  return json::valid_utf8(name) ? nullptr : "the entry name is not valid UTF-8";
}

const char* bad_name(std::string_view name) noexcept {
  if (const char* const why = unreadable_name(name)) return why;
  if (name.find('\\') != name.npos) return "the entry name contains a backslash";
  // `W:0` is a name of a TensorFlow variable, `C:/` a drive.
  const bool drive = name.size() > 1 && name[1] == ':' && (name.size() == 2 || name[2] == '/');
  if (name.front() == '/' || drive) return "the entry name is absolute";
  if (name.back() == '/') name.remove_suffix(1);
  for (bool more = true; more;) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return "the entry name contains an empty part, . or ..";
    more = slash != name.npos;
    if (more) name.remove_prefix(slash + 1);
  }
  return nullptr;
}

std::pair<Errc, const char*> fault(const Entry& entry) noexcept {
  if (const char* why = unreadable_name(entry.name)) return {Errc::malformed, why};
  if (is_encrypted(entry)) return {Errc::none, nullptr};  // has extra bytes for the key, and sizes of other bytes
  if (entry.method == stored && entry.size != entry.compressed) {
    return {Errc::malformed, "the stored entry has two different sizes"};
  }
  if (entry.method == deflated &&
      entry.size / max_deflate_ratio + (entry.size % max_deflate_ratio != 0) > entry.compressed) {
    return {Errc::limit, "the entry's bytes cannot inflate to its size"};
  }
  if (is_folder(entry) && entry.size != 0) return {Errc::malformed, "the folder entry has content"};
  return {Errc::none, nullptr};
}

bool is_encrypted(const Entry& entry) noexcept { return (entry.flags & encryption_flags) != 0; }

bool valid_name(std::string_view name) noexcept { return bad_name(name) == nullptr; }

std::optional<FirstName> first_name(std::span<const std::byte> head) noexcept {
  for (;;) {
    if (head.size() <= local_size || u32(head.data()) != local_magic) return std::nullopt;
    const std::size_t length = u16(head.data() + 26);
    const auto name = head.subspan(local_size, std::min(length, head.size() - local_size));
    const FirstName found{text(name), name.size() == length};
    if (!found.complete || !found.name.ends_with('/') || u32(head.data() + 22) != 0) return found;
    // Some programs write entries for folders. These have no content, but may have deflated bytes and a descriptor.
    const std::size_t next = text(head).find("PK\3\4", local_size + length);
    if (next == std::string_view::npos) return found;
    head = head.subspan(next);
  }
}

Result<std::shared_ptr<const Directory>> Directory::open(SourcePtr from, std::uint64_t memory) {
  return guarded(from->name(), [&]() -> Result<std::shared_ptr<const Directory>> {
    const std::shared_ptr<Directory> made(new Directory);
    made->source_ = from;  // must outlive this function, because guarded() uses its name
    const Source& source = *made->source_;
    STELE_TRY_ASSIGN(const End end, EndFinder(source).run());
    if (end.count > end.size / central_size) {
      return refused(source, Errc::malformed, end.offset, "the directory is too small for its number of entries");
    }
    constexpr std::uint64_t each = sizeof(Entry) + sizeof(std::uint32_t) + name_order_memory;
    if (end.size > memory || end.count > (memory - end.size) / each ||
        end.count > std::numeric_limits<std::uint32_t>::max()) {
      return refused(source, Errc::limit, end.offset, "the directory takes more memory than allowed")
          .expected("at most " + std::to_string(memory) + " bytes")
          .found(std::to_string(end.count) + " entries");
    }
    made->records_ = Bytes(static_cast<std::size_t>(end.size));
    STELE_TRY(source.read_at(end.offset, made->records_.span()));

    std::vector<Entry>& entries = made->entries_;
    entries.reserve(static_cast<std::size_t>(end.count));
    RecordReader reader(source, end.offset, made->records_.span());
    for (std::uint64_t i = 0; i < end.count; ++i) {
      STELE_TRY_ASSIGN(const Entry entry, reader.next());
      entries.push_back(entry);
    }
    if (!reader.at_end()) return reader.bad("data follows the last record of the directory");

    const auto before = [](const Entry& a, const Entry& b) { return a.header < b.header; };
    if (!std::is_sorted(entries.begin(), entries.end(), before)) std::sort(entries.begin(), entries.end(), before);
    std::uint64_t next = end.offset;
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      const std::uint64_t min_size = local_size + entry->name.size();
      if (entry->header > next || next - entry->header < min_size ||
          next - entry->header - min_size < entry->compressed) {
        return refused(source, Errc::malformed, entry->header,
                       next == end.offset ? "the entry overlaps the directory" : "entries overlap")
            .path(std::string(entry->name));
      }
      entry->end = next;
      next = entry->header;
    }

    const auto index_names = [&] {
      made->by_name_ =
          order_by_name(static_cast<std::uint32_t>(entries.size()), [&](std::uint32_t i) { return entries[i].name; });
    };
    index_names();
    const auto same = [&](std::uint32_t a, std::uint32_t b) { return entries[a].name == entries[b].name; };
    const auto& order = made->by_name_;
    if (const auto twice = std::adjacent_find(order.begin(), order.end(), same); twice != order.end()) {
      const Entry& second = entries[std::max(twice[0], twice[1])];
      return refused(source, Errc::duplicate, second.header, "two entries have the same name")
          .path(std::string(second.name));
    }
    if (std::erase_if(entries, is_folder) != 0) index_names();
    return std::shared_ptr<const Directory>(made);
  });
}

Result<std::shared_ptr<const Directory>> directory_of(const Source& source) {
  std::byte head[4] = {};
  if (source.is_folder() || source.size() <= local_size) return std::shared_ptr<const Directory>();
  STELE_TRY(source.read_at(0, head));
  if (u32(head) != local_magic) return std::shared_ptr<const Directory>();
  return Directory::open(SourcePtr(SourcePtr(), &source), add_scaled(index_base, source.size(), index_rate::file));
}

const Entry* Directory::find(std::string_view name) const noexcept {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return entries_[i].name < n; });
  return at != by_name_.end() && entries_[*at].name == name ? &entries_[*at] : nullptr;
}

Result<std::uint64_t> Directory::data(const Entry& entry, std::span<const std::byte> head) const {
  return guarded(source_->name(), [&]() -> Result<std::uint64_t> {
    const auto bad = [&](const char* why) {
      return refused(*source_, Errc::malformed, entry.header, why).path(std::string(entry.name));
    };
    const std::uint64_t available = entry.end - entry.header;
    Bytes buffer;
    const auto want = [&](std::size_t count) -> Status {
      if (head.size() >= count) return {};
      STELE_TRY_ASSIGN(head, bytes_at(*source_, entry.header, count, buffer));
      return {};
    };
    // Most extra fields are short, so one read usually suffices.
    STELE_TRY(want(static_cast<std::size_t>(std::min<std::uint64_t>(available, local_size + entry.name.size() + 128))));
    const std::size_t name = u16(head.data() + 26), extra = u16(head.data() + 28);
    const std::size_t size = local_size + name + extra;
    if (u32(head.data()) != local_magic) return bad("the entry's local header is missing");
    if (size > available || available - size < entry.compressed) return bad("the entry overlaps the next one");
    STELE_TRY(want(size));
    const std::byte* p = head.data();

    constexpr std::uint16_t same_flags = encryption_flags | descriptor_flag;
    if (text(head.subspan(local_size, name)) != entry.name || u16(p + 8) != entry.method ||
        ((u16(p + 6) ^ entry.flags) & same_flags) != 0) {
      return bad("the local header differs from the directory");
    }
    std::uint64_t fields[] = {u32(p + 22), u32(p + 18)};
    std::uint32_t disk = 0;
    if (const char* why = widen(head.subspan(local_size + name, extra), fields, disk)) return bad(why);
    const bool unknown = (entry.flags & descriptor_flag) != 0;
    const auto agree = [&](std::uint64_t here, std::uint64_t value) { return here == value || (unknown && here == 0); };
    if (!agree(u32(p + 14), entry.crc) || !agree(fields[1], entry.compressed) || !agree(fields[0], entry.size)) {
      return bad("the local header differs from the directory");
    }
    if (is_encrypted(entry)) {
      return refused(*source_, Errc::unsupported, entry.header, "the entry is encrypted").path(std::string(entry.name));
    }
    return entry.header + size;
  });
}

HeadReader::HeadReader(std::shared_ptr<const Directory> directory, std::uint64_t size)
    : directory_(std::move(directory)), size_(size) {
  if (!directory_->source()->plans()) return;
  constexpr std::uint64_t usual_padding = 64;
  std::vector<ByteRange> heads;
  for (const Entry& entry : directory_->entries()) {
    const std::uint64_t all = local_size + entry.name.size() + usual_padding + size_;
    heads.push_back({entry.header, std::min(all, entry.end - entry.header)});
  }
  std::sort(heads.begin(), heads.end(), [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  directory_->source()->will_read(heads);
}

Result<std::span<const std::byte>> HeadReader::head(const Entry& entry) {
  constexpr std::uint64_t small_entry = 4096;
  constexpr std::uint64_t window_size = std::uint64_t{64} << 10;
  const Source& source = *directory_->source();
  const std::uint64_t size = entry.end - entry.header;
  if (const auto all = source.view(); !all.empty()) {
    return all.subspan(static_cast<std::size_t>(entry.header), static_cast<std::size_t>(size));
  }
  const auto within = [&]() -> std::span<const std::byte> {
    if (entry.header < begin_ || entry.header >= begin_ + window_.size()) return {};
    const auto bytes = window_.span().subspan(static_cast<std::size_t>(entry.header - begin_));
    return bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), size)));
  };
  const std::uint64_t wanted = std::min(size, local_size + entry.name.size() + size_);
  if (within().size() >= wanted) return within();
  // Include the small entries that follow, unless this entry does not follow the previously requested one.
  const auto entries = directory_->entries();
  std::uint64_t end = entry.header + wanted;
  const std::uint64_t known = begin_ + window_.size();
  const bool on = entry.header >= begin_ && entry.header <= known + small_entry && !source.plans();
  for (auto e = static_cast<std::size_t>(&entry - entries.data()); on && e < entries.size(); ++e) {
    if (entries[e].end - entries[e].header > small_entry || entries[e].end - entry.header > window_size) break;
    end = std::max(end, entries[e].end);
  }
  if (window_.size() != end - entry.header) window_ = Bytes(static_cast<std::size_t>(end - entry.header));
  begin_ = entry.header;
  STELE_TRY(source.read_at(entry.header, window_.span()));
  return within();
}

}  // namespace stele::inline v0::detail::zip
