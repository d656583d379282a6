// Reads the bytes of leaves through their Providers.
#include "leaves/provider.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "leaves/source_range.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {
namespace {

/// Stops a stream before a sink receives more bytes than the leaf has, because sinks may write to memory of that size.
class BoundedSink final : public PieceSink {
 public:
  BoundedSink(PieceSink& next, std::uint64_t size) : next_(next), size_(size) {}
  std::byte* place(std::uint64_t offset, std::size_t size) override {
    return offset <= size_ && size <= size_ - offset ? next_.place(offset, size) : nullptr;
  }
  Status piece(std::span<const std::byte> bytes) override {
    done_ += bytes.size();
    return done_ <= size_ ? next_.piece(bytes) : wrong_size();
  }
  /// Returns an error if the leaf had fewer bytes.
  Status finish() const { return done_ == size_ ? Status() : wrong_size(); }

 private:
  Status wrong_size() const {
    return Error(Errc::malformed, "the tensor's data does not have the declared size")
        .expected(std::to_string(size_) + " bytes")
        .found((done_ > size_ ? "at least " : "") + std::to_string(done_) + " bytes");
  }

  PieceSink& next_;
  std::uint64_t size_;
  std::uint64_t done_ = 0;
};

}  // namespace

std::span<const std::byte> view_bytes(const Provider& leaf, std::uint64_t size) noexcept {
  const auto bytes = static_cast<std::size_t>(size);
  if (leaf.ops->locate != nullptr) {
    const SourceRange range = leaf.ops->locate(leaf.at, leaf.number);
    const auto all = range.source->view();
    return all.empty() ? all : all.subspan(static_cast<std::size_t>(range.offset), bytes);
  }
  const std::byte* const at = leaf.ops->view != nullptr ? leaf.ops->view(leaf.at, leaf.number) : nullptr;
  if (at == nullptr) return {};
  return {at, bytes};
}

Status read_bytes(const Provider& leaf, std::uint64_t size, std::uint64_t offset, std::span<std::byte> out,
                  ReadContext& context) {
  if (out.empty()) return {};
  if (const auto bytes = view_bytes(leaf, size); !bytes.empty()) {
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
  if (leaf.ops->locate != nullptr) {
    const SourceRange range = leaf.ops->locate(leaf.at, leaf.number);
    return range.source->read_at(range.offset + offset, out);
  }
  return leaf.ops->read(leaf.at, leaf.number, offset, out, context);
}

Status stream_bytes(const Provider& leaf, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  if (leaf.ops->locate != nullptr) return stream_range(leaf.ops->locate(leaf.at, leaf.number), size, sink, context);
  if (leaf.ops->stream != nullptr) {
    BoundedSink bounded(sink, size);
    auto streamed = leaf.ops->stream(leaf.at, leaf.number, size, bounded, context);
    return streamed ? bounded.finish() : std::move(streamed);
  }
  if (size == 0) return {};
  if (const auto bytes = view_bytes(leaf, size); !bytes.empty()) return sink.piece(bytes);
  ReadContext::Piece staging(context);
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, ReadContext::piece_size));
    std::byte* to = sink.place(done, n);
    const std::span<std::byte> piece(to != nullptr ? to : staging.data(), n);
    STELE_TRY(leaf.ops->read(leaf.at, leaf.number, done, piece, context));
    STELE_TRY(sink.piece(piece));
    done += n;
  }
  return {};
}

}  // namespace stele::inline v0::detail
