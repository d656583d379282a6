// Modules without parameters (Dropout, Relu): constants to Burn, wherever they stand.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "recorders/burn/types.hpp"
#include "support/burn_bytes.hpp"

namespace {

using namespace burn_bytes;
using namespace std::string_literals;

struct Linear {
  Param<Tensor<float, 1>> w;
};

// pub enum Deep<B: Backend> { Empty(Dropout), Leaf(Linear<B>), Pile(Vec<Linear<B>>) }, in three spellings
struct Dropout {};
struct Spelled {
  static constexpr Attribute stele_attributes[] = {attr::burn_layout("prob")};
};
using Deep = std::variant<Dropout, Linear, std::vector<Linear>>;
using DeepMono = std::variant<std::monostate, Linear, std::vector<Linear>>;
using DeepSpelled = std::variant<Spelled, Linear, std::vector<Linear>>;

template <class D>
struct Net {
  std::vector<D> steps;
  D lone;
  std::optional<D> maybe;
};
template <class D>
Net<D> net() {
  Net<D> n;
  const Linear linear{{Tensor<float, 1>({2}, {1, 2}), ParamId::from_u64(5)}};
  n.steps.resize(3);
  n.steps[1] = linear;
  n.lone = std::vector<Linear>{linear, linear};
  n.maybe = D();
  return n;
}

/// Constants in every place.
struct Around {
  Param<Tensor<float, 1>> w{Tensor<float, 1>({2}, {1, 2}), ParamId::from_u64(5)};
  Dropout plain;
  std::array<Dropout, 2> two;
  std::vector<Dropout> some{3};
  std::unique_ptr<Dropout> held = std::make_unique<Dropout>();
  std::optional<Dropout> maybe;
};

}  // namespace

template <>
struct stele::attributes<Deep> {
  static constexpr stele::Attribute list[] = {attr::alternative(0, "Empty"), attr::alternative(1, "Leaf"),
                                              attr::alternative(2, "Pile")};
};
template <>
struct stele::attributes<DeepMono> {
  static constexpr stele::Attribute list[] = {attr::alternative(0, "Empty"), attr::alternative(1, "Leaf"),
                                              attr::alternative(2, "Pile")};
};
template <>
struct stele::attributes<DeepSpelled> {
  static constexpr stele::Attribute list[] = {attr::alternative(0, "Empty"), attr::alternative(1, "Leaf"),
                                              attr::alternative(2, "Pile")};
};

namespace {

template <class M>
std::string file_of(const M& module, BurnEncoding encoding, BurnEra era = BurnEra::v0_21) {
  return std::string(text_of(good(saved(recorder_of({.encoding = encoding, .era = era}), module)).span()));
}

template <class D>
void check_back(const std::string& file) {
  const auto back = good(BurnRecorder<>().load<Net<D>>(bytes_of(file)));
  REQUIRE(back.steps.size() == 3);
  CHECK(back.steps[0].index() == 0);
  CHECK(back.steps[1].index() == 1);
  CHECK(back.steps[2].index() == 0);
  CHECK(back.lone.index() == 2);
  REQUIRE(back.maybe);
  CHECK(back.maybe->index() == 0);
}

}  // namespace

TEST_CASE("burn units: an alternative without parameters is what Burn writes, however it is spelled") {
  const std::string floats = "\0\0\x80\x3f\0\0\0\x40"s;
  const std::string id5 = detail::burn::id_text(ParamId::from_u64(5));
  const std::string in_bin = text(id5) + bin_tensor(floats);
  // steps, lone, maybe: of an enum its number, of a constant a zero
  const std::string wanted = "\3\0\0\1"s + in_bin + "\0\0\2\2"s + in_bin + in_bin + "\1\0\0"s;
  const std::string in_mpk = map({{"w", param(tensor("\xc4\x08"s + floats), id5)}});
  const std::string empty = map({{"Empty", nil}});
  const std::string named = map({{"steps", list({empty, map({{"Leaf", in_mpk}}), empty})},
                                 {"lone", map({{"Pile", list({in_mpk, in_mpk})}})},
                                 {"maybe", empty}});

  CHECK(file_of(net<Deep>(), BurnEncoding::bin).ends_with("FullPrecisionSettings" + wanted));
  CHECK(file_of(net<DeepMono>(), BurnEncoding::bin) == file_of(net<Deep>(), BurnEncoding::bin));
  CHECK(file_of(net<DeepSpelled>(), BurnEncoding::bin) == file_of(net<Deep>(), BurnEncoding::bin));
  CHECK(file_of(net<Deep>(), BurnEncoding::mpk).ends_with(str("item") + named + str("_b") + list({})));
  CHECK(file_of(net<DeepMono>(), BurnEncoding::mpk) == file_of(net<Deep>(), BurnEncoding::mpk));
  CHECK(file_of(net<DeepMono>(), BurnEncoding::json) == file_of(net<Deep>(), BurnEncoding::json));
  CHECK(file_of(net<Deep>(), BurnEncoding::json).find("\"Empty\": null") != std::string::npos);
  for (const BurnEncoding encoding : {BurnEncoding::bin, BurnEncoding::mpk, BurnEncoding::json}) {
    check_back<Deep>(file_of(net<Deep>(), encoding));
    check_back<DeepMono>(file_of(net<Deep>(), encoding));
    check_back<DeepSpelled>(file_of(net<Deep>(), encoding));
  }
  // As Burn reads it, and as an earlier release of stele wrote it.
  check_back<Deep>(mpk(named));
  std::string older = named;
  for (std::size_t at; (at = older.find(empty)) != std::string::npos;)
    older.replace(at, empty.size(), map({{"Empty", map({})}}));
  check_back<Deep>(mpk(older));
}

TEST_CASE("burn units: in fields, lists, arrays and pointers") {
  for (const BurnEncoding encoding : {BurnEncoding::bin, BurnEncoding::mpk, BurnEncoding::json}) {
    for (const BurnEra era : {BurnEra::v0_20, BurnEra::v0_21}) {
      const std::string file = file_of(Around(), encoding, era);
      const Around back = good(BurnRecorder<>().load<Around>(bytes_of(file)));
      CHECK(back.some.size() == 3);
      CHECK(back.held != nullptr);
      CHECK(!back.maybe);
    }
  }
  // plain, two, how many and some, held, maybe
  const std::string file = file_of(Around(), BurnEncoding::bin);
  CHECK(file.ends_with("\1\2\1"s + "\0"s + "\0\0"s + "\3\0\0\0"s + "\0"s + "\0"s));
}

TEST_CASE("burn units: where an Option of one is there cannot be said in bincode since 0.21") {
  Around around;
  around.maybe.emplace();
  const auto at = [&](BurnEncoding encoding, BurnEra era) {
    return saved(recorder_of({.encoding = encoding, .era = era}), around);
  };
  const auto strict = at(BurnEncoding::bin, BurnEra::v0_21);
  REQUIRE(code_of(strict) == Errc::not_representable);
  CHECK(strict.error().path() == "maybe");
  CHECK(good(BurnRecorder<>().load<Around>(good(at(BurnEncoding::bin, BurnEra::v0_20)))).maybe);
  CHECK(good(BurnRecorder<>().load<Around>(good(at(BurnEncoding::mpk, BurnEra::v0_21)))).maybe);
}
