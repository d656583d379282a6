#include "source_leaf.hpp"

#include <algorithm>
#include <optional>

namespace stele {
inline namespace v0 {
namespace detail {

Status stream_source(const Source& source, std::uint64_t offset, std::uint64_t size, PieceSink& sink,
                     ReadContext& context, std::uint64_t* hash) {
  if (size <= ReadContext::piece_size / 4) {
    STELE_TRY_ASSIGN(const auto bytes, context.window(source, offset, static_cast<std::size_t>(size)));
    if (hash != nullptr) *hash = hash64(bytes.data(), bytes.size());
    return bytes.empty() ? Status() : sink.piece(bytes);
  }
  std::optional<Hasher> hasher;
  if (hash != nullptr) hasher.emplace();
  const auto all = source.view();
  std::optional<ReadContext::Piece> staging;
  if (all.empty()) staging.emplace(context);
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, ReadContext::piece_size));
    std::span<const std::byte> piece;
    if (!all.empty()) {
      piece = all.subspan(static_cast<std::size_t>(offset + done), n);
    } else {
      std::byte* to = sink.place(done, n);
      const std::span<std::byte> into(to != nullptr ? to : staging->data(), n);
      STELE_TRY(source.read_at(offset + done, into));
      piece = into;
    }
    if (hasher) hasher->update(piece.data(), piece.size());
    STELE_TRY(sink.piece(piece));
    done += n;
  }
  if (hasher) *hash = hasher->digest();
  return {};
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
