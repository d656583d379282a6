// The skeleton of a document: its text without the tensors' data.
#include "skeleton.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "json/json.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/dtype.hpp"

namespace stele::inline v0::detail::json {
namespace {

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

/// Maximum length of a number in characters, including white space added by hand.
constexpr std::uint64_t longest_number = 4096;

/// Maximum number of characters searched for the end of data that are too long.
constexpr std::uint64_t max_lookahead = std::uint64_t{1} << 20;

class Maker {
 public:
  Maker(const Text& text, std::uint64_t budget) : text_(text), budget_(budget), buffer_(largest_read) {}

  Result<Skeleton> run() {
    for (;;) {
      STELE_TRY_ASSIGN(const int c, peek());
      if (c < 0) break;
      STELE_TRY(step(static_cast<char>(c)));
      if (out_.stopped != Errc::none) break;
    }
    return std::move(out_);
  }

 private:
  static constexpr std::size_t largest_read = std::size_t{64} << 10;
  // Size of the read after data: the rest of a tensor's object and the beginning of the next.
  static constexpr std::size_t first_read = 512;

  enum class Key : std::uint8_t { other, dtype, shape, data };
  struct Level {
    bool object = false;
    bool first = true;    // true until the first key
    bool key_due = true;  // true if an object's next string is a key
    bool tensor = false;
    Key key = Key::other;
  };

  // ---- characters

  std::uint64_t position() const { return start_ + at_; }

  /// Returns the next character, or -1 at the end.
  Result<int> peek() {
    if (at_ == end_) {
      start_ += end_;
      at_ = end_ = 0;
      STELE_TRY_ASSIGN(end_, text_.read(start_, buffer_.span().first(next_read_)));
      next_read_ = std::min(2 * next_read_, largest_read);
      if (end_ == 0) return -1;
    }
    return static_cast<unsigned char>(std::to_integer<unsigned char>(buffer_.data()[at_]));
  }
  void go_to(std::uint64_t place) {
    if (place - start_ <= end_) {
      at_ = static_cast<std::size_t>(place - start_);
      return;
    }
    start_ = place;
    at_ = end_ = 0;
    next_read_ = first_read;
  }
  Status put(char c) {
    out_.text += c;
    return out_.text.size() > budget_ / 4 ? too_much() : Status();
  }
  Status copy() {
    const char c = static_cast<char>(buffer_.data()[at_++]);
    return put(c);
  }
  Status too_much() const {
    return Error(Errc::limit, "the document's structure needs more memory than its size allows").offset(position());
  }

  // ---- tokens

  Status step(char c) {
    switch (c) {
      case '{':
      case '[':
        return c == '[' && data_due() ? numbers() : open(c);
      case '}':
      case ']':
        if (!levels_.empty()) {
          tensors_ -= levels_.back().tensor ? 1 : 0;
          levels_.pop_back();
        }
        return copy();
      case ',':
        if (!levels_.empty()) levels_.back().key_due = true;
        if (tensors_ == 0) ++out_.nodes;
        end_extent();
        return copy();
      case '"':
        return string();
      case ':':
      case ' ':
      case '\n':
      case '\r':
      case '\t':
        return copy();
      default:
        if (c >= '0' && c <= '9' && in_shape()) add_digit(c);
        if (data_due()) {
          return Error(Errc::malformed, "the data of a tensor have the wrong type")
              .expected("a string or an array")
              .offset(position());
        }
        return copy();
    }
  }

  Status open(char bracket) {
    if (levels_.size() == kDeepest) return Error(Errc::limit, "JSON nests too deep").offset(position());
    levels_.push_back({bracket == '{'});
    if (tensors_ == 0) ++out_.nodes;
    return copy();
  }
  bool data_due() const {
    return !levels_.empty() && levels_.back().tensor && levels_.back().key == Key::data && !levels_.back().key_due;
  }

  /// Reads a string: steps over a tensor's data, and copies a key or another string.
  Status string() {
    const bool in_object = !levels_.empty() && levels_.back().object;
    if (data_due()) return base64();
    const std::size_t begin = out_.text.size() + 1;
    STELE_TRY(copy());
    for (bool escaped = false;;) {
      STELE_TRY_ASSIGN(const int c, peek());
      if (c < 0) return {};
      STELE_TRY(copy());
      if (c == '"' && !escaped) break;
      escaped = c == '\\' && !escaped;
    }
    const std::string_view raw = std::string_view(out_.text).substr(begin, out_.text.size() - 1 - begin);
    if (!in_object) return {};
    Level& level = levels_.back();
    if (level.key_due) {
      level.key = raw == "$dtype" ? Key::dtype : raw == "shape" ? Key::shape : raw == "data" ? Key::data : Key::other;
      if (level.first && level.key == Key::dtype) {
        level.tensor = true;
        ++tensors_;
        dtype_ = DType::none;
        elements_.reset();
      }
      if (level.tensor && level.key == Key::shape) {
        elements_ = 1;
        extent_.reset();
      }
      level.first = level.key_due = false;
    } else if (level.tensor && level.key == Key::dtype) {
      dtype_ = dtype_of(raw);
    }
    return {};
  }

  // Returns true inside the shape of the innermost tensor. Extents are multiplied as they are read.
  bool in_shape() const {
    if (levels_.size() < 2) return false;
    const Level& tensor = levels_[levels_.size() - 2];
    return !levels_.back().object && tensor.tensor && tensor.key == Key::shape && !tensor.key_due;
  }
  void add_digit(char c) {
    const auto more = checked_mul(extent_.value_or(0), 10);
    extent_ = (more ? checked_add(*more, static_cast<std::uint64_t>(c - '0')) : std::nullopt).value_or(UINT64_MAX);
  }
  void end_extent() {
    if (!extent_) return;
    elements_ = checked_mul(elements_.value_or(0), *extent_).value_or(UINT64_MAX);
    extent_.reset();
  }

  // ---- data

  Status found(std::uint64_t at, bool numbers) {
    Data& data = out_.data.emplace_back();
    data.at = at;
    data.size = position() - at;
    data.numbers = numbers;
    out_.text += "null";
    return out_.text.size() + sizeof(Data) * out_.data.size() > budget_ / 2 ? too_much() : Status();
  }
  Status stop(std::uint64_t at, bool numbers, Errc why) {
    out_.stopped = why;
    return found(at, numbers);
  }

  Status base64() {
    const std::uint64_t at = position();
    end_extent();
    const auto bytes = elements_ && dtype_ != DType::none ? byte_length(dtype_, *elements_) : std::nullopt;
    if (bytes && *bytes < UINT64_MAX / 4) {
      // Steps over the data, which a quote must follow.
      go_to(at + 1 + (*bytes + 2) / 3 * 4);
      STELE_TRY_ASSIGN(const int c, peek());
      if (c == '"') {
        ++at_;
        return found(at, false);
      }
      // Finds the real length for the message.
      out_.stopped = Errc::malformed;
      start_ = at;
      at_ = end_ = 0;
      STELE_TRY(peek());
    }
    ++at_;
    for (;;) {
      STELE_TRY_ASSIGN(const int c, peek());
      if (c < 0) return stop(at, false, Errc::truncated);
      if (bytes && position() - at > max_lookahead && (position() - at) / 2 > *bytes) return found(at, false);
      const auto buffered = std::span<const std::byte>(buffer_.span()).subspan(at_, end_ - at_);
      const auto* quote = static_cast<const std::byte*>(std::memchr(buffered.data(), '"', buffered.size()));
      at_ = quote == nullptr ? end_ : static_cast<std::size_t>(quote - buffer_.data()) + 1;
      if (quote != nullptr) return found(at, false);
    }
  }

  Status numbers() {
    const std::uint64_t at = position();
    end_extent();
    const auto max_length = checked_mul(elements_.value_or(UINT64_MAX), longest_number).value_or(UINT64_MAX);
    std::size_t depth = 0;
    bool quoted = false;
    for (;;) {
      STELE_TRY_ASSIGN(const int first, peek());
      if (first < 0) return stop(at, true, Errc::truncated);
      while (at_ != end_) {
        const char c = static_cast<char>(buffer_.data()[at_++]);
        if (c == '"') quoted = !quoted;
        if (quoted) continue;
        if (c == '[') ++depth;
        if (c == ']' && --depth == 0) return found(at, true);
      }
      // Malicious text may contain any number of spaces.
      if (position() - at > max_length) return stop(at, true, Errc::limit);
    }
  }

  const Text& text_;
  std::uint64_t budget_;
  Bytes buffer_;
  std::uint64_t start_ = 0;  // offset of the buffer
  std::size_t at_ = 0, end_ = 0;
  std::size_t next_read_ = largest_read / 16;
  std::vector<Level> levels_;
  std::size_t tensors_ = 0;  // number of levels that are tensors
  DType dtype_ = DType::none;
  std::optional<std::uint64_t> elements_, extent_;
  Skeleton out_;
};

}  // namespace

Result<Skeleton> make_skeleton(const Text& text, std::uint64_t budget) { return Maker(text, budget).run(); }

std::string encode_index(const Skeleton& skeleton) {
  std::string index(16 + 16 * skeleton.data.size(), '\0');
  auto* p = reinterpret_cast<std::byte*>(index.data());
  store_le(p, std::uint64_t{skeleton.data.size()});
  store_le(p += 8, skeleton.nodes);
  for (const Data& data : skeleton.data) {
    store_le(p += 8, data.at);
    store_le(p += 8, data.size | (data.numbers ? numbers_bit : 0));
  }
  return index + skeleton.text;
}

Result<Skeleton> decode_index(std::string index, std::uint64_t size) {
  const auto bad = [] { return Error(Errc::malformed, "the index of the compressed document is malformed"); };
  Skeleton skeleton;
  const auto* p = reinterpret_cast<const std::byte*>(index.data());
  if (index.size() < 16) return bad();
  const auto count = load_le<std::uint64_t>(p);
  skeleton.nodes = load_le<std::uint64_t>(p + 8);
  if (count > (index.size() - 16) / 16 || skeleton.nodes > index.size()) return bad();
  skeleton.data.resize(static_cast<std::size_t>(count));
  std::uint64_t end = 0;
  for (Data& data : skeleton.data) {
    const auto at = load_le<std::uint64_t>(p += 16);
    const auto word = load_le<std::uint64_t>(p + 8);
    const std::uint64_t length = word & ~numbers_bit;
    // The data of tensors must not overlap.
    if (at < end || at > size || length > size - at) return bad();
    data.at = at;
    data.size = length;
    data.numbers = (word & numbers_bit) != 0;
    end = at + length;
  }
  index.erase(0, static_cast<std::size_t>(16 + 16 * count));
  skeleton.text = std::move(index);
  return skeleton;
}

DType dtype_of(std::string_view name) noexcept {
  for (std::uint16_t code = 1; code <= static_cast<std::uint16_t>(DType::opaque); ++code) {
    const auto d = static_cast<DType>(code);
    const std::string_view known = stele::name(d);
    if (!is_known(d) || known.size() != name.size()) continue;
    if (std::equal(known.begin(), known.end(), name.begin(), [](char a, char b) { return upper(a) == b; })) return d;
  }
  return DType::none;
}

std::string dtype_name(DType dtype) {
  std::string text(stele::name(dtype));
  std::transform(text.begin(), text.end(), text.begin(), upper);
  return text;
}

}  // namespace stele::inline v0::detail::json
