// Types with cereal functions as values: what cereal knows, in every recorder.
#include <cereal/types/polymorphic.hpp>

#include <doctest/doctest.h>

#include "core/value_types.hpp"

namespace archive_test {

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

}  // namespace archive_test

CEREAL_REGISTER_TYPE(archive_test::Gpu)
CEREAL_REGISTER_POLYMORPHIC_RELATION(archive_test::Device, archive_test::Gpu)

using namespace archive_test;

STELE_TEST_EACH_RECORDER("value archive: what cereal knows, in every recorder") {
  if (!can(recorder).values) return;
  WithValues before;
  before.listed[1].a = 8;
  before.minimal.emplace().n = -4;
  const Bytes bytes = good(saved(recorder, before));
  WithValues all = good(recorder.load<WithValues>(bytes));
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
  // The data are from before the class had a version.
  CHECK(from_value(v, Value(Value::Map{{"a", number(6)}})) == "");
  CHECK(v.seen == 0);
  CHECK(v.a == 6);
  // Entries that do not belong to the version are refused, not lost.
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
        "the id of an earlier shared object of this type at part.ptr_wrapper.id");
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
  CHECK(BytesRecorder<>{}.save(ring).has_value());
  ring.field.next->next->next = ring.field.next;
  const Error error = bad(BytesRecorder<>{}.save(ring));
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
  CHECK(bad(BytesRecorder<>{}.save(Holder<TwiceNamed>())).code() == Errc::duplicate);
  CHECK(bad(BytesRecorder<>{}.save(Holder<TwoSizes>())).code() == Errc::unsupported);
  Holder<Chain> chain;
  Chain* end = &chain.field;
  for (int i = 0; i < 200; ++i) end = (end->next = std::make_unique<Chain>()).get();
  const Error deep = bad(BytesRecorder<>{}.save(chain));
  CHECK(deep.code() == Errc::limit);
  CHECK(deep.path() == "field");
}

TEST_CASE("value archive: values of more levels than are written") {
  Chain one;
  one.next = std::make_unique<Chain>();
  const Value whole = to_value(one);
  const Value end = to_value(Chain());
  const auto set_end = [&](auto& self, Value& v, const Value& to) -> void {
    if (v == end) {
      v = to;
    } else if (auto* const map = v.as_map()) {
      for (auto& entry : *map) self(self, entry.second, to);
    }
  };
  Value deep = end;
  for (int i = 0; i < 100; ++i) {
    Value level = whole;
    set_end(set_end, level, deep);
    deep = std::move(level);
  }
  Chain chain;
  CHECK(from_value(chain, whole) == "");
  CHECK(from_value(chain, deep).starts_with("at most 60 levels at "));
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
