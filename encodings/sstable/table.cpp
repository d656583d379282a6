// Reads LevelDB's sorted tables, and expands Snappy.
#include "table.hpp"

#include <algorithm>
#include <string>

#include "base/crc32c.hpp"
#include "base/varint.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::sstable {
namespace {

using View = std::span<const std::byte>;
constexpr std::size_t footer_size = 48, trailer_size = 5;

Error bad(const char* message) { return Error(Errc::malformed, message); }

struct Place {
  std::uint64_t offset = 0, size = 0;
};
bool take_place(View& from, Place& out) { return take_varint(from, out.offset) && take_varint(from, out.size); }

/// Calls `visit` with the entries of a block. `last`: the key before them; becomes their last key.
Status each_entry(View block, std::string& last, bool& first, const std::function<Status(View value)>& visit) {
  if (block.size() < 4) return bad("a block of the table is too short");
  const auto number = [&](std::size_t at) { return load_le<std::uint32_t>(block.data() + at); };
  const std::size_t restarts = number(block.size() - 4);
  if (restarts == 0 || restarts > block.size() / 4 - 1) return bad("a block's number of restarts is wrong");
  const std::size_t end = block.size() - 4 * (restarts + 1);
  std::size_t restart = 0;
  for (View rest = block.first(end); !rest.empty();) {
    const bool at_restart = restart < restarts && number(end + 4 * restart) == end - rest.size();
    restart += at_restart ? 1 : 0;
    std::uint64_t shared = 0, other = 0, size = 0;
    if (!take_varint(rest, shared) || !take_varint(rest, other) || !take_varint(rest, size) || other > rest.size() ||
        size > rest.size() - other) {
      return bad("an entry of the table exceeds its block");
    }
    if (shared > (at_restart ? 0 : last.size())) return bad("a key shares more bytes than the previous key has");
    const std::string_view tail(reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(other));
    // The first `shared` bytes are equal, except at a restart.
    const auto kept = static_cast<std::size_t>(shared);
    if (!first && std::string_view(last).substr(kept) >= tail) return bad("the keys of the table do not increase");
    first = false;
    last.resize(kept);
    last += tail;
    STELE_TRY(visit(rest.subspan(tail.size(), static_cast<std::size_t>(size))));
    rest = rest.subspan(tail.size() + static_cast<std::size_t>(size));
  }
  const bool empty = end == 0 && restarts == 1 && number(0) == 0;
  return restart == restarts || empty ? Status() : bad("a restart is not at an entry");
}

class TableReader {
 public:
  TableReader(const Source& source, std::uint64_t max_block) : source_(source), max_block_(max_block) {}

  Status run(const TableEntry& visit) {
    constexpr std::uint64_t magic = 0xdb4775248b80fb57;
    std::byte footer[footer_size];
    if (source_.size() < footer_size) return Error(Errc::truncated, "the table is shorter than its footer");
    end_ = source_.size() - footer_size;
    STELE_TRY(source_.read_at(end_, footer));
    if (load_le<std::uint64_t>(footer + 40) != magic) {
      return Error(Errc::bad_magic, "the file does not end with the magic number of a table").offset(end_ + 40);
    }
    View rest(footer, 40);
    Place metadata, index;
    if (!take_place(rest, metadata) || !take_place(rest, index) ||
        std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
      return bad("the footer of the table is damaged").offset(end_);
    }
    STELE_TRY_ASSIGN(const Bytes places, read(index));
    std::string separator, key, unused;
    bool first_block = true, first = true, only = true;
    const auto block = [&](View value) -> Status {
      Place place;
      if (!take_place(value, place) || !value.empty()) return bad("the place of a block is damaged");
      STELE_TRY_ASSIGN(const Bytes bytes, read_next(place));
      STELE_TRY(at(place, each_entry(bytes.span(), key, first, [&](View v) { return visit(key, v, place.offset); })));
      // A block's key in the index must not be below the last key of the block.
      return key <= separator ? Status() : bad("a block has a key above its key in the index").offset(place.offset);
    };
    STELE_TRY(at(index, each_entry(places.span(), separator, first_block, block)));
    STELE_TRY_ASSIGN(const Bytes none, read_next(metadata));
    STELE_TRY(at(metadata, each_entry(none.span(), unused, only, [](View) { return Status(); })));
    return next_ == index.offset && end_ - next_ == index.size + trailer_size
               ? Status()
               : bad("bytes of the table belong to no block").offset(next_);
  }

 private:
  static Status at(const Place& place, Status status) {
    return status || status.error().offset() ? std::move(status) : std::move(status).error().offset(place.offset);
  }

  /// Reads the block after the previous one: blocks must have no gaps, which could hide data.
  Result<Bytes> read_next(const Place& place) {
    if (place.offset != next_) {
      return bad("a block of the table does not begin directly after the previous block")
          .offset(place.offset)
          .expected("offset " + std::to_string(next_));
    }
    STELE_TRY_ASSIGN(Bytes bytes, read(place));
    next_ += place.size + trailer_size;
    return bytes;
  }

  Result<Bytes> read(const Place& place) {
    if (place.size > end_ || place.offset > end_ - place.size || end_ - place.size - place.offset < trailer_size) {
      return Error(Errc::truncated, "a block of the table exceeds the file")
          .offset(place.offset)
          .found(std::to_string(place.size) + " bytes");
    }
    if (place.size > max_block_) return Error(Errc::limit, "a block of the table is too large").offset(place.offset);
    const auto size = static_cast<std::size_t>(place.size);
    Bytes bytes(size + trailer_size);
    STELE_TRY(source_.read_at(place.offset, bytes.span()));
    const std::uint32_t stored = unmasked_crc(load_le<std::uint32_t>(bytes.data() + size + 1));
    const std::uint32_t found = crc32c(0, bytes.data(), size + 1);
    if (stored != found) {
      return Error(Errc::checksum, "the checksum of a block of the table does not match")
          .offset(place.offset)
          .expected(std::to_string(stored))
          .found(std::to_string(found));
    }
    const auto type = std::to_integer<unsigned>(bytes.data()[size]);
    bytes.truncate(size);
    if (type == 0) return bytes;
    if (type != 1) return Error(Errc::unsupported, "the compression of the table is unknown").offset(place.offset);
    auto plain = snappy_bytes(bytes.span(), max_block_);
    return plain ? std::move(plain) : std::move(plain).error().offset(place.offset);
  }

  const Source& source_;
  std::uint64_t max_block_, end_ = 0, next_ = 0;
};

}  // namespace

Status read_table(const Source& source, std::uint64_t max_block, const TableEntry& visit) {
  return TableReader(source, max_block).run(visit);
}

bool take_varint(View& from, std::uint64_t& out) noexcept {
  const View all = from;
  if (!detail::take_varint(from, out)) return false;
  const std::size_t size = all.size() - from.size();
  return size == 1 || all[size - 1] != std::byte{0};
}

Result<Bytes> snappy_bytes(View in, std::uint64_t max_size) {
  constexpr std::uint64_t max_ratio = 22;  // the densest element: 3 bytes that copy 64
  std::uint64_t size = 0;
  if (!take_varint(in, size) || size / max_ratio > in.size()) return bad("the size of Snappy's data is wrong");
  if (size > max_size) return Error(Errc::limit, "Snappy's data are too large").found(std::to_string(size) + " bytes");
  Bytes out(static_cast<std::size_t>(size));
  std::size_t done = 0;
  while (!in.empty()) {
    const auto tag = std::to_integer<std::size_t>(in[0]);
    const std::size_t kind = tag & 3, six = tag >> 2;
    // Number of bytes after the tag: the bytes of a literal's length above 60, or of a copy's distance.
    const std::size_t extra = kind == 0 ? (six < 60 ? 0 : six - 59) : kind == 3 ? 4 : kind;
    if (extra > in.size() - 1) return bad("Snappy's data end inside an element");
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < extra; ++i) number |= std::to_integer<std::uint64_t>(in[i + 1]) << 8 * i;
    in = in.subspan(1 + extra);
    if (kind == 1) number |= (tag >> 5) << 8;
    const std::uint64_t length = kind == 1 ? 4 + (six & 7) : kind == 0 && extra != 0 ? number + 1 : six + 1;
    const std::uint64_t limit = kind == 0 ? in.size() : out.size();
    if (length > out.size() - done || length > limit) return bad("an element of Snappy's data is too long");
    if (kind != 0 && (number == 0 || number > done)) return bad("a copy in Snappy's data begins before the data");
    for (std::size_t i = 0; i < length; ++i, ++done) {  // byte by byte, because a copy may overlap its own output
      out.data()[done] = kind == 0 ? in[i] : out.data()[done - static_cast<std::size_t>(number)];
    }
    if (kind == 0) in = in.subspan(static_cast<std::size_t>(length));
  }
  return done == out.size() ? Result<Bytes>(std::move(out)) : bad("Snappy's data are shorter than their size");
}

}  // namespace stele::inline v0::detail::sstable
