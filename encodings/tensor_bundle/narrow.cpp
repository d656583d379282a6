// Reads integers of 2 or 4 bits as integers of 8 bits.
#include "narrow.hpp"

#include <algorithm>

#include "base/crc32c.hpp"
#include "bundle.hpp"
#include "leaves/source_range.hpp"

namespace stele::inline v0::detail::tensorflow {
namespace {

/// Extends the low bits of each byte to the whole byte. TensorFlow does not define the other bits; 2.21 writes zeros.
void widen(const TfType& type, std::span<const std::byte> from, std::byte* to) {
  const unsigned spare = 8 - type.narrow_bits;
  for (const std::byte b : from) {
    const auto high = static_cast<std::uint8_t>(std::to_integer<unsigned>(b) << spare);
    *to++ = type.narrow_signed ? static_cast<std::byte>(static_cast<std::int8_t>(high) >> spare)
                               : static_cast<std::byte>(high >> spare);
  }
}

class WideningSink final : public PieceSink {
 public:
  WideningSink(const TfType& type, PieceSink& next, ReadContext& context)
      : type_(type), next_(next), staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      widen(type_, now, staging_.data());
      STELE_TRY(next_.piece({staging_.data(), now.size()}));
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  const TfType& type_;
  PieceSink& next_;
  ReadContext::Piece staging_;
};

}  // namespace

Status read_narrow(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const auto& entry = *static_cast<const Entry*>(at);
  STELE_TRY(entry.source->read_at(entry.offset + offset, out));
  widen(*entry.type, out, out.data());
  return {};
}

Status stream_narrow(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const auto& entry = *static_cast<const Entry*>(at);
  WideningSink widening(*entry.type, sink, context);
  return stream_range({entry.source, entry.offset, 0, entry.crc, true, crc32c}, size, widening, context);
}

}  // namespace stele::inline v0::detail::tensorflow
