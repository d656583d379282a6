// Types with cereal functions as values: what cereal knows, in every recorder; and values that lie.
#include <stele/cereal.hpp>
#include <stele/stele.hpp>

#include <cereal/types/array.hpp>
#include <cereal/types/base_class.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/list.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/polymorphic.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <boost/describe/enum.hpp>

#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>

#include "json/json.hpp"
#include "support/child.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"

namespace archive_test {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

Value number(std::int64_t n) { return Value(n); }

/// A class with one cereal-serialised member: no plain aggregate, which would be a module.
template <class T>
class Box {
 public:
  Box() = default;
  explicit Box(T v) : value(std::move(v)) {}
  T value{};
  bool operator==(const Box&) const = default;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(value));
  }
};
template <class T>
class Holder {
 public:
  Holder() = default;
  explicit Holder(T v) : field(std::move(v)) {}
  T field{};
  STELE_MODULE(Holder, field)
};

template <class T>
Value to_value(const T& object) {
  return value_traits<T>::to_value(object);
}
/// What was expected; empty where the value fits.
template <class T>
std::string from_value(T& object, const Value& value) {
  return std::string(value_traits<T>::from_value(object, value));
}
template <class T>
std::string refusal(const Value& value) {
  T object;
  return from_value(object, value);
}
/// The value of Box<T> whose member's value is that one.
Value boxed(Value value) { return Value(Value::Map{{"value", std::move(value)}}); }
Value list(std::initializer_list<Value> items) { return Value(Value::List(items)); }

enum class Mode { fast = 1, careful };
BOOST_DESCRIBE_ENUM(Mode, fast, careful)
enum class Raw : std::uint8_t { one = 1 };

/// A class that has gained a member with its second version, and its version with the first.
class Versioned {
 public:
  Versioned() = default;
  int a = 1;
  double added = 0.5;
  std::uint32_t seen = 99;
  bool operator==(const Versioned& o) const { return a == o.a && added == o.added; }
  template <class Archive>
  void serialize(Archive& archive, const std::uint32_t version) {
    seen = version;
    archive(CEREAL_NVP(a));
    if (version >= 2) archive(CEREAL_NVP(added));
  }
};

class Split {
 public:
  Split() = default;
  int celsius = 0;
  bool operator==(const Split&) const = default;
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_nvp("kelvin", celsius + 273));
  }
  template <class Archive>
  void load(Archive& archive) {
    int kelvin = 0;
    archive(cereal::make_nvp("kelvin", kelvin));
    celsius = kelvin - 273;
  }
};

class Outside {
 public:
  Outside() = default;
  std::string text;
  bool operator==(const Outside&) const = default;
};
template <class Archive>
void serialize(Archive& archive, Outside& o) {
  archive(o.text);
}

class Minimal {
 public:
  Minimal() = default;
  int n = 0;
  bool operator==(const Minimal&) const = default;
  template <class Archive>
  std::string save_minimal(const Archive&) const {
    return std::to_string(n);
  }
  template <class Archive>
  void load_minimal(const Archive&, const std::string& text) {
    n = std::stoi(text);  // throws
  }
};
class VersionedMinimal {
 public:
  int n = 0;
  bool operator==(const VersionedMinimal&) const = default;
  template <class Archive>
  int save_minimal(const Archive&, std::uint32_t) const {
    return n;
  }
  template <class Archive>
  void load_minimal(const Archive&, const int& number, std::uint32_t version) {
    n = version == 3 ? number : -1;
  }
};

class Base {
 public:
  int base = 0;
  bool operator==(const Base&) const = default;
  template <class Archive>
  void serialize(Archive& archive, std::uint32_t) {
    archive(CEREAL_NVP(base));
  }
};
class Derived : public Base {
 public:
  int more = 0;
  bool operator==(const Derived&) const = default;
  template <class Archive>
  void serialize(Archive& archive, std::uint32_t) {
    archive(cereal::base_class<Base>(this), CEREAL_NVP(more));
  }
};

/// Bytes of a fixed size, and of any.
class Blob {
 public:
  std::array<std::uint16_t, 3> fixed{1, 2, 3};
  std::vector<float> any;
  unsigned char raw[4] = {9, 8, 7, 6};
  bool operator==(const Blob& o) const { return fixed == o.fixed && any == o.any && std::equal(raw, raw + 4, o.raw); }
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_nvp("fixed", cereal::binary_data(fixed.data(), sizeof fixed)));
    archive(cereal::make_nvp("raw", cereal::binary_data(raw, sizeof raw)));
    archive(cereal::make_size_tag(static_cast<cereal::size_type>(any.size())));
    archive(cereal::binary_data(any.data(), any.size() * sizeof(float)));
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(cereal::make_nvp("fixed", cereal::binary_data(fixed.data(), sizeof fixed)));
    archive(cereal::make_nvp("raw", cereal::binary_data(raw, sizeof raw)));
    cereal::size_type n = 0;
    archive(cereal::make_size_tag(n));
    any.resize(n);
    archive(cereal::binary_data(any.data(), any.size() * sizeof(float)));
  }
};

class Chain {
 public:
  Chain() = default;
  std::unique_ptr<Chain> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};
class Ring {
 public:
  Ring() = default;
  std::shared_ptr<Ring> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(next));
  }
};

/// Two objects at one address.
class Aliased {
 public:
  std::shared_ptr<Box<int>> whole = std::make_shared<Box<int>>(5);
  std::shared_ptr<int> part{whole, &whole->value}, again = part;
  std::shared_ptr<Box<int>> other = whole;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(whole), CEREAL_NVP(part), CEREAL_NVP(again), CEREAL_NVP(other));
  }
};

class Device {
 public:
  virtual ~Device() = default;
  virtual int cores() const = 0;
};
class Gpu final : public Device {
 public:
  int n = 7;
  int cores() const override { return n; }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(n));
  }
};
/// Pointers to a class of which only the derived ones are known at run time.
class Devices {
 public:
  Devices() = default;
  std::shared_ptr<Device> first, again;
  std::unique_ptr<Device> own;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(first), CEREAL_NVP(again), CEREAL_NVP(own));
  }
};

class Empty {};

class Everything {
 public:
  std::vector<int> ints{1, -2};
  std::vector<bool> bools{true, false};
  std::vector<std::string> texts{"a", ""};
  std::vector<Minimal> minimals{Minimal(), Minimal()};
  std::deque<double> deque{0.1, -0.0};
  std::list<Split> list{Split(), Split()};
  std::vector<Versioned> versions{Versioned(), Versioned()};
  std::map<std::string, Outside> map{{"k", {}}, {"", {}}};
  std::map<int, std::vector<Mode>> by_number{{-1, {Mode::fast}}, {2, {}}};
  std::unordered_map<std::string, int> hashed{{"one", 1}};
  std::set<std::string> set{"x", "y"};
  std::optional<Split> some = Split(), none;
  std::variant<int, std::string, Derived> variant = "v";
  std::tuple<int, std::string, Base> tuple{1, "t", {}};
  std::pair<Mode, Raw> pair{Mode::careful, Raw::one};
  std::array<int, 3> array{1, 2, 3};
  int plain_array[2] = {4, 5};
  std::unique_ptr<Derived> unique = std::make_unique<Derived>(), null;
  std::shared_ptr<Split> tied = std::make_shared<Split>(), again = tied, apart = std::make_shared<Split>();
  std::weak_ptr<Split> weak = apart;
  std::chrono::milliseconds time{1500};
  std::complex<float> complex{1, -2};
  VersionedMinimal first, second;
  Derived derived;
  Blob blob;
  Mode mode = static_cast<Mode>(77);
  char letter = 'x';
  float nan = std::numeric_limits<float>::quiet_NaN(), infinity = -std::numeric_limits<float>::infinity();
  std::uint64_t large = UINT64_MAX;
  std::vector<Empty> empties{Empty(), Empty()};

  Everything() {
    minimals[1].n = 12;
    versions[0].added = 2.5, versions[1].a = 7;
    map["k"].text = "out";
    some->celsius = 20, tied->celsius = 36;
    std::get<2>(tuple).base = 3;
    unique->base = 4, unique->more = 5;
    first.n = 1, second.n = 2;
    derived.base = 6, derived.more = 7;
    blob.any = {1, 2.5F};
  }
  template <class Archive>
  void serialize(Archive& a) {
    a(CEREAL_NVP(ints), CEREAL_NVP(bools), CEREAL_NVP(texts), CEREAL_NVP(minimals), CEREAL_NVP(deque), CEREAL_NVP(list),
      CEREAL_NVP(versions), CEREAL_NVP(map), CEREAL_NVP(by_number), CEREAL_NVP(hashed), CEREAL_NVP(set),
      CEREAL_NVP(some), CEREAL_NVP(none), CEREAL_NVP(variant), CEREAL_NVP(tuple), CEREAL_NVP(pair), CEREAL_NVP(array),
      CEREAL_NVP(plain_array), CEREAL_NVP(unique), CEREAL_NVP(null), CEREAL_NVP(tied), CEREAL_NVP(again),
      CEREAL_NVP(apart), CEREAL_NVP(weak), CEREAL_NVP(time), CEREAL_NVP(complex), CEREAL_NVP(first), CEREAL_NVP(second),
      CEREAL_NVP(derived), CEREAL_NVP(blob), CEREAL_NVP(mode), CEREAL_NVP(letter), CEREAL_NVP(nan),
      CEREAL_NVP(infinity), CEREAL_NVP(large), CEREAL_NVP(empties));
  }
};

class WithValues {
 public:
  Tensor<float, 1> weight = Tensor<float, 1>::filled({3}, 2.0F);
  Everything everything;
  std::vector<Versioned> listed{Versioned(), Versioned()};
  std::map<std::string, Split> named{{"a", {}}};
  std::set<int> set{3, 1};
  std::optional<Minimal> minimal;
  STELE_MODULE(WithValues, weight, everything, listed, named, set, minimal)
};

/// Throws what it is told to.
class Thrower {
 public:
  Thrower() = default;
  enum class What { nothing, length, memory, runtime, other } what = What::nothing;
  bool operator==(const Thrower&) const = default;
  template <class Archive>
  void save(Archive& archive) const {
    hurl();
    archive(cereal::make_nvp("what", static_cast<int>(what)));
  }
  template <class Archive>
  void load(Archive& archive) {
    int n = 0;
    archive(cereal::make_nvp("what", n));
    what = static_cast<What>(n);
    hurl();
  }
  void hurl() const {
    if (what == What::length) throw std::length_error("too long");
    if (what == What::memory) throw std::bad_alloc();
    if (what == What::runtime) throw std::runtime_error("no such device");
    if (what == What::other) throw 42;  // NOLINT
  }
};

/// A large object whose value is small.
class Large {
 public:
  Large() = default;
  std::array<double, 1 << 14> scratch{};
  int n = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(n));
  }
};

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

/// A safetensors file with these values.
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

/// What loading a Holder<T> with this value gives, through both formats; the same from both.
template <class T>
std::string loaded(const Value& value) {
  const Holder<Value> holder{value};
  std::string first;
  const auto check = [&](const auto& recorder) {
    const auto bytes = saved(recorder, holder);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto fresh = recorder.template load<Holder<T>>(*bytes);
    Holder<T> live;
    const auto in_place = recorder.load_into(live, *bytes);
    CHECK(why(fresh) == why(in_place));
    if (!fresh) CHECK(fresh.error().path() == "field");
    if (first.empty()) first = why(fresh);
    CHECK(first == why(fresh));
  };
  check(BytesRecorder<>());
  check(CompressedRecorder<>());
  check(SafetensorsRecorder<>());
  return first;
}

}  // namespace archive_test

CEREAL_CLASS_VERSION(archive_test::Versioned, 2)
CEREAL_CLASS_VERSION(archive_test::VersionedMinimal, 3)
CEREAL_CLASS_VERSION(archive_test::Derived, 5)

CEREAL_REGISTER_TYPE(archive_test::Gpu)
CEREAL_REGISTER_POLYMORPHIC_RELATION(archive_test::Device, archive_test::Gpu)

using namespace archive_test;

TEST_CASE_TEMPLATE("value archive: what cereal knows, in every recorder", R, STELE_TEST_RECORDERS) {
  if (!can<R>().values) return;
  const R recorder;
  WithValues before;
  before.listed[1].a = 8;
  before.minimal.emplace().n = -4;
  const Bytes bytes = good(saved(recorder, before));
  WithValues all = good(recorder.template load<WithValues>(bytes));
  SUBCASE("a new module") {}
  SUBCASE("in place") {
    WithValues live;
    live.minimal.emplace();
    good(recorder.load_into(live, bytes));
    all = std::move(live);
  }
  const Everything& b = before.everything;
  const Everything& a = all.everything;
  CHECK(a.ints == b.ints);
  CHECK(a.bools == b.bools);
  CHECK(a.texts == b.texts);
  CHECK(a.minimals == b.minimals);
  CHECK(a.deque == b.deque);
  CHECK(a.list == b.list);
  CHECK(a.versions == b.versions);
  CHECK(a.versions[1].seen == 2);
  CHECK(a.map == b.map);
  CHECK(a.by_number == b.by_number);
  CHECK(a.hashed == b.hashed);
  CHECK(a.set == b.set);
  CHECK(a.some == b.some);
  CHECK(a.none == b.none);
  CHECK(a.variant == b.variant);
  CHECK(a.tuple == b.tuple);
  CHECK(a.pair == b.pair);
  CHECK(a.array == b.array);
  CHECK(a.plain_array[1] == 5);
  CHECK(*a.unique == *b.unique);
  CHECK(a.null == nullptr);
  CHECK(*a.tied == *b.tied);
  CHECK(a.tied == a.again);
  CHECK(a.apart != a.tied);
  CHECK(a.weak.lock() == a.apart);
  CHECK(a.time == b.time);
  CHECK(a.complex == b.complex);
  CHECK(a.first == b.first);
  CHECK(a.second == b.second);
  CHECK(a.derived == b.derived);
  CHECK(a.blob == b.blob);
  CHECK(a.mode == b.mode);
  CHECK(a.letter == 'x');
  CHECK(a.nan != a.nan);
  CHECK(a.infinity == b.infinity);
  CHECK(a.large == UINT64_MAX);
  CHECK(a.empties.size() == 2);
  CHECK(all.listed == before.listed);
  CHECK(all.named == before.named);
  CHECK(all.set == before.set);
  CHECK(all.minimal == before.minimal);
  CHECK(text_of(good(saved(recorder, all)).span()) == text_of(bytes.span()));
}

TEST_CASE("value archive: what becomes what") {
  const Value v = to_value(Everything());
  const auto at = [&](const char* key) {
    REQUIRE_MESSAGE(v.find(key) != nullptr, key);
    return *v.find(key);
  };
  CHECK(at("ints") == list({number(1), number(-2)}));
  CHECK(at("array") == list({number(1), number(2), number(3)}));
  CHECK(at("plain_array") == list({number(4), number(5)}));
  CHECK(at("minimals") == list({Value("0"), Value("12")}));
  CHECK(at("set") == list({Value("x"), Value("y")}));
  CHECK(at("mode") == number(77));
  CHECK(at("pair") == Value(Value::Map{{"first", Value("careful")}, {"second", number(1)}}));
  // The version of a class stands where the class does first.
  CHECK(at("derived") == Value(Value::Map{{"value0", Value(Value::Map{{"base", number(6)}})}, {"more", number(7)}}));
  const Value base(Value::Map{{"cereal_class_version", number(0)}, {"base", number(0)}});
  CHECK(to_value(Derived()) ==
        Value(Value::Map{{"cereal_class_version", number(5)}, {"value1", base}, {"more", number(0)}}));
  CHECK(at("large") == Value(UINT64_MAX));
  CHECK(at("blob").find("raw")->as_bytes()->size() == 4);
  CHECK(*at("blob").find("cereal_size") == number(2));
  CHECK(at("versions").as_list()->at(0).find("cereal_class_version") != nullptr);
  CHECK(at("versions").as_list()->at(1).find("cereal_class_version") == nullptr);
}

TEST_CASE("value archive: data of older versions of a class") {
  Versioned v;
  const Value::Map two{{"cereal_class_version", number(2)}, {"a", number(4)}, {"added", Value(1.5)}};
  CHECK(from_value(v, Value(two)) == "");
  CHECK(v.seen == 2);
  CHECK(v.added == 1.5);
  CHECK(from_value(v, Value(Value::Map{{"cereal_class_version", number(1)}, {"a", number(5)}})) == "");
  CHECK(v.seen == 1);
  CHECK(v.a == 5);
  // Before it had a version.
  CHECK(from_value(v, Value(Value::Map{{"a", number(6)}})) == "");
  CHECK(v.seen == 0);
  CHECK(v.a == 6);
  // What does not belong to the version is not lost unseen.
  CHECK(from_value(v, Value(Value::Map{{"a", number(6)}, {"added", Value(1.5)}})) == "no further entries");
  CHECK(from_value(v, Value(Value::Map{{"cereal_class_version", Value("2")}, {"a", number(6)}})) ==
        "an integer of the field's range at cereal_class_version");
}

TEST_CASE("value archive: enums are names, and numbers where they have none") {
  CHECK(to_value(Box(Mode::fast)) == boxed(Value("fast")));
  CHECK(to_value(Box(static_cast<Mode>(9))) == boxed(number(9)));
  CHECK(to_value(Box(Raw::one)) == boxed(number(1)));
  Box<Mode> mode;
  CHECK(from_value(mode, boxed(Value("careful"))) == "");
  CHECK(mode.value == Mode::careful);
  CHECK(from_value(mode, boxed(number(1))) == "");
  CHECK(mode.value == Mode::fast);
  CHECK(from_value(mode, boxed(Value("slow"))) == "one of fast, careful at value");
  CHECK(refusal<Box<Raw>>(boxed(number(256))) != "");
  CHECK(refusal<Box<Raw>>(boxed(Value("one"))) != "");
}

TEST_CASE("value archive: an object's address is not its type") {
  const Value value = to_value(Aliased());
  Aliased after;
  after.whole = nullptr, after.part = after.again = nullptr, after.other = nullptr;
  REQUIRE(from_value(after, value) == "");
  CHECK(after.whole->value == 5);
  CHECK(after.whole == after.other);
  CHECK(*after.part == 5);
  CHECK(after.part == after.again);
  // An int said to be a Box.
  const auto pointer = [](std::int64_t id, std::optional<Value> data) {
    Value::Map map{{"id", number(id)}};
    if (data) map.emplace_back("data", *data);
    return Value(Value::Map{{"ptr_wrapper", Value(map)}});
  };
  constexpr std::int64_t fresh = std::int64_t{1} << 31;
  const Value box = boxed(number(5));
  const auto aliased = [&](Value a, Value b, Value c, Value d) {
    return refusal<Aliased>(Value(Value::Map{{"whole", a}, {"part", b}, {"again", c}, {"other", d}}));
  };
  CHECK(aliased(pointer(fresh | 1, box), pointer(fresh | 2, number(1)), pointer(2, {}), pointer(1, {})) == "");
  CHECK(aliased(pointer(fresh | 1, box), pointer(1, {}), pointer(0, {}), pointer(0, {})) ==
        "the number of a shared object of this type, before at part.ptr_wrapper.id");
  CHECK(aliased(pointer(7, {}), pointer(0, {}), pointer(0, {}), pointer(0, {})) != "");
  CHECK(aliased(pointer(fresh | 1, box), pointer(fresh | 1, number(1)), pointer(0, {}), pointer(0, {})) != "");
}

TEST_CASE("value archive: pointers to a base class") {
  Devices before;
  before.first = before.again = std::make_shared<Gpu>();
  before.own = std::make_unique<Gpu>();
  const Value value = to_value(before);
  Devices after;
  REQUIRE(from_value(after, value) == "");
  CHECK(after.first->cores() == 7);
  CHECK(after.first == after.again);
  CHECK(after.own->cores() == 7);
  Value other = value;
  Value& first = other.as_map()->front().second;
  REQUIRE(first.as_map()->at(1).first == "polymorphic_name");
  first.as_map()->at(1).second = Value("Cpu");
  CHECK(from_value(after, other) != "");
}

TEST_CASE("value archive: a shared object that contains itself is refused both ways") {
  Holder<Ring> ring;
  ring.field.next = std::make_shared<Ring>();
  ring.field.next->next = std::make_shared<Ring>();
  CHECK(BytesRecorder<>{}.record(ring).has_value());
  ring.field.next->next->next = ring.field.next;
  const Error error = bad(BytesRecorder<>{}.record(ring));
  CHECK(error.code() == Errc::cycle);
  CHECK(error.path() == "field");
  ring.field.next->next->next = nullptr;
  const Value inner(Value::Map{{"next", Value(Value::Map{{"ptr_wrapper", Value(Value::Map{{"id", number(1)}})}})}});
  const Value outer(Value::Map{
      {"next", Value(Value::Map{{"ptr_wrapper",
                                 Value(Value::Map{{"id", number((std::int64_t{1} << 31) | 1)}, {"data", inner}})}})}});
  CHECK(refusal<Ring>(outer) != "");
}

namespace {
class TwiceNamed {
 public:
  TwiceNamed() = default;
  int a = 1, b = 2;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::make_nvp("x", a), cereal::make_nvp("x", b));
  }
};
class TwoSizes {
 public:
  TwoSizes() = default;
  template <class Archive>
  void serialize(Archive& archive) {
    cereal::size_type n = 0;
    archive(cereal::make_size_tag(n), cereal::make_size_tag(n));
  }
};
/// A container that says its elements' parts one after the other.
class Flat {
 public:
  Flat() {
    pairs.emplace_back(1, 2);
    pairs.emplace_back(3, 4);
  }
  std::vector<std::pair<int, int>> pairs;
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_size_tag(static_cast<cereal::size_type>(pairs.size())));
    for (const auto& [a, b] : pairs) archive(a, b);
  }
  template <class Archive>
  void load(Archive& archive) {
    cereal::size_type n = 0;
    archive(cereal::make_size_tag(n));
    pairs.resize(n);
    for (auto& [a, b] : pairs) archive(a, b);
  }
};
}  // namespace

TEST_CASE("value archive: what could not be read back is not written") {
  CHECK(bad(BytesRecorder<>{}.record(Holder<TwiceNamed>())).code() == Errc::duplicate);
  CHECK(bad(BytesRecorder<>{}.record(Holder<TwoSizes>())).code() == Errc::unsupported);
  Holder<Chain> chain;
  Chain* end = &chain.field;
  for (int i = 0; i < 200; ++i) end = (end->next = std::make_unique<Chain>()).get();
  const Error deep = bad(BytesRecorder<>{}.record(chain));
  CHECK(deep.code() == Errc::limit);
  CHECK(deep.path() == "field");
}

TEST_CASE("value archive: a size that differs from the number of entries") {
  Flat flat;
  const Value good_one = to_value(flat);
  flat.pairs.clear();
  CHECK(from_value(flat, good_one) == "");
  CHECK(flat.pairs == Flat().pairs);
  Value lie = good_one;
  lie.as_map()->back().second = Value(UINT64_MAX);
  CHECK(from_value(flat, lie) == "a list");
  lie.as_map()->back().second = number(5);
  CHECK(from_value(flat, lie) != "");
  lie.as_map()->back().second = number(1);
  CHECK(from_value(flat, lie) == "no further entries");
}

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
  const std::string whole(text_of(good(BytesRecorder<>{}.record(Holder(Value(Value::List(3))))).span()));
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
  std::string file(text_of(good(BytesRecorder<>{}.record(Holder(Value(std::string(10 * deep, 'x'))))).span()));
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
  CHECK(loaded<Map>(boxed(list({entry(1), entry(1)}))).find("keys that differ") != std::string::npos);
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
  const std::string whole(text_of(good(BytesRecorder<>{}.record(Holder<Everything>())).span()));
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

TEST_CASE_TEMPLATE("hostile values: exceptions of cereal functions are errors with their path", R,
                   STELE_TEST_RECORDERS) {
  if (!can<R>().values) return;
  const R recorder;
  using What = Thrower::What;
  for (const What what : {What::length, What::memory, What::runtime, What::other}) {
    CAPTURE(static_cast<int>(what));
    Holder<Thrower> module;
    const Holder<Value> file{Value(Value::Map{{"what", number(static_cast<int>(what))}})};
    const Bytes bytes = good(saved(recorder, file));
    const Error load = bad(recorder.template load<Holder<Thrower>>(bytes));
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
