// Types with cereal functions as values: values that do not fit, and damaged files.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <limits>

#include "core/value_types.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"

namespace archive_test {

/// Runs `f` with `most` more bytes of address space than there are now.
template <class F>
std::string in_memory(std::uint64_t most, F f) {
  return in_child([&]() -> std::string {
    if (!sanitizers) {
      const std::uint64_t all = address_space() + most;
      const rlimit limit{all, all};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
    }
    return f();
  });
}

/// Returns a safetensors file with these values.
std::string with_extras(const std::string& values) {
  std::string quoted;
  for (const char c : R"({"version":1,"values":)" + values + "}") {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  const std::string header = R"({"__metadata__":{"stele":")" + quoted + "\"}}";
  std::string file;
  put(file, std::uint64_t{header.size()});
  return file + header;
}

/// Returns the result of loading a Holder<T> with this value, after checking that all formats give the same.
template <class T>
std::string loaded(const Value& value) {
  const Holder<Value> holder{value};
  std::string first;
  const auto check = [&](const AnyRecorder& recorder) {
    const auto bytes = saved(recorder, holder);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto fresh = recorder.load<Holder<T>>(*bytes);
    Holder<T> live;
    const auto in_place = recorder.load_into(live, *bytes);
    CHECK(why(fresh) == why(in_place));
    if (!fresh) CHECK(fresh.error().path() == "field");
    if (first.empty()) first = why(fresh);
    CHECK(first == why(fresh));
  };
  check(any_recorder<BytesRecorder<>>());
  check(any_recorder<CompressedRecorder<>>());
  check(any_recorder<SafetensorsRecorder<>>());
  return first;
}

}  // namespace archive_test

using namespace archive_test;

TEST_CASE("hostile values: sizes") {
  // A size is the number of things that are there: nothing else can be said. The types make no more of it.
  CHECK(in_memory(64 << 20, [] {
          const Value many(Value::List(100000));
          if (refusal<Box<std::vector<Large>>>(boxed(many)).empty()) return "vector";
          if (refusal<Box<std::deque<Large>>>(boxed(many)).empty()) return "deque";
          if (refusal<Box<std::list<Large>>>(boxed(many)).empty()) return "list";
          if (refusal<Box<std::vector<std::string>>>(boxed(many)).empty()) return "strings";
          if (refusal<Box<std::vector<float>>>(boxed(many)).empty()) return "floats";
          return "";
        }) == "");
  // Elements without anything in them: as many as the file has.
  Box<std::vector<Empty>> empties;
  CHECK(from_value(empties, boxed(Value(Value::List(1000, Value(Value::Map{}))))) == "");
  CHECK(empties.value.size() == 1000);
  CHECK(loaded<Box<std::array<int, 3>>>(boxed(list({number(1), number(2)}))).find("a list of 3 at value") !=
        std::string::npos);
  CHECK(loaded<Box<std::vector<int>>>(boxed(Value(Value::Map{{"cereal_size", Value(UINT64_MAX)}}))) != "ok");
  Blob blob;
  Value sized = to_value(blob);
  *const_cast<Value*>(sized.find("cereal_size")) = Value(std::int64_t{1} << 40);
  CHECK(from_value(blob, sized) != "");
  Value cut = to_value(blob);
  *const_cast<Value*>(cut.find("fixed")) = Value(Value::Bytes(5));
  CHECK(from_value(blob, cut) == "6 bytes at fixed");
  *const_cast<Value*>(cut.find("fixed")) = Value(Value::Bytes(7));
  CHECK(from_value(blob, cut) == "6 bytes at fixed");
}

TEST_CASE("hostile values: sizes in files") {
  // In .stele files a list, a string and bytes may claim what is not there.
  const std::string whole(text_of(good(BytesRecorder<>{}.save(Holder(Value(Value::List(3))))).span()));
  for (const int kind : {5, 6, 7, 8}) {
    for (const std::uint32_t size : {4U, 100U, 0x08000000U, 0xffffffffU}) {
      std::string file = whole;
      const std::string value = "\x07\x03\x00\x00\x00\x00\x00\x00"s;
      const std::size_t at = file.find(value);
      REQUIRE(at != file.npos);
      file[at] = static_cast<char>(kind);
      put_at(file, at + 1, size);
      fix_hashes(file);
      CHECK(in_memory(32 << 20, [&]() -> std::string {
              const Errc code = code_of(BytesRecorder<>{}.load<Holder<Value>>(bytes_of(file)));
              return code == Errc::malformed || code == Errc::limit ? "" : std::string(name(code));
            }) == "");
    }
  }
}

TEST_CASE("hostile values: nesting") {
  constexpr std::size_t deep = 2000000;
  // As far as a Value goes.
  Value chain(Value::Map{});
  for (int i = 0; i < 15; ++i) {
    const Value valid(Value::Map{{"valid", number(1)}, {"data", chain}});
    chain = Value(Value::Map{{"value0", Value(Value::Map{{"ptr_wrapper", valid}})}});
  }
  CHECK(loaded<Chain>(chain) != "ok");
  Value within(Value::Map{});
  for (int i = 0; i < 61; ++i) within = Value(Value::List{within});
  CHECK(refusal<Box<std::vector<int>>>(within) != "");
  CHECK(refusal<Chain>(within) != "");

  // Beyond, in files: 2 MB deep.
  for (const auto& [open, close] : {std::pair{"["s, "]"s}, std::pair{R"({"value0":)"s, "}"s}}) {
    std::string text = R"({"field":)";
    for (std::size_t i = 0; i < deep; ++i) text += open;
    for (std::size_t i = 0; i < deep; ++i) text += close;
    const std::string file = with_extras(text + "}");
    CHECK(in_memory(3 * file.size() + (20 << 20), [&] {
            const auto r = SafetensorsRecorder<>().load<Holder<Chain>>(bytes_of(file));
            return std::string(name(code_of(r)));
          }) == "limit");
  }
  std::string file(text_of(good(BytesRecorder<>{}.save(Holder(Value(std::string(10 * deep, 'x'))))).span()));
  const std::size_t at = file.find(std::string(100, 'x')) - 5;
  for (std::size_t i = 0; i < deep; ++i) put_at(file, at + 5 * i, std::uint8_t{7}), put_at(file, at + 5 * i + 1, 1U);
  fix_hashes(file);
  CHECK(in_memory(64 << 20, [&] {
          return std::string(name(code_of(BytesRecorder<>{}.load<Holder<Chain>>(bytes_of(file)))));
        }) == "limit");
}

TEST_CASE("hostile values: wrong types, missing and further entries, numbers out of range") {
  CHECK(loaded<Box<int>>(boxed(number(5))) == "ok");
  const std::vector<Value> all{Value(),
                               Value(true),
                               number(1),
                               Value(UINT64_MAX),
                               Value(1.5),
                               Value("text"),
                               Value(Value::Bytes(3)),
                               list({number(1)}),
                               Value(Value::Map{{"k", number(1)}})};
  const auto accepted = [&]<class T>(std::type_identity<T>) {
    std::string kinds;
    for (const Value& v : all) {
      if (loaded<Box<T>>(boxed(v)) == "ok") kinds += std::string(name(v.kind())) + " ";
    }
    return kinds;
  };
  CHECK(accepted(std::type_identity<bool>()) == "bool ");
  CHECK(accepted(std::type_identity<int>()) == "i64 ");
  CHECK(accepted(std::type_identity<std::uint64_t>()) == "i64 u64 ");
  CHECK(accepted(std::type_identity<double>()) == "i64 f64 ");
  CHECK(accepted(std::type_identity<std::string>()) == "string ");
  CHECK(accepted(std::type_identity<std::vector<int>>()) == "list ");
  CHECK(accepted(std::type_identity<Split>()) == "");
  CHECK(accepted(std::type_identity<std::unique_ptr<int>>()) == "");
  CHECK(accepted(std::type_identity<std::variant<int, std::string>>()) == "");

  CHECK(loaded<Box<int>>(Value()).find("value_mismatch: field") == 0);
  CHECK(loaded<Box<int>>(Value(Value::Map{})).find("an entry \"value\"") != std::string::npos);
  CHECK(loaded<Box<int>>(Value(Value::Map{{"value", number(1)}, {"more", Value()}})).find("no further entries") !=
        std::string::npos);
  CHECK(loaded<Box<int>>(list({number(1)})) != "ok");
  CHECK(loaded<Outside>(Value(Value::Map{{"other", Value("text")}})) != "ok");
  CHECK(loaded<Outside>(Value(Value::Map{{"value0", Value("text")}})) == "ok");

  // Numbers: NaN and the infinities are floats; what a float cannot hold is refused.
  CHECK(loaded<Box<float>>(boxed(Value(std::numeric_limits<double>::quiet_NaN()))) == "ok");
  CHECK(loaded<Box<float>>(boxed(Value(std::numeric_limits<double>::infinity()))) == "ok");
  CHECK(loaded<Box<float>>(boxed(Value(1e39))).find("a number in range at value") != std::string::npos);
  CHECK(loaded<Box<int>>(boxed(Value(std::numeric_limits<double>::quiet_NaN()))) != "ok");
  CHECK(loaded<Box<std::int8_t>>(boxed(number(128))) != "ok");
  CHECK(loaded<Box<unsigned>>(boxed(number(-1))) != "ok");
  CHECK(loaded<Box<std::uint32_t>>(boxed(number(std::int64_t{1} << 32))) != "ok");
  CHECK(loaded<Box<std::variant<int, std::string>>>(
            boxed(Value(Value::Map{{"index", number(-1)}, {"data", number(1)}}))) != "ok");
  CHECK(loaded<Box<std::variant<int, std::string>>>(
            boxed(Value(Value::Map{{"index", number(2)}, {"data", number(1)}}))) != "ok");
  CHECK(loaded<Box<std::variant<int, std::string>>>(
            boxed(Value(Value::Map{{"index", number(0)}, {"data", number(1)}}))) == "ok");
}

TEST_CASE("hostile values: keys that stand twice") {
  const auto entry = [](std::int64_t key) { return Value(Value::Map{{"key", number(key)}, {"value", number(1)}}); };
  using Map = Box<std::map<int, int>>;
  CHECK(loaded<Map>(boxed(list({entry(1), entry(2)}))) == "ok");
  CHECK(loaded<Map>(boxed(list({entry(1), entry(1)}))).find("distinct keys") != std::string::npos);
  CHECK(loaded<Box<std::unordered_map<int, int>>>(boxed(list({entry(1), entry(1)}))) != "ok");
  CHECK(loaded<Box<std::set<int>>>(boxed(list({number(1), number(1)}))) != "ok");
  CHECK(loaded<Box<std::multiset<int>>>(boxed(list({number(1), number(1)}))) == "ok");
  // In one map of a Value.
  CHECK(refusal<Box<int>>(Value(Value::Map{{"value", number(1)}, {"value", number(1)}})) != "");
  const auto text = [](const std::string& value) {
    const std::string file = with_extras(R"({"field":)" + value + "}");
    return code_of(SafetensorsRecorder<>().load<Holder<Box<int>>>(bytes_of(file)));
  };
  CHECK(text(R"({"value":1})") == Errc::none);
  CHECK(text(R"({"value":1,"value":1})") == Errc::duplicate);
  CHECK(text(R"({"value":1}})") == Errc::malformed);
  CHECK(text(R"({"value":1}x)") == Errc::malformed);
  CHECK(text(R"({"value":NaN})") == Errc::malformed);
  CHECK(text(R"({"value":1e999})") == Errc::out_of_range);
  CHECK(text(R"({"value":1.0})") == Errc::value_mismatch);
  CHECK(text("") == Errc::malformed);
  const std::string whole = R"({"value":1)";
  for (std::size_t n = 1; n <= whole.size(); ++n) CHECK(text(whole.substr(0, n)) != Errc::none);
}

TEST_CASE("hostile values: every truncation and every changed byte of a .stele value") {
  const std::string whole(text_of(good(BytesRecorder<>{}.save(Holder<Everything>())).span()));
  const Snapshot opened = good(BytesRecorder<>{}.open(bytes_of(whole)));
  CHECK(in_memory(256 << 20, [&]() -> std::string {
          for (std::size_t i = 64; i < whole.size(); ++i) {
            for (const int x : {0x01, 0x80, 0xff}) {
              std::string file = whole;
              file[i] = static_cast<char>(file[i] ^ x);
              fix_hashes(file);
              const auto r = BytesRecorder<>{}.load<Holder<Everything>>(bytes_of(file));
              if (!r && r.error().code() == Errc::out_of_memory) return "memory at " + std::to_string(i);
              if (!r && r.error().code() == Errc::user_exception) return why(r) + " at " + std::to_string(i);
            }
          }
          return "";
        }) == "");
}

STELE_TEST_EACH_RECORDER("hostile values: exceptions of cereal functions are errors with their path") {
  if (!can(recorder).values) return;
  using What = Thrower::What;
  for (const What what : {What::length, What::memory, What::runtime, What::other}) {
    CAPTURE(static_cast<int>(what));
    Holder<Thrower> module;
    const Holder<Value> file{Value(Value::Map{{"what", number(static_cast<int>(what))}})};
    const Bytes bytes = good(saved(recorder, file));
    const Error load = bad(recorder.load<Holder<Thrower>>(bytes));
    const Error in_place = bad(recorder.load_into(module, bytes));
    CHECK(in_place.code() == load.code());
    CHECK_FALSE(in_place.partially_applied());
    CHECK(module.field.what == What::nothing);
    CHECK(load.code() == (what == What::memory ? Errc::out_of_memory : Errc::value_mismatch));
    CHECK(load.path() == "field");
    if (what == What::runtime) CHECK(load.expected().find("no such device") != std::string::npos);
    module.field.what = what;
    const Error save = bad(saved(recorder, module));
    CHECK(save.code() == (what == What::memory ? Errc::out_of_memory : Errc::user_exception));
    CHECK(save.path() == "field");
    if (what == What::runtime) CHECK(save.message() == "no such device");
  }
}
