// Snapshot -> Snapshot: names chosen and changed, tensors cut, joined and permuted, precision by name.
#include <stele/pattern.hpp>
#include <stele/transform.hpp>
#include <stele/transforms/pytorch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele_test;
using stele::Errc;
using stele::Snapshot;
using stele::Tensor;

namespace stele_test {
namespace {

template <class M>
Snapshot snap(const M& m) {
  return good(stele::snapshot_of(m));
}
template <class M>
Snapshot snap(const M&&) = delete;

/// "tensor a.b", "alias c -> d", in order.
Paths listing(const Snapshot& s) {
  Paths all;
  for (std::uint32_t i = 1; i < s.nodes().size(); ++i) {
    const stele::Node& node = s.nodes()[i];
    all.push_back(std::string(name(node.kind)) + " " + s.path(i));
    if (node.kind == stele::NodeKind::alias) all.back() += " -> " + s.path(node.index);
  }
  return all;
}
Paths names(const Snapshot& s) {
  Paths all;
  for (std::size_t i = 0; i < s.leaf_count(); ++i) all.push_back(s.leaf(i).path());
  return all;
}

std::vector<float> numbers(const stele::LeafView& leaf) {
  const std::string bytes = good(content(leaf));
  std::vector<float> all(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}
std::vector<float> numbers(const Snapshot& s, std::string_view path) {
  const auto leaf = s.find(path);
  REQUIRE(leaf);
  return numbers(*leaf);
}
/// The same by read(), in parts of an odd length.
std::vector<float> by_reading(const Snapshot& s, std::string_view path) {
  const auto leaf = s.find(path);
  REQUIRE(leaf);
  std::vector<float> all(static_cast<std::size_t>(leaf->size()));
  for (std::size_t i = 0; i < all.size(); i += 5) {
    const std::size_t n = std::min<std::size_t>(5, all.size() - i);
    good(leaf->read(i * sizeof(float), std::as_writable_bytes(std::span(all).subspan(i, n))));
  }
  return all;
}

struct Cube {
  Tensor<float, 3> t;
};
Cube cube(std::size_t a, std::size_t b, std::size_t c) {
  Cube m{Tensor<float, 3>({a, b, c})};
  std::iota(m.t.begin(), m.t.end(), 0.0F);
  return m;
}

}  // namespace

TEST_CASE("pattern: stars, question marks, everything else itself") {
  using stele::matches;
  CHECK(matches("encoder.*", "encoder.0.weight"));
  CHECK(!matches("encoder.*", "encoder"));
  CHECK(!matches("encoder.*", "my.encoder.0"));
  CHECK(matches("*", ""));
  CHECK(matches("*.bias", "a.b.bias"));
  CHECK(matches("*a*b*", "xxaxxabx"));
  CHECK(!matches("*a*b*c", "xxaxxabx"));
  CHECK(matches("layers.?.w", "layers.3.w"));
  CHECK(!matches("layers.?.w", "layers.13.w"));
  CHECK(matches("a\\.b", "a\\.b"));
  CHECK(!matches("", "a"));
  CHECK(matches("", ""));
  const std::string many(20000, 'a');
  CHECK(!matches("*a*a*a*a*a*a*a*a*b", many));
}

TEST_CASE("transform: filters choose by pattern and predicate") {
  const Mlp m = small_mlp();
  CHECK(names(good(filter(snap(m), {{"layers.0.*", "scale"}, {"*.bias"}, {}}))) == Paths{"layers.0.weight", "scale"});
  const auto large = [](std::string_view, const stele::LeafView* leaf) { return leaf != nullptr && leaf->size() > 4; };
  CHECK(names(good(filter(snap(m), {{}, {}, large}))) == Paths{"layers.0.weight", "layers.1.weight"});
  const stele::Error e = bad(filter(snap(m), {{"layers.*", "layer.*"}, {}, {}}));
  CHECK(e.code() == Errc::not_found);
  CHECK(e.path() == "layer.*");

  // The tensors that are left load in part.
  stele::LoadOptions options;
  options.allow_missing = {"*"};
  Mlp other = small_mlp(50);
  good(stele::load_into(other, good(filter(snap(m), {{"layers.1.*"}, {}, {}})), options));
  CHECK(other.layers[1].weight->data()[0] == m.layers[1].weight->data()[0]);
  CHECK(other.layers[0].weight->data()[0] == 50);
  options.allow_missing = {"scale"};
  CHECK(bad(stele::load_into(other, good(filter(snap(m), {{"layers.1.*"}, {}, {}})), options)).path() ==
        "layers.0.weight");
}

TEST_CASE("transform: ties follow") {
  const TiedLayers t = tied_layers(1);
  const Snapshot s = snap(t);
  CHECK(listing(good(flatten(s))) == Paths{"tensor embedding", "tensor middle", "tensor encoder.weight",
                                           "tensor encoder.bias", "alias head -> embedding", "module encoder",
                                           "alias decoder -> encoder"});
  // The owner goes: the next name owns it. A shared module of which nothing goes stays one.
  CHECK(listing(good(filter(s, {{}, {"embedding"}, {}}))) == Paths{"tensor middle", "tensor head",
                                                                   "tensor encoder.weight", "tensor encoder.bias",
                                                                   "module encoder", "alias decoder -> encoder"});
  CHECK(listing(good(filter(s, {{"encoder.*", "decoder.weight"}, {}, {}}))) ==
        Paths{"tensor encoder.weight", "tensor encoder.bias", "alias decoder.weight -> encoder.weight"});
  CHECK(listing(good(filter(s, {{"decoder.*", "encoder.bias"}, {}, {}}))) ==
        Paths{"tensor encoder.bias", "tensor decoder.weight", "alias decoder.bias -> encoder.bias"});
  CHECK(numbers(good(part(s, "decoder")), "weight") == numbers(s, "encoder.weight"));

  CHECK(listing(good(rename(s, {{"coder", "c"}}))) == Paths{"tensor embedding", "tensor middle", "tensor enc.weight",
                                                            "tensor enc.bias", "alias head -> embedding", "module enc",
                                                            "alias dec -> enc"});
  CHECK(listing(good(rename(s, {{"^decoder.bias$", "b"}}))) ==
        Paths{"tensor embedding", "tensor middle", "tensor encoder.weight", "tensor encoder.bias",
              "alias head -> embedding", "alias b -> encoder.bias", "alias decoder.weight -> encoder.weight"});

  // They are still ties when they are loaded.
  for (const Snapshot& same :
       {good(flatten(s)), good(nest(good(flatten(s)))), good(part(good(with_prefix(s, "x.y")), "x.y"))}) {
    const TiedLayers back = good(stele::load<TiedLayers>(same));
    CHECK(back.embedding == back.head);
    CHECK(back.encoder == back.decoder);
    CHECK(image(back) == image(t));
  }
}

TEST_CASE("transform: renaming by regular expressions") {
  const Mlp m = small_mlp();
  const Snapshot s = snap(m);
  CHECK(names(good(rename(s, {{R"(^layers\.(\d+)\.)", R"(h.\1.fc.)"}, {"weight$", "w"}}))) ==
        Paths{"h.0.fc.w", "h.0.fc.bias", "h.1.fc.w", "scale"});
  const stele::Error same = bad(rename(s, {{R"(\.\d+\.)", "."}}));
  CHECK(same.code() == Errc::duplicate);
  CHECK(same.path() == "layers.weight");
  CHECK(same.found() == "layers.0.weight and layers.1.weight");
  const stele::Error pattern = bad(rename(s, {{"a(b", ""}}));
  CHECK(pattern.code() == Errc::invalid_argument);
  CHECK(pattern.path() == "a(b");
  CHECK(bad(rename(s, {{"a", R"(\1)"}})).code() == Errc::invalid_argument);
  CHECK(bad(rename(s, {{"(a", ""}})).found() != "");
}

TEST_CASE("transform: parts, prefixes, merging") {
  const Mlp m = small_mlp();
  const Snapshot s = snap(m);
  CHECK(names(good(part(s, "layers.0"))) == Paths{"weight", "bias"});
  CHECK(good(stele::load<Linear>(good(part(s, "layers.0")))).bias.has_value());
  CHECK(bad(part(s, "layers.7")).code() == Errc::not_found);
  CHECK(bad(part(s, "layer")).code() == Errc::not_found);
  const Linear a(2, 2, 1);
  const Linear b(3, 1, 5, false);
  const std::vector<Snapshot> both = {good(with_prefix(snap(a), "a")), good(with_prefix(snap(b), "b"))};
  CHECK(names(good(merge(both))) == Paths{"a.weight", "a.bias", "b.weight"});
  const std::vector<Snapshot> clash = {snap(a), snap(b)};
  CHECK(bad(merge(clash)).code() == Errc::duplicate);
  const std::vector<Snapshot> texts = {with_metadata(both[0], {{"k", "1"}}), with_metadata(both[1], {{"k", "2"}})};
  CHECK(bad(merge(texts)).path() == "k");
}

TEST_CASE("transform: random modules survive flatten and nest") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Branch module = RandomModule(random, true).make();
    const Snapshot before = snap(module);
    stele::Capabilities all = can<stele::BinaryRecorder<>>();
    const Snapshot flat = good(flatten(before));
    CHECK(flat.flat());
    for (const Snapshot& s : {flat, good(flatten(flat)), good(nest(flat))}) {
      const auto loaded = stele::load<Branch>(s);
      REQUIRE_MESSAGE(loaded, why(loaded));
      all.ids = true;
      REQUIRE(difference(facts(before, all), facts(snap(*loaded), all)) == "");
    }
  }
}

TEST_CASE("transform: nest makes lists of numbers, modules of names") {
  stele::SnapshotBuilder builder;
  builder.set_flat();
  static const float number = 1;
  static constexpr stele::LeafOps ops{
      .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  const auto add = [&](const char* path) { builder.tensor(path, stele::DType::f32, {}, 4, {&ops, &number, 0}); };
  for (const char* path : {"a.1", "a.0", "b.0", "b.2", "c\\.d.e"}) add(path);
  const Snapshot s = good(nest(builder.finish()));
  CHECK(outline(s) == "list a\ntensor a.0\ntensor a.1\nlist b\ntensor b.0\ntensor b.2\nmodule c\\.d\ntensor c\\.d.e\n");

  const auto error = [&](std::initializer_list<const char*> paths) {
    builder = {};
    builder.set_flat();
    for (const char* path : paths) add(path);
    return bad(nest(builder.finish())).code();
  };
  CHECK(error({"a", "a.b"}) == Errc::malformed);
  CHECK(error({"a..b"}) == Errc::malformed);
  CHECK(error({"a."}) == Errc::malformed);
  CHECK(error({"\\x"}) == Errc::malformed);
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "a.";
  CHECK(error({(deep + "a").c_str()}) == Errc::limit);
}

TEST_CASE("transform: transpose") {
  const Cube m = cube(3, 4, 5);
  const stele::Bytes file = good(stele::BytesRecorder<>{}.save(m));
  for (const Snapshot& s : {snap(m), good(stele::BytesRecorder<>{}.open(file))}) {
    const Snapshot reversed = good(transpose(s, "t"));
    CHECK(stele::to_string(reversed.find("t")->shape()) == "[5, 4, 3]");
    const std::array<std::size_t, 3> order{1, 2, 0};
    const Snapshot turned = good(transpose(s, "*", order));
    CHECK(stele::to_string(turned.find("t")->shape()) == "[4, 5, 3]");
    std::vector<float> expect_reversed;
    std::vector<float> expect_turned;
    for (std::size_t k = 0; k < 5; ++k) {
      for (std::size_t j = 0; j < 4; ++j) {
        for (std::size_t i = 0; i < 3; ++i) expect_reversed.push_back(m.t(i, j, k));
      }
    }
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t k = 0; k < 5; ++k) {
        for (std::size_t i = 0; i < 3; ++i) expect_turned.push_back(m.t(i, j, k));
      }
    }
    CHECK(numbers(reversed, "t") == expect_reversed);
    CHECK(by_reading(reversed, "t") == expect_reversed);
    CHECK(numbers(turned, "t") == expect_turned);
    CHECK(by_reading(turned, "t") == expect_turned);
    CHECK(numbers(good(transpose(reversed, "t")), "t") == numbers(s, "t"));
    CHECK(image(good(stele::load<Cube>(good(transpose(reversed, "t"))))) == image(m));
  }
  const std::array<std::size_t, 3> twice{0, 0, 1};
  const std::array<std::size_t, 2> few{1, 0};
  const std::array<std::size_t, 3> high{0, 1, 3};
  for (const std::span<const std::size_t> axes : {std::span<const std::size_t>(twice), {few}, {high}}) {
    CHECK(bad(transpose(snap(m), "t", axes)).code() == Errc::invalid_argument);
  }
  CHECK(bad(transpose(snap(m), "u")).code() == Errc::not_found);
}

TEST_CASE("transform: a tensor larger than a block is transposed and joined in several passes") {
  struct Matrix {
    Tensor<float, 2> t;
  };
  Matrix m{Tensor<float, 2>({3001, 3001})};  // 36 MB
  std::iota(m.t.begin(), m.t.end(), 0.0F);
  const std::vector<float> turned = numbers(good(transpose(snap(m), "t")), "t");
  bool same = true;
  for (std::size_t i = 0; i < 3001; i += 7) {
    for (std::size_t j = 0; j < 3001; ++j) same = same && turned[j * 3001 + i] == m.t(i, j);
  }
  CHECK(same);
  const std::vector<stele::Part> parts = {{"a", 1000}, {"b", 2001}};
  const Snapshot cut = good(split(snap(m), "t", 1, parts));
  const std::vector<std::string> both = {"a", "b"};
  CHECK(numbers(good(concatenate(cut, both, 1, "t")), "t") == std::vector<float>(m.t.begin(), m.t.end()));
}

TEST_CASE("transform: split and concatenate along every axis") {
  const Cube m = cube(4, 6, 5);
  const stele::Bytes file = good(stele::BytesRecorder<>{}.save(m));
  for (const Snapshot& s : {snap(m), good(stele::BytesRecorder<>{}.open(file))}) {
    for (const std::size_t axis : {0U, 1U, 2U}) {
      CAPTURE(axis);
      const std::size_t extent[] = {4, 6, 5};
      const std::vector<stele::Part> parts = {{"a", 1}, {"none", 0}, {"b", extent[axis] - 2}, {"c", 1}};
      const Snapshot cut = good(split(s, "t", axis, parts));
      CHECK(names(cut) == Paths{"a", "none", "b", "c"});
      CHECK(cut.find("b")->shape()[axis] == extent[axis] - 2);
      std::vector<float> expect;
      for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 6; ++j) {
          for (std::size_t k = 0; k < 5; ++k) {
            const std::size_t at = axis == 0 ? i : axis == 1 ? j : k;
            if (at != 0 && at != extent[axis] - 1) expect.push_back(m.t(i, j, k));
          }
        }
      }
      CHECK(numbers(cut, "b") == expect);
      CHECK(by_reading(cut, "b") == expect);
      CHECK(numbers(cut, "none").empty());
      const std::vector<std::string> all = {"a", "none", "b", "c"};
      const Snapshot joined = good(concatenate(cut, all, axis, "t"));
      CHECK(numbers(joined, "t") == numbers(s, "t"));
      CHECK(by_reading(joined, "t") == numbers(s, "t"));
      CHECK(image(good(stele::load<Cube>(joined))) == image(m));
    }
  }
  const std::vector<stele::Part> short_of = {{"a", 1}, {"b", 2}};
  CHECK(bad(split(snap(m), "t", 0, short_of)).code() == Errc::shape_mismatch);
  CHECK(bad(split(snap(m), "t", 3, short_of)).code() == Errc::invalid_argument);
  CHECK(bad(split(snap(m), "u", 0, short_of)).code() == Errc::not_found);
  const std::vector<stele::Part> same = {{"a", 2}, {"a", 2}};
  CHECK(bad(split(snap(m), "t", 0, same)).code() == Errc::duplicate);

  const Mlp mlp = small_mlp();
  const std::vector<std::string> unlike = {"layers.0.weight", "layers.1.weight"};
  CHECK(bad(concatenate(snap(mlp), unlike, 0, "x")).code() == Errc::shape_mismatch);
  CHECK(bad(concatenate(snap(mlp), unlike, 2, "x")).code() == Errc::invalid_argument);
  CHECK(bad(concatenate(snap(mlp), {}, 0, "x")).code() == Errc::invalid_argument);
  const std::vector<std::string> tie = {"embedding", "middle"};
  const TiedLayers t = tied_layers(1);
  CHECK(bad(concatenate(snap(t), tie, 0, "x")).found() == "head");
}

TEST_CASE("transform: what is made of a damaged tensor is an error") {
  const Cube m = cube(4, 6, 5);
  const stele::Bytes file = good(stele::BytesRecorder<>{}.save(m));
  std::vector<std::byte> damaged(file.span().begin(), file.span().end());
  damaged[64 + 3] ^= std::byte{1};  // in the first block
  const Snapshot s = good(stele::BytesRecorder<>{}.open(std::span<const std::byte>(damaged)));
  const std::vector<stele::Part> parts = {{"a", 1}, {"b", 3}};
  const std::vector<std::string> both = {"a", "b"};
  const Snapshot cut = good(split(s, "t", 0, parts));
  CHECK(code_of(content(*cut.find("b"))) == Errc::checksum);
  CHECK(code_of(content(*good(transpose(s, "t")).find("t"))) == Errc::checksum);
  CHECK(code_of(content(*good(concatenate(cut, both, 0, "t")).find("t"))) == Errc::checksum);
}

TEST_CASE("transform: precision by name") {
  const Mlp m = small_mlp();
  const stele::PrecisionRule rules[] = {{"*.bias", {}},
                                        {"layers.0.*", {stele::DType::f64, stele::DType::none}},
                                        {"*", {stele::DType::f16, stele::DType::none}}};
  const Snapshot s = with_precision(snap(m), rules);
  CHECK(s.find("layers.0.bias")->dtype() == stele::DType::f32);
  CHECK(s.find("layers.0.weight")->dtype() == stele::DType::f64);
  CHECK(s.find("layers.1.weight")->dtype() == stele::DType::f16);
  CHECK(s.find("scale")->byte_size() == 6);
  CHECK(image(good(stele::load<Mlp>(s))) == image(m));
}

// ---- PyTorch --------------------------------------------------------------------------------------------------------

namespace {

class Dense {  // [in, out]
 public:
  Mat weight;
  Vec bias;
  STELE_MODULE(Dense, weight, bias)
};
class Norm {
 public:
  Vec gamma, beta;
  STELE_MODULE(Norm, gamma, beta)
};
struct Block {
  Dense fc;
  Norm norm;
};
struct Net {
  std::vector<Block> blocks;
  std::optional<Dense> head;
};
Net net() {
  Net n;
  for (int i = 0; i < 2; ++i) {
    Block b;
    b.fc.weight = mat(2, 3, static_cast<float>(10 * i));
    b.fc.bias = vec({1, 2, 3});
    b.norm.gamma = vec({4, 5, 6});
    b.norm.beta = vec({7, 8, 9});
    n.blocks.push_back(std::move(b));
  }
  n.head.emplace();
  n.head->weight = mat(3, 1, 100);
  n.head->bias = vec({0});
  return n;
}

}  // namespace

TEST_CASE("pytorch: names and layouts by rules, there and back") {
  const std::vector<stele::pytorch::LayerRule> rules = {stele::pytorch::linear_in_out("Dense"),
                                                        stele::pytorch::norm_gamma_beta("Norm")};
  const Net n = net();
  const Snapshot there = good(stele::pytorch::restore(snap(n), rules));
  CHECK(names(there) == Paths{"blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.0.norm.weight", "blocks.0.norm.bias",
                              "blocks.1.fc.weight", "blocks.1.fc.bias", "blocks.1.norm.weight", "blocks.1.norm.bias",
                              "head.weight", "head.bias"});
  CHECK(stele::to_string(there.find("blocks.1.fc.weight")->shape()) == "[3, 2]");
  CHECK(numbers(there, "blocks.1.fc.weight") == std::vector<float>{10, 13, 11, 14, 12, 15});

  const stele::Bytes file = good(stele::MemoryRecorder<stele::SafetensorsFormat>{}.save(there));
  const Snapshot opened = good(stele::SafetensorsRecorder<>{}.open(file));
  CHECK(image(good(stele::load<Net>(good(stele::pytorch::adapt<Net>(opened, rules))))) == image(n));
  CHECK(bad(stele::load<Net>(opened)).code() != Errc::none);  // never without being asked
  CHECK(bad(stele::pytorch::restore(opened, rules)).code() == Errc::invalid_argument);
}

}  // namespace stele_test
