// Containers of other libraries, above all those that move their elements when they grow: loading must not keep the
// address of an element while the container may still take more.
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <boost/container/devector.hpp>
#include <boost/container/flat_map.hpp>
#include <boost/container/small_vector.hpp>
#include <boost/container/stable_vector.hpp>
#include <boost/container/static_vector.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace containers_test {

using namespace stele_test;
using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Snapshot;

namespace {

bool same(const Vec& a, const Vec& b) { return std::equal((*a).begin(), (*a).end(), (*b).begin(), (*b).end()); }

/// A list without reserve() that moves all of its elements with every one that is added.
template <class T>
class Moving {
 public:
  using value_type = T;
  void clear() { all_.reset(), size_ = 0; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return all_[i]; }
  const T& operator[](std::size_t i) const { return all_[i]; }
  T& back() { return all_[size_ - 1]; }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    auto more = std::make_unique<T[]>(size_ + 1);
    for (std::size_t i = 0; i < size_; ++i) more[i] = std::move(all_[i]);
    more[size_] = T(std::forward<Args>(args)...);
    all_ = std::move(more);
    ++size_;
    return back();
  }

 private:
  std::unique_ptr<T[]> all_;
  std::size_t size_ = 0;
};

/// All that a load keeps an address for: tensors, values, ties, containers whose elements lie within them.
struct Part {
  Vec weight{};
  std::array<float, 2> fixed{};
  std::string name;
  std::int64_t number = 0;
  std::shared_ptr<Vec> tied;
  std::optional<Vec> maybe;
  std::variant<Vec, std::int64_t> either;
  boost::container::small_vector<Vec, 2> inside;
  STELE_MODULE(Part, weight, fixed, name, number, tied, maybe, either, inside)
};

/// Made by its hook.
struct Made {
  explicit Made(Vec w) : weight(std::move(w)) {}
  Vec weight;
  STELE_MODULE(Made, weight)
  static Made from_record(stele::Record<Made>&& record) { return Made(record.weight.load().value()); }
};

constexpr int count = 40;

struct Containers {
  boost::container::flat_map<std::string, Part> flat;
  boost::unordered_flat_map<std::string, Part> hash;
  std::unordered_map<std::string, Part> nodes;
  boost::container::small_vector<Part, 2> small;
  boost::container::static_vector<Part, count> fixed;
  boost::container::stable_vector<Part> stable;
  boost::container::devector<Part> two_ends;
  std::deque<Part> deque;
  Moving<Part> moving;
  boost::container::flat_map<std::string, boost::container::small_vector<Part, 3>> nested;
  boost::container::flat_map<std::string, Made> made_map;
  boost::container::small_vector<Made, 2> made_list;
  STELE_MODULE(Containers, flat, hash, nodes, small, fixed, stable, two_ends, deque, moving, nested, made_map,
               made_list)
};

Part part(int i, const std::shared_ptr<Vec>& tied) {
  const auto f = static_cast<float>(i);
  Part p;
  p.weight = vec({f, f + 1, f + 2});
  p.fixed = {f, -f};
  p.name = "a name that does not fit a string without memory of its own " + std::to_string(i);
  p.number = i;
  p.tied = tied;
  if (i % 2 == 0) p.maybe = vec({f * 2});
  if (i % 3 == 0) {
    p.either = std::int64_t{i};
  } else {
    p.either = vec({f * 3});
  }
  for (int k = 0; k < i % 4; ++k) p.inside.push_back(vec({f, static_cast<float>(k)}));
  return p;
}

void check(const Part& p, int i, const std::shared_ptr<Vec>& tied) {
  CAPTURE(i);
  const Part want = part(i, tied);
  CHECK(same(p.weight, want.weight));
  CHECK(p.fixed == want.fixed);
  CHECK(p.name == want.name);
  CHECK(p.number == want.number);
  CHECK(p.tied == tied);
  REQUIRE(p.maybe.has_value() == want.maybe.has_value());
  if (p.maybe) CHECK(same(*p.maybe, *want.maybe));
  REQUIRE(p.either.index() == want.either.index());
  if (p.either.index() == 0) {
    CHECK(same(std::get<0>(p.either), std::get<0>(want.either)));
  } else {
    CHECK(std::get<1>(p.either) == std::get<1>(want.either));
  }
  REQUIRE(p.inside.size() == want.inside.size());
  for (std::size_t k = 0; k < p.inside.size(); ++k) CHECK(same(p.inside[k], want.inside[k]));
}

std::string key(int i) { return "k" + std::to_string(i); }

Containers filled(int n) {
  const auto tied = std::make_shared<Vec>(vec({7, 8}));
  Containers c;
  for (int i = 0; i < n; ++i) {
    c.flat.emplace(key(i), part(i, tied));
    c.hash.emplace(key(i), part(i, tied));
    c.nodes.emplace(key(i), part(i, tied));
    c.small.push_back(part(i, tied));
    c.fixed.push_back(part(i, tied));
    c.stable.push_back(part(i, tied));
    c.two_ends.push_back(part(i, tied));
    c.deque.push_back(part(i, tied));
    c.moving.emplace_back(part(i, tied));
    for (int k = 0; k <= i % 5; ++k) c.nested[key(i)].push_back(part(k, tied));
    c.made_map.emplace(key(i), Made(vec({static_cast<float>(i)})));
    c.made_list.emplace_back(vec({static_cast<float>(i)}));
  }
  return c;
}

void check(const Containers& c, int n) {
  const auto size = static_cast<std::size_t>(n);
  for (const std::size_t s :
       {c.flat.size(), c.hash.size(), c.nodes.size(), c.small.size(), c.fixed.size(), c.stable.size(),
        c.two_ends.size(), c.deque.size(), c.moving.size(), c.nested.size(), c.made_map.size(), c.made_list.size()}) {
    REQUIRE(s == size);
  }
  if (n == 0) return;
  const auto tied = c.flat.begin()->second.tied;  // one for all
  REQUIRE(tied != nullptr);
  CHECK(same(*tied, vec({7, 8})));
  for (int i = 0; i < n; ++i) {
    const auto u = static_cast<std::size_t>(i);
    check(c.flat.at(key(i)), i, tied);
    check(c.hash.at(key(i)), i, tied);
    check(c.nodes.at(key(i)), i, tied);
    check(c.small[u], i, tied);
    check(c.fixed[u], i, tied);
    check(c.stable[u], i, tied);
    check(c.two_ends[u], i, tied);
    check(c.deque[u], i, tied);
    check(c.moving[u], i, tied);
    const auto& nested = c.nested.at(key(i));
    REQUIRE(nested.size() == static_cast<std::size_t>(i % 5 + 1));
    for (int k = 0; k <= i % 5; ++k) check(nested[static_cast<std::size_t>(k)], k, tied);
    CHECK(same(c.made_map.at(key(i)).weight, vec({static_cast<float>(i)})));
    CHECK(same(c.made_list[u].weight, vec({static_cast<float>(i)})));
  }
}

}  // namespace

TEST_SUITE_BEGIN("containers");

STELE_TEST_EACH_RECORDER("containers that move their elements are loaded") {
  for (const int n : {0, 1, 2, count}) {
    CAPTURE(n);
    const Containers saved = filled(n);
    const auto bytes = stele_test::saved(recorder, saved);
    REQUIRE_MESSAGE(bytes.has_value(), why(bytes));
    auto loaded = recorder.load<Containers>(bytes->span());
    REQUIRE_MESSAGE(loaded.has_value(), why(loaded));
    check(*loaded, n);

    {  // into an object of another size
      LoadOptions options;
      options.rebuild = true;
      for (const int other : {0, 3, count}) {
        if (other == n) continue;
        Containers target = filled(other);
        const auto done = recorder.load_into(target, bytes->span(), options);
        REQUIRE_MESSAGE(done.has_value(), why(done));
        check(target, n);
      }
    }
    {  // in place
      Containers target = filled(n);
      for (auto& [k, p] : target.flat) p.weight = {};
      for (Part& p : target.small) p.weight = {};
      const auto done = recorder.load_into(target, bytes->span());
      REQUIRE_MESSAGE(done.has_value(), why(done));
      check(target, n);
    }
    {  // by way of the record
      auto record = recorder.load<stele::Record<Containers>>(bytes->span());
      REQUIRE_MESSAGE(record.has_value(), why(record));
      auto made = stele::from_record(std::move(*record));
      REQUIRE_MESSAGE(made.has_value(), why(made));
      check(*made, n);
    }
  }
}

namespace {
template <std::size_t N>
struct Bounded {
  boost::container::static_vector<Vec, N> list;
  STELE_MODULE(Bounded, list)
};
template <std::size_t N>
struct Outer {
  std::vector<Bounded<N>> all;
  STELE_MODULE(Outer, all)
};
}  // namespace

STELE_TEST_EACH_RECORDER("a list longer than its type can hold is an error") {
  Outer<6> saved;
  saved.all.resize(2);
  for (int i = 0; i < 5; ++i) saved.all[1].list.push_back(vec({1}));
  saved.all[0].list.push_back(vec({2}));
  const auto bytes = stele_test::saved(recorder, saved);
  REQUIRE_MESSAGE(bytes.has_value(), why(bytes));

  const auto refused = [&](const stele::Error& error) {
    CHECK(error.code() == Errc::shape_mismatch);
    CHECK(error.path() == "all.1.list");
    CHECK(error.expected() == "at most 4 elements");
    CHECK(error.found() == "5 elements");
    CHECK_FALSE(error.partially_applied());
  };
  const auto loaded = recorder.load<Outer<4>>(bytes->span());
  REQUIRE_FALSE(loaded.has_value());
  refused(loaded.error());

  Outer<4> target;  // its elements are not made yet when the structure is checked
  LoadOptions options;
  options.rebuild = true;
  const auto into = recorder.load_into(target, bytes->span(), options);
  REQUIRE_FALSE(into.has_value());
  refused(into.error());
  CHECK(target.all.empty());

  const auto dry = stele::dry_run<Outer<4>>(recorder.open(bytes->span()).value());
  REQUIRE_FALSE(dry.has_value());
  refused(dry.error());

  const auto enough = recorder.load<Outer<5>>(bytes->span());
  REQUIRE_MESSAGE(enough.has_value(), why(enough));
  CHECK(enough->all[1].list.size() == 5);
}

TEST_SUITE_END();

}  // namespace containers_test
