// Random Snapshots and random modules, every recorder: what is saved comes back, leaf by leaf.
#include <doctest/doctest.h>

#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {
using namespace stele;
using namespace stele_test;
constexpr std::uint64_t rounds = 300;
}  // namespace

TEST_CASE_TEMPLATE("recorders: random snapshots come back", R, STELE_TEST_RECORDERS) {
  const R recorder;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Snapshot before = random_snapshot(random, can<R>());
    const auto bytes = saved(recorder, before);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto after = recorder.open(*bytes);
    REQUIRE_MESSAGE(after, why(after));
    REQUIRE(after->leaf_count() == before.leaf_count());
    REQUIRE(difference(facts(before, can<R>()), facts(*after, can<R>())) == "");
    const auto again = saved(recorder, *after);
    REQUIRE_MESSAGE(again, why(again));
    REQUIRE(text_of(again->span()) == text_of(bytes->span()));
  }
}

TEST_CASE_TEMPLATE("recorders: random modules come back", R, STELE_TEST_RECORDERS) {
  const R recorder;
  if (!can<R>().values || !can<R>().aliases) return;
  Capabilities nested = can<R>();
  nested.nesting = true;
  for (std::uint64_t seed = 1; seed <= rounds / 3; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Branch module = RandomModule(random, !can<R>().nesting).make();
    const auto before = snapshot_of(module);
    REQUIRE_MESSAGE(before, why(before));
    const auto bytes = saved(recorder, module);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto loaded = recorder.template load<Branch>(*bytes);
    REQUIRE_MESSAGE(loaded, why(loaded));
    const auto after = snapshot_of(*loaded);
    REQUIRE_MESSAGE(after, why(after));
    REQUIRE(difference(facts(*before, nested), facts(*after, nested)) == "");
    auto record = recorder.template load_record<Branch>(*bytes);
    REQUIRE_MESSAGE(record, why(record));
    const auto again = saved(recorder, *record);
    REQUIRE_MESSAGE(again, why(again));
    REQUIRE(text_of(again->span()) == text_of(bytes->span()));
  }
}
