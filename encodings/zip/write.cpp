// The writer: local headers, the directory, the end records.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "encodings/gzip/deflate.hpp"
#include "records.hpp"
#include "stele/detail/little_endian.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::zip {
namespace {

constexpr std::uint16_t version_narrow = 20, version_wide = 45;
constexpr std::uint64_t local_crc = 14;                           // offset of the CRC-32 in a local header
constexpr std::size_t zip64_header = 4;                           // size of an extra field's header
constexpr std::uint64_t max_alignment = std::uint64_t{32} << 10;  // the padding field has at most 65535 bytes

/// Builds the numbers of a record in order, without its name.
class Record {
 public:
  template <class T>
  Record& put(T number) {
    store_le(bytes_ + size_, number);
    size_ += sizeof(T);
    return *this;
  }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }

 private:
  std::byte bytes_[wide_end_size + locator_size + end_size];  // the largest case: all end records together
  std::size_t size_ = 0;
};

std::uint32_t narrow(std::uint64_t number) { return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, wide)); }

bool ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// The extra fields of a local header.
struct Extra {
  bool big;             // the sizes need zip64's extra field
  std::uint64_t sizes;  // length of that field
  std::uint64_t pad;    // length of the field that aligns the data
};
Extra extra_of(std::uint64_t header, std::size_t name, std::uint64_t size, std::uint64_t aligned,
               std::uint64_t alignment) {
  const bool big = size >= wide;
  Extra extra{big, big ? zip64_header + 16 : 0, 0};
  if (alignment > 1) {
    const std::uint64_t over = (header + local_size + name + extra.sizes + aligned) % alignment;
    extra.pad = over == 0 ? 0 : alignment - over;
    while (extra.pad != 0 && extra.pad < zip64_header) extra.pad += alignment;
  }
  return extra;
}

/// Returns the length of zip64's field in a record of the directory.
std::uint64_t wide_field(std::initializer_list<std::uint64_t> numbers) {
  const auto missing =
      static_cast<std::uint64_t>(std::count_if(numbers.begin(), numbers.end(), [](auto n) { return n >= wide; }));
  return missing == 0 ? 0 : zip64_header + 8 * missing;
}

/// Returns true if the end of the directory needs zip64's records.
bool wide_end(std::uint64_t count, std::uint64_t size, std::uint64_t offset) {
  return count >= wide_count || size >= wide || offset >= wide;
}

/// Returns the deflated bytes if they are fewer, or else an empty result.
Bytes deflate_smaller(std::span<const std::byte> bytes) {
#if STELE_ZLIB
  if (bytes.size() < 2) return {};
  gzip::Deflater deflater(gzip::Deflater::Framing::none, -1, 0);
  Bytes made(bytes.size() - 1);
  std::size_t done = 0;
  while (!deflater.ended() && done < made.size()) done += deflater.next(bytes, made.span().subspan(done), true);
  if (!deflater.ended()) return {};
  made.truncate(done);
  return made;
#else
  static_cast<void>(bytes);
  return {};
#endif
}

}  // namespace

Status Writer::begin(std::string_view name, std::uint16_t method, std::uint64_t compressed, std::uint64_t size,
                     std::uint32_t crc, std::uint64_t aligned, std::uint64_t alignment) {
  const char* wrong = name.size() > 0xffff ? "a name of more than 65535 bytes" : bad_name(name);
  if (alignment > max_alignment) wrong = "an alignment of more than 32 KiB";
  if (wrong != nullptr) return Error(Errc::not_representable, wrong).path(std::string(name));

  const std::uint64_t header = out_.position();
  const auto [big, sizes, pad] = extra_of(header, name.size(), std::max(compressed, size), aligned, alignment);
  Entry entry;
  entry.header = header;
  entry.compressed = compressed;
  entry.size = size;
  entry.crc = crc;
  entry.method = method;
  entry.flags = ascii(name) ? 0 : utf8_flag;
  entry.version = big ? version_wide : version_narrow;

  Record record;
  record.put(local_magic).put(entry.version).put(entry.flags).put(method).put(entry.modified).put(crc);
  record.put(big ? wide : narrow(compressed)).put(big ? wide : narrow(size));
  record.put(static_cast<std::uint16_t>(name.size())).put(static_cast<std::uint16_t>(sizes + pad));
  STELE_TRY(out_.write(record.bytes()));
  STELE_TRY(out_.write(std::as_bytes(std::span(name))));
  Record extra;
  if (big) extra.put(zip64_id).put(std::uint16_t{16}).put(size).put(compressed);
  if (pad != 0) extra.put(padding_id).put(static_cast<std::uint16_t>(pad - zip64_header));
  STELE_TRY(out_.write(extra.bytes()));
  if (pad != 0) STELE_TRY(out_.zeros(static_cast<std::size_t>(pad) - zip64_header));
  keep(name, entry);
  return {};
}

Status Writer::set_crc(std::uint32_t crc) {
  Entry& entry = entries_.back().entry;
  entry.crc = crc;
  std::byte bytes[sizeof crc];
  store_le(bytes, crc);
  return out_.patch(entry.header + local_crc, bytes);
}

Status Writer::add(std::string_view name, std::span<const std::byte> bytes, std::uint16_t method) {
  const std::uint32_t crc = crc32(0, bytes.data(), bytes.size());
  const Bytes small = method == deflated ? deflate_smaller(bytes) : Bytes();
  const auto data = small.empty() ? bytes : small.span();
  STELE_TRY(begin(name, small.empty() ? stored : deflated, data.size(), bytes.size(), crc));
  return out_.write(data);
}

void Writer::adopt(const Entry& entry, std::uint64_t header) {
  keep(entry.name, entry);
  entries_.back().entry.header = header;
}

void Writer::keep(std::string_view name, const Entry& entry) {
  entries_.push_back({names_.size(), name.size(), entry});
  entries_.back().entry.name = {};  // pointed into a Directory that may be destroyed earlier
  names_.append(name);
}

Status Writer::finish() {
  const std::uint64_t offset = out_.position();
  for (const auto& [at, length, entry] : entries_) {
    const auto name = std::as_bytes(std::span(names_).subspan(at, length));
    const auto extra = static_cast<std::uint16_t>(wide_field({entry.size, entry.compressed, entry.header}));
    const std::uint16_t version = std::max(entry.version, extra == 0 ? version_narrow : version_wide);
    Record record;
    record.put(central_magic).put(version).put(version).put(entry.flags).put(entry.method).put(entry.modified);
    record.put(entry.crc).put(narrow(entry.compressed)).put(narrow(entry.size));
    record.put(static_cast<std::uint16_t>(name.size())).put(extra).put(std::uint16_t{0});  // no comment
    record.put(std::uint16_t{0}).put(std::uint16_t{0}).put(std::uint32_t{0});              // disk and attributes
    record.put(narrow(entry.header));
    STELE_TRY(out_.write(record.bytes()));
    STELE_TRY(out_.write(name));
    if (extra == 0) continue;
    Record numbers;
    numbers.put(zip64_id).put(static_cast<std::uint16_t>(extra - zip64_header));
    for (const std::uint64_t number : {entry.size, entry.compressed, entry.header}) {
      if (number >= wide) numbers.put(number);
    }
    STELE_TRY(out_.write(numbers.bytes()));
  }
  const std::uint64_t end = out_.position(), size = end - offset, count = entries_.size();
  Record record;
  if (wide_end(count, size, offset)) {
    record.put(wide_end_magic).put(std::uint64_t{wide_end_size - 12}).put(version_wide).put(version_wide);
    record.put(std::uint32_t{0}).put(std::uint32_t{0}).put(count).put(count).put(size).put(offset);
    record.put(locator_magic).put(std::uint32_t{0}).put(end).put(std::uint32_t{1});
  }
  const auto few = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, wide_count));
  record.put(end_magic).put(std::uint16_t{0}).put(std::uint16_t{0}).put(few).put(few);
  record.put(narrow(size)).put(narrow(offset)).put(std::uint16_t{0});
  return out_.write(record.bytes());
}

void Plan::add(std::string_view name, std::uint64_t size, std::uint64_t aligned, std::uint64_t alignment) {
  const Extra extra = extra_of(at_, name.size(), size, aligned, alignment);
  directory_ += central_size + name.size() + wide_field({size, size, at_});
  at_ += local_size + name.size() + extra.sizes + extra.pad + size;
  ++count_;
}

std::uint64_t Plan::size() const {
  return at_ + directory_ + end_size + (wide_end(count_, directory_, at_) ? wide_end_size + locator_size : 0);
}

}  // namespace stele::inline v0::detail::zip
