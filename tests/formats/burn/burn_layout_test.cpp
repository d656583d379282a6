// Burn's bincode, which says no names: classes that are not what the file holds, layouts that say nothing, metadata.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/burn_bytes.hpp"

namespace {

using namespace burn_bytes;
using namespace std::string_literals;

template <class M>
std::string bin_of(const M& module) {
  return std::string(text_of(good(saved(recorder_of({.encoding = BurnEncoding::bin}), module)).span()));
}

/// Small, of which the options and numbers are given: bias is one, list has so many, choice is which, groups, act.
std::string small_file(const std::string& option, const std::string& count, const std::string& which,
                       const std::string& constants) {
  return binary(bin_param() + option + count + which + bin_param() + constants);
}

}  // namespace

TEST_CASE("burn layout: numbers that mean nothing") {
  const BurnRecorder<> recorder = along<Small>();
  const std::string zero(1, '\0');
  const std::string constants = "\0\3\0"s;
  REQUIRE(outcome(small_file(zero, zero, zero, constants), recorder) == Errc::none);
  REQUIRE(outcome(small_file("\1" + bin_param(), "\1" + bin_param(), "\1", constants), recorder) == Errc::none);
  const std::uint64_t at = binary(bin_param()).size();
  for (const char* option : {"\2", "\xff"}) {
    const Error error = refused(small_file(option, zero, zero, constants), Errc::malformed, recorder);
    CHECK(error.path() == "bias");
    CHECK(error.offset() == at);
    CHECK(error.hint() == "declare the fields of Small in Rust's order, with all constants (attr::burn_layout)");
  }
  for (const std::string& which : {"\2"s, "\xfa"s, "\xfb\xff\xff"s, "\xfd" + std::string(8, '\xff')}) {
    const Error error = refused(small_file(zero, zero, which, constants), Errc::malformed, recorder);
    CHECK(error.path() == "choice");
    CHECK(error.offset() == at + 2);
    CHECK(error.expected() == "below 2");
  }
  for (const std::string& wrong : {"\1\3\0"s, "\0\2\0"s, "\0\3\1"s}) {
    const Error error = refused(small_file(zero, zero, zero, wrong), Errc::malformed, recorder);
    CHECK(error.path() == (wrong[0] == '\1' ? "groups" : "act"));
  }
  refused(small_file(zero, zero, zero, constants + zero), Errc::malformed, recorder);
  refused(small_file(zero, zero, zero, "\0\3"s), Errc::truncated, recorder);

  // flag, n, half, m
  CHECK(good(along<State>().load<State>(bytes_of(binary("\1\3\xfb\1\2\0"s)))).n == -2);
  for (const std::string& wrong : {"\2\3\1\0"s, "\1\3\xfc\1\2\3\4\0"s, "\1\3\xfe"s + std::string(16, '\0') + "\0"s}) {
    refused(binary(wrong), Errc::malformed, along<State>());
  }
  const std::string entry = text("k") + bin_tensor();
  REQUIRE(outcome(binary("\1\3\1\1" + entry), along<State>()) == Errc::none);
  CHECK(refused(binary("\1\3\1\2" + entry + entry), Errc::duplicate, along<State>()).path() == "m.k");
  const std::string large = binary("\1\xfc\xff\xff\xff\xff\xfb\1\2\0"s);  // INT32_MIN
  CHECK(good(along<State>().load<State>(bytes_of(large))).n == INT32_MIN);
  const std::string larger = binary("\1\xfd\1\0\0\0\1\0\0\0\xfb\1\2\0"s);
  CHECK(code_of(along<State>().load<State>(bytes_of(larger))) == Errc::value_mismatch);

  refused(binary(""), Errc::needs_layout);
  // Lists of nothing cost no bytes, but memory.
  struct Nothings {
    std::vector<std::vector<std::array<One, 0>>> lists;
  };
  std::string many;
  for (int i = 0; i < 4000; ++i) many += number(4000);
  refused(binary(number(4000) + many), Errc::limit, along<Nothings>());
}

namespace {

struct Endless {
  Vec w;
  std::unique_ptr<Endless> next;  // in Rust a Box, which cannot end
};
struct Long {
  Vec w;
  std::unique_ptr<std::optional<Long>> next;
};

}  // namespace

TEST_CASE("burn layout: classes without an end") {
  std::string item;
  for (int i = 0; i < 100; ++i) item += bin_param();
  refused(binary(item), Errc::limit, along<Endless>());
  item.clear();
  for (int i = 0; i < 100; ++i) item += bin_param() + "\1";
  refused(binary(item), Errc::limit, along<Long>());
  CHECK(outcome(binary(bin_param() + "\1" + bin_param() + "\0"s), along<Long>()) == Errc::none);
}

TEST_CASE("burn layout: a class of other fields than the file") {
  Two two;
  two.a = Vec(vec({1, 2}));
  two.b = Vec(vec({3, 4}));
  two.a.id = ParamId::from_u64(1);
  two.b.id = ParamId::from_u64(2);
  const std::string file = bin_of(two);
  CHECK(good(BurnRecorder<>().load<Two>(bytes_of(file))).b.value.span()[0] == 3);
  // One field less, one more.
  const Error less = refused(file, Errc::malformed, along<One>());
  CHECK(less.offset() == bin_of(One{two.a}).size());
  CHECK(less.hint().find("burn_layout") != std::string::npos);
  CHECK(code_of(BurnRecorder<>().load<Three>(bytes_of(file))) == Errc::truncated);
  // In another order. Where a live module has ids, they tell.
  Reversed reversed;
  reversed.a = two.a;
  reversed.b = two.b;
  const Error order = bad(BurnRecorder<>().load_into(reversed, bytes_of(file)));
  CHECK(order.code() == Errc::value_mismatch);
  CHECK(order.path() == "b");
  CHECK(order.expected() == "the id of b");
  CHECK(order.found() == "the id of a");
  CHECK(reversed.b.value.span()[0] == 3);  // nothing has changed
  // Shapes do.
  reversed.a = Vec(vec({1, 2, 3}));
  CHECK(bad(BurnRecorder<>().load_into(reversed, bytes_of(file))).code() == Errc::shape_mismatch);
  // Fields of equal shapes and types without ids cannot be told apart: nothing in the file names them.
  const Reversed wrong = good(BurnRecorder<>().load<Reversed>(bytes_of(file)));
  CHECK(wrong.b.value.span()[0] == 1);
  CHECK(wrong.b.id == two.a.id);
}

namespace {

constexpr std::string_view wrong_layouts[] = {"a",
                                              "b, c",
                                              "a, b, a",
                                              "a[2], b",
                                              "a(1 X), b",
                                              "a{}, b",
                                              "a, b, c[",
                                              "a, b, c[x]",
                                              "a, b, c[65537]",
                                              "a, b, c[-1]",
                                              "a, b, c(251 X)",
                                              "a, b, c(1)",
                                              "a, b, c(X)",
                                              "a, b, c(1 X",
                                              "a, b, c{d",
                                              "a, b, c}",
                                              "a b",
                                              "a, , b",
                                              ", a, b",
                                              "a, b,",
                                              "a, b, c[2]d",
                                              "a, b; c",
                                              "A, b",
                                              " ",
                                              "a, b, c{c{c{c{c{c{c{c{c{c{c{c{c{c{c{c{c{c}}}}}}}}}}}}}}}}}"};
template <std::size_t N>
struct Wrong {
  Vec a, b;
  static constexpr Attribute stele_attributes[] = {attr::burn_layout(wrong_layouts[N])};
};
struct Right {
  Vec a, b;
  static constexpr Attribute stele_attributes[] = {
      attr::burn_layout(" x [ 2 ] ,\n\ta,b , p{k[3], q(7 Tanh)}, r[2]{s}, t[2](4 G){u}, v{}")};
};

template <std::size_t... N>
void check_wrong(std::index_sequence<N...>) {
  const auto check = [](const Error& error, std::string_view layout) {
    CAPTURE(layout);
    CHECK(name(error.code()) == name(Errc::invalid_argument));
    CHECK(error.path().find("Wrong") != std::string::npos);
    CHECK(error.found() == layout);
    CHECK(error.offset());
  };
  const std::string file = bin_of(Two{});
  (check(bad(along<Wrong<N>>().open(bytes_of(file))), wrong_layouts[N]), ...);
  (check(bad(saved(recorder_of({.encoding = BurnEncoding::bin}), Wrong<N>())), wrong_layouts[N]), ...);
  (check(bad(saved(recorder_of({.encoding = BurnEncoding::mpk}), Wrong<N>())), wrong_layouts[N]), ...);
}

}  // namespace

TEST_CASE("burn layout: layouts that cannot be read") {
  check_wrong(std::make_index_sequence<std::size(wrong_layouts)>());
  Right right;
  right.a = Vec(vec({1, 2}));
  right.b = Vec(vec({3, 4}));
  right.a.id = right.b.id = ParamId::from_u64(5);
  const std::string file = bin_of(right);
  const std::string zeros(2, '\0');
  // x, a, b, p {k, q}, r {s} twice, t(4 {u}) twice, v
  CHECK(file.size() == bin_of(Two{right.a, right.b}).size() + 1 + 3 + 2 + 4);
  CHECK(file.substr(file.size() - 9) == "\0\7\0\0\0\4\0\4\0"s);
  CHECK(good(BurnRecorder<>().load<Right>(bytes_of(file))).b.value.span()[1] == 4);
  const Bytes named = good(saved(BurnRecorder<>(), right));
  CHECK(good(BurnRecorder<>().load<Two>(named)).b.value.span()[1] == 4);
}

namespace {

struct Numbered {
  Vec w;
  int groups = 4;
  STELE_MODULE(Numbered, w, groups)
};

}  // namespace

template <>
struct stele::attributes<Numbered> {
  static constexpr stele::Attribute list[] = {stele::attr::keep_default("groups")};
};

TEST_CASE("burn layout: numbers of modules, which bincode does not have") {
  Numbered numbered;
  numbered.groups = 5;
  const BurnRecorder<> recorder = along<Numbered>();
  CHECK(code_of(saved(recorder_of({.encoding = BurnEncoding::bin}), numbered)) == Errc::not_representable);
  const std::string file = binary(bin_param() + '\0');
  CHECK(good(recorder.load<Numbered>(bytes_of(file))).groups == 4);
  // As nothing they go on to where they have a place.
  const Bytes named = good(saved(BurnRecorder<>(), good(recorder.open(bytes_of(file)))));
  CHECK(text_of(named.span()).find(str("groups") + nil) != std::string_view::npos);
  CHECK(good(BurnRecorder<>().load<Numbered>(named)).groups == 4);
}

TEST_CASE("burn layout: versions and settings") {
  const std::string item = bin_param();
  for (const char* version : {"", "1.0.0", "0.", "0.x", "0.21x", "v0.21.0", "0.99999999999.0", "21"}) {
    CAPTURE(version);
    const Error error = refused(binary(item, version), Errc::unsupported, along<One>());
    CHECK(error.found() == version);
    BurnOptions said{.encoding = BurnEncoding::bin, .era = BurnEra::v0_21};
    said.schema = schema_of<One>();
    CHECK(outcome(binary(item, version), recorder_of(said)) == Errc::none);
    CHECK(outcome(mpk(map({{"w", param()}}), heading(version))) == Errc::none);  // names are said there
  }
  for (const char* version : {"0.17.0", "0.17.0-dev", "0.20", "0.21.0-pre.1"}) {
    CHECK(outcome(binary(item, version), along<One>()) == Errc::none);
  }

  BurnOptions half;
  half.settings = "HalfPrecisionSettings";
  half.schema = schema_of<One>();
  const std::string what = "(float f32, int i32, format " + format + ", version 0.21.0)";
  for (const std::string& file : {binary(item), mpk(map({{"w", param()}}))}) {
    const Error error = refused(file, Errc::value_mismatch, recorder_of(half));
    CHECK(error.expected() == "HalfPrecisionSettings");
    CHECK(error.found() == "settings FullPrecisionSettings, float, int, format differ " + what);
  }
  half.settings = "MySettings";
  CHECK(refused(binary(item), Errc::value_mismatch, recorder_of(half)).found() ==
        "settings FullPrecisionSettings, format differ " + what);
  // Settings of Burn's own whose types are others.
  const std::string lies = mpk(map({{"w", param()}}), heading("0.21.0", "f32", "HalfPrecisionSettings"));
  const Error error = refused(lies, Errc::value_mismatch);
  CHECK(error.expected() == "float half::binary16::f16 and int i16");
  CHECK(error.found() == "settings HalfPrecisionSettings " + what);
  refused(binary(item, "0.21.0", "f64"), Errc::value_mismatch, along<One>());
  CHECK(outcome(mpk(map({{"w", param()}}), heading("0.21.0", "f32", "MySettings"))) == Errc::none);
}
