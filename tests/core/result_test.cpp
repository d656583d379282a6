// Result has the members of std::expected.
#include <stele/result.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace result_test {

namespace {

using namespace stele;

Result<int> half(int n) {
  if (n % 2 != 0) return Error(Errc::invalid_argument, "odd");
  return n / 2;
}
Status positive(int n) { return n > 0 ? Status() : Error(Errc::out_of_range, "not positive"); }

}  // namespace

TEST_CASE("result: and_then and transform go on with a value, and pass an error on") {
  CHECK(half(8).and_then(half).value() == 2);
  CHECK(half(6).and_then(half).error().code() == Errc::invalid_argument);
  CHECK(half(8).transform([](int n) { return std::to_string(n); }).value() == "4");
  CHECK(half(3).transform([](int n) { return std::to_string(n); }).error().message() == "odd");
  int seen = 0;
  const Status done = half(8).transform([&](int n) { seen = n; });
  CHECK((done && seen == 4));
  CHECK(half(-2).and_then(positive).error().code() == Errc::out_of_range);
  CHECK(positive(1).and_then([] { return half(4); }).value() == 2);
  CHECK(positive(0).and_then([] { return half(4); }).error().code() == Errc::out_of_range);
}

TEST_CASE("result: or_else and transform_error see the error alone") {
  const auto zero = [](const Error&) -> Result<int> { return 0; };
  CHECK(half(3).or_else(zero).value() == 0);
  CHECK(half(4).or_else(zero).value() == 2);
  CHECK(half(3).transform_error([](Error e) { return std::move(e).path("n"); }).error().path() == "n");
  CHECK(half(4).transform_error([](Error e) { return std::move(e).path("n"); }).value() == 2);
  CHECK(positive(0).or_else([](const Error&) { return Status(); }));
  CHECK(positive(1).or_else([](Error e) -> Status { return e; }));
}

TEST_CASE("result: values that only move, value_or on lvalues, errors in place") {
  const auto made = [](int n) -> Result<std::unique_ptr<int>> {
    if (n < 0) return Error(Errc::out_of_range, "negative");
    return std::make_unique<int>(n);
  };
  CHECK(*made(3).transform([](std::unique_ptr<int> p) { return std::make_unique<int>(*p + 1); }).value() == 4);
  CHECK(*made(-1).value_or(std::make_unique<int>(7)) == 7);
  const Result<int> odd = half(3);
  CHECK(odd.value_or(5) == 5);
  CHECK(half(4).value_or(5) == 2);
  Result<int> bad = half(3);
  bad.error() = std::move(bad.error()).path("here");
  CHECK(bad.error().path() == "here");
}

TEST_CASE("result: an error keeps its parts in any order, and when they grow") {
  const std::string longer(5000, 'p');
  Error error = Error(Errc::limit, "the index is too large").hint("split it").found("12").expected("8").file("m.stele");
  error = std::move(error).path(longer).offset(7).expected("at most 8").found("").partially_applied(true);
  CHECK(error.message() == "the index is too large");
  CHECK(error.path() == longer);
  CHECK(error.expected() == "at most 8");
  CHECK(error.found().empty());
  CHECK(error.file() == "m.stele");
  CHECK(error.hint() == "split it");
  CHECK(error.offset() == std::uint64_t{7});
  const Error copy = error;
  error = std::move(error).path("head.bias").partially_applied(false);
  CHECK(copy.path() == longer);
  CHECK(error.to_string() ==
        "limit: head.bias: the index is too large: expected at most 8 at byte 7 (m.stele); split it");
}

TEST_CASE("result: a part of an error may be taken from the same error") {
  Error error = Error(Errc::limit, "the index is too large");
  error = std::move(error).found(error.message());
  error = std::move(error).path(error.message().substr(4, 5));
  error = std::move(error).hint(error.path());
  CHECK(error.found() == "the index is too large");
  CHECK(error.path() == "index");
  CHECK(error.hint() == "index");
}

TEST_CASE("result: an error that was moved from has no code and no parts, and can be used again") {
  Error error = Error(Errc::limit, "too large").path("a");
  const Error taken = std::move(error);
  CHECK(taken.path() == "a");
  // NOLINTBEGIN(bugprone-use-after-move): defined
  CHECK(error.code() == Errc::none);
  CHECK(error.message().empty());
  CHECK(error.to_string() == "none");
  CHECK_FALSE(error.offset().has_value());
  CHECK(error.report() == nullptr);
  CHECK(Error(error).path().empty());
  // NOLINTEND(bugprone-use-after-move)
  error = Error(Errc::io, "again").path("b");
  CHECK(error.path() == "b");
}

}  // namespace result_test
