// Reflection: field lists, bases, described classes, plain aggregates, attributes, names of types.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>
#include <boost/describe/class.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/models.hpp"

namespace module_test {

using namespace stele_test;
using stele::Param;
using stele::Tensor;

namespace {

using One = std::array<float, 1>;

template <class M>
M there_and_back(const M& module) {
  return good(stele::load<M>(good(stele::snapshot_of(module))));
}

/// The name of a class as files have it.
template <class M>
std::string type_name(const M& module) {
  const stele::Snapshot s = good(stele::snapshot_of(module));
  return std::string(s.type_name(s.nodes()[0]));
}

// ---- STELE_MODULE ---------------------------------------------------------------------------------------------------

class Private {
 public:
  Private() = default;
  explicit Private(float a) : b_(vec({a, a})), a_(vec({a})) {}
  float sum() const { return (*a_)[0] + (*b_)[0] + (*b_)[1]; }

 private:
  struct Secret {  // a private type
    One x{};
    STELE_MODULE(Secret, x)
  };
  Vec b_;
  Vec a_;
  Secret secret_;
  std::function<void()> not_listed_ = [] {};
  std::mutex nor_this_{};
  STELE_MODULE(Private, a_, secret_, b_)
};

template <class T, int Rank>
class Templated {
 public:
  Param<Tensor<T, Rank>> weight;
  std::vector<Templated> inner;

 private:
  One hidden{};
  STELE_MODULE(Templated, weight, inner, hidden)
};

class Middle {
  One first_{};
  STELE_MODULE(Middle, first_)
  One still_private_{};

 public:
  float last() const { return still_private_[0]; }
};
template <class T>
concept SeesPrivate = requires(T& t) {
  t.still_private_;
};
struct MiddleOfPublic {
  One first{};
  STELE_MODULE(MiddleOfPublic, first)
  One still_public{};
};

struct NoFields {
  int handle = 3;
  STELE_MODULE(NoFields)
};
struct BesideNoFields {
  NoFields relu;
  One weight{};
  std::vector<NoFields> more;
  STELE_MODULE(BesideNoFields, relu, weight, more)
};

struct MoveOnly {
  std::unique_ptr<Vec> pointer;
  std::vector<std::unique_ptr<Vec>> pointers;
  std::optional<std::unique_ptr<One>> maybe;
  STELE_MODULE(MoveOnly, pointer, pointers, maybe)
};

struct WithConst {
  const Vec weight;
  const int size = 2;
  STELE_MODULE(WithConst, weight, size)
};

// ---- long lists -----------------------------------------------------------------------------------------------------

#define TEN(x) x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7, x##8, x##9
#define FIFTY TEN(a), TEN(b), TEN(c), TEN(d), TEN(e)
#define HUNDRED FIFTY, TEN(f), TEN(g), TEN(h), TEN(i), TEN(j)
#define WIDE(number, ...)                   \
  struct Wide##number {                     \
    One __VA_ARGS__;                        \
    STELE_MODULE(Wide##number, __VA_ARGS__) \
  };
WIDE(51, FIFTY, f0)
WIDE(52, FIFTY, f0, f1)
WIDE(53, FIFTY, f0, f1, f2)
WIDE(104, HUNDRED, k0, k1, k2, k3)
WIDE(105, HUNDRED, k0, k1, k2, k3, k4)
WIDE(120, HUNDRED, TEN(k), TEN(l))
WIDE(156, HUNDRED, TEN(k), TEN(l), TEN(m), TEN(n), TEN(o), p0, p1, p2, p3, p4, p5)
#undef WIDE
#undef HUNDRED
#undef FIFTY
#undef TEN

template <class M>
void check_wide(std::size_t count) {
  CAPTURE(count);
  static_assert(sizeof(M) % sizeof(One) == 0);
  REQUIRE(sizeof(M) / sizeof(One) == count);
  M m{};
  auto* fields = reinterpret_cast<One*>(&m);
  for (std::size_t i = 0; i < count; ++i) fields[i][0] = static_cast<float>(i);
  const stele::Snapshot s = good(stele::snapshot_of(m));
  REQUIRE(s.leaf_count() == count);
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(s.leaf(i).path() == std::string(1, static_cast<char>('a' + i / 10)) + std::to_string(i % 10));
    CHECK(s.leaf(i).view().data() == reinterpret_cast<const std::byte*>(fields + i));
  }
  M back{};
  good(stele::load_into(back, s));
  CHECK(image(back) == image(m));
  const auto record = good(stele::record_of(m));
  CHECK(stele::get<"f0">(record).leaf().view().data() == reinterpret_cast<const std::byte*>(&m.f0));
}

// ---- bases ----------------------------------------------------------------------------------------------------------

class Base {
 public:
  One& access() { return w_; }

 private:
  One w_{1};
  STELE_MODULE(Base, w_)
};
class OtherBase {
 protected:
  One u_{2};
  STELE_MODULE(OtherBase, u_)
};
class Derived : public Base {
  One v_{3};
  STELE_MODULE_DERIVED(Derived, (Base), v_)
};
class TwoBases : public Base, public OtherBase {
  One v_{3};
  STELE_MODULE_DERIVED(TwoBases, (Base, OtherBase), v_)
};
class Grandchild : public OtherBase, public Derived {
 public:
  One x{4};
  STELE_MODULE_DERIVED(Grandchild, (OtherBase, Derived), x)
};
class NothingOfItsOwn : public Base {
  STELE_MODULE_DERIVED(NothingOfItsOwn, (Base))
};
struct Top {
  virtual ~Top() = default;
  One top{1};
  STELE_MODULE(Top, top)
};
struct Left : virtual Top {
  One left{2};
  STELE_MODULE_DERIVED(Left, (Top), left)
};
struct Right : virtual Top {
  One right{3};
  STELE_MODULE_DERIVED(Right, (Top), right)
};
struct Diamond : Left, Right {
  One bottom{4};
  STELE_MODULE_DERIVED(Diamond, (Left, Right), bottom)
};
class Undecorated : public Base {
 public:
  Undecorated() = default;  // no aggregate
  One more{};
};

// ---- Boost.Describe -------------------------------------------------------------------------------------------------

struct Described {
  One a{1};
  int count = 7;  // listed: a value
  One not_listed{};
  One twice() const { return {a[0] * 2}; }
};
BOOST_DESCRIBE_STRUCT(Described, (), (a, count, twice))
class DescribedClass {
 public:
  One open{1};

 private:
  One closed_{2};
  BOOST_DESCRIBE_CLASS(DescribedClass, (), (open), (), (closed_))
};
struct DescribedChild : Described {
  One b{2};
};
BOOST_DESCRIBE_STRUCT(DescribedChild, (Described), (b))
class MacroOnDescribed : public DescribedClass {
  One c_{3};
  STELE_MODULE_DERIVED(MacroOnDescribed, (DescribedClass), c_)
};

// ---- aggregates -----------------------------------------------------------------------------------------------------

enum class Activation { relu, gelu };
struct Inner {
  std::unique_ptr<Vec> weight;
};
struct Aggregate {
  Vec weight;
  int stride = 2;  // values
  bool train = true;
  Activation activation{};
  std::string label;
  std::optional<double> dropout;
  std::array<std::string, 2> texts;
  std::vector<std::string> classes;
  std::optional<std::unique_ptr<Vec>> bias;  // move-only inside an optional
  std::optional<Inner> maybe;
  std::map<std::string, Vec> heads;
  std::array<std::array<float, 2>, 3> table{};
  const Vec frozen{};
  std::variant<Inner, One> either;
};
struct OnlyField {
  Tensor<float> weight;
};

}  // namespace

TEST_CASE("module: the list decides what is recorded and in which order") {
  const Private p(2);
  CHECK(tensor_paths(p) == Paths{"a_", "secret_.x", "b_"});
  CHECK(good(stele::snapshot_of(p)).leaf(2).shape()[0] == 2);
  Private q;
  good(stele::load_into(q, good(stele::snapshot_of(p))));
  CHECK(q.sum() == 6);
}

TEST_CASE("module: a class template, recursive, with a private field") {
  Templated<double, 1> t;
  t.weight = Tensor<double, 1>({1}, {2.0});
  t.inner.resize(2);
  t.inner[0].weight = Tensor<double, 1>({1}, {3.0});
  t.inner[1].weight = Tensor<double, 1>({1}, {4.0});
  CHECK(tensor_paths(t) ==
        Paths{"weight", "inner.0.weight", "inner.0.hidden", "inner.1.weight", "inner.1.hidden", "hidden"});
  CHECK(image(there_and_back(t)) == image(t));
  CHECK(type_name(t) == "Templated");
  const auto record = good(stele::record_of(t));
  CHECK(record.inner[1].weight.dtype() == stele::DType::f64);
}

TEST_CASE("module: the macro leaves the section as it is") {
  static_assert(!SeesPrivate<Middle>);
  CHECK(MiddleOfPublic{}.still_public[0] == 0);
  CHECK(Middle{}.last() == 0);
  CHECK(tensor_paths(Middle{}) == Paths{"first_"});
  CHECK(tensor_paths(MiddleOfPublic{}) == Paths{"first"});
}

TEST_CASE("module: a class with an empty list beside others") {
  BesideNoFields m;
  m.weight = {5};
  m.more.resize(2);
  CHECK(outline(m) == "module relu\ntensor weight\nlist more\nmodule more.0\nmodule more.1\n");
  const auto back = there_and_back(m);
  CHECK(back.weight == m.weight);
  CHECK(back.more.size() == 2);
}

TEST_CASE("module: move-only members") {
  MoveOnly m;
  m.pointer = std::make_unique<Vec>(vec({1, 2}));
  m.pointers.push_back(std::make_unique<Vec>(vec({3})));
  m.pointers.push_back(nullptr);
  m.maybe = std::make_unique<One>(One{4});
  CHECK(outline(m) == "tensor pointer\nlist pointers\ntensor pointers.0\nnone pointers.1\ntensor maybe\n");
  const MoveOnly back = there_and_back(m);
  CHECK(image(back) == image(m));
  CHECK(back.pointers[1] == nullptr);
}

TEST_CASE("module: const members are recorded") {
  const WithConst m{vec({1, 2})};
  CHECK(outline(m) == "tensor weight\nvalue size\n");
}

TEST_CASE("module: lists of 51 to 156 fields keep order and names") {
  check_wide<Wide51>(51);
  check_wide<Wide52>(52);
  check_wide<Wide53>(53);
  check_wide<Wide104>(104);
  check_wide<Wide105>(105);
  check_wide<Wide120>(120);
  check_wide<Wide156>(156);
}

TEST_CASE("module: bases' fields come first, at the same level") {
  CHECK(tensor_paths(Derived{}) == Paths{"w_", "v_"});
  CHECK(tensor_paths(TwoBases{}) == Paths{"w_", "u_", "v_"});
  CHECK(tensor_paths(Grandchild{}) == Paths{"u_", "w_", "v_", "x"});
  CHECK(tensor_paths(NothingOfItsOwn{}) == Paths{"w_"});
  CHECK(type_name(Grandchild{}) == "Grandchild");

  Grandchild from;
  from.access() = {9};
  from.x = {8};
  Grandchild to;
  good(stele::load_into(to, good(stele::snapshot_of(from))));
  CHECK(image(to) == image(from));
  CHECK(to.access() == One{9});
  const auto record = good(stele::record_of(from));
  CHECK(good(record.w_.load()) == One{9});
  CHECK(good(stele::get<"u_">(record).load()) == One{2});
}

TEST_CASE("module: a virtual base of a diamond is recorded once") {
  Diamond d;
  CHECK(tensor_paths(d) == Paths{"top", "left", "right", "bottom"});
  d.top = {11};
  d.right = {12};
  Diamond to;
  good(stele::load_into(to, good(stele::snapshot_of(d))));
  CHECK(to.top == One{11});
  CHECK(to.right == One{12});
  const auto record = good(stele::record_of(d));
  CHECK(good(record.top.load()) == One{11});
  CHECK(good(record.bottom.load()) == One{4});
}

TEST_CASE("module: a derived class does not inherit the list") {
  static_assert(stele::detail::is_listed<Base>);
  static_assert(!stele::detail::is_listed<Undecorated>);
  static_assert(stele::detail::category_of<Undecorated, true> == stele::detail::Category::refused);
  static_assert(stele::detail::is_listed<DescribedClass> && !stele::detail::has_module_macro<DescribedClass>);
  CHECK(tensor_paths(static_cast<const Base&>(Undecorated{})) == Paths{"w_"});
}

TEST_CASE("module: classes listed with Boost.Describe") {
  CHECK(outline(Described{}) == "tensor a\nvalue count\n");
  CHECK(type_name(Described{}) == "Described");
  CHECK(tensor_paths(DescribedClass{}) == Paths{"open", "closed_"});
  CHECK(outline(DescribedChild{}) == "tensor a\nvalue count\ntensor b\n");
  CHECK(tensor_paths(MacroOnDescribed{}) == Paths{"open", "closed_", "c_"});
  DescribedChild m;
  m.count = 9;
  m.b = {7};
  const auto back = there_and_back(m);
  CHECK(back.count == 9);
  CHECK(back.b == m.b);
  CHECK(image(there_and_back(MacroOnDescribed{})) == image(MacroOnDescribed{}));
  const auto record = good(stele::record_of(m));
  CHECK(good(stele::get<"b">(record).load()) == One{7});
  const MacroOnDescribed mixed;
  CHECK(stele::get<"c_">(good(stele::record_of(mixed))).has_value());
}

TEST_CASE("module: plain aggregates, names and values") {
  Aggregate m;
  m.weight = vec({1});
  m.bias = std::make_unique<Vec>(vec({2}));
  m.maybe = Inner{std::make_unique<Vec>(vec({3}))};
  m.heads["x"] = vec({4});
  m.either = One{5};
  CHECK(outline(m) ==
        "tensor weight\nvalue stride\nvalue train\nvalue activation\nvalue label\nnone dropout\narray texts\n"
        "value texts.0\nvalue texts.1\nlist classes\ntensor bias\nmodule maybe\ntensor maybe.weight\nmap heads\ntensor "
        "heads.x\ntensor table\n"
        "tensor frozen\nvariant either\ntensor either.1\n");
  CHECK(type_name(m) == "Aggregate");
  CHECK(tensor_paths(OnlyField{}) == Paths{"weight"});
  CHECK(tensor_paths(Mlp{}) == Paths{"scale"});
}

}  // namespace module_test
