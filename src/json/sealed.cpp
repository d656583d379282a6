#include "json/sealed.hpp"

#include <charconv>
#include <cstdio>

#include "base/hash.hpp"

namespace stele::inline v0::detail::json {
namespace {

constexpr std::string_view begin = ",\n  \"xxh3\": \"", end = "\"\n}\n";
constexpr std::size_t digits = 16, size = begin.size() + digits + end.size();

}  // namespace

std::string hex(std::uint64_t number) {
  char text[digits + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::optional<std::uint64_t> from_hex(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != digits || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

void seal(std::string& object) {
  const std::uint64_t hash = hash64(object.data(), object.size());
  object.append(begin).append(hex(hash)).append(end);
}

Status check_seal(std::string_view object) {
  if (object.size() < size || !object.ends_with(end)) {
    return Error(Errc::truncated, "the text does not end with its checksum");
  }
  const std::string_view body = object.substr(0, object.size() - size);
  const std::string_view tail = object.substr(body.size());
  const auto expected = from_hex(tail.substr(begin.size(), digits));
  if (tail.starts_with(begin) && expected == hash64(body.data(), body.size())) return {};
  return Error(Errc::checksum, "the checksum at the end of the text does not match its bytes");
}

}  // namespace stele::inline v0::detail::json
