// Runs the private JSON reader over a text, for its tests.
#pragma once

#include "json/json.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace stele_test::json_text {

using namespace stele;
using namespace stele::detail::json;

inline constexpr std::size_t kAmple = std::size_t{1} << 40;

struct Outcome {
  Errc code = Errc::none;
  std::uint64_t offset = 0;
  std::string expected, found;
};

inline Outcome outcome(const Reader& r, std::string_view text) {
  if (r.ok()) return {};
  const Error e = r.error();
  REQUIRE(e.offset().has_value());
  CHECK_MESSAGE(*e.offset() <= text.size(), text);
  CHECK(!e.found().empty());
  CHECK((!e.expected().empty() || !e.message().empty()));
  return {e.code(), *e.offset(), std::string(e.expected()), std::string(e.found())};
}

inline Outcome skip(std::string_view text, Options options = {}) {
  Reader r(text, options);
  const bool good = r.skip_value() && r.finish();
  CHECK(good == r.ok());
  return outcome(r, text);
}

inline Outcome parse(std::string_view text, Value* out = nullptr, std::size_t memory = kAmple) {
  Reader r(text);
  Value v;
  const Status s = read_value(r, v, memory);
  CHECK(s.has_value() == r.ok());
  if (s && r.finish() && out != nullptr) *out = std::move(v);
  return outcome(r, text);
}

// Reading and skipping must agree; returns their error code.
inline Errc both(std::string_view text) {
  const Outcome a = skip(text), b = parse(text);
  CHECK_MESSAGE(a.code == b.code, text);
  CHECK_MESSAGE(a.offset == b.offset, text);
  return a.code;
}

inline std::string repeat(std::string_view s, std::size_t n) {
  std::string out;
  out.reserve(s.size() * n);
  for (std::size_t i = 0; i < n; ++i) out += s;
  return out;
}

}  // namespace stele_test::json_text
