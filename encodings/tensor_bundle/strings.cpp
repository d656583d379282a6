// Reads string tensors of a checkpoint as values.
#include "strings.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "encodings/sstable/table.hpp"
#include "json/json.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::tensorflow {
namespace {

/// Maximum rank: each axis is a level of lists, and values nest at most 64 levels.
constexpr std::size_t max_rank = 60;

class Strings {
 public:
  Strings(const Entry& entry, std::span<const std::byte> bytes) : entry_(entry), bytes_(bytes), rest_(bytes) {}

  /// Reads the lengths, and checks both checksums.
  Status check(std::uint64_t count) {
    std::uint32_t crc = 0;
    lengths_.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t length = 0;
      if (!sstable::take_varint(rest_, length)) return bad(Errc::malformed, "a length of the string tensor is damaged");
      std::byte number[8];
      store_le(number, length);
      crc = crc32c(crc, number, length >> 32 == 0 ? 4 : 8);
      lengths_.push_back(length);
    }
    if (rest_.size() < 4) return bad(Errc::truncated, "the string tensor ends inside its lengths");
    if (unmasked_crc(load_le<std::uint32_t>(rest_.data())) != crc) {
      return bad(Errc::checksum, "the checksum of the string tensor's lengths does not match");
    }
    // The entry's checksum covers the lengths, their checksum and the strings.
    crc = crc32c(crc, rest_.data(), rest_.size());
    if (crc != entry_.crc) return bad(Errc::checksum, "the checksum of the string tensor does not match");
    rest_ = rest_.subspan(4);
    std::uint64_t left = rest_.size();
    for (const std::uint64_t length : lengths_) {
      if (length > left) return bad(Errc::truncated, "a string exceeds the bytes of its tensor");
      left -= length;
    }
    return left == 0 ? Status() : bad(Errc::malformed, "bytes follow the strings of the tensor");
  }

  /// Returns the next strings as nested lists with the extents of `axis` and the following axes.
  Value list(std::size_t axis) {
    if (axis == entry_.shape.size()) return text();
    Value::List values;
    values.reserve(static_cast<std::size_t>(entry_.shape[axis]));
    for (Extent i = 0; i < entry_.shape[axis]; ++i) values.push_back(list(axis + 1));
    return Value(std::move(values));
  }

 private:
  Value text() {
    const auto now = rest_.first(static_cast<std::size_t>(lengths_[next_++]));
    rest_ = rest_.subspan(now.size());
    const std::string_view text(reinterpret_cast<const char*>(now.data()), now.size());
    return json::valid_utf8(text) ? Value(text) : Value(Value::Bytes(now.begin(), now.end()));
  }

  Error bad(Errc code, const char* message) const {
    return Error(code, message)
        .path(entry_.key)
        .file(entry_.source->name())
        .offset(entry_.offset + (bytes_.size() - rest_.size()));
  }

  const Entry& entry_;
  std::span<const std::byte> bytes_, rest_;
  std::vector<std::uint64_t> lengths_;
  std::size_t next_ = 0;
};

}  // namespace

Result<Value> read_strings(const Entry& entry, IndexBudget& memory) {
  const auto refuse = [&](Errc code, const char* message) {
    return Error(code, message).path(entry.key).file(entry.source->name()).offset(entry.offset);
  };
  const auto count = entry.shape.element_count();
  if (!count || *count > entry.size) {
    return refuse(Errc::malformed, "the string tensor has more elements than bytes")
        .found(to_string(entry.shape.span()));
  }
  if (entry.shape.size() > max_rank) return refuse(Errc::limit, "the string tensor has too many axes");
  // Lists of empty lists take memory that is not proportional to the file's size.
  std::uint64_t values = 1, rows = 1;
  for (std::size_t d = 0; d < entry.shape.size() && values < memory.left(); ++d) {
    rows = checked_mul(rows, entry.shape[d]).value_or(UINT64_MAX);
    values = checked_add(values, rows).value_or(UINT64_MAX);
  }
  memory.admit(entry.size, index_rate::index);
  if (!memory.take(add_scaled(2 * entry.size, values, sizeof(Value) + sizeof(std::uint64_t)))) {
    return index_error("the string tensor needs more memory than its size allows")
        .path(entry.key)
        .file(entry.source->name());
  }
  Bytes bytes(static_cast<std::size_t>(entry.size));
  STELE_TRY(entry.source->read_at(entry.offset, bytes.span()));
  Strings strings(entry, bytes.span());
  STELE_TRY(strings.check(*count));
  return strings.list(0);
}

Status read_variants(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const auto& entry = *static_cast<const Entry*>(at);
  return entry.source->read_at(entry.offset + offset, out);
}

Status stream_variants(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext&) {
  const auto& entry = *static_cast<const Entry*>(at);
  const auto bad = [&](Errc code, const char* message) {
    return Error(code, message).file(entry.source->name()).offset(entry.offset);
  };
  // The ranges that the checksum of variants covers are known only after parsing, unlike those of other elements.
  Bytes bytes(static_cast<std::size_t>(size));
  STELE_TRY(entry.source->read_at(entry.offset, bytes.span()));
  std::uint32_t crc = 0;
  for (std::span<const std::byte> rest = bytes.span(); !rest.empty();) {
    std::uint64_t length = 0;
    if (!sstable::take_varint(rest, length) || rest.size() < 4 || length > rest.size() - 4) {
      return bad(Errc::malformed, "a variant exceeds its tensor");
    }
    std::byte number[8];
    store_le(number, length);
    const auto element = rest.first(static_cast<std::size_t>(length));
    crc = crc32c(crc32c(crc, number, sizeof number), element.data(), element.size());
    rest = rest.subspan(element.size());
    if (unmasked_crc(load_le<std::uint32_t>(rest.data())) != crc) {
      return bad(Errc::checksum, "the checksum of a variant does not match");
    }
    crc = crc32c(crc, rest.data(), 4);
    rest = rest.subspan(4);
  }
  if (crc != entry.crc) return bad(Errc::checksum, "the checksum of the variants does not match");
  for (std::size_t done = 0; done < bytes.size(); done += ReadContext::piece_size) {
    STELE_TRY(sink.piece(std::span<const std::byte>(bytes.span())
                             .subspan(done, std::min(ReadContext::piece_size, bytes.size() - done))));
  }
  return {};
}

}  // namespace stele::inline v0::detail::tensorflow
