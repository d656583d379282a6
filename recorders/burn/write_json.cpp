// Writes JSON, byte for byte as serde_json does.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "tokens.hpp"

namespace stele::inline v0::detail::burn {
namespace {

constexpr std::size_t buffer_size = std::size_t{256} << 10;

/// The decimal digits of each byte, and their count.
constexpr auto byte_texts = [] {
  std::array<std::array<char, 4>, 256> all{};
  for (unsigned i = 0; i < all.size(); ++i) {
    char n = 0;
    for (const unsigned unit : {100U, 10U, 1U}) {
      if (i >= unit || unit == 1) all[i][static_cast<std::size_t>(n++)] = static_cast<char>('0' + i / unit % 10);
    }
    all[i][3] = n;
  }
  return all;
}();

/// Appends the shortest digits that read back as the same number, in the layout of Rust's `zmij`. (serde_json before
/// 1.0.147 uses `ryu`, which writes no + before an exponent.) `number` is finite.
void append_f64(std::string& out, double number) {
  // Holds a sign, a digit, a point, digits, and an exponent of two digits or more.
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, number, std::chars_format::scientific).ptr;
  const char* const e = std::find(static_cast<const char*>(text), end, 'e');
  const char* const first = text + (text[0] == '-' ? 1 : 0);
  std::string digits(first, first + 1);
  if (e - first > 2) digits.append(first + 2, e);
  int exponent = 0;
  std::from_chars(e + (e[1] == '+' ? 2 : 1), end, exponent);
  const int length = static_cast<int>(digits.size());
  const int point = exponent + 1;  // the point follows this many digits
  if (text[0] == '-') out += '-';
  const auto zeros = [](int n) { return std::string(static_cast<std::size_t>(n), '0'); };
  if (number == 0) {
    out += "0.0";
  } else if (length <= point && point <= 16) {
    out += digits + zeros(point - length) + ".0";
  } else if (0 < point && point <= 16) {
    out += digits.insert(static_cast<std::size_t>(point), 1, '.');
  } else if (-5 < point && point <= 0) {
    out += "0." + zeros(-point) + digits;
  } else {
    if (length > 1) digits.insert(1, 1, '.');
    out += digits + (exponent < 0 ? "e" : "e+") + std::to_string(exponent);
  }
}

class JsonWriter final : public TokenWriter {
 public:
  JsonWriter(Sink& sink, ReadContext& context, bool pretty)
      : sink_(sink), context_(context), pretty_(pretty), writer_(text_, pretty) {
    text_.reserve(buffer_size);
  }

  Status begin_map(std::size_t) override { return begin(true); }
  Status begin_list(std::size_t) override { return begin(false); }
  Status end() override {
    maps_.back() ? writer_.end_object() : writer_.end_array();
    maps_.pop_back();
    return some();
  }
  Status key(std::string_view name) override {
    if (!json::valid_utf8(name)) return not_text("the key");
    writer_.key(name);
    return some();
  }
  Status nil() override {
    writer_.null();
    return some();
  }
  Status unit() override { return nil(); }

  Status value(const Value& value) override {
    switch (value.kind()) {
      case Value::Kind::null:
        return nil();
      case Value::Kind::boolean:
        writer_.boolean(*value.as_bool());
        return some();
      case Value::Kind::i64:
        writer_.i64(*value.as_i64());
        return some();
      case Value::Kind::u64:
        writer_.u64(*value.as_u64());
        return some();
      case Value::Kind::f64:
        if (!std::isfinite(*value.as_f64())) {
          return Error(Errc::not_representable, "JSON has no infinities and no NaN")
              .expected("a finite number")
              .found(std::to_string(*value.as_f64()));
        }
        writer_.item();
        append_f64(text_, *value.as_f64());
        return some();
      case Value::Kind::string:
        if (!json::valid_utf8(*value.as_string())) return not_text("the string");
        writer_.string(*value.as_string());
        return some();
      case Value::Kind::bytes:  // would be read back as a list of numbers
        return Error(Errc::not_representable, "Burn's JSON stores bytes only in tensors");
      case Value::Kind::list:
        STELE_TRY(begin_list(value.as_list()->size()));
        for (const Value& element : *value.as_list()) STELE_TRY(this->value(element));
        return end();
      case Value::Kind::map:
        STELE_TRY(begin_map(value.as_map()->size()));
        for (const auto& entry : *value.as_map()) {
          STELE_TRY(key(entry.first));
          STELE_TRY(this->value(entry.second));
        }
        return end();
    }
    return {};
  }

  Status bytes(const LeafView& leaf) override {
    writer_.begin_array();
    Elements elements(*this);
    STELE_TRY(leaf.stream(elements, context_));
    writer_.end_array();
    return some();
  }

  Status finish() override { return flush(); }

 private:
  /// Writes bytes as elements of the open list.
  class Elements final : public PieceSink {
   public:
    explicit Elements(JsonWriter& to) : to_(to), between_(","), width_(1) {
      if (to.pretty_) between_.append(1, '\n').append(std::size_t{2} * to.writer_.depth(), ' ');
      width_ = between_.size();
      between_.resize((width_ + block - 1) / block * block);
    }
    Status piece(std::span<const std::byte> bytes) override {
      if (count_ == 0 && !bytes.empty()) to_.writer_.item();
      std::string& text = to_.text_;
      while (!bytes.empty()) {
        // The first element has no separator, so it is written in the separator's place.
        const std::size_t max_width = width_ + 3;
        const std::size_t n = std::min(bytes.size(), (buffer_size - text.size()) / max_width + 1);
        const std::size_t used = text.size();
        text.resize(used + n * max_width + block);
        char* to = text.data() + used;
        for (const std::byte b : bytes.first(n)) {
          if (count_++ != 0) to = put_between(to);
          const auto& digits = byte_texts[std::to_integer<std::size_t>(b)];
          std::memcpy(to, digits.data(), digits.size());
          to += digits[3];
        }
        text.resize(static_cast<std::size_t>(to - text.data()));
        bytes = bytes.subspan(n);
        STELE_TRY(to_.some());
      }
      return {};
    }

   private:
    static constexpr std::size_t block = 16;
    /// Copies whole blocks; the next element overwrites the excess bytes.
    char* put_between(char* to) const noexcept {
      for (std::size_t i = 0; i < width_; i += block) std::memcpy(to + i, between_.data() + i, block);
      return to + width_;
    }

    JsonWriter& to_;
    std::string between_;
    std::size_t width_;
    std::uint64_t count_ = 0;
  };

  Status begin(bool map) {
    map ? writer_.begin_object() : writer_.begin_array();
    maps_.push_back(map);
    return some();
  }
  static Error not_text(const char* what) {
    return Error(Errc::not_representable, std::string(what) + " is not UTF-8");
  }
  Status some() { return text_.size() >= buffer_size / 4 * 3 ? flush() : Status(); }
  Status flush() {
    if (text_.empty()) return {};
    auto written = sink_.write(std::as_bytes(std::span(text_)));
    text_.clear();
    return written;
  }

  Sink& sink_;
  ReadContext& context_;
  bool pretty_;
  std::string text_;  // not written yet
  json::Writer writer_;
  std::vector<bool> maps_;
};

}  // namespace

std::unique_ptr<TokenWriter> json_writer(Sink& sink, ReadContext& context, bool pretty) {
  return std::make_unique<JsonWriter>(sink, context, pretty);
}

}  // namespace stele::inline v0::detail::burn
