// Random Snapshots and random modules, every recorder: what is saved comes back, leaf by leaf.
#include <doctest/doctest.h>

#include "support/any_recorder.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace recorders_property_test {

namespace {
using namespace stele;
using namespace stele_test;
constexpr std::uint64_t rounds = 300;
}  // namespace

STELE_TEST_EACH_RECORDER("recorders: random snapshots come back") {
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Snapshot before = random_snapshot(random, can(recorder));
    const auto bytes = saved(recorder, before);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto after = recorder.open(*bytes);
    REQUIRE_MESSAGE(after, why(after));
    REQUIRE(after->leaf_count() == before.leaf_count());
    REQUIRE(difference(facts(before, can(recorder)), facts(*after, can(recorder))) == "");
    const auto again = saved(recorder, *after);
    REQUIRE_MESSAGE(again, why(again));
    REQUIRE(text_of(again->span()) == text_of(bytes->span()));
  }
}

STELE_TEST_EACH_RECORDER("recorders: random modules come back") {
  if (!can(recorder).values || !can(recorder).aliases) return;
  Capabilities nested = can(recorder);
  nested.nesting = true;
  for (std::uint64_t seed = 1; seed <= rounds / 3; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Branch module = RandomModule(random, !can(recorder).nesting).make();
    const auto before = snapshot_of(module);
    REQUIRE_MESSAGE(before, why(before));
    const auto bytes = saved(recorder, module);
    REQUIRE_MESSAGE(bytes, why(bytes));
    const auto loaded = recorder.load<Branch>(*bytes);
    REQUIRE_MESSAGE(loaded, why(loaded));
    const auto after = snapshot_of(*loaded);
    REQUIRE_MESSAGE(after, why(after));
    REQUIRE(difference(facts(*before, nested), facts(*after, nested)) == "");
    auto record = recorder.load<Record<Branch>>(*bytes);
    REQUIRE_MESSAGE(record, why(record));
    const auto again = saved(recorder, *record);
    REQUIRE_MESSAGE(again, why(again));
    REQUIRE(text_of(again->span()) == text_of(bytes->span()));
  }
}

}  // namespace recorders_property_test
