// Tensor elements that are stored as packed varints.
#include "varints.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/threads.hpp"
#include "encodings/protobuf/fields.hpp"
#include "io/cursor.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::onnx {

namespace {

/// Returns the number of varints whose elements fill whole bytes.
std::uint64_t varints_of_unit(DType dtype) noexcept { return bits(dtype) == 6 ? 4 : 1; }
/// Returns the number of bytes of these elements.
std::size_t unit_of(DType dtype) noexcept {
  return bits(dtype) == 6 ? 3 : std::max<std::size_t>(1, element_size(dtype));
}

}  // namespace

std::uint64_t Varints::count_of(DType dtype, std::uint64_t elements) noexcept {
  return bits(dtype) == 4 ? elements / 2 + elements % 2 : elements;
}

Error Varints::bad(const char* message, std::uint64_t at) const { return Error(Errc::malformed, message).offset(at); }

/// Returns true if `value` fits an element of the dtype.
bool Varints::fits(std::uint64_t value) const noexcept {
  const auto number = static_cast<std::int64_t>(value);
  const auto within = [&]<class T>(T) {
    return number >= std::int64_t{std::numeric_limits<T>::min()} &&
           number <= std::int64_t{std::numeric_limits<T>::max()};
  };
  switch (dtype_) {
    case DType::i64:
    case DType::u64:
      return true;
    case DType::i32:
      return within(std::int32_t());
    case DType::i16:
      return within(std::int16_t());
    case DType::i8:
      return within(std::int8_t());
    case DType::boolean:
      return value <= 1;
    case DType::i4:
    case DType::u4:
    case DType::f4_e2m1:
      // The onnx package 1.16 writes a byte with two elements as a signed number.
      return value <= 0xff || within(std::int8_t());
    default:
      return value >> bits(dtype_) == 0;
  }
}

/// Calls `take(bytes)` for each unit from `place` on, until it returns false. Returns the place after the last unit.
template <class Take>
Result<Varints::Place> Varints::each(Place place, Take take) const {
  Cursor in(*model_);
  STELE_TRY(in.skip(place.at));
  const std::uint64_t in_unit = varints_of_unit(dtype_);
  std::uint64_t number = place.unit * in_unit, element_bits = 0;
  std::byte unit[8];
  for (protobuf::Fields packed(in, range_.end);;) {
    STELE_TRY_ASSIGN(const auto value, packed.element());
    if (!value) {
      if (number < count_) return bad("the tensor has fewer elements than its shape", range_.end);
      break;
    }
    if (!fits(*value)) return bad("the element does not fit the tensor's dtype", place.at);
    if (number == count_) return bad("the tensor has more elements than its shape", range_.begin);
    element_bits |= *value << (number % in_unit * bits(dtype_));
    if (++number % in_unit != 0 && number != count_) continue;
    store_le(unit, std::exchange(element_bits, 0));
    // k elements of 6 bits: k bytes
    const auto size = static_cast<std::size_t>(number % in_unit == 0 ? unit_of(dtype_) : number % in_unit);
    STELE_TRY_ASSIGN(const bool more, take(std::span<const std::byte>(unit, size)));
    place = {place.unit + 1, in.position()};
    if (!more) break;
  }
  return place;
}

/// Returns the place of a unit at or before this one: the end of the last read, or the first unit.
Varints::Place Varints::near(std::uint64_t unit) const {
  const Lock lock(*mutex_);
  return last_.unit != 0 && last_.unit <= unit ? last_ : Place{0, range_.begin};
}
void Varints::remember(Place place) const {
  const Lock lock(*mutex_);
  last_ = place;
}

struct Varints::Ops {
  static Status read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
    const auto& self = *static_cast<const Varints*>(at);
    const std::uint64_t first = offset / unit_of(self.dtype_);
    Place place = self.near(first);
    std::uint64_t number = place.unit;
    std::size_t skipped = static_cast<std::size_t>(offset % unit_of(self.dtype_)), filled = 0;
    STELE_TRY_ASSIGN(place, self.each(place, [&](std::span<const std::byte> unit) -> Result<bool> {
      if (number++ < first || filled == out.size()) return filled != out.size();
      unit = unit.subspan(std::exchange(skipped, 0));
      unit = unit.first(std::min(unit.size(), out.size() - filled));
      std::copy(unit.begin(), unit.end(), out.begin() + static_cast<std::ptrdiff_t>(filled));
      filled += unit.size();
      return filled != out.size();
    }));
    if (filled != out.size()) return self.bad("the tensor has fewer elements than its shape", self.range_.end);
    self.remember(place);
    return {};
  }

  static Status stream(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext&) {
    const auto& self = *static_cast<const Varints*>(at);
    std::array<std::byte, 4096> piece;
    std::size_t filled = 0;
    std::uint64_t left = size;
    STELE_TRY(self.each({0, self.range_.begin}, [&](std::span<const std::byte> unit) -> Result<bool> {
      if (unit.size() > left) return self.bad("the tensor has more elements than its shape", self.range_.begin);
      left -= unit.size();
      if (unit.size() > piece.size() - filled) STELE_TRY(sink.piece(std::span(piece).first(std::exchange(filled, 0))));
      std::copy(unit.begin(), unit.end(), piece.begin() + static_cast<std::ptrdiff_t>(filled));
      filled += unit.size();
      return true;
    }));
    if (left != 0) return self.bad("the tensor has fewer elements than its shape", self.range_.end);
    return filled != 0 ? sink.piece(std::span(piece).first(filled)) : Status();
  }
};

Provider Varints::provider() const noexcept {
  static constexpr LeafOps ops{.read = Ops::read, .stream = Ops::stream};
  return {&ops, this, 0};
}

}  // namespace stele::inline v0::detail::onnx
