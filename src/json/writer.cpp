#include <charconv>

#include "base/hex.hpp"
#include "json/characters.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::json {

void Writer::string(std::string_view text) {
  item();
  out_->push_back('"');
  const char* p = text.data();
  const char* const end = p + text.size();
  for (;;) {
    const char* const run = p;
    p = find_special<false>(p, end);
    out_->append(run, static_cast<std::size_t>(p - run));
    if (p == end) break;
    const char c = *p++;
    out_->push_back('\\');
    if (const std::size_t i = kEscaped.find(c); i != kEscaped.npos) {
      out_->push_back(kLetters[i]);
    } else {
      out_->append("u").append(hex(static_cast<unsigned char>(c), 4));
    }
  }
  out_->push_back('"');
}

void Writer::u64(std::uint64_t number) {
  item();
  char digits[20];
  out_->append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void Writer::i64(std::int64_t number) {
  item();
  char digits[20];
  out_->append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void Writer::f64(double number) {
  item();
  char digits[32];  // the longest double is -2.2250738585072014e-308
  const std::string_view text(
      digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits));
  out_->append(text);
  if (text.find_first_of(".e") == text.npos) out_->append(".0");
}

void Writer::base64(std::span<const std::byte> bytes) {
  item();
  const std::size_t at = out_->size() + 1;
  out_->append(base64_size(bytes.size()) + 2, '"');
  base64_encode(bytes, out_->data() + at);
}

}  // namespace stele::inline v0::detail::json
