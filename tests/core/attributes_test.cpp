// Attributes declared beside a class: stele::attributes<T>, static stele_attributes, and the names of types.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>
#include <boost/describe/class.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/models.hpp"

using namespace stele_test;
using stele::LoadOptions;
using stele::Report;
using stele::Snapshot;

namespace stele_test {
namespace {

using One = std::array<float, 1>;

// Beside the class.
struct Listed {
  One weight{1};
  One cache{2};
  One gain{3};
  STELE_MODULE(Listed, weight, cache, gain)
};
// In the class, with STELE_MODULE around it, private.
class InClass {
 public:
  One gain{3};

 private:
  One weight_{1};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("weight_", "weight"),
                                                          stele::attr::type_name("Classy"), stele::attr::version(4)};
  STELE_MODULE(InClass, weight_, gain)
};
// Aggregate: what could not be recorded is skipped, static members are no fields.
struct Plain {
  One weight{1};
  int* handle = nullptr;
  std::vector<int> strides;
  One gain{2};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::skip("handle"), stele::attr::skip("strides"),
                                                          stele::attr::rename("gain", "a.b")};
};
struct SkippedInList {
  One weight{1};
  int* handle = nullptr;
  STELE_MODULE(SkippedInList, weight, handle)
};
struct Described {
  One weight{1};
  One extra{2};
};
BOOST_DESCRIBE_STRUCT(Described, (), (weight, extra))

class RenamingBase {
 public:
  One w{1};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("w", "weight")};
  STELE_MODULE(RenamingBase, w)
};
class OfRenamingBase : public RenamingBase {
  One v_{2};
  STELE_MODULE_DERIVED(OfRenamingBase, (RenamingBase), v_)
};

// Said beside the base; the derived class has a list of its own.
struct SaidBase {
  One w{1};
  One cache{2};
  One late{3};
  STELE_MODULE(SaidBase, w, cache, late)
};
struct OfSaidBase : SaidBase {
  One gain{4};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("late", "own"),
                                                          stele::attr::rename("gain", "g")};
  STELE_MODULE_DERIVED(OfSaidBase, (SaidBase), gain)
};
struct OfInClass : InClass {
  One more{5};
  STELE_MODULE_DERIVED(OfInClass, (InClass), more)
};

struct Old {
  One kernel{1};
  One shift{2};
  STELE_MODULE(Old, kernel, shift)
};
struct New {
  One weight{};
  One bias{};
  STELE_MODULE(New, weight, bias)
};
struct OldOuter {
  Old inner;
  One weight{5};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::version(1)};
};
struct NewOuter {
  New inner;
  One weight{};
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::version(2)};
};

struct Same {
  One a{1};
};
template <class T>
struct Generic {
  std::array<T, 1> x{};
  struct Nested {
    std::array<T, 1> y{};
  };
};
using Choice = std::variant<Generic<float>, Generic<double>>;
using Plainly = std::variant<Same, One, Old>;
struct HasVariants {
  Choice choice;
  Plainly plainly;
  STELE_MODULE(HasVariants, choice, plainly)
};
struct Defaults {
  One tensor{3};
  int number = 7;
  Old layer;
  std::vector<One> list = std::vector<One>(1);
  std::variant<Old, One> choice = One{5};
  std::optional<One> maybe = One{4};
  std::shared_ptr<One> shared = std::make_shared<One>();
  STELE_MODULE(Defaults, tensor, number, layer, list, choice, maybe, shared)
};
struct TwoNested {
  std::variant<Generic<float>, Generic<float>::Nested> either;
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Listed> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("weight", "kernel"),
                                              stele::attr::skip("cache"),
                                              stele::attr::keep_default("gain"),
                                              stele::attr::alias("weight", "w"),
                                              stele::attr::alias("weight", "W"),
                                              stele::attr::type_name("demo.Listed"),
                                              stele::attr::version(3)};
};
template <>
struct stele::attributes<stele_test::Defaults> {
  static constexpr stele::Attribute list[] = {stele::attr::keep_default("tensor"), stele::attr::keep_default("number"),
                                              stele::attr::keep_default("layer"),  stele::attr::keep_default("list"),
                                              stele::attr::keep_default("choice"), stele::attr::keep_default("maybe"),
                                              stele::attr::keep_default("shared")};
};
template <>
struct stele::attributes<stele_test::SaidBase> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("w", "weight"), stele::attr::alias("w", "older"),
                                              stele::attr::skip("cache"), stele::attr::rename("late", "base_late"),
                                              stele::attr::version(9)};
};
template <>
struct stele::attributes<stele_test::SkippedInList> {
  static constexpr stele::Attribute list[] = {stele::attr::skip("handle")};
};
template <>
struct stele::attributes<stele_test::Described> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("extra", "more"), stele::attr::version(1)};
};
template <>
struct stele::attributes<stele_test::New> {
  static constexpr stele::Attribute list[] = {stele::attr::type_name("Old"), stele::attr::version(2)};
  static std::string_view migrate(std::uint32_t from, std::string_view field) {
    if (from < 2 && field == "weight") return "kernel";
    if (from < 2 && field == "bias") return "shift";
    return {};
  }
};
template <>
struct stele::attributes<stele_test::Choice> {
  static constexpr stele::Attribute list[] = {stele::attr::alternative(0, "single"),
                                              stele::attr::alternative(1, "double")};
};

namespace {

template <class M>
std::string type_name(const M& m) {
  const Snapshot s = snapshot(m);
  return std::string(s.type_name(s.nodes()[0]));
}
template <class M>
std::uint32_t version(const M& m) {
  const Snapshot s = snapshot(m);
  return s.version(s.nodes()[0]);
}

// A file that holds tensors of one number each.
Snapshot file_with(const Paths& names, bool flat = false) {
  static const One number{42};
  stele::SnapshotBuilder builder;
  if (flat) {
    builder.set_flat();
  } else {
    builder.begin(stele::NodeKind::module, "");
  }
  const Snapshot from = snapshot(number);
  builder.keep(from.data());
  const stele::Extent one[] = {1};
  for (const std::string& n : names) {
    builder.tensor(builder.intern(n), stele::DType::f32, one, 4, from.leaf(0).provider());
  }
  return builder.finish();
}

}  // namespace

TEST_CASE("attributes: rename, skip, type name and version beside the class") {
  const Listed m;
  CHECK(tensor_paths(m) == Paths{"kernel", "gain"});
  CHECK(type_name(m) == "demo.Listed");
  CHECK(version(m) == 3);
  const auto record = good(stele::record_of(m));
  CHECK(record.weight.has_value());  // the record keeps the module's spelling
  CHECK(stele::get<"weight">(record).has_value());
  CHECK_FALSE(record.cache.has_value());
}

TEST_CASE("attributes: in the class, private") {
  const InClass m;
  CHECK(tensor_paths(m) == Paths{"weight", "gain"});
  CHECK(type_name(m) == "Classy");
  CHECK(version(m) == 4);
}

TEST_CASE("attributes: of aggregates, described classes, and skipping what cannot be recorded") {
  CHECK(tensor_paths(Plain{}) == Paths{"weight", "a\\.b"});
  CHECK(tensor_paths(SkippedInList{}) == Paths{"weight"});
  CHECK(tensor_paths(Described{}) == Paths{"weight", "more"});
  CHECK(version(Described{}) == 1);
  Plain p;
  good(stele::load_into(p, file_with({"weight", "a.b"})));
  CHECK(p.gain == One{42});
  good(stele::load_into(p, file_with({"weight", "a\\.b"}, true)));
}

TEST_CASE("attributes: of a base, inside it, hold in the derived class") {
  CHECK(tensor_paths(OfRenamingBase{}) == Paths{"weight", "v_"});
}

TEST_CASE("attributes: of a base, beside it, hold in the derived class behind its own") {
  CHECK(tensor_paths(SaidBase{}) == Paths{"weight", "base_late"});
  CHECK(tensor_paths(OfSaidBase{}) == Paths{"weight", "own", "g"});
  CHECK(version(OfSaidBase{}) == 0);
  good(stele::load<OfSaidBase>(file_with({"older", "own", "g"})));  // an alias of the base's field
}

TEST_CASE("attributes: a class's name and version are not its base's") {
  CHECK(tensor_paths(OfInClass{}) == Paths{"weight", "gain", "more"});
  CHECK(version(OfInClass{}) == 0);
  CHECK(version(InClass{}) == 4);
  const OfInClass object;
  const Snapshot derived = good(stele::snapshot_of(object));
  CHECK(derived.type_name(derived.nodes()[0]) == "OfInClass");
}

TEST_CASE("attributes: aliases are older names, in order") {
  for (const bool flat : {false, true}) {
    CAPTURE(flat);
    for (const char* name : {"kernel", "w", "W"}) {
      Listed m;
      good(stele::load_into(m, file_with({name, "gain"}, flat)));
      CHECK(m.weight == One{42});
      CHECK(m.gain == One{42});
      CHECK(good(stele::load<Listed>(file_with({name, "gain"}, flat))).weight == One{42});
    }
    Listed m;
    // Present name first; the alias is then one name too many.
    CHECK(bad(stele::load_into(m, file_with({"kernel", "w", "gain"}, flat))).code() == stele::Errc::unused);
    const stele::Error e = bad(stele::load_into(m, file_with({"cache", "gain"}, flat)));
    CHECK(e.code() == stele::Errc::missing);
    CHECK(e.path() == "kernel");
  }
}

TEST_CASE("attributes: keep_default keeps what the constructor gave") {
  for (const bool flat : {false, true}) {
    CAPTURE(flat);
    Report report;
    const Listed m = good(stele::load<Listed>(file_with({"kernel"}, flat), {.report = &report}));
    CHECK(m.gain == One{3});
    CHECK(m.weight == One{42});
    CHECK(report.paths(Report::What::defaulted) == Paths{"gain"});
  }
}

TEST_CASE("attributes: keep_default takes none for missing, but of what may be empty itself") {
  stele::SnapshotBuilder builder;
  builder.begin(stele::NodeKind::module, "");
  for (const char* name : {"tensor", "number", "layer", "list", "choice", "maybe", "shared"}) builder.none(name);
  builder.end();
  const Snapshot file = builder.finish();
  Report report;
  const Defaults m = good(stele::load<Defaults>(file, {.report = &report}));
  CHECK(report.paths(Report::What::defaulted) == Paths{"tensor", "number", "layer", "list", "choice"});
  CHECK(m.tensor == One{3});
  CHECK(m.number == 7);
  CHECK(m.layer.kernel == One{1});
  CHECK(m.list.size() == 1);
  CHECK(m.choice.index() == 1);
  CHECK(!m.maybe);
  CHECK(!m.shared);

  Defaults live;
  live.number = 8;
  live.maybe.reset();
  live.shared.reset();
  good(stele::load_into(live, file));
  CHECK(live.number == 8);

  stele::SnapshotBuilder plain;
  plain.begin(stele::NodeKind::module, "");
  plain.none("kernel");
  plain.end();
  CHECK(bad(stele::load<Old>(plain.finish())).code() == stele::Errc::missing);  // nobody said so
}

TEST_CASE("attributes: migrate names the fields of older versions") {
  const New migrated = good(stele::load<New>(snapshot(Old{{7}, {8}})));
  CHECK(migrated.weight == One{7});
  CHECK(migrated.bias == One{8});
  CHECK(good(stele::load<New>(snapshot(New{{1}, {2}}))).bias == One{2});

  const NewOuter outer = good(stele::load<NewOuter>(snapshot(OldOuter{{{7}, {8}}, {9}})));
  CHECK(outer.inner.weight == One{7});
  CHECK(outer.weight == One{9});

  // Bytes keep the versions.
  const stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(NewOuter{{{1}, {2}}, {3}}));
  CHECK(good(stele::BytesRecorder<>{}.load<NewOuter>(bytes)).inner.bias == One{2});
  const stele::Bytes before = good(stele::BytesRecorder<>{}.save(OldOuter{}));
  CHECK(good(stele::BytesRecorder<>{}.load<NewOuter>(before)).inner.bias == One{2});
}

TEST_CASE("attributes: versions and migration in flat files") {
  const auto flat = [](const auto& module) {
    stele::BufferSink sink;
    good(stele::SafetensorsRecorder<>{}.save(module, sink));
    return sink.take();
  };
  const New now = good(stele::SafetensorsRecorder<>{}.load<New>(flat(New{{1}, {2}})));
  CHECK(now.weight == One{1});
  const NewOuter outer = good(stele::SafetensorsRecorder<>{}.load<NewOuter>(flat(NewOuter{{{1}, {2}}, {3}})));
  CHECK(outer.inner.bias == One{2});
  // A file of somebody else says no version: today's names are taken.
  New m;
  good(stele::load_into(m, file_with({"weight", "bias"}, true)));
  CHECK(m.bias == One{42});
}

TEST_CASE("attributes: names of a variant's alternatives") {
  HasVariants m;
  CHECK(tensor_paths(m) == Paths{"choice.single.x", "plainly.Same.a"});
  m.choice = Generic<double>{{2.0}};
  m.plainly = One{3};
  CHECK(tensor_paths(m) == Paths{"choice.double.x", "plainly.1"});
  const HasVariants back = good(stele::load<HasVariants>(snapshot(m)));
  CHECK(std::get<1>(back.choice).x[0] == 2.0);
  CHECK(std::get<One>(back.plainly) == One{3});
}

TEST_CASE("attributes: names of types are unqualified, without template arguments") {
  struct Local {
    One w{};
  };
  CHECK(type_name(Same{}) == "Same");
  CHECK(type_name(Generic<float>{}) == "Generic");
  CHECK(type_name(Generic<float>::Nested{}) == "Nested");
  CHECK(type_name(Local{}) == "Local");
  CHECK(version(Same{}) == 0);
  CHECK(tensor_paths(TwoNested{Generic<float>::Nested{}}) == Paths{"either.Nested.y"});
}
