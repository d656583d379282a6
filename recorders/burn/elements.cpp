// Tensors of Burn up to 0.13, whose elements are separate tokens.
#include "elements.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "bincode.hpp"

namespace stele::inline v0::detail::burn {
namespace {

using Kind = Token::Kind;

/// Reads bincode numbers as tokens.
class BinaryNumbers final : public TokenReader {
 public:
  BinaryNumbers(Cursor in, DType dtype) : in_(std::move(in)), dtype_(dtype) {}
  Status next(Token& token) override {
    token.kind = Kind::scalar;
    token.offset = in_.position();
    if (is_plain_float(dtype_)) {  // the bits, as encode() expects them
      STELE_TRY_ASSIGN(const std::uint64_t bits, bincode::read_number(in_));
      token.scalar = Value(bits);
    } else {
      STELE_TRY_ASSIGN(token.scalar, bincode::read_scalar(in_, dtype_));
    }
    return {};
  }
  std::unique_ptr<TokenReader> clone() const override { return std::make_unique<BinaryNumbers>(*this); }
  Provider provider(const Token&) const override { return {}; }
  std::shared_ptr<const void> keeper() const override { return in_.source(); }
  const Cursor& cursor() const { return in_; }

 private:
  Cursor in_;
  DType dtype_;
};

/// Encodes one element as little-endian bytes. Returns false if the token is not an element of the dtype.
bool encode(const Token& token, DType dtype, std::byte* out) {
  if (token.kind != Kind::scalar) return false;
  const bool* b = token.scalar.as_bool();
  const std::int64_t* i = token.scalar.as_i64();
  const double* f = token.scalar.as_f64();
  switch (dtype) {
    case DType::boolean:
      if (b != nullptr) *out = static_cast<std::byte>(*b);
      return b != nullptr;
    case DType::f64:
      if (f != nullptr) store_le(out, std::bit_cast<std::uint64_t>(*f));
      return f != nullptr;
    case DType::f32:
      if (f != nullptr) store_le(out, std::bit_cast<std::uint32_t>(static_cast<float>(*f)));
      return f != nullptr;
    default: {
      if (i == nullptr) return false;
      const unsigned size = element_size(dtype);
      const std::int64_t high = size == 8 ? *i : *i >> (8 * size - 1);
      const bool fits = size == 8 || (is_plain_float(dtype) ? *i >= 0 && *i <= UINT16_MAX : high == 0 || high == -1);
      for (unsigned k = 0; k < size; ++k) out[k] = static_cast<std::byte>(static_cast<std::uint64_t>(*i) >> (8 * k));
      return fits;
    }
  }
}

/// Collects the kinds of a list's elements in one pass.
struct Kinds {
  bool bools = false, whole = false, floats = false, others = false;
  std::int64_t min = std::numeric_limits<std::int64_t>::max();  // range of the integers
  std::int64_t max = std::numeric_limits<std::int64_t>::min();

  void add(const Value& element) {
    if (const std::int64_t* i = element.as_i64()) {
      whole = true;
      min = std::min(min, *i);
      max = std::max(max, *i);
    } else if (element.as_bool() != nullptr) {
      bools = true;
    } else {
      (element.as_f64() != nullptr ? floats : others) = true;
    }
  }
  /// Returns true if encode() accepts all elements.
  bool all_are(DType dtype) const {
    if (others) return false;
    if (dtype == DType::boolean) return !whole && !floats;
    if (dtype == DType::f32 || dtype == DType::f64) return !whole && !bools;
    const auto fits = [&](std::int64_t i) {
      std::byte scratch[8];
      return encode({.kind = Kind::scalar, .scalar = Value(i)}, dtype, scratch);
    };
    return !bools && !floats && fits(min) && fits(max);
  }
};

Error not_a_number(const Token& token, DType dtype) {
  return Error(Errc::malformed, "the element does not have the tensor's dtype")
      .offset(token.offset)
      .expected(std::string(name(dtype)));
}

constexpr LeafOps elements_ops{.read = [](const void* at, std::uint64_t /*number*/, std::uint64_t offset,
                                          std::span<std::byte> out, ReadContext& /*context*/) -> Status {
  const auto& elements = *static_cast<const Elements*>(at);
  const unsigned size = element_size(elements.dtype);
  const std::uint64_t first = offset / size;
  if (out.empty()) return {};
  const auto tokens = elements.marks[static_cast<std::size_t>(first / Elements::step)]->clone();
  Token token;
  for (std::uint64_t i = first / Elements::step * Elements::step; i < first; ++i) STELE_TRY(tokens->next(token));
  for (std::size_t i = 0; i < out.size(); i += size) {
    STELE_TRY(tokens->next(token));
    if (!encode(token, elements.dtype, out.data() + i)) return not_a_number(token, elements.dtype);
  }
  return {};
}};

}  // namespace

Provider Elements::provider() const noexcept { return {&elements_ops, this, 0}; }

Result<std::shared_ptr<Elements>> read_elements(TokenReader& tokens, DType floats, DType ints, DTypeClass wanted) {
  auto elements = std::make_shared<Elements>();
  Kinds kinds;
  Token token;
  for (;; ++elements->count) {
    if (elements->count % Elements::step == 0) elements->marks.push_back(tokens.clone());
    STELE_TRY(tokens.next(token));
    if (token.kind == Kind::end) break;
    if (token.kind != Kind::scalar) return not_a_number(token, floats);
    kinds.add(token.scalar);
    if (elements->count == 0) elements->dtype = token.scalar.as_bool() != nullptr ? DType::boolean : floats;
  }
  if (elements->count == 0) {
    elements->dtype = wanted == DTypeClass::boolean ? DType::boolean : wanted == DTypeClass::signed_int ? ints : floats;
    return elements;
  }
  const bool bits = floats == DType::f16 || floats == DType::bf16;
  if (kinds.whole && (!bits || kinds.min < 0 || wanted == DTypeClass::signed_int)) elements->dtype = ints;
  if (kinds.all_are(elements->dtype)) return elements;
  // Finds the first element that does not fit, for the error's offset.
  const auto again = elements->marks[0]->clone();
  std::byte scratch[8];
  for (std::uint64_t i = 0; i < elements->count; ++i) {
    STELE_TRY(again->next(token));
    if (!encode(token, elements->dtype, scratch)) break;
  }
  return not_a_number(token, elements->dtype);
}

Result<std::shared_ptr<Elements>> read_elements(Cursor& in, std::uint64_t count, DType dtype) {
  auto elements = std::make_shared<Elements>();
  elements->dtype = dtype;
  BinaryNumbers numbers(in, dtype);
  Token token;
  std::byte scratch[8];
  for (; elements->count < count; ++elements->count) {
    if (elements->count % Elements::step == 0) elements->marks.push_back(numbers.clone());
    STELE_TRY(numbers.next(token));
    if (!encode(token, dtype, scratch)) return not_a_number(token, dtype);
  }
  in = numbers.cursor();
  return elements;
}

DType dtype_of_rust(std::string_view name) noexcept {
  return name == "f32"                   ? DType::f32
         : name == "f64"                 ? DType::f64
         : name == "half::binary16::f16" ? DType::f16
         : name == "half::bfloat::bf16"  ? DType::bf16
         : name == "i64"                 ? DType::i64
         : name == "i32"                 ? DType::i32
         : name == "i16"                 ? DType::i16
         : name == "i8"                  ? DType::i8
                                         : DType::none;
}

}  // namespace stele::inline v0::detail::burn
