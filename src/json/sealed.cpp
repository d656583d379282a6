#include "json/sealed.hpp"

#include "base/hash.hpp"
#include "base/hex.hpp"

namespace stele::inline v0::detail::json {
namespace {

constexpr std::string_view begin = ",\n  \"xxh3\": \"", end = "\"\n}\n";
constexpr std::size_t digits = 16, size = begin.size() + digits + end.size();

}  // namespace

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
