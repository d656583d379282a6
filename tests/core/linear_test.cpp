// Searches inside loops over entries: the steps grow as the entries do. Steps are counted, never time.
#include <stele/record.hpp>
#include <stele/snapshot.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/patterns.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tree.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace linear_test {

using namespace stele_test;
using stele::no_index;
using stele::NodeKind;
using stele::Snapshot;
using stele::SnapshotBuilder;
using stele::Tensor;
using stele::detail::Place;
using stele::detail::Tree;

namespace {

constexpr std::uint32_t many = 100'000;

/// The numbers 0 … n - 1 in an order that no reader would guess.
std::vector<std::uint32_t> shuffled(std::uint32_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  return order;
}

/// Names that differ at their ends alone.
std::string key(std::uint32_t i) { return "model.layers.with.a.long.common.prefix." + std::to_string(i); }

Snapshot children(NodeKind kind, std::uint32_t n, const std::vector<std::uint32_t>& order) {
  SnapshotBuilder builder;
  builder.begin(kind, "");
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t number = order[i];
    builder.begin(NodeKind::module, kind == NodeKind::list ? SnapshotBuilder::Name::element(number)
                                                           : SnapshotBuilder::Name(builder.intern(key(number))));
    builder.value("v", stele::Value(std::int64_t{number}));
    builder.end();
  }
  return builder.finish();
}

std::uint64_t log2_of(std::uint64_t n) { return static_cast<std::uint64_t>(std::bit_width(n)); }

}  // namespace

TEST_CASE("linear: types of as many versions as there are modules") {
  for (const std::uint32_t n : {1000U, many}) {
    SnapshotBuilder builder;
    builder.begin(NodeKind::list, "");
    for (std::uint32_t round = 0; round < 2; ++round) {
      for (const std::uint32_t i : shuffled(n)) {
        const bool named = i % 2 == 0;
        builder.begin(NodeKind::module, SnapshotBuilder::Name::element(i), false,
                      named ? std::string_view(builder.intern(key(i))) : "Layer", named ? 1 : i);
        builder.end();
      }
    }
    CHECK(builder.data().types.size() == n);
    CHECK(builder.data().type_index.steps() <= 8 * std::uint64_t{n});
    const Snapshot snapshot = builder.finish();
    const auto& nodes = snapshot.nodes();
    std::uint64_t sum = 0;
    for (const stele::Node& node : nodes) sum += snapshot.version(node);
    CHECK(sum != 0);
  }
}

TEST_CASE("linear: children that are looked up in another order than the file's") {
  for (const NodeKind kind : {NodeKind::map, NodeKind::list}) {
    const Snapshot snapshot = children(kind, many, shuffled(many));
    const Tree tree(snapshot);
    const Place root = tree.root();
    std::uint32_t hint = 0;
    std::mt19937 random(3);
    auto order = shuffled(many);
    std::shuffle(order.begin(), order.end(), random);
    std::uint64_t wrong = 0;
    for (const std::uint32_t i : order) {
      const Place at = kind == NodeKind::list ? tree.element(root, i, hint) : tree.child(root, key(i), hint);
      wrong += !at.exists || *snapshot.value(tree.node(at.node + 1)).as_i64() != i ? 1 : 0;
      // And one that is not there.
      const Place none = kind == NodeKind::list ? tree.element(root, many + i, hint) : tree.child(root, "none", hint);
      wrong += none.exists ? 1 : 0;
    }
    CHECK(wrong == 0);
    CHECK(tree.steps() <= 2 * std::uint64_t{many} * (16 + log2_of(many) + 1));
  }
}

TEST_CASE("linear: children in the file's order cost a step each") {
  std::vector<std::uint32_t> order(many);
  std::iota(order.begin(), order.end(), 0U);
  const Snapshot snapshot = children(NodeKind::map, many, order);
  const Tree tree(snapshot);
  const Place root = tree.root();
  std::uint32_t hint = 0;
  for (const std::uint32_t i : order) CHECK(tree.child(root, key(i), hint).exists);
  CHECK(tree.steps() == many);
}

TEST_CASE("linear: plain paths among the patterns of an option are looked up") {
  std::vector<std::string> patterns;
  for (std::uint32_t i = 0; i < many; ++i) patterns.push_back(key(i));
  patterns.emplace_back("*.bias");
  patterns.emplace_back("?");
  const stele::detail::Patterns all(patterns);
  // A walk over all of them for each would be 10^10 comparisons of texts that begin alike.
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < 2 * many; ++i) found += all.match(key(i)) ? 1 : 0;
  CHECK(found == many);
  CHECK(all.match("a.bias"));
  CHECK(all.match("x"));
  CHECK_FALSE(all.match("xy"));
}

TEST_CASE("linear: records whose leaves come from as many places") {
  struct Model {
    std::vector<Tensor<float, 1>> list;
  };
  stele::Record<Model> record;
  auto& list = get<"list">(record);
  for (std::uint32_t i = 0; i < many; ++i) list.emplace_back(Tensor<float, 1>({1}, {static_cast<float>(i)}));
  const Snapshot snapshot = good(stele::snapshot_of(record));
  CHECK(snapshot.leaf_count() == many);
  CHECK(snapshot.data()->keepers.size() == many);
}

TEST_CASE_TEMPLATE("linear: a map of modules in another order than the file's is loaded in place", R,
                   STELE_TEST_RECORDERS, stele::GgufRecorder<>) {
  struct Entry {
    Tensor<float, 1> weight;
  };
  struct Model {
    std::unordered_map<std::string, Entry> map;
  };
  constexpr std::uint32_t n = 3000;
  Model file;
  for (const std::uint32_t i : shuffled(n)) file.map[key(i)].weight = Tensor<float, 1>({1}, {static_cast<float>(i)});
  const stele::Bytes bytes = good(saved(R(), file));
  Model live;
  for (std::uint32_t i = 0; i < n; ++i) live.map[key(i)].weight = Tensor<float, 1>({1}, {0});
  good(R().load_into(live, bytes));
  std::uint32_t right = 0;
  for (std::uint32_t i = 0; i < n; ++i) right += live.map[key(i)].weight[0] == static_cast<float>(i) ? 1 : 0;
  CHECK(right == n);
}

}  // namespace linear_test
