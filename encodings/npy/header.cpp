// Reads and writes the header of one NumPy array.
#include "header.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::numpy {
const char* refused(char kind) noexcept {
  switch (kind) {
    case 'O':
      return "the array contains pickled Python objects";
    case 'S':
    case 'a':
    case 'U':
    case 'T':
      return "the array contains strings";
    case 'M':
    case 'm':
      return "the array contains dates or durations";
    default:
      return "stele has no such dtype";
  }
}

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t version_end = 8;
constexpr std::size_t narrow_begin = 10, wide_begin = 12;  // offsets of the header after a length of 16 and of 32 bits

/// NumPy's type names, without the byte order.
constexpr std::array<std::pair<DType, std::string_view>, 14> types = {{
    {DType::boolean, "b1"},
    {DType::i8, "i1"},
    {DType::i16, "i2"},
    {DType::i32, "i4"},
    {DType::i64, "i8"},
    {DType::u8, "u1"},
    {DType::u16, "u2"},
    {DType::u32, "u4"},
    {DType::u64, "u8"},
    {DType::f16, "f2"},
    {DType::f32, "f4"},
    {DType::f64, "f8"},
    {DType::c64, "c8"},
    {DType::c128, "c16"},
}};

constexpr std::array voids = {DType::bf16,    DType::f8_e4m3fn,   DType::f8_e5m2,
                              DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz};

std::string_view type_of(DType dtype) {
  for (const auto& [d, text] : types) {
    if (d == dtype) return text;
  }
  return element_size(dtype) == 1 ? "V1" : "V2";
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns an excerpt of the file for a message.
std::string shown(std::string_view text) { return std::string(text.substr(0, 80)); }

/// Parses the literal. Python accepts more than NumPy writes; this grammar covers the output of NumPy and similar
/// programs:
///
///   dict  = '{' [ item { ',' item } [ ',' ] ] '}'
///   item  = string ':' ( string | 'True' | 'False' | tuple )
///   tuple = '(' ')' | '(' number ',' [ number { ',' number } [ ',' ] ] ')'
///
/// Strings have no escapes. Numbers may end with L, as in files of Python 2.
class Literal {
 public:
  Literal(std::string_view text, std::size_t base) : text_(text), base_(base) {}

  Result<Array> run() {
    Array array;
    STELE_TRY(take('{'));
    while (peek() != '}') {
      if (seen_ != 0) {
        STELE_TRY(take(','));
        if (peek() == '}') break;
      }
      STELE_TRY(item(array));
    }
    STELE_TRY(take('}'));
    if (peek() != '\0' || at_ != text_.size()) return bad("spaces after the dictionary");
    if (seen_ != (descr | order | shape)) return bad("the keys descr, fortran_order and shape");
    return array;
  }

 private:
  enum Key : unsigned { descr = 1, order = 2, shape = 4 };

  Error bad(std::string_view expected, Errc code = Errc::malformed) const {
    return Error(code, "the header of the array is invalid")
        .offset(base_ + at_)
        .expected(expected)
        .found(shown(text_.substr(at_, 20)));
  }

  /// Skips white space and returns the next character, or NUL at the end.
  char peek() {
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Status take(char c) {
    if (at_ == text_.size() || peek() != c) return bad(std::string_view(&c, 1));
    ++at_;
    return {};
  }

  bool take(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string_view> string() {
    const char quote = peek();
    const std::size_t begin = at_ + 1;
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, begin) : text_.npos;
    if (end == text_.npos || text_.substr(begin, end - begin).find('\\') != text_.npos) return bad("a string");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  /// Returns the text of the list that begins here, up to its closing bracket.
  std::string_view list() const {
    std::size_t depth = 0;
    char quote = '\0';
    for (std::size_t i = at_; i < text_.size(); ++i) {
      const char c = text_[i];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '[') {
        ++depth;
      } else if (c == ']' && --depth == 0) {
        return text_.substr(at_, i + 1 - at_);
      }
    }
    return text_.substr(at_);
  }

  Status item(Array& array) {
    peek();
    const std::size_t begin = at_;
    STELE_TRY_ASSIGN(const std::string_view key, string());
    const unsigned bit = key == "descr" ? descr : key == "fortran_order" ? order : key == "shape" ? shape : 0U;
    if (bit == 0 || (seen_ & bit) != 0) {
      at_ = begin;
      return bad("the keys descr, fortran_order and shape, each once", bit == 0 ? Errc::malformed : Errc::duplicate);
    }
    seen_ |= bit;
    STELE_TRY(take(':'));
    if (bit == descr) return read_descr(array);
    if (bit == shape) return read_shape(array);
    array.fortran = take("True");
    return array.fortran || take("False") ? Status() : bad("True or False");
  }

  Status read_descr(Array& array) {
    if (peek() == '[') {
      return Error(Errc::unsupported, "the array has a structured dtype")
          .offset(base_ + at_)
          .expected("a dtype of numbers")
          .found(shown(list()))
          .hint("save each field as a separate array");
    }
    const std::size_t begin = at_;
    STELE_TRY_ASSIGN(const std::string_view text, string());
    const char byte_order = text.empty() ? '\0' : text[0];
    const std::string_view type = text.substr(text.empty() ? 0 : 1);
    if (const DType known = dtype_of(type); known != DType::none) {
      array.dtype = known;
      array.element_size = stele::element_size(known);
    } else if (type == "V1" || type == "V2") {
      array.element_size = type == "V1" ? 1 : 2;
    } else if (type == "f1") {  // ml_dtypes writes only this 8-bit float as a typed number; NumPy cannot read it
      array.dtype = DType::f8_e5m2;
      array.element_size = 1;
    }
    // A single byte has no byte order, and neither have untyped bytes. NumPy then writes |; other programs also write
    // <.
    const bool unordered = byte_order == '|' && (array.element_size == 1 || type == "V2");
    array.big_endian = byte_order == '>';
    if (array.element_size != 0 && (byte_order == '<' || byte_order == '>' || unordered)) return {};
    return Error(Errc::unsupported, refused(type.empty() ? '\0' : type[0]))
        .offset(base_ + begin)
        .expected("a dtype of numbers, such as <f4")
        .found(shown(text));
  }

  Status read_shape(Array& array) {
    STELE_TRY(take('('));
    while (peek() != ')') {
      if (!array.shape.empty()) {
        STELE_TRY(take(','));
        if (peek() == ')') break;
      }
      Extent extent = 0;
      const char* const first = text_.data() + at_;
      const auto [end, status] = std::from_chars(first, text_.data() + text_.size(), extent);
      if (status != std::errc() || (*first == '0' && end - first > 1)) return bad("an extent below 2^64");
      at_ += static_cast<std::size_t>(end - first);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;
      array.shape.push_back(extent);
      // Without a comma, Python reads a number in parentheses as a plain number.
      if (array.shape.size() == 1 && peek() != ',') return bad(",");
    }
    return take(')');
  }

  std::string_view text_;
  std::size_t base_;
  std::size_t at_ = 0;
  unsigned seen_ = 0;
};

}  // namespace

Result<std::span<const std::byte>> header_of(const Source& source, std::uint64_t offset, std::uint64_t size,
                                             std::span<const std::byte> known, Bytes& buffer) {
  const auto want = [&](std::uint64_t count) -> Status {
    if (known.size() >= count) return {};
    if (buffer.size() < count) buffer = Bytes(static_cast<std::size_t>(count));
    const auto to = buffer.span().first(static_cast<std::size_t>(count));
    STELE_TRY(source.read_at(offset, to));
    known = to;
    return {};
  };
  const auto truncated = [&](std::uint64_t expected) {
    return Error(Errc::truncated, "the array ends inside its header")
        .offset(0)
        .expected(std::to_string(expected) + " bytes")
        .found(std::to_string(size));
  };
  STELE_TRY(want(std::min<std::uint64_t>(size, wide_begin)));
  const std::string_view begin =
      text_of(known).substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(size, magic.size())));
  if (begin != magic.substr(0, begin.size())) {
    return Error(Errc::bad_magic, "the data is not a NumPy array").offset(0).expected("93 'NUMPY'");
  }
  if (size < narrow_begin) return truncated(narrow_begin);
  const unsigned major = std::to_integer<unsigned>(known[6]), minor = std::to_integer<unsigned>(known[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return Error(Errc::unsupported, "the version of the array's format is unknown")
        .offset(magic.size())
        .expected("1.0, 2.0 or 3.0")
        .found(std::to_string(major) + '.' + std::to_string(minor));
  }
  const std::size_t first = major == 1 ? narrow_begin : wide_begin;
  if (size < first) return truncated(first);
  const std::uint64_t length = major == 1 ? load_le<std::uint16_t>(known.data() + version_end)
                                          : load_le<std::uint32_t>(known.data() + version_end);
  if (length > max_header) {
    return Error(Errc::limit, "the header of the array is too large")
        .offset(version_end)
        .expected("at most " + std::to_string(max_header) + " bytes, as numpy.load")
        .found(std::to_string(length));
  }
  if (length > size - first) return truncated(first + length);
  STELE_TRY(want(first + length));
  return known.first(static_cast<std::size_t>(first + length));
}

Result<Array> parse(std::span<const std::byte> header, std::uint64_t size) {
  const std::size_t first = header[6] == std::byte{1} ? narrow_begin : wide_begin;
  STELE_TRY_ASSIGN(Array array, Literal(text_of(header.subspan(first)), first).run());
  array.data = header.size();
  const auto elements = element_count(array.shape);
  const auto bytes = elements ? checked_mul(*elements, array.element_size) : std::nullopt;
  const std::uint64_t left = size - array.data;
  if (!bytes || *bytes != left) {
    const bool more = bytes && *bytes < left;
    return Error(bytes && !more ? Errc::truncated : Errc::malformed,
                 more ? "bytes follow the elements of the array" : "the array ends inside its elements")
        .offset(array.data)
        .expected(bytes ? std::to_string(*bytes) + " bytes" : "less than 2^64 bytes")
        .found(bytes ? std::to_string(left) : to_string(array.shape));
  }
  array.bytes = *bytes;
  return array;
}

DType dtype_of(std::string_view type) noexcept {
  const auto found = std::find_if(types.begin(), types.end(), [&](const auto& pair) { return pair.second == type; });
  return found != types.end() ? found->first : DType::none;
}

bool has(DType dtype) noexcept {
  return std::any_of(types.begin(), types.end(), [&](const auto& pair) { return pair.first == dtype; });
}

bool is_void(DType dtype) noexcept { return std::find(voids.begin(), voids.end(), dtype) != voids.end(); }

DType void_named(std::string_view name) noexcept {
  const auto found = std::find_if(voids.begin(), voids.end(), [&](DType d) { return stele::name(d) == name; });
  return found != voids.end() ? *found : DType::none;
}

std::string header_text(DType dtype, std::span<const Extent> shape) {
  std::string text;
  text.reserve(2 * alignment);  // sufficient for most headers
  text += magic;
  text += std::string_view("\1\0\0\0", 4);
  text += "{'descr': '";
  text += element_size(dtype) == 1 ? '|' : '<';
  text += type_of(dtype);
  text += "', 'fortran_order': False, 'shape': (";
  // NumPy reserves space for a first extent of up to 21 digits, so that arrays can grow in place.
  std::size_t space = shape.empty() ? 0 : 21;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::string extent = std::to_string(shape[i]);
    if (i == 0) space -= extent.size();
    text.append(i == 0 ? "" : ", ").append(extent);
  }
  text += shape.size() == 1 ? ",), }" : "), }";
  text.append(space, ' ');
  text.append(alignment - (text.size() + 1) % alignment, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size() - narrow_begin);
  store_le(reinterpret_cast<std::byte*>(text.data()) + version_end, length);
  return text;
}

}  // namespace stele::inline v0::detail::numpy
