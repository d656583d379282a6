// Recovers zip files that have lost their end.
#include "rebuild.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "io/continued.hpp"
#include "json/json.hpp"
#include "records.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::zip {
namespace {

constexpr std::string_view local_signature = "PK\3\4", descriptor_signature = "PK\7\10";
constexpr std::size_t narrow_descriptor = 16, wide_descriptor = 24;

/// The original's entries and the new directory after them.
constexpr char rebuilt_kind = 0;

class Rebuilt final : public Continued {
 public:
  Rebuilt(SourcePtr source, std::uint64_t end, std::string directory, std::vector<Omitted> omitted)
      : Continued(std::move(source), end, std::move(directory)), omitted_(std::move(omitted)) {}
  const void* kind() const noexcept override { return &rebuilt_kind; }
  const std::vector<Omitted>& omitted() const noexcept { return omitted_; }

 private:
  std::vector<Omitted> omitted_;
};

template <class T>
T number(std::string_view text, std::size_t at) {
  return load_le<T>(reinterpret_cast<const std::byte*>(text.data()) + at);
}
template <class T>
void put(std::string& to, T value) {
  std::byte bytes[sizeof value];
  store_le(bytes, value);
  to.append(reinterpret_cast<const char*>(bytes), sizeof value);
}

/// The fields of an entry, from its local header and its descriptor.
struct Found {
  std::uint16_t flags = 0, method = 0;
  std::uint32_t time = 0, crc = 0;
  std::uint64_t compressed = 0, size = 0;
  std::string name{};
  std::uint64_t data = 0, end = 0;  // offsets of its bytes and of the data after the entry; end 0: bytes are missing
};

class Scanner {
 public:
  explicit Scanner(const Source& source) : source_(source) {}

  /// Returns the offset of the first signature at or after `at`; nullopt if there is none.
  Result<std::optional<std::uint64_t>> find(std::string_view signature, std::uint64_t at) {
    constexpr std::uint64_t window = std::uint64_t{1} << 20;
    while (at < source_.size() && source_.size() - at >= signature.size()) {
      STELE_TRY_ASSIGN(const std::string_view text, bytes(at, std::min(window, source_.size() - at)));
      if (const std::size_t found = text.find(signature); found != text.npos) return std::optional(at + found);
      at += text.size() - (signature.size() - 1);
    }
    return std::optional<std::uint64_t>();
  }

  /// Reads the entry at `at`; nullopt if its header is incomplete.
  Result<std::optional<Found>> entry(std::uint64_t at) {
    const std::uint64_t left = source_.size() - at;
    if (left < local_size) return std::optional<Found>();
    STELE_TRY_ASSIGN(std::string_view head, bytes(at, local_size));
    const std::size_t name = number<std::uint16_t>(head, 26), extra = number<std::uint16_t>(head, 28);
    if (left - local_size < name + extra) return std::optional<Found>();
    STELE_TRY_ASSIGN(head, bytes(at, local_size + name + extra));
    Found found;
    found.flags = number<std::uint16_t>(head, 6);
    found.method = number<std::uint16_t>(head, 8);
    found.time = number<std::uint32_t>(head, 10);
    found.crc = number<std::uint32_t>(head, 14);
    found.compressed = number<std::uint32_t>(head, 18);
    found.size = number<std::uint32_t>(head, 22);
    found.name = head.substr(local_size, name);
    found.data = at + head.size();
    std::string_view fields = head.substr(local_size + name);
    while (fields.size() >= 4) {
      const std::size_t length = number<std::uint16_t>(fields, 2);
      if (length > fields.size() - 4) break;
      if (number<std::uint16_t>(fields, 0) == zip64_id && length >= 16) {
        if (found.size == wide) found.size = number<std::uint64_t>(fields, 4);
        if (found.compressed == wide) found.compressed = number<std::uint64_t>(fields, 12);
      }
      fields.remove_prefix(4 + length);
    }
    if ((found.flags & descriptor_flag) != 0 && found.compressed == 0) return described(std::move(found));
    if (found.compressed <= source_.size() - found.data) found.end = found.data + found.compressed;
    return std::optional(std::move(found));
  }

 private:
  /// Completes an entry from the descriptor after its bytes: the one that declares their number.
  Result<std::optional<Found>> described(Found found) {
    for (std::uint64_t from = found.data;;) {
      STELE_TRY_ASSIGN(const auto at, find(descriptor_signature, from));
      if (!at || source_.size() - *at < narrow_descriptor) return std::optional(std::move(found));
      const std::uint64_t length = *at - found.data;
      STELE_TRY_ASSIGN(const std::string_view text,
                       bytes(*at, std::min<std::uint64_t>(wide_descriptor, source_.size() - *at)));
      const bool is_wide = text.size() == wide_descriptor && number<std::uint64_t>(text, 8) == length;
      if (is_wide || number<std::uint32_t>(text, 8) == length) {
        found.crc = number<std::uint32_t>(text, 4);
        found.compressed = length;
        found.size = is_wide ? number<std::uint64_t>(text, 16) : number<std::uint32_t>(text, 12);
        found.end = *at + (is_wide ? wide_descriptor : narrow_descriptor);
        return std::optional(std::move(found));
      }
      from = *at + 1;
    }
  }

  /// Returns a range of the file; valid until the next call.
  Result<std::string_view> bytes(std::uint64_t at, std::uint64_t count) {
    if (at < begin_ || at + count > begin_ + used_) {
      begin_ = at;
      used_ = static_cast<std::size_t>(std::min(std::max(count, std::uint64_t{64} << 10), source_.size() - at));
      if (buffer_.size() < used_) buffer_ = Bytes(used_);
      STELE_TRY(source_.read_at(at, buffer_.span().first(used_)));
    }
    return std::string_view(reinterpret_cast<const char*>(buffer_.data()) + (at - begin_),
                            static_cast<std::size_t>(count));
  }

  const Source& source_;
  Bytes buffer_;
  std::uint64_t begin_ = 0;
  std::size_t used_ = 0;
};

/// Appends a record of the directory, with all numbers in zip64's extra field.
void put_record(std::string& to, const Found& entry, std::uint64_t header) {
  constexpr std::uint16_t version = 45;
  put(to, central_magic), put(to, version), put(to, version), put(to, entry.flags), put(to, entry.method);
  put(to, entry.time), put(to, entry.crc), put(to, wide), put(to, wide);
  put(to, static_cast<std::uint16_t>(entry.name.size())), put(to, std::uint16_t{28}), put(to, std::uint16_t{0});
  put(to, std::uint16_t{0}), put(to, std::uint16_t{0}), put(to, std::uint32_t{0}), put(to, wide);
  to += entry.name;
  put(to, zip64_id), put(to, std::uint16_t{24}), put(to, entry.size), put(to, entry.compressed), put(to, header);
}

/// Appends the end records of a file whose directory is at `offset`.
void put_end(std::string& to, std::uint64_t offset, std::uint64_t count) {
  const std::uint64_t size = to.size();
  constexpr std::uint16_t version = 45;
  put(to, wide_end_magic), put(to, std::uint64_t{wide_end_size - 12}), put(to, version), put(to, version);
  put(to, std::uint32_t{0}), put(to, std::uint32_t{0}), put(to, count), put(to, count), put(to, size);
  put(to, offset);
  put(to, locator_magic), put(to, std::uint32_t{0}), put(to, offset + size), put(to, std::uint32_t{1});
  put(to, end_magic), put(to, std::uint16_t{0}), put(to, std::uint16_t{0}), put(to, wide_count), put(to, wide_count);
  put(to, wide), put(to, wide), put(to, std::uint16_t{0});
}

/// Returns the reason why a directory cannot have the entry, or nullptr.
const char* refusal(const Found& found) {
  if (found.end == 0) return "the file ends inside the entry";
  Entry entry;
  entry.name = found.name;
  entry.compressed = found.compressed;
  entry.size = found.size;
  entry.method = found.method;
  entry.flags = found.flags;
  return fault(entry).second;
}

Omitted omitted_entry(const Found& entry, const char* why) {
  std::string name = json::valid_utf8(entry.name) ? entry.name : json::coded_key(entry.name);
  return {name.empty() ? "(no name)" : std::move(name), why, entry.end == 0};
}

}  // namespace

Result<SourcePtr> with_new_directory(SourcePtr source) {
  Scanner scanner(*source);
  std::vector<Omitted> omitted;
  std::string directory;
  std::set<std::string, std::less<>> names;
  std::uint64_t end = 0;
  for (std::uint64_t at = 0;;) {
    STELE_TRY_ASSIGN(const auto header, scanner.find(local_signature, at));
    if (!header) break;
    STELE_TRY_ASSIGN(const auto entry, scanner.entry(*header));
    if (!entry) break;
    const char* why = refusal(*entry);
    if (why == nullptr && !names.insert(entry->name).second) why = "an earlier entry has the same name";
    if (why != nullptr) omitted.push_back(omitted_entry(*entry, why));
    if (entry->end == 0) break;
    at = end = entry->end;
    if (why == nullptr) put_record(directory, *entry, *header);
  }
  if (names.empty()) return Error(Errc::malformed, "the zip file has no complete entry").file(source->name());
  put_end(directory, end, names.size());
  return SourcePtr(std::make_shared<Rebuilt>(std::move(source), end, std::move(directory), std::move(omitted)));
}

const std::vector<Omitted>* omitted_entries(const Source& source) noexcept {
  return source.kind() == &rebuilt_kind ? &static_cast<const Rebuilt&>(source).omitted() : nullptr;
}

}  // namespace stele::inline v0::detail::zip
