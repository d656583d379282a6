// Reads and writes packed items: items with fewer bits than an element, or booleans.
#include "items.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "snapshot/data.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0::detail::nnef {
namespace {

/// Returns item `i` of a bit stream, most significant bit first.
std::uint64_t item(const std::byte* bytes, std::uint64_t i, unsigned bits) {
  std::uint64_t at = i * bits;
  std::uint64_t value = 0;
  for (unsigned left = bits; left != 0;) {
    const auto skip = static_cast<unsigned>(at % 8);
    const unsigned n = std::min(left, 8 - skip);
    const auto byte = static_cast<unsigned>(bytes[at / 8]);
    value = value << n | (byte >> (8 - skip - n) & ((1U << n) - 1));
    at += n;
    left -= n;
  }
  return value;
}

std::uint64_t whole_bytes(const std::byte* bytes, std::uint64_t i, unsigned bits) {
  std::uint64_t value = 0;
  for (unsigned k = 0; k < bits / 8; ++k) value |= static_cast<std::uint64_t>(bytes[i * (bits / 8) + k]) << 8 * k;
  return value;
}

Status packed_read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  const Packed& packed = *static_cast<const Packed*>(at);
  ReadContext::Piece staging(context);
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t first = (offset + done) / packed.width;
    // Every eighth item ends at the end of a byte.
    const std::uint64_t begin = first / 8 * packed.bits;
    const std::uint64_t skip = first % 8;
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>((out.size() - done) / packed.width, (ReadContext::piece_size / packed.bits - 2) * 8));
    const std::uint64_t bits = (skip + n) * packed.bits;
    STELE_TRY(packed.source->read_at(packed.data + begin,
                                     {staging.data(), static_cast<std::size_t>(bits / 8 + (bits % 8 != 0 ? 1 : 0))}));
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t value = packed.bits % 8 == 0 ? whole_bytes(staging.data(), skip + i, packed.bits)
                                                 : item(staging.data(), skip + i, packed.bits);
      if (packed.sign && (value >> (packed.bits - 1) & 1U) != 0 && packed.bits < 64) {
        value |= ~std::uint64_t{0} << packed.bits;
      }
      if (packed.boolean) value = value != 0 ? 1 : 0;
      for (unsigned k = 0; k < packed.width; ++k) out[done++] = static_cast<std::byte>(value >> 8 * k & 0xff);
    }
  }
  return {};
}

constexpr LeafOps packed_ops{.read = packed_read};

}  // namespace

Provider packed_provider(SnapshotBuilder& to, Packed packed) {
  auto kept = std::make_shared<const Packed>(std::move(packed));
  const Provider provider{&packed_ops, kept.get(), 0};
  to.keep(std::move(kept));
  return provider;
}

PackingSink::PackingSink(const LeafView& leaf, unsigned bits, LeafGather& out)
    : bits_(bits), width_(element_size(leaf.dtype())), out_(out) {
  const DTypeClass kind = dtype_class(leaf.dtype());
  sign_ = kind == DTypeClass::signed_int;
  boolean_ = kind == DTypeClass::boolean;
}

Status PackingSink::piece(std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += width_) {
    const std::uint64_t value = whole_bytes(bytes.data() + at, 0, 8 * width_);
    STELE_TRY(check(value));
    if (bits_ % 8 == 0) {
      for (unsigned k = 0; k < bits_ / 8; ++k) STELE_TRY(put(static_cast<std::byte>(value >> 8 * k & 0xff)));
    } else {
      for (unsigned left = bits_; left != 0;) {
        const unsigned n = std::min(left, 8 - filled_);
        byte_ = byte_ << n | static_cast<unsigned>(value >> (left - n) & ((1U << n) - 1));
        filled_ += n;
        left -= n;
        if (filled_ == 8) STELE_TRY(put(static_cast<std::byte>(std::exchange(byte_, 0))));
        filled_ %= 8;
      }
    }
    ++index_;
  }
  return {};
}

Status PackingSink::finish() {
  if (filled_ != 0) STELE_TRY(put(static_cast<std::byte>(byte_ << (8 - filled_))));
  return out_.write({staging_.data(), used_});
}

Status PackingSink::check(std::uint64_t value) const {
  if (boolean_ && value > 1) {
    return Error(Errc::malformed, "a bool is neither 0 nor 1")
        .found(std::to_string(value) + " in element " + std::to_string(index_));
  }
  if (bits_ == 8 * width_) return {};
  const auto top = static_cast<std::int64_t>(value << (64 - 8 * width_)) >> (64 - 8 * width_);
  const bool fits =
      sign_ ? top >= -(std::int64_t{1} << (bits_ - 1)) && top < std::int64_t{1} << (bits_ - 1) : value >> bits_ == 0;
  if (fits) return {};
  return Error(Errc::out_of_range, "a number does not fit the item's width")
      .expected(std::to_string(bits_) + " bits")
      .found((sign_ ? std::to_string(top) : std::to_string(value)) + " in element " + std::to_string(index_));
}

Status PackingSink::put(std::byte byte) {
  staging_[used_++] = byte;
  if (used_ < staging_.size()) return {};
  return out_.write({staging_.data(), std::exchange(used_, 0)});
}

}  // namespace stele::inline v0::detail::nnef
