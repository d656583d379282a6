// Files of older versions of classes, loaded into today's: hooks that rewrite the old Snapshot.
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/evolution_loads.hpp"

namespace stele_test {

// ---- migrate with the old Snapshot ----------------------------------------------------------------------------------

namespace {

struct First {
  Floats a;
};
struct Attention {
  Tensor<float, 2> query, key, value;  // were one, qkv
  std::shared_ptr<Floats> norm;
};
struct Hook {
  std::shared_ptr<Floats> embedding, head;
  Floats all;  // was low and high
  std::vector<Attention> list;
  std::map<std::string, Attention> map;
  std::variant<First, Attention> either;
  std::optional<Attention> maybe;
};

int migrations = 0;

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Attention> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2)};
  static Result<Snapshot> migrate(std::uint32_t from, const Snapshot& old) {
    CHECK(from == 1);
    ++stele_test::migrations;
    const stele::Part parts[] = {{"query", 2}, {"key", 2}, {"value", 2}};
    return split(old, "qkv", 0, parts);
  }
};
template <>
struct stele::attributes<stele_test::Hook> {
  static constexpr stele::Attribute list[] = {stele::attr::version(3)};
  static Result<Snapshot> migrate(std::uint32_t from, const Snapshot& old) {
    CHECK(from == 1);
    const std::string both[] = {"low", "high"};
    return concatenate(old, both, 0, "all");
  }
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: a hook rewrites modules wherever they stand") {
  const auto check = [](const Hook& m) {
    CHECK(m.all == Floats{3, 4, 5});
    CHECK(m.embedding == m.head);
    CHECK(*m.head == Floats{1, 2});
    REQUIRE(m.list.size() == 2);
    CHECK(numbers(m.list[0].query) == Floats{0, 1, 2, 3});
    CHECK(numbers(m.list[1].key) == Floats{104, 105, 106, 107});
    CHECK(numbers(m.map.at("a").value) == Floats{208, 209, 210, 211});
    CHECK(numbers(std::get<Attention>(m.either).query) == Floats{300, 301, 302, 303});
    REQUIRE(m.maybe);
    CHECK(numbers(m.maybe->query) == Floats{400, 401, 402, 403});
    // Ties between rewritten modules, and between them and the rest, hold.
    CHECK(m.list[0].norm == m.embedding);
    CHECK(m.list[1].norm == m.embedding);
    CHECK(std::get<Attention>(m.either).norm == m.map.at("a").norm);
    CHECK(*m.maybe->norm == Floats{7});
  };
  migrations = 0;
  const Hook fresh = good(recorder.load<Hook>(old_path(recorder, "hook")));
  check(fresh);
  CHECK(migrations == 5);  // one for each module
  in_every_way<Hook>(recorder, old_path(recorder, "hook"), {}, check);

  // The hook is not called for files of today's version.
  const int before = migrations;
  in_every_way<Hook>(recorder, good(saved(recorder, fresh)), {}, check);
  CHECK(migrations == before);
}

namespace {

/// The function of a hook, set by its test.
Result<Snapshot> (*hook)(std::uint32_t, const Snapshot&) = nullptr;

struct Hooked {
  Floats weight, bias;
};
struct HookedOuter {
  Hooked inner;
  Floats other;
};
struct Plain {
  Floats w, bias;
};
struct PlainOuter {
  Plain inner{{1, 2}, {3}};
  Floats other{4};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Hooked> {
  static constexpr stele::Attribute list[] = {stele::attr::version(7)};
  static stele::Result<stele::Snapshot> migrate(std::uint32_t from, const stele::Snapshot& old) {
    return stele_test::hook(from, old);
  }
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: files that say no version count as version 0") {
  hook = [](std::uint32_t from, const Snapshot& old) -> Result<Snapshot> {
    CHECK(from == 0);
    CHECK(old.leaf_count() == 2);
    CHECK(old.find("bias"));
    return rename(old, {{"^w$", "weight"}});
  };
  const auto check = [](const HookedOuter& m) {
    CHECK(m.inner.weight == Floats{1, 2});
    CHECK(m.inner.bias == Floats{3});
    CHECK(m.other == Floats{4});
  };
  in_every_way<HookedOuter>(recorder, good(saved(recorder, PlainOuter{})), {}, check);
  // As the whole of a file.
  CHECK(good(recorder.load<Hooked>(good(saved(recorder, Plain{{5}, {6}})))).weight == Floats{5});
}

STELE_TEST_EACH_RECORDER("evolution: errors of a hook are the load's, with the module's path") {
  const stele::Bytes file = good(saved(recorder, PlainOuter{}));
  const auto error = [&](Result<Snapshot> (*does)(std::uint32_t, const Snapshot&)) {
    hook = does;
    HookedOuter live{{{1}, {2}}, {3}};
    const stele::Error in_place = bad(recorder.load_into(live, file));
    CHECK(live.other == Floats{3});
    CHECK(live.inner.bias == Floats{2});
    stele::Error fresh = bad(recorder.load<HookedOuter>(file));
    CHECK(fresh.code() == in_place.code());
    CHECK(fresh.path() == in_place.path());
    CHECK(bad(recorder.load<stele::Record<HookedOuter>>(file)).path() == fresh.path());
    return fresh;
  };
  const stele::Error returned = error(
      [](std::uint32_t, const Snapshot&) -> Result<Snapshot> { return stele::Error(Errc::unsupported, "too old"); });
  CHECK(returned.code() == Errc::unsupported);
  CHECK(returned.path() == "inner");
  const stele::Error inside = error([](std::uint32_t, const Snapshot& old) { return transpose(old, "kernel"); });
  CHECK(inside.code() == Errc::not_found);
  CHECK(inside.path() == "inner.kernel");
  const stele::Error thrown =
      error([](std::uint32_t, const Snapshot&) -> Result<Snapshot> { throw std::runtime_error("no idea"); });
  CHECK(thrown.path() == "inner");
  CHECK(thrown.message().find("no idea") != std::string::npos);
  // An entry that the hook leaves out is missing.
  const stele::Error missing = error([](std::uint32_t, const Snapshot& old) {
    return filter(old, {{"bias"}, {}, {}});
  });
  CHECK(missing.code() == Errc::missing);
  CHECK(missing.path() == "inner.weight");
  const stele::Error nothing = error([](std::uint32_t, const Snapshot&) -> Result<Snapshot> { return Snapshot(); });
  CHECK(nothing.code() == Errc::missing);
}

STELE_TEST_EACH_RECORDER("evolution: a hook builds a snapshot of its own") {
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    stele::SnapshotBuilder builder;
    builder.begin(stele::NodeKind::module, "");
    for (const char* name : {"w", "bias"}) {
      const auto leaf = old.find(name);
      if (!leaf) return stele::Error(Errc::not_found).path(name);
      builder.tensor(name[0] == 'w' ? "weight" : "bias", leaf->dtype(), leaf->shape(), leaf->byte_size(),
                     leaf->provider());
    }
    builder.keep(old.data());
    return builder.finish();
  };
  in_every_way<HookedOuter>(recorder, good(saved(recorder, PlainOuter{})), {}, [](const HookedOuter& m) {
    CHECK(m.inner.weight == Floats{1, 2});
  });
}

namespace {

struct TiedModules {
  std::shared_ptr<Hooked> a, b;  // one module, rewritten once
  std::shared_ptr<Floats> weight;
};
struct TiedPlain {
  struct One {
    std::shared_ptr<Floats> w;
    Floats bias{3};
  };
  std::shared_ptr<One> a = std::make_shared<One>();
  std::shared_ptr<One> b = a;
  std::shared_ptr<Floats> weight;
  TiedPlain() { weight = a->w = std::make_shared<Floats>(Floats{1, 2}); }
  STELE_MODULE(TiedPlain, a, b, weight)
};

}  // namespace

STELE_TEST_EACH_RECORDER("evolution: ties of rewritten modules") {
  const stele::Bytes file = good(saved(recorder, TiedPlain()));
  static int calls;
  calls = 0;
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    ++calls;
    return rename(old, {{"^w$", "weight"}});
  };
  const TiedModules m = good(recorder.load<TiedModules>(file));
  CHECK(calls == 1);
  CHECK(m.a == m.b);
  CHECK(m.a->weight == Floats{1, 2});
  CHECK(*m.weight == Floats{1, 2});
  // A tensor that a hook changes is no longer the one under the other name.
  hook = [](std::uint32_t, const Snapshot& old) -> Result<Snapshot> {
    const stele::Part halves[] = {{"bias", 1}, {"weight", 1}};
    STELE_TRY_ASSIGN(const Snapshot bare, filter(old, {{"w"}, {}, {}}));
    return split(bare, "w", 0, halves);
  };
  const TiedModules changed = good(recorder.load<TiedModules>(file));
  CHECK(changed.a->weight == Floats{2});
  CHECK(changed.a->bias == Floats{1});
  CHECK(changed.a == changed.b);
  CHECK(*changed.weight == Floats{1, 2});
}

namespace {

struct TwoHooks {
  Floats weight, bias;
};
/// Made by a hook of the other kind, in a list.
class Made {
 public:
  explicit Made(Floats w) : weight(std::move(w)) {}
  static Made from_record(stele::Record<Made>&& record) { return Made(record.weight.load().value()); }
  Floats weight;
  STELE_MODULE(Made, weight)
};
struct Makers {
  std::vector<Made> list;
};
struct OldMade {
  Floats w;
};
struct OldMakers {
  std::vector<OldMade> list{OldMade{{1}}, OldMade{{2, 3}}};
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::TwoHooks> {
  static constexpr stele::Attribute list[] = {stele::attr::version(3)};
  static std::string_view migrate(std::uint32_t, std::string_view field) { return field == "weight" ? "kernel" : ""; }
  static Result<Snapshot> migrate(std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); }
};
template <>
struct stele::attributes<stele_test::Made> {
  static constexpr stele::Attribute list[] = {stele::attr::version(1)};
  static Result<Snapshot> migrate(std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); }
};

namespace stele_test {

STELE_TEST_EACH_RECORDER("evolution: hooks of several kinds") {
  CHECK(good(recorder.load<TwoHooks>(good(saved(recorder, Plain{{5}, {6}})))).weight == Floats{5});
  const OldMakers old;
  const Makers m = good(recorder.load<Makers>(good(saved(recorder, old))));
  REQUIRE(m.list.size() == 2);
  CHECK(m.list[1].weight == Floats{2, 3});
}

TEST_CASE("evolution: damage shows behind a hook too") {
  hook = [](std::uint32_t, const Snapshot& old) { return rename(old, {{"^w$", "weight"}}); };
  const stele::Bytes file = good(stele::BytesRecorder<>{}.save(PlainOuter{}));
  std::vector<std::byte> damaged(file.span().begin(), file.span().end());
  damaged[64] ^= std::byte{1};  // in the first block
  const stele::Error e = bad(stele::BytesRecorder<>{}.load<HookedOuter>(std::span<const std::byte>(damaged)));
  CHECK(e.code() == Errc::checksum);
  CHECK(e.path() == "inner.weight");
  // A record reads nothing before it is asked to.
  const auto record =
      good(stele::BytesRecorder<>{}.load<stele::Record<HookedOuter>>(std::span<const std::byte>(damaged)));
  const auto& inner = stele::get<"inner">(record);
  CHECK(good(stele::get<"bias">(inner).load()) == Floats{3});
  CHECK(bad(stele::get<"weight">(inner).load()).code() == Errc::checksum);
}

}  // namespace stele_test
