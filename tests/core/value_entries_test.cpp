// Values from numbers and lists, and back by path, with ranges checked.
#include <stele/checkpoints/manager.hpp>
#include <stele/precision/complex.hpp>
#include <stele/recorders/any.hpp>
#include <stele/value.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace value_entries_test {

using namespace stele_test;
using stele::Errc;
using stele::Value;

namespace {
enum class Mode : std::uint8_t { off, on };

// No pointer and no character becomes a number.
static_assert(!std::is_convertible_v<int*, Value> && !std::is_convertible_v<char, Value>);
static_assert(std::is_convertible_v<unsigned long long, Value> && std::is_convertible_v<const char*, Value>);
}  // namespace

TEST_CASE("value: numbers, strings and lists convert") {
  const stele::StepValues values{.metrics = {{"loss", 0.5}},
                                 .state = {{"epoch", 3}, {"name", "adam"}, {"rates", std::vector<double>{1, 0.5}}}};
  CHECK(values.state[0].second == Value(std::int64_t{3}));
  CHECK(good(stele::to_json(values.state)) == R"({"epoch":3,"name":"adam","rates":[1.0,0.5]})");
  CHECK(Value(true).as_bool() != nullptr);
  CHECK(Value(1.5F).as_f64() != nullptr);
  CHECK(Value(std::uint8_t{200}).as_i64() != nullptr);
  CHECK(Value(UINT64_MAX).as_u64() != nullptr);
  CHECK(Value("x") == Value(std::string("x")));
  CHECK(Value(std::vector<std::byte>{std::byte{1}}).as_bytes() != nullptr);
}

TEST_CASE("value: entries are found by path and converted") {
  const Value value = good(stele::parse_json(
      R"({"adam":{"beta1":0.9,"steps":[1,2,300],"name":"a","amsgrad":true,"big":18446744073709551615,"neg":-1}})"));
  const auto adam = value.at("adam");
  CHECK(good(adam.at("beta1").to<double>()) == 0.9);
  CHECK(good(adam.at("beta1").to<float>()) == 0.9F);
  CHECK(good(adam.at("steps").to<std::vector<int>>()) == std::vector<int>{1, 2, 300});
  CHECK(good(adam.at("steps").at(1).to<std::uint8_t>()) == 2);
  CHECK(good(adam.at("steps").at(0).to<double>()) == 1.0);
  CHECK(good(adam.at("steps").at(1 - 0).to<Value>()) == 2);
  CHECK(good(adam.at("name").to<std::string>()) == "a");
  CHECK(good(adam.at("amsgrad").to<bool>()));
  CHECK(good(adam.at("steps").at(0).to<Mode>()) == Mode::on);
  CHECK(good(adam.at("big").to<std::uint64_t>()) == UINT64_MAX);
  CHECK(good(Value(7).to<int>()) == 7);
  CHECK(adam.get() != nullptr);
  CHECK(adam.at("none").get() == nullptr);

  const auto refused = [&](const auto& result, Errc code, std::string_view path) {
    const stele::Error e = bad(result);
    CHECK(e.code() == code);
    CHECK(e.path() == path);
    return std::string(e.to_string());
  };
  CHECK(refused(adam.at("steps").to<std::vector<std::int8_t>>(), Errc::out_of_range, "adam.steps.2")
            .find("expected an integer of 8 bits, found i64 300") != std::string::npos);
  refused(adam.at("big").to<std::int64_t>(), Errc::out_of_range, "adam.big");
  refused(adam.at("neg").to<unsigned>(), Errc::out_of_range, "adam.neg");
  refused(adam.at("beta1").to<int>(), Errc::value_mismatch, "adam.beta1");
  refused(adam.at("name").to<int>(), Errc::value_mismatch, "adam.name");
  refused(adam.at("amsgrad").to<int>(), Errc::value_mismatch, "adam.amsgrad");
  refused(adam.at("name").to<std::vector<int>>(), Errc::value_mismatch, "adam.name");
  refused(adam.at("beta3").to<double>(), Errc::not_found, "adam.beta3");
  refused(value.at("sgd").at("rates").at(0).to<double>(), Errc::not_found, "sgd.rates.0");
  refused(adam.at("steps").at(3).to<int>(), Errc::not_found, "adam.steps.3");
  refused(adam.at("steps").at("0").to<int>(), Errc::not_found, "adam.steps.0");
  refused(Value(1e300).to<float>(), Errc::value_mismatch, "");
}

TEST_CASE("value: the entry of a temporary owns it") {
  const auto entry = good(stele::parse_json(R"({"a":{"b":["a text that is longer than a small string"]}})")).at("a");
  CHECK(good(entry.at("b").at(0).to<std::string>()) == "a text that is longer than a small string");
}

TEST_CASE("value: a complex number is a value, in plain structs too") {
  struct Filter {
    stele::Tensor<float, 1> taps;
    std::complex<float> pole;
    std::vector<std::complex<float>> spectrum;
  };
  const Filter filter{stele::Tensor<float, 1>({1}, {1}), {0.5F, -2}, {{1, 2}, {3, 4}}};
  const TempDir dir;
  for (const char* file : {"f.stele", "f.safetensors", "f.json"}) {
    const std::string path = dir / file;
    good(stele::save(filter, path));
    const Filter back = good(stele::load<Filter>(path));
    CHECK(back.pole == filter.pole);
    CHECK(back.spectrum == filter.spectrum);
  }
}

TEST_CASE("errors, codes and reports are written to streams") {
  const stele::Error error = stele::Error(Errc::missing, "no entry").path("w");
  CHECK(error.code_name() == "missing");
  std::ostringstream text;
  stele::Report report;
  report.add(stele::Report::What::lost, "w", "its id");
  text << error.code() << "|" << error << "|" << report;
  CHECK(text.str() == "missing|" + error.to_string() + "|" + report.to_string());
}

}  // namespace value_entries_test
