// Bytes that are passed as temporaries belong to what is opened from them.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace borrow_test {

using namespace stele_test;

namespace {

std::vector<std::byte> as_vector(const stele::Bytes& bytes) { return {bytes.data(), bytes.data() + bytes.size()}; }
Linear big() { return {300, 200, 1}; }

// Uses memory that was freed, so that it is seen without a sanitizer too.
void churn() {
  std::vector<std::vector<std::byte>> all;
  for (int i = 0; i < 20; ++i) all.emplace_back(300 * 200 * 4 + 1000 * i, std::byte{0xee});
}
void check(const stele::Result<stele::Snapshot>& opened) {
  REQUIRE_MESSAGE(opened.has_value(), why(opened));
  churn();
  const Linear loaded = good(stele::load<Linear>(*opened));
  CHECK((*loaded.weight)[59999] == (*big().weight)[59999]);
}

}  // namespace

TEST_SUITE_BEGIN("borrow");

STELE_TEST_EACH_RECORDER("a temporary is owned by what is opened from it") {
  check(recorder.open(good(saved(recorder, big()))));
  check(recorder.open(as_vector(good(saved(recorder, big())))));
  check(stele::open(good(saved(recorder, big()))));

  auto record = recorder.load<stele::Record<Linear>>(good(saved(recorder, big())));
  REQUIRE_MESSAGE(record.has_value(), why(record));
  churn();
  CHECK((*good(stele::from_record(std::move(*record))).weight)[100] == (*big().weight)[100]);

  stele::LoadOptions view;
  view.storage = stele::Storage::mmap;
  const auto loaded = recorder.load<Linear>(good(saved(recorder, big())), view);
  REQUIRE_MESSAGE(loaded.has_value(), why(loaded));
  churn();
  CHECK((*loaded->weight)[59999] == (*big().weight)[59999]);
}

TEST_CASE("memory that has a name is borrowed") {
  const stele::BytesRecorder<> recorder;
  const stele::Bytes bytes = good(saved(recorder, big()));
  const std::vector<std::byte> copy = as_vector(bytes);
  std::vector<std::byte> open_to_change = copy;
  check(recorder.open(bytes));
  check(recorder.open(bytes.span()));
  check(recorder.open(copy));
  check(recorder.open(open_to_change));
  CHECK(open_to_change == copy);
  check(recorder.open(std::move(open_to_change)));
  CHECK(open_to_change.empty());  // NOLINT(bugprone-use-after-move)
  const stele::SourcePtr owned = stele::own_bytes(as_vector(bytes));
  CHECK(owned->writable_view({0, owned->size()}) == owned->view().data());
  CHECK(owned->size() == bytes.size());
}

TEST_SUITE_END();

}  // namespace borrow_test
