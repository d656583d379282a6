// Modules that are made by their from_record hook: const members, no default constructor, immovable types.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/models.hpp"

namespace hook_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Record;
using stele::Snapshot;

namespace {

/// Const members, no default constructor, a private hook.
class Hooked {
 public:
  Hooked(Vec weight, int size)
      : weight_(std::move(weight)), size_(size), sum_((*weight_)[0] + static_cast<float>(size)) {}
  float sum() const { return sum_; }
  static inline int made = 0;

 private:
  const Vec weight_;
  const int size_;
  STELE_MODULE(Hooked, weight_, size_)
  static Hooked from_record(Record<Hooked>&& record) {
    ++made;
    return {record.weight_.load().value(), record.size_};
  }
  float sum_;  // not listed: made by the constructor
};

struct Immovable {
  explicit Immovable(Vec w) : weight(std::move(w)) {}
  Immovable(Immovable&&) = delete;
  const Vec weight;
  std::mutex mutex{};
  STELE_MODULE(Immovable, weight)
  static Immovable from_record(Record<Immovable>&& record) { return Immovable(record.weight.load().value()); }
};

struct Containers {
  std::vector<Hooked> list;
  std::optional<Hooked> maybe;
  std::unique_ptr<Hooked> pointer;
  std::shared_ptr<Hooked> shared, tied;
  std::map<std::string, Hooked> map;
  std::variant<Vec, Hooked> either;
  std::unique_ptr<Immovable> fixed;
  std::optional<Immovable> inside;
  std::vector<std::optional<Hooked>> nested;
  STELE_MODULE(Containers, list, maybe, pointer, shared, tied, map, either, fixed, inside, nested)
};

void fill(Containers& c) {
  c.list.emplace_back(vec({1}), 10);
  c.list.emplace_back(vec({2}), 20);
  c.maybe.emplace(vec({3}), 30);
  c.pointer = std::make_unique<Hooked>(vec({4}), 40);
  c.shared = c.tied = std::make_shared<Hooked>(vec({5}), 50);
  c.map.try_emplace("k", vec({6}), 60);
  c.either.emplace<1>(vec({7}), 70);
  c.fixed = std::make_unique<Immovable>(vec({8}));
  c.inside.emplace(vec({9}));
  c.nested.resize(2);
  c.nested[1].emplace(vec({10}), 100);
}

/// Makes itself with something the record does not hold.
class NeedsDevice {
 public:
  NeedsDevice(Vec weight, int device) : device_(device), weight_(std::move(weight)) {}
  int device_;
  Vec weight_;
  STELE_MODULE(NeedsDevice, weight_)
  static NeedsDevice from_record(Record<NeedsDevice>&& record, int device, std::unique_ptr<int> more) {
    return {record.weight_.load().value(), device + *more};
  }
  static NeedsDevice from_record(Record<NeedsDevice>&& record) { return {record.weight_.load().value(), -1}; }
};
struct OnlyWithArguments {
  explicit OnlyWithArguments(float f) : factor(f) {}
  float factor;
  Vec weight;
  STELE_MODULE(OnlyWithArguments, weight)
  static OnlyWithArguments from_record(Record<OnlyWithArguments>&& record, float factor) {
    OnlyWithArguments m(factor);
    m.weight = record.weight.load().value();
    return m;
  }
};
/// An aggregate may have a hook too.
struct AggregateWithHook {
  const Vec weight;
  int doubled = 0;
  static AggregateWithHook from_record(Record<AggregateWithHook>&& record) {
    Vec w = stele::get<"weight">(record).load().value();
    const int twice = static_cast<int>((*w)[0]) * 2;
    return {std::move(w), twice};
  }
};

enum class Throw { nothing, standard, library, number };
Throw what_to_throw = Throw::nothing;
struct Throwing {
  Vec weight;
  STELE_MODULE(Throwing, weight)
  static Throwing from_record(Record<Throwing>&& record) {
    if (what_to_throw == Throw::standard) throw std::runtime_error("no device");
    if (what_to_throw == Throw::library) throw stele::Exception(stele::Error(Errc::unsupported, "mine").path("here"));
    if (what_to_throw == Throw::number) throw 42;
    return {record.weight.load().value()};
  }
};
struct HasThrowing {
  Vec first;
  std::vector<Throwing> items;
  STELE_MODULE(HasThrowing, first, items)
};

/// A tie inside an object that is made by a hook.
struct Tied {
  std::shared_ptr<Vec> a, b;
  STELE_MODULE(Tied, a, b)
  static Tied from_record(Record<Tied>&& record) {
    Tied t;
    t.a = std::make_shared<Vec>(record.a->load().value());
    t.b = record.a == record.b ? t.a : std::make_shared<Vec>(record.b->load().value());
    return t;
  }
};
struct ManyTied {
  std::vector<Tied> items;
};

}  // namespace

TEST_CASE("hook: at the top, from a record and from a snapshot") {
  const Hooked h(vec({1}), 2);
  CHECK(good(stele::from_record(good(stele::record_of(h)))).sum() == 3);
  CHECK(good(stele::load<Hooked>(snapshot(h))).sum() == 3);
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(h));
  CHECK(good(stele::BytesRecorder<>{}.load<Hooked>(bytes)).sum() == 3);
  const AggregateWithHook a{Vec(vec({4}))};
  CHECK(good(stele::load<AggregateWithHook>(snapshot(a))).doubled == 8);
}

TEST_CASE("hook: with arguments") {
  const NeedsDevice m(vec({1}), 0);
  CHECK(good(stele::from_record(good(stele::record_of(m)), 3, std::make_unique<int>(4))).device_ == 7);
  CHECK(good(stele::from_record(good(stele::record_of(m)))).device_ == -1);
  CHECK(good(stele::load<NeedsDevice>(snapshot(m))).device_ == -1);
  const OnlyWithArguments o(1);
  CHECK(good(stele::from_record(good(stele::record_of(o)), 2.5F)).factor == 2.5F);
}

TEST_CASE("hook: elements of every container") {
  Containers c;
  fill(c);
  const Snapshot s = snapshot(c);
  const Image before = image(c);
  Hooked::made = 0;
  Containers back;
  const auto check = [&] {
    CHECK(image(back) == before);
    REQUIRE(back.list.size() == 2);
    CHECK(back.list[1].sum() == 22);
    CHECK(back.maybe->sum() == 33);
    CHECK(back.pointer->sum() == 44);
    CHECK(back.shared->sum() == 55);
    CHECK(back.shared == back.tied);
    CHECK(back.map.at("k").sum() == 66);
    CHECK(std::get<1>(back.either).sum() == 77);
    CHECK((*back.fixed->weight)[0] == 8);
    CHECK((*back.inside->weight)[0] == 9);
    CHECK(back.nested[1]->sum() == 110);
  };
  stele::Report report;
  good(stele::detail::load_object(s, *stele::detail::module_info<Containers>(), &back, stele::detail::LoadMode::fresh,
                                  {.report = &report}));
  check();
  CHECK(Hooked::made == 8);
  CHECK(report.paths(stele::Report::What::tied) == std::vector<std::string>{"tied"});
}

TEST_CASE("hook: elements are made again when a list is rebuilt in place") {
  Containers from;
  fill(from);
  Containers to;
  const Image empty = image(to);
  CHECK(bad(stele::load_into(to, snapshot(from))).code() == Errc::shape_mismatch);
  CHECK(image(to) == empty);
  LoadOptions rebuild;
  rebuild.rebuild = true;
  good(stele::load_into(to, snapshot(from), rebuild));
  CHECK(to.list[1].sum() == 22);
  CHECK(to.pointer->sum() == 44);
  CHECK(to.nested[1]->sum() == 110);
}

TEST_CASE("hook: const members are not written in place") {
  const auto check = [](auto& model, auto& other) {
    const Image before = image(model);
    const Image wanted = image(other);
    const stele::Error e = bad(stele::load_into(model, snapshot(other)));
    CHECK((e.code() == Errc::not_loadable || e.code() == Errc::kind_mismatch));
    CHECK(image(model) == before);
    LoadOptions rebuild;
    rebuild.rebuild = true;
    good(stele::load_into(model, snapshot(other), rebuild));
    CHECK(image(model) == wanted);
  };
  std::vector<Hooked> list, list2;
  list.emplace_back(vec({1}), 1);
  list2.emplace_back(vec({2}), 2);
  check(list, list2);
  std::map<std::string, Hooked> map, map2;
  map.try_emplace("k", vec({1}), 1);
  map2.try_emplace("k", vec({2}), 2);
  check(map, map2);
  std::optional<Hooked> maybe(std::in_place, vec({1}), 1), maybe2(std::in_place, vec({2}), 2);
  check(maybe, maybe2);
  std::variant<Vec, Hooked> either(std::in_place_index<1>, vec({1}), 1), either2(std::in_place_index<1>, vec({2}), 2);
  check(either, either2);
  auto pointer = std::make_unique<Hooked>(vec({1}), 1), pointer2 = std::make_unique<Hooked>(vec({2}), 2);
  check(pointer, pointer2);
  auto shared = std::make_shared<Hooked>(vec({1}), 1), shared2 = std::make_shared<Hooked>(vec({2}), 2);
  check(shared, shared2);
}

TEST_CASE("hook: what it throws is the load's error") {
  HasThrowing m;
  m.first = vec({1});
  m.items.push_back({vec({2})});
  const Snapshot s = snapshot(m);
  const auto all = [&](auto check) {
    check(bad(stele::load<HasThrowing>(s)));
    check(bad(stele::load<Throwing>(snapshot(m.items[0]))));
    check(bad(stele::from_record(good(stele::record_of(m)))));
    check(bad(stele::from_record(good(stele::record_of(m.items[0])))));
  };
  what_to_throw = Throw::standard;
  all([](const stele::Error& e) {
    CHECK(e.code() == Errc::user_exception);
    CHECK(e.message().find("no device") != std::string::npos);
  });
  CHECK(bad(stele::load<HasThrowing>(s)).path() == "items.0");
  what_to_throw = Throw::number;
  all([](const stele::Error& e) { CHECK(e.code() == Errc::user_exception); });
  what_to_throw = Throw::library;
  all([](const stele::Error& e) {
    CHECK(e.code() == Errc::unsupported);
    CHECK(e.message() == "mine");
    CHECK(e.path() == "here");
  });
  what_to_throw = Throw::nothing;
  CHECK(good(stele::load<HasThrowing>(s)).items.size() == 1);
}

TEST_CASE("hook: is not shown a record that is not whole") {
  Hooked::made = 0;
  struct Short {
    Vec weight_;
  };
  const std::vector<Short> file{{vec({1})}};
  const stele::Error e = bad(stele::load<std::vector<Hooked>>(snapshot(file)));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "0.size_");
  CHECK(Hooked::made == 0);
}

TEST_CASE("hook: ties within an object hold, across objects they are made apart") {
  ManyTied m;
  m.items.resize(3);
  m.items[0].a = m.items[0].b = std::make_shared<Vec>(vec({1}));
  m.items[1].a = m.items[0].a;
  m.items[1].b = std::make_shared<Vec>(vec({2}));
  m.items[2].a = m.items[2].b = m.items[1].b;
  const ManyTied back = good(stele::load<ManyTied>(snapshot(m)));
  REQUIRE(back.items.size() == 3);
  CHECK(back.items[0].a == back.items[0].b);
  CHECK(back.items[1].a != back.items[1].b);
  CHECK(back.items[2].a == back.items[2].b);
  CHECK((**back.items[1].a)[0] == 1);
  CHECK((**back.items[2].b)[0] == 2);
}

}  // namespace hook_test
