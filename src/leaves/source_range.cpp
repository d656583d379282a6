// Streams and verifies ranges of sources.
#include "leaves/source_range.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "base/hash.hpp"
#include "leaves/uncached_reads.hpp"

namespace stele::inline v0::detail {

Status check_hash(const SourceRange& range, std::uint64_t hash) {
  if (!range.hashed || hash == range.hash) return {};
  return Error(Errc::checksum, "the tensor's checksum does not match its bytes")
      .file(range.source->name())
      .offset(range.offset)
      .expected(std::to_string(range.hash))
      .found(std::to_string(hash));
}

Status check_zeros(const SourceRange& range, std::uint64_t size, std::span<const std::byte> zeros) {
  if (std::all_of(zeros.begin(), zeros.end(), [](std::byte b) { return b == std::byte{0}; })) return {};
  return Error(Errc::malformed, "the padding after the tensor is not zero")
      .file(range.source->name())
      .offset(range.offset + size);
}

Status stream_range(const SourceRange& range, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Source& source = *range.source;
  if (size <= ReadContext::piece_size / 4) {
    // Includes the zeros, which are usually in the same window as the leaf.
    const auto all = static_cast<std::size_t>(size + range.zeros);
    STELE_TRY_ASSIGN(const auto bytes, context.window(source, range.offset, all));
    const auto elements = bytes.first(static_cast<std::size_t>(size));
    if (range.hashed) STELE_TRY(check_hash(range, hash_of(range, elements.data(), elements.size())));
    STELE_TRY(check_zeros(range, size, bytes.subspan(elements.size())));
    return elements.empty() ? Status() : sink.piece(elements);
  }
  if (source.plans()) {
    const ByteRange all{range.offset, size + range.zeros};
    source.will_read({&all, 1});
  }
  std::optional<Hasher> hasher;
  if (range.hashed) hasher.emplace(range.crc);
  const auto all = source.view();
  std::optional<ReadContext::Piece> staging;
  std::span<const std::byte> ahead;  // read past the cache of files, and not passed on yet
  for (std::uint64_t done = 0; done < size;) {
    auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, ReadContext::piece_size));
    std::span<const std::byte> piece;
    if (ahead.empty() && context.uncached() != nullptr) {
      ahead = context.uncached()->read(source, range.offset + done, size - done, sink);
    }
    if (!ahead.empty()) {
      n = std::min(n, ahead.size());
      piece = ahead.first(n);
      ahead = ahead.subspan(n);
    } else if (!all.empty()) {
      piece = all.subspan(static_cast<std::size_t>(range.offset + done), n);
    } else {
      std::byte* to = sink.place(done, n);
      if (to == nullptr && !staging) staging.emplace(context);
      const std::span<std::byte> into(to != nullptr ? to : staging->data(), n);
      STELE_TRY(source.read_at(range.offset + done, into));
      piece = into;
    }
    if (hasher) hasher->update(piece.data(), piece.size());
    STELE_TRY(sink.piece(piece));
    done += n;
  }
  if (hasher) STELE_TRY(check_hash(range, hasher->digest()));
  return check_padding(range, size);
}

Status check_padding(const SourceRange& range, std::uint64_t size) {
  for (std::uint64_t done = 0; done < range.zeros;) {
    std::byte zeros[256];
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(range.zeros - done, sizeof zeros));
    STELE_TRY(range.source->read_at(range.offset + size + done, {zeros, n}));
    STELE_TRY(check_zeros(range, size, {zeros, n}));
    done += n;
  }
  return {};
}

}  // namespace stele::inline v0::detail
