// Records: borrowing, owning, editing by hand, typed leaves, and what can be asked of a model's parameters.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/snapshot.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>
#include <boost/describe/class.hpp>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace record_test {

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::Param;
using stele::ParamId;
using stele::Record;
using stele::Tensor;

namespace {

using One = std::array<float, 1>;

struct Zoo {
  Mat weight;
  std::vector<float> plain;
  std::optional<Vec> bias;
  std::vector<Linear> layers;
  std::map<std::string, Vec> heads;
  std::tuple<Vec, std::vector<double>> pair;
  std::variant<Vec, Linear> either;
  std::unique_ptr<Linear> pointer;
  std::shared_ptr<Vec> shared, tied;
  int steps = 0;
  std::string label;
  STELE_MODULE(Zoo, weight, plain, bias, layers, heads, pair, either, pointer, shared, tied, steps, label)
};

Zoo zoo() {
  Zoo z;
  z.weight = Mat(mat(2, 3, 1), ParamId::from_u64(77));
  z.plain = {1, 2, 3};
  z.bias = vec({4, 5});
  z.layers.emplace_back(2, 2, 10.0F);
  z.layers.emplace_back(2, 1, 20.0F, false);
  z.heads["a"] = vec({6});
  z.heads["b"] = vec({7});
  z.pair = {vec({8}), {9.0}};
  z.either = Linear(1, 1, 30);
  z.pointer = std::make_unique<Linear>(1, 2, 40.0F);
  z.shared = z.tied = std::make_shared<Vec>(vec({50, 51}));
  z.steps = 12;
  z.label = "zoo";
  return z;
}

struct Described {
  Vec weight;
};
BOOST_DESCRIBE_STRUCT(Described, (), (weight))
struct DescribedOuter {
  Described inner;
  Vec weight;
};
BOOST_DESCRIBE_STRUCT(DescribedOuter, (), (inner, weight))

struct Node {
  Vec weight;
  std::unique_ptr<Node> next;
  STELE_MODULE(Node, weight, next)
};

/// Returns the address of each tensor of a module, in order; null if it is not in memory.
template <class M>
std::vector<const std::byte*> places(const M& m) {
  std::vector<const std::byte*> all;
  const stele::Snapshot s = good(stele::snapshot_of(m));
  for (std::size_t i = 0; i < s.leaf_count(); ++i) all.push_back(s.leaf(i).view().data());
  return all;
}

template <class M>
concept RecordOfTakes = requires(M&& m) {
  stele::record_of(std::forward<M>(m));
};
template <class M>
concept SnapshotOfTakes = requires(M&& m) {
  stele::snapshot_of(std::forward<M>(m));
};

}  // namespace

TEST_CASE("record: its members have the module's names and types") {
  using R = Record<Zoo>;
  static_assert(std::is_same_v<decltype(R::weight), stele::TypedLeaf<Mat>>);
  static_assert(std::is_same_v<decltype(R::plain), stele::TypedLeaf<std::vector<float>>>);
  static_assert(std::is_same_v<decltype(R::bias), std::optional<stele::TypedLeaf<Vec>>>);
  static_assert(std::is_same_v<decltype(R::layers), std::vector<Record<Linear>>>);
  static_assert(std::is_same_v<decltype(R::heads), std::map<std::string, stele::TypedLeaf<Vec>>>);
  static_assert(
      std::is_same_v<decltype(R::pair), std::tuple<stele::TypedLeaf<Vec>, stele::TypedLeaf<std::vector<double>>>>);
  static_assert(std::is_same_v<decltype(R::either), std::variant<stele::TypedLeaf<Vec>, Record<Linear>>>);
  static_assert(std::is_same_v<decltype(R::pointer), std::unique_ptr<Record<Linear>>>);
  static_assert(std::is_same_v<decltype(R::shared), std::shared_ptr<stele::TypedLeaf<Vec>>>);
  static_assert(std::is_same_v<decltype(R::steps), int> && std::is_same_v<decltype(R::label), std::string>);
  static_assert(std::is_move_constructible_v<R> && std::is_move_assignable_v<R>);
  static_assert(!std::is_copy_constructible_v<R> && !std::is_copy_assignable_v<R>);
  static_assert(std::is_same_v<R::module_type, Zoo>);
}

TEST_CASE("record: record_of borrows") {
  const Zoo z = zoo();
  const auto r = good(stele::record_of(z));
  CHECK(r.weight.shape()[0] == 2);
  CHECK(r.weight.shape()[1] == 3);
  CHECK(r.weight.size() == 6);
  CHECK(r.weight.byte_size() == 24);
  CHECK(r.weight.dtype() == DType::f32);
  CHECK(r.weight.id() == ParamId::from_u64(77));
  CHECK_FALSE(r.plain.id().has_value());
  CHECK(r.weight.leaf().view().data() == reinterpret_cast<const std::byte*>(z.weight->data()));
  CHECK(r.plain.leaf().view().data() == reinterpret_cast<const std::byte*>(z.plain.data()));
  CHECK(r.layers[1].weight.leaf().view().data() == reinterpret_cast<const std::byte*>(z.layers[1].weight->data()));
  CHECK_FALSE(r.layers[1].bias.has_value());
  CHECK(std::get<1>(r.either).weight.size() == 1);
  CHECK(r.steps == 12);
  CHECK(r.label == "zoo");
  CHECK(r.shared == r.tied);
  CHECK(places(r) == places(z));
  CHECK(image(r) == image(z));
}

// Borrowing from a temporary does not compile.
static_assert(RecordOfTakes<Zoo&> && RecordOfTakes<const Zoo&>);
static_assert(RecordOfTakes<Zoo> && !RecordOfTakes<const Zoo>);  // owned
static_assert(SnapshotOfTakes<const Zoo&> && !SnapshotOfTakes<Zoo>);

TEST_CASE("record: of a temporary owns, from_record moves back, no tensor is copied") {
  Zoo z = zoo();
  const auto before = places(z);
  const Image content = image(z);
  auto r = good(stele::record_of(std::move(z)));
  CHECK(places(r) == before);
  const Zoo back = good(stele::from_record(std::move(r)));
  CHECK(places(back) == before);
  CHECK(image(back) == content);
  CHECK(back.shared == back.tied);
}

TEST_CASE("record: from a borrowed record tensors are copied") {
  const Zoo z = zoo();
  const Zoo copy = good(stele::from_record(good(stele::record_of(z))));
  CHECK(image(copy) == image(z));
  const auto a = places(z), b = places(copy);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] != b[i]);
  CHECK(image(z) == image(zoo()));
}

TEST_CASE("record: loading from a record leaves it whole") {
  auto r = good(stele::record_of(zoo()));
  Zoo first = zoo(), second = zoo();
  first.weight->data()[0] = second.weight->data()[0] = -1;
  good(stele::load_into(first, r));
  good(stele::load_into(second, r));
  CHECK(image(first) == image(zoo()));
  CHECK(image(second) == image(zoo()));
  CHECK(image(r) == image(zoo()));
  // Nor does a snapshot of it give its tensors away.
  const stele::Snapshot s = good(stele::snapshot_of(r));
  CHECK(image(good(stele::load<Zoo>(s))) == image(zoo()));
  CHECK(image(good(stele::load<Zoo>(s))) == image(zoo()));
  CHECK(image(good(stele::from_record(std::move(r)))) == image(zoo()));
}

TEST_CASE("record: leaves move, so that no tensor is shared unseen") {
  static_assert(!std::is_copy_constructible_v<stele::TypedLeaf<Vec>>);
  static_assert(!std::is_copy_assignable_v<stele::TypedLeaf<Vec>>);
  auto r = good(stele::record_of(zoo()));
  r.heads["a"] = std::move(r.heads["b"]);
  CHECK_FALSE(r.heads["b"].has_value());
  r.heads.erase("b");
  const Zoo z = good(stele::from_record(std::move(r)));
  CHECK((*z.heads.at("a"))[0] == 7);
  CHECK(z.heads.size() == 1);
}

TEST_CASE("record: editing by hand") {
  const Zoo original = zoo();
  auto r = good(stele::record_of(original));
  r.weight = mat(1, 2, 60);  // a tensor, for a Param: no id
  r.plain = std::vector<float>{9, 8};
  r.bias.reset();
  r.layers.resize(3);
  r.layers[2].weight = mat(1, 1, 70);
  r.layers[1].bias.emplace(Vec(vec({71})));
  r.layers.erase(r.layers.begin());
  r.heads["new"] = Vec(vec({72}), ParamId::from_uuid(1, 2));
  std::get<0>(r.pair) = vec({73});
  r.either = stele::TypedLeaf<Vec>(vec({74}));
  r.pointer.reset();
  r.steps = 99;
  CHECK(r.weight.shape()[1] == 2);
  CHECK(r.heads["new"].id() == ParamId::from_uuid(1, 2));

  const Zoo z = good(stele::from_record(std::move(r)));
  CHECK(z.weight->shape() == std::array<stele::Extent, 2>{1, 2});
  CHECK((*z.weight)(0, 1) == 61);
  CHECK_FALSE(z.weight.id.has_value());
  CHECK(z.plain == std::vector<float>{9, 8});
  CHECK_FALSE(z.bias.has_value());
  REQUIRE(z.layers.size() == 2);
  CHECK((**z.layers[0].bias)[0] == 71);
  CHECK((*z.layers[1].weight)(0, 0) == 70);
  CHECK(z.heads.at("new").id == ParamId::from_uuid(1, 2));
  CHECK((*z.heads.at("a"))[0] == 6);
  CHECK((*std::get<0>(z.pair))[0] == 73);
  CHECK((*std::get<0>(z.either))[0] == 74);
  CHECK(z.pointer == nullptr);
  CHECK(z.steps == 99);
  CHECK(z.shared == z.tied);
  CHECK(image(original) == image(zoo()));
}

TEST_CASE("record: built from nothing") {
  // Memory full of ones: what is not assigned must have a value all the same.
  alignas(Record<Zoo>) std::array<std::byte, sizeof(Record<Zoo>)> memory;
  memory.fill(std::byte{0xff});
  auto* zeroed = new (memory.data()) Record<Zoo>;
  CHECK(zeroed->steps == 0);
  zeroed->~Record<Zoo>();

  Record<Linear> r;
  CHECK_FALSE(r.weight.has_value());
  r.weight = mat(2, 1, 5);
  const Linear l = good(stele::from_record(std::move(r)));
  CHECK((*l.weight)(1, 0) == 6);
  CHECK_FALSE(l.bias.has_value());
}

TEST_CASE("record: get by name on listed, aggregate and described modules") {
  const Linear l(2, 3, 1);
  auto listed = good(stele::record_of(l));
  CHECK(&stele::get<"weight">(listed) == &listed.weight);
  static_assert(
      std::is_same_v<decltype(stele::get<"bias">(std::as_const(listed))), const std::optional<stele::TypedLeaf<Vec>>&>);
  const Mlp m = small_mlp();
  auto plain = good(stele::record_of(m));
  CHECK(stele::get<"layers">(plain)[0].weight.shape()[0] == 4);
  CHECK(stele::get<"scale">(std::as_const(plain)).size() == 3);
  stele::get<"scale">(plain) = vec({1});
  stele::get<"layers">(plain).pop_back();
  auto moved = stele::get<"layers">(std::move(plain));
  CHECK(moved.size() == 1);
  CHECK(moved[0].weight.has_value());
  CHECK(good(stele::get<"scale">(plain).load()).size() == 1);
  DescribedOuter d{{vec({1})}, vec({2, 3})};
  const auto described = good(stele::record_of(d));
  CHECK(stele::get<"weight">(stele::get<"inner">(described)).size() == 1);
  CHECK(stele::get<"weight">(described).size() == 2);
  const Image wanted = image(described);
  CHECK(image(good(stele::from_record(good(stele::record_of(std::move(d)))))) == wanted);
}

TEST_CASE("record: a leaf loads alone, converted") {
  struct Model {
    Tensor<double, 1> wide;
  };
  const Model m{Tensor<double, 1>({2}, {1.5, 1e300})};
  const stele::Snapshot s = good(stele::snapshot_of(m));
  const auto r = good(stele::load<stele::Record<Model>>(s));
  CHECK(good(stele::get<"wide">(r).load())[1] == 1e300);

  struct Narrow {
    Tensor<float, 1> wide;
  };
  auto n = good(stele::load<stele::Record<Narrow>>(s));
  CHECK(stele::get<"wide">(n).dtype() == DType::f64);  // as in the file
  const stele::Error overflow = bad(stele::get<"wide">(n).load());
  CHECK(overflow.code() == Errc::out_of_range);
  CHECK(overflow.found().find("element 1") != std::string::npos);

  struct OtherRank {
    Tensor<double, 2> wide;
  };
  const auto o = good(stele::load<stele::Record<OtherRank>>(s));
  CHECK(bad(stele::get<"wide">(o).load()).code() == Errc::shape_mismatch);
  struct OtherKind {
    Tensor<int, 1> wide;
  };
  const auto k = good(stele::load<stele::Record<OtherKind>>(s));
  CHECK(bad(stele::get<"wide">(k).load()).code() == Errc::dtype_mismatch);
  struct Exact {
    std::array<double, 3> wide{};
  };
  const auto e = good(stele::load<stele::Record<Exact>>(s));
  CHECK(bad(stele::get<"wide">(e).load()).code() == Errc::shape_mismatch);
  const Record<Exact> empty;
  CHECK(bad(stele::get<"wide">(empty).load()).code() == Errc::not_found);

  struct F16 {
    Param<Tensor<stele::float16, 1>> w;
  };
  const F16 half{Param(Tensor<stele::float16, 1>({1}, {stele::float16(0.5F)}), ParamId::from_u64(5))};
  struct F32 {
    Vec w;
  };
  const Vec loaded =
      good(stele::get<"w">(good(stele::load<stele::Record<F32>>(good(stele::snapshot_of(half))))).load());
  CHECK((*loaded)[0] == 0.5F);
  CHECK(loaded.id == ParamId::from_u64(5));
}

TEST_CASE("record: an empty leaf is an error that names its path") {
  auto r = good(stele::record_of(zoo()));
  r.layers.resize(3);
  const stele::Error e = bad(stele::from_record(std::move(r)));
  CHECK(e.code() == Errc::not_found);
  CHECK(e.path() == "layers.2.weight");
  Record<Mlp> empty;
  CHECK(bad(stele::snapshot_of(empty)).path() == "scale");
  CHECK(bad(stele::BytesRecorder<>{}.save(empty)).path() == "scale");
}

TEST_CASE("record: recursion") {
  Node list;
  list.weight = vec({0});
  Node* last = &list;
  for (float i = 1; i < 5; ++i) {
    last->next = std::make_unique<Node>();
    last = last->next.get();
    last->weight = vec({i});
  }
  CHECK(tensor_paths(list).back() == "next.next.next.next.weight");
  auto r = good(stele::record_of(list));
  CHECK(r.next->next->weight.size() == 1);
  r.next->next->next.reset();
  const Node back = good(stele::from_record(std::move(r)));
  CHECK(tensor_paths(back).size() == 3);
  CHECK((*back.next->next->weight)[0] == 2);
}

TEST_CASE("record: what its leaves come from is kept alive") {
  std::optional<Record<Zoo>> kept;
  {
    stele::Bytes bytes = good(stele::BytesRecorder<>{}.save(zoo()));
    const stele::SourcePtr source = stele::own_bytes(std::move(bytes));
    const stele::Snapshot snapshot = good(stele::BytesRecorder<>{}.open(source));
    kept = good(stele::load<stele::Record<Zoo>>(snapshot));
  }
  CHECK(image(*kept) == image(zoo()));
  std::optional<stele::Snapshot> of_record = good(stele::snapshot_of(*kept));
  std::optional<Record<Zoo>> second = good(stele::load<stele::Record<Zoo>>(*of_record));
  kept.reset();
  of_record.reset();
  CHECK(image(*second) == image(zoo()));

  const TempDir dir;
  good(stele::BinaryRecorder<>{}.save(*second, dir / "zoo"));
  auto lazy = good(stele::BinaryRecorder<>{}.load<Record<Zoo>>(dir / "zoo"));
  CHECK(good(lazy.pointer->weight.load())->shape()[0] == 2);
  // A leaf taken out of its record lives on.
  stele::TypedLeaf<Mat> leaf = std::move(lazy.weight);
  lazy = Record<Zoo>();
  CHECK(good(leaf.load()).id == ParamId::from_u64(77));

  // Leaves of several files in one record.
  auto mixed = good(stele::BinaryRecorder<>{}.load<Record<Zoo>>(dir / "zoo"));
  mixed.layers[0] = std::move(second->layers[1]);
  second.reset();
  const Zoo z = good(stele::from_record(std::move(mixed)));
  CHECK((*z.layers[0].weight)(0, 0) == 20);
}

TEST_CASE("record: parts are moved between records") {
  auto a = good(stele::record_of(zoo()));
  auto b = good(stele::record_of(zoo()));
  const std::byte* place = b.layers[0].weight.leaf().view().data();
  a.layers.push_back(std::move(b.layers[0]));
  const Zoo z = good(stele::from_record(std::move(a)));
  REQUIRE(z.layers.size() == 3);
  CHECK(reinterpret_cast<const std::byte*>(z.layers[2].weight->data()) == place);
}

TEST_CASE("record: for_each_param, num_params and summary") {
  const Zoo z = zoo();
  std::vector<std::string> paths;
  std::uint64_t bytes = 0;
  good(stele::for_each_param(z, [&](const std::string& path, const stele::LeafView& leaf) {
    paths.push_back(path);
    bytes += leaf.byte_size();
  }));
  CHECK(paths == std::vector<std::string>{"weight", "plain", "bias", "layers.0.weight", "layers.0.bias",
                                          "layers.1.weight", "heads.a", "heads.b", "pair.0", "pair.1",
                                          "either.Linear.weight", "either.Linear.bias", "pointer.weight",
                                          "pointer.bias", "shared"});
  CHECK(stele::num_params(z) == 6 + 3 + 2 + 4 + 2 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 2 + 2 + 2);
  CHECK(bytes == good(stele::snapshot_of(z)).byte_size());
  CHECK(stele::num_params(good(stele::record_of(zoo()))) == stele::num_params(z));
  const std::string text = stele::summary(z);
  CHECK(text.find("weight  f32 [2, 3]  6\n") != std::string::npos);
  CHECK(text.find("15 tensors, 31 parameters") != std::string::npos);
  CHECK(stele::summary(good(stele::snapshot_of(z))) == text);

  const stele::Error e = bad(stele::for_each_param(z, [](const std::string&, const auto&) { throw 7; }));
  CHECK(e.code() == Errc::user_exception);
}

}  // namespace record_test
