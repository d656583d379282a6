// Writes and reads tensors as nested arrays of numbers.
#include "numbers.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/from_chars.hpp"
#include "base/hex.hpp"
#include "json/decimal.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::json {
namespace {

// Maximum length of a number in characters (1024): at most about 770 digits distinguish a double from its neighbours.
constexpr std::size_t longest_token = 1024;

bool is_float(DType d) { return is_plain_float(d); }

/// Returns the bits of the dtype's quiet NaN without payload.
std::uint64_t plain_nan(DType d) {
  return d == DType::f64 ? 0x7ff8000000000000U : d == DType::f32 ? 0x7fc00000U : d == DType::f16 ? 0x7e00U : 0x7fc0U;
}

float widen(DType d, std::uint16_t bits) {
  float wide = 0;
  convert(d, reinterpret_cast<const std::byte*>(&bits), DType::f32, reinterpret_cast<std::byte*>(&wide), 1);
  return wide;
}
/// Converts `number` to the 16-bit dtype `d`. Overflow gives infinity.
std::uint16_t narrow(DType d, float number) {
  std::uint16_t bits = 0;
  convert(DType::f32, reinterpret_cast<const std::byte*>(&number), d, reinterpret_cast<std::byte*>(&bits), 1,
          {.allow_overflow = true});
  return bits;
}

std::uint64_t load(const std::byte* from, unsigned width) {
  switch (width) {
    case 1:
      return std::to_integer<std::uint64_t>(*from);
    case 2:
      return load_le<std::uint16_t>(from);
    case 4:
      return load_le<std::uint32_t>(from);
    default:
      return load_le<std::uint64_t>(from);
  }
}
void store(std::byte* to, unsigned width, std::uint64_t bits) {
  switch (width) {
    case 1:
      *to = static_cast<std::byte>(bits);
      return;
    case 2:
      return store_le(to, static_cast<std::uint16_t>(bits));
    case 4:
      return store_le(to, static_cast<std::uint32_t>(bits));
    default:
      return store_le(to, bits);
  }
}

template <class... Format>
void append_number(std::string& out, bool point, Format... number) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, number...).ptr;
  const std::string_view text(digits, static_cast<std::size_t>(end - digits));
  out += text;
  if (point && text.find_first_of(".e") == text.npos) out += ".0";
}

/// Appends the shortest decimal that reads back as these 16 bits.
void append_half(DType d, std::uint16_t bits, std::string& out) {
  const float number = widen(d, bits);
  for (int digits = 1; digits < 9; ++digits) {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, number, std::chars_format::general, digits).ptr;
    float again = 0;
    from_chars(text, end, again);
    if (narrow(d, again) == bits) return append_number(out, true, number, std::chars_format::general, digits);
  }
  append_number(out, true, number);
}

void append_float(DType d, std::uint64_t bits, std::string& out) {
  const double number = d == DType::f64   ? std::bit_cast<double>(bits)
                        : d == DType::f32 ? double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))}
                                          : double{widen(d, static_cast<std::uint16_t>(bits))};
  if (std::isnan(number)) {
    if (bits == plain_nan(d)) {
      out += "\"nan\"";
      return;
    }
    out.append("\"0x").append(hex(bits, 2 * element_size(d))).append("\"");
  } else if (std::isinf(number)) {
    out += number < 0 ? "\"-inf\"" : "\"inf\"";
  } else if (d == DType::f64) {
    append_number(out, true, number);
  } else if (d == DType::f32) {
    append_number(out, true, std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  } else {
    append_half(d, static_cast<std::uint16_t>(bits), out);
  }
}

std::int64_t sign_extended(std::uint64_t bits, unsigned width) {
  const unsigned shift = 64 - 8 * width;
  return static_cast<std::int64_t>(bits << shift) >> shift;
}

std::vector<Extent> at_least_one_axis(std::span<const Extent> shape) {
  return shape.empty() ? std::vector<Extent>{1} : std::vector<Extent>(shape.begin(), shape.end());
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool ends_token(char c) { return c == ',' || c == ']' || is_space(c); }

// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_number(std::string_view text, bool& integral) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t from = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - from;
  };
  if (text.starts_with('-')) ++i;
  const bool zero = i < text.size() && text[i] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  integral = !(zero && i == 2);  // -0 is not an integer
  if (i < text.size() && text[i] == '.') {
    integral = false;
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    integral = false;
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

template <class T>
bool parse(std::string_view text, T& number) {
  const auto [end, error] = from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool has_numbers(DType d) noexcept {
  const DTypeClass c = dtype_class(d);
  return is_float(d) || d == DType::boolean ||
         ((c == DTypeClass::signed_int || c == DTypeClass::unsigned_int) && element_size(d) != 0);
}

NumberWriter::NumberWriter(DType dtype, std::span<const Extent> shape, int indent)
    : dtype_(dtype), shape_(at_least_one_axis(shape)), at_(shape_.size()), indent_(indent) {}

void NumberWriter::open(std::string& out) {
  // Writes a bracket for each axis that begins here.
  std::size_t axes = shape_.size();
  if (begun_) {
    axes = 0;
    while (axes < at_.size() && at_[at_.size() - 1 - axes] == 0) ++axes;
  }
  for (std::size_t i = 0; i < axes; ++i) {
    if (indent_ >= 0 && i + 1 == axes && shape_.size() > 1)
      out.append(1, '\n').append(static_cast<std::size_t>(indent_), ' ');
    out += '[';
  }
}

void NumberWriter::add(std::span<const std::byte> bytes, std::string& out) {
  const unsigned width = element_size(dtype_);
  for (; !bytes.empty(); bytes = bytes.subspan(width)) {
    const std::uint64_t bits = load(bytes.data(), width);
    if (begun_) out += ',';
    open(out);
    begun_ = true;
    if (is_float(dtype_)) {
      append_float(dtype_, bits, out);
    } else if (dtype_ == DType::boolean) {
      out += bits == 0 ? "false" : bits == 1 ? "true" : std::to_string(bits);
    } else if (dtype_class(dtype_) == DTypeClass::signed_int) {
      append_number(out, false, sign_extended(bits, width));
    } else {
      append_number(out, false, bits);
    }
    for (std::size_t axis = shape_.size(); axis-- != 0;) {
      if (++at_[axis] < shape_[axis]) break;
      at_[axis] = 0;
      out += ']';
    }
  }
}

NumberReader::NumberReader(DType dtype, std::span<const Extent> shape)
    : dtype_(dtype), width_(element_size(dtype)), shape_(at_least_one_axis(shape)), at_(shape_.size()) {}

Status NumberReader::token(std::string_view text, std::size_t at, std::byte* out) const {
  const auto bad = [&](Errc code, const char* expected) {
    return Error(code, "a number does not fit the tensor's dtype")
        .expected(expected)
        .found(std::string(text.substr(0, 40)))
        .offset(at);
  };
  bool integral = false;
  if (dtype_ == DType::boolean) {
    // Keeps a byte that is not a bool, which the tensor's reader reports.
    unsigned bits = text == "true" ? 1 : 0;
    const bool other = text != "true" && text != "false";
    if (other && (!is_number(text, integral) || !parse(text, bits) || bits < 2 || bits > 255)) {
      return bad(Errc::malformed, "true or false");
    }
    *out = static_cast<std::byte>(bits);
    return {};
  }
  const char* const range = "a number in the range of the dtype";
  if (is_float(dtype_)) {
    std::uint64_t bits = plain_nan(dtype_);
    if (text.starts_with('"')) {
      const std::uint64_t sign = std::uint64_t{1} << (8 * width_ - 1);
      const std::uint64_t infinity = dtype_ == DType::f64   ? 0x7ff0000000000000U
                                     : dtype_ == DType::f32 ? 0x7f800000U
                                     : dtype_ == DType::f16 ? 0x7c00U
                                                            : 0x7f80U;
      if (text == "\"inf\"") {
        bits = infinity;
      } else if (text == "\"-inf\"") {
        bits = infinity | sign;
      } else if (text != "\"nan\"") {
        const auto nan = text.starts_with("\"0x") ? from_hex(text.substr(3, text.size() - 4), std::size_t{2} * width_)
                                                  : std::nullopt;
        if (!nan || (*nan & ~sign) <= infinity) {
          return bad(Errc::malformed, "a number, nan, inf, -inf, or 0x and the bits of a NaN");
        }
        bits = *nan;
      }
    } else if (!is_number(text, integral)) {
      return bad(Errc::malformed, "a number");
    } else if (dtype_ == DType::f64) {
      double number = 0;
      if (!parse_float(text, number)) return bad(Errc::out_of_range, range);
      bits = std::bit_cast<std::uint64_t>(number);
    } else {
      float number = 0;
      if (!parse_float(text, number)) return bad(Errc::out_of_range, range);
      if (dtype_ == DType::f32) {
        bits = std::bit_cast<std::uint32_t>(number);
      } else {
        const std::uint16_t half = narrow(dtype_, number);
        if (std::isinf(widen(dtype_, half))) return bad(Errc::out_of_range, range);
        bits = half;
      }
    }
    store(out, width_, bits);
    return {};
  }
  if (!is_number(text, integral) || !integral) return bad(Errc::malformed, "an integer");
  if (dtype_class(dtype_) == DTypeClass::signed_int) {
    std::int64_t number = 0;
    if (!parse(text, number) || sign_extended(static_cast<std::uint64_t>(number), width_) != number) {
      return bad(Errc::out_of_range, range);
    }
    store(out, width_, static_cast<std::uint64_t>(number));
    return {};
  }
  std::uint64_t number = 0;
  if (!parse(text, number) || (width_ < 8 && number >> 8 * width_ != 0)) return bad(Errc::out_of_range, range);
  store(out, width_, number);
  return {};
}

Status NumberReader::read(std::string_view text, bool last, std::span<std::byte> out) {
  consumed_ = produced_ = 0;
  std::size_t i = 0;
  const auto bad = [&](const char* expected) {
    const bool end = i == text.size();
    return Error(end ? Errc::truncated : Errc::malformed, "the numbers do not match the tensor's shape")
        .expected(expected)
        .found(end ? "the end of the data" : std::string(1, text[i]))
        .offset(i);
  };
  for (;; consumed_ = i) {
    while (i < text.size() && is_space(text[i])) ++i;
    consumed_ = i;
    if (i == text.size()) return done() || !last ? Status() : bad("more numbers");
    if (done()) return bad("the end of the data");
    const char c = text[i];
    if (c == '[') {
      if (!value_due_ || depth_ == shape_.size()) return bad(value_due_ ? "a number" : ", or ]");
      begun_ = true;
      at_[depth_++] = 0;
      ++i;
      continue;
    }
    if (c == ']' || c == ',') {
      if (value_due_ || depth_ == 0) return bad("a number or [");
      const bool full = at_[depth_ - 1] == shape_[depth_ - 1];
      if (full != (c == ']')) return bad(full ? "]" : ",");
      ++i;
      value_due_ = c == ',';
      if (c == ']' && --depth_ != 0) ++at_[depth_ - 1];
      continue;
    }
    if (!value_due_ || depth_ != shape_.size()) return bad(value_due_ ? "[" : ", or ]");
    std::size_t end = i;
    while (end < text.size() && !ends_token(text[end])) ++end;
    if (end - i > longest_token) {
      return Error(Errc::limit, "a number is longer than 1024 characters").offset(i);
    }
    if (end == text.size() && !last) return {};  // the rest of the number follows
    if (out.size() - produced_ < width_) return {};
    STELE_TRY(token(text.substr(i, end - i), i, out.data() + produced_));
    produced_ += width_;
    i = end;
    ++at_[depth_ - 1];
    value_due_ = false;
  }
}

}  // namespace stele::inline v0::detail::json
