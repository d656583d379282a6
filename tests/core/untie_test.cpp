// Ties written out for formats that have none.
#include <doctest/doctest.h>
#include <stele/snapshot.hpp>

#include "passes/untie.hpp"

namespace untie_test {

namespace {
using namespace stele;
}  // namespace

TEST_CASE("ties: writing them out takes steps in proportion to the names") {
  // `names` containers of one tensor each, and one alias for each of them.
  const auto steps_for = [](std::uint32_t names) {
    SnapshotBuilder builder;
    builder.set_flat();
    const float number = 1;
    static constexpr LeafOps ops{
        .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
    std::vector<std::uint32_t> markers;
    for (std::uint32_t i = 0; i < names; ++i) {
      const std::string name = "layers." + std::to_string(i);
      builder.tensor(builder.intern(name + ".w"), DType::f32, {}, 4, {&ops, &number, 0});
      markers.push_back(builder.begin(NodeKind::module, builder.intern(name)));
      builder.end();
    }
    for (std::uint32_t i = 0; i < names; ++i) builder.alias(builder.intern("ties." + std::to_string(i)), markers[i]);
    std::uint64_t steps = 0;
    const auto made = detail::untied(builder.finish(), &steps);
    REQUIRE(made);
    CHECK(made->leaf_count() == 2 * std::size_t{names});
    CHECK(made->find("ties." + std::to_string(names - 1) + ".w"));
    return steps;
  };
  const std::uint64_t few = steps_for(1'000);
  const std::uint64_t more = steps_for(16'000);
  CHECK(more < 16 * 2 * few);  // n log n; a search for each would take 256 times as many
}

TEST_CASE("ties: a tie in a tied container has a name in each") {
  SnapshotBuilder builder;
  builder.set_flat();
  const float number = 1;
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  const std::uint32_t weight = builder.tensor("a.w", DType::f32, {}, 4, {&ops, &number, 0});
  builder.alias("a.again", weight);
  const std::uint32_t inner = builder.begin(NodeKind::module, "a.inner");
  builder.end();
  builder.tensor("a.inner.b", DType::f32, {}, 4, {&ops, &number, 0});
  builder.alias("a.outer", inner);
  const std::uint32_t container = builder.begin(NodeKind::module, "a");
  builder.end();
  builder.alias("c", container);
  const auto made = detail::untied(builder.finish());
  REQUIRE(made);
  CHECK(made->leaf_count() == 8);
  for (const char* name : {"a.w", "a.again", "a.inner.b", "a.outer.b", "c.w", "c.again", "c.inner.b", "c.outer.b"}) {
    CHECK_MESSAGE(made->find(name), name);
  }
}

}  // namespace untie_test
