// The back end of C++26's reflection (stele/reflect.hpp): first by a field list written by hand, as reflection makes
// it, then, with a compiler that has reflection, by annotations.
#include <stele/reflect.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <boost/mp11/list.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace {

struct Base {
  std::vector<float> scale{1};
  STELE_MODULE(Base, scale)
};
class Linear : public Base {
 public:
  Linear() = default;
  explicit Linear(float x) : weight_{x}, steps_(7), scratch_{x} {}
  bool operator==(const Linear& other) const { return weight_ == other.weight_ && steps_ == other.steps_; }

 private:
  friend struct stele::detail::reflected<Linear>;
  std::vector<float> weight_;
  std::uint64_t steps_ = 0;
  std::vector<float> scratch_;
};
class Top : public Linear {
 public:
  std::vector<float> top{3};
  STELE_MODULE_DERIVED(Top, (Linear), top)
};

}  // namespace

template <>
inline constexpr bool stele::detail::is_reflected<Linear> = true;
template <>
struct stele::detail::reflected<Linear> {
  struct Weight {
    static constexpr auto pointer = &Linear::weight_;
    static constexpr std::string_view name = "weight_";
  };
  struct Steps {
    static constexpr auto pointer = &Linear::steps_;
    static constexpr std::string_view name = "steps_";
  };
  using members = boost::mp11::mp_list<Weight, Steps>;
  using bases = ClassList<Base>;
  static constexpr Attribute attributes[] = {attr::rename("weight_", "weight"), attr::keep_default("steps_")};
};
template <>
struct stele::attributes<Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2), stele::attr::alias("weight_", "kernel")};
};

TEST_CASE("reflected: fields of a class and its bases, with attributes of both kinds") {
  const Linear linear(2);
  const stele::Snapshot snapshot = stele::snapshot_of(linear).value();
  REQUIRE(snapshot.leaf_count() == 2);
  CHECK(snapshot.leaf(0).path() == "scale");
  CHECK(snapshot.leaf(1).path() == "weight");
  const stele::detail::TypeInfo& type = *stele::detail::module_info<Linear>();
  CHECK(type.name == "Linear");
  CHECK(type.version == 2);
  REQUIRE(type.fields.size() == 3);
  CHECK(type.fields[1].aliases[0] == "kernel");
  CHECK(type.fields[2].flags.defaulted);

  const stele::Bytes bytes = stele::BytesRecorder<>{}.save(linear).value();
  CHECK(stele::load<Linear>(bytes).value() == linear);
  auto record = stele::load<stele::Record<Linear>>(bytes).value();
  CHECK(stele::get<"weight_">(record).load().value()[0] == 2);
  const Top top;
  CHECK(stele::snapshot_of(top).value().leaf_count() == 3);
}

#if STELE_HAS_REFLECTION
// clang-format off
namespace {

class [[=stele::attr::reflect]] Annotated : public Linear {
 public:
  Annotated() = default;
  explicit Annotated(float x) : Linear(x), kernel_{x}, scratch_{x} {}
  float kernel() const { return kernel_.at(0); }

 private:
  [[=stele::attr::rename("kernel"), =stele::attr::alias("w")]] std::vector<float> kernel_;
  [[=stele::attr::skip()]] std::vector<float> scratch_;
  [[=stele::attr::skip()]] unsigned flags_ : 3 = 0;
  [[=stele::attr::keep_default()]] std::uint64_t count = 0;
};

}  // namespace
// clang-format on

TEST_CASE("reflected: annotations") {
  const Annotated annotated(2);
  const stele::Snapshot snapshot = stele::snapshot_of(annotated).value();
  REQUIRE(snapshot.leaf_count() == 3);
  CHECK(snapshot.leaf(2).path() == "kernel");
  CHECK(stele::load<Annotated>(stele::BytesRecorder<>{}.save(annotated).value()).value().kernel() == 2);
}
#endif
