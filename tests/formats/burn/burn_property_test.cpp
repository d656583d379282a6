// Burn's records of random modules: what is saved comes back, in every encoding, and little is read to open it.
#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>
#include <stele/transform.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace burn_property_test {

namespace {

using namespace stele;
using namespace stele_test;

template <class Settings = NativePrecision>
BurnRecorder<Settings> recorder_of(BurnEncoding encoding, bool gzip = false, std::optional<Schema> schema = {}) {
  return BurnRecorder<Settings>(BurnFormat({.encoding = encoding, .gzip = gzip, .schema = std::move(schema)}));
}

/// Returns the type, shape, content and id of a leaf as text.
std::string facts_at(const LeafView& leaf) {
  std::string text = std::string(name(leaf.dtype())) + to_string(leaf.shape()) + good(content(leaf));
  if (const auto id = leaf.id()) text += " id " + std::to_string(id->high) + " " + std::to_string(id->low);
  return text;
}

/// Checks that `after` has every tensor of `before`, with its id if it has one, and every value.
void check_holds(const Snapshot& after, const Snapshot& before) {
  std::vector<std::string> values;
  for (std::uint32_t i = 0; i < before.nodes().size(); ++i) {
    const Node& node = before.nodes()[i];
    const std::string path = before.path(i);
    CAPTURE(path);
    if (node.kind == NodeKind::value) values.push_back(path + to_text(before.value(node)));
    if (node.kind != NodeKind::tensor) continue;
    const LeafView leaf = before.leaf(node.index);
    const auto found = after.find(path);
    REQUIRE(found);
    const std::string fact = facts_at(*found);
    REQUIRE(fact.substr(0, facts_at(leaf).size()) == facts_at(leaf));
  }
  std::vector<std::string> loaded;
  for (std::uint32_t i = 0; i < after.nodes().size(); ++i) {
    const Node& node = after.nodes()[i];
    if (node.kind == NodeKind::value) loaded.push_back(after.path(i) + to_text(after.value(node)));
  }
  for (const std::string& value : values) REQUIRE(std::find(loaded.begin(), loaded.end(), value) != loaded.end());
}

}  // namespace

TEST_CASE("burn: random modules come back") {
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json}) {
    std::size_t saves = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      Random random(seed);
      const Branch module = RandomModule(random, encoding == BurnEncoding::json).make();
      const Snapshot before = good(snapshot_of(module));
      const auto recorder = recorder_of(encoding, seed % 4 == 0);
      const auto bytes = saved(recorder, module);
      if (!bytes) {  // bytes as a value; in JSON texts that are not UTF-8, numbers that are not finite
        REQUIRE_MESSAGE(bytes.error().code() == Errc::not_representable, why(bytes));
        continue;
      }
      ++saves;
      const auto loaded = recorder.load<Branch>(*bytes);
      REQUIRE_MESSAGE(loaded, why(loaded));
      const Snapshot after = good(snapshot_of(*loaded));
      check_holds(after, before);
      // Ids that were made are those of the paths, and stay.
      REQUIRE(text_of(good(saved(recorder, *loaded)).span()) == text_of(bytes->span()));
      const Snapshot opened = good(recorder.open(*bytes));
      REQUIRE(text_of(good(saved(recorder, opened)).span()) == text_of(bytes->span()));
      const auto other =
          recorder_of(encoding == BurnEncoding::mpk ? BurnEncoding::json : BurnEncoding::mpk, seed % 3 == 0);
      if (const auto converted = saved(other, opened)) {
        const Branch there = good(other.load<Branch>(*converted));
        check_holds(good(snapshot_of(there)), before);
      }
    }
    CHECK(saves > 10);
  }
}

namespace {

struct Cell {
  Param<Tensor<float>> weight;
  std::optional<Param<Tensor<float, 1>>> bias;
};
struct Moments {
  std::uint64_t time = 0;
  std::int16_t small = 0;
  double rate = 0;
  bool nesterov = false;
  std::string name;
  std::map<std::string, Tensor<float>> momentum;
  std::optional<Tensor<double>> velocity;
  static constexpr Attribute stele_attributes[] = {attr::burn_record()};
  STELE_MODULE(Moments, time, small, rate, nesterov, name, momentum, velocity)
};
/// All that Rust has, too.
struct RustNet {
  std::vector<Cell> cells;
  std::array<Cell, 2> pair;
  std::tuple<Cell, Param<Tensor<bool>>> mixed;
  std::variant<Cell, std::vector<Cell>> choice;
  std::optional<std::vector<std::vector<Cell>>> grid;
  std::map<std::string, Moments> states;
  Param<Tensor<std::int32_t>> counts;
  static constexpr Attribute stele_attributes[] = {attr::burn_layout(
      "groups, cells, pair, stride[2], mixed, choice, grid, act(3 Relu), states, counts, pool{k[2], pad}")};
};

Param<Tensor<float>> tensor(Random& random, std::size_t rank) {
  std::vector<Extent> extents(rank);
  for (Extent& e : extents) e = random.below(5);
  Param<Tensor<float>> p(Tensor<float>{Shape(extents)});
  for (float& f : p.value.span()) f = static_cast<float>(random.below(1000)) / 8;
  p.id = ParamId::from_u64(random.bits());
  return p;
}
Cell cell(Random& random) {
  Cell c;
  c.weight = tensor(random, random.below(4));
  if (random.chance(50)) {
    const auto extent = static_cast<float>(random.below(100));
    c.bias = Param<Tensor<float, 1>>(vec({extent, extent}));
    c.bias->id = ParamId::from_uuid(random.bits(), random.bits());
  }
  return c;
}
std::vector<Cell> cells(Random& random) {
  std::vector<Cell> list(random.below(4));
  for (Cell& c : list) c = cell(random);
  return list;
}
RustNet rust_net(Random& random) {
  RustNet net;
  net.cells = cells(random);
  for (Cell& c : net.pair) c = cell(random);
  std::get<0>(net.mixed) = cell(random);
  std::get<1>(net.mixed) = Tensor<bool>({2}, {true, random.chance(50)});
  if (random.chance(50)) {
    net.choice = cells(random);
  } else {
    net.choice = cell(random);
  }
  if (random.chance(50)) {
    net.grid.emplace(random.below(3));
    for (auto& row : *net.grid) row = cells(random);
  }
  for (std::size_t n = random.below(3); n != 0; --n) {
    Moments& m = net.states[random.name(true)];
    m.time = random.bits() >> random.below(64);
    m.small = static_cast<std::int16_t>(random.bits());
    m.rate = static_cast<double>(random.below(100)) / 16;
    m.nesterov = random.chance(50);
    m.name = random.name(true);
    m.momentum["m"] = tensor(random, 2).value;
    if (random.chance(50)) m.velocity = Tensor<double>({1}, {m.rate});
  }
  net.counts = Tensor<std::int32_t>({2}, {static_cast<std::int32_t>(random.bits()), -1});
  return net;
}

}  // namespace

TEST_CASE("burn: random modules of what Rust has come back in bincode, and are the same in all encodings") {
  const auto plain = recorder_of(BurnEncoding::bin, false, schema_of<RustNet>());
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const RustNet net = rust_net(random);
    const Bytes bytes = good(saved(plain, net));
    const std::string file(text_of(bytes.span()));
    const RustNet loaded = good(plain.load<RustNet>(bytes));
    CHECK(image(good(snapshot_of(loaded))).values == image(good(snapshot_of(net))).values);
    CHECK(text_of(good(saved(plain, loaded)).span()) == file);
    const Snapshot opened = good(plain.open(bytes));
    CHECK(text_of(good(saved(plain, opened)).span()) == file);
    CHECK(code_of(recorder_of(BurnEncoding::bin).open(bytes)) == Errc::needs_layout);
    const auto packed = recorder_of(BurnEncoding::bin, true, schema_of<RustNet>());
    CHECK(text_of(good(saved(plain, good(packed.load<RustNet>(good(saved(packed, net)))))).span()) == file);
    for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json}) {
      // From a module, and from what bincode holds: the same text. And back.
      const auto named = recorder_of(encoding);
      const Bytes text = good(saved(named, net));
      CHECK(text_of(good(saved(named, good(named.load<RustNet>(text)))).span()) == text_of(text.span()));
      CHECK(text_of(good(saved(plain, good(named.load<RustNet>(text)))).span()) == file);
      const Bytes converted = good(saved(named, opened));
      CHECK(text_of(good(saved(plain, good(named.load<RustNet>(converted)))).span()) == file);
    }
  }
}

TEST_CASE_TEMPLATE("burn: random modules at a precision", Settings, BurnFullPrecision, BurnHalfPrecision,
                   BurnDoublePrecision) {
  const std::size_t size = sizeof(typename Settings::Float);
  const DType floats = size == 2 ? DType::f16 : size == 4 ? DType::f32 : DType::f64;
  const DType ints = size == 2 ? DType::i16 : size == 4 ? DType::i32 : DType::i64;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    RustNet net = rust_net(random);
    net.counts = Tensor<std::int32_t>({2}, {1, -1});
    for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json, BurnEncoding::bin}) {
      const auto recorder = recorder_of<Settings>(encoding, false, schema_of<RustNet>());
      const Bytes bytes = good(saved(recorder, net));
      const Snapshot opened = good(recorder.open(bytes));
      for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
        const DType dtype = opened.leaf(i).dtype();
        CHECK((dtype == floats || dtype == ints || dtype == DType::boolean));
      }
      CHECK(stele::burn_header(opened).value().settings.starts_with(floats == DType::f16   ? "Half"
                                                                    : floats == DType::f64 ? "Double"
                                                                                           : "Full"));
      CHECK(text_of(good(saved(recorder, good(recorder.template load<RustNet>(bytes)))).span()) ==
            text_of(bytes.span()));
    }
  }
}

TEST_CASE("burn: flat names and transformed snapshots are nested again") {
  const Mlp mlp = small_mlp();
  const Bytes flat = good(MemoryRecorder<SafetensorsFormat>().save(mlp));
  SaveOptions options;
  options.metadata = {{"author", "me"}, {"step", "7"}};
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json}) {
    const auto recorder = recorder_of(encoding);
    const Snapshot names = good(MemoryRecorder<SafetensorsFormat>().open(flat));
    const Bytes bytes = good(saved(recorder, names, options));
    const Snapshot nested = good(recorder.open(bytes));
    CHECK(!nested.flat());
    CHECK(nested.metadata().at("author") == "me");
    CHECK(nested.metadata().at("step") == "7");
    const Mlp back = good(recorder.load<Mlp>(bytes));
    CHECK(back.layers.size() == 2);
    CHECK(back.seed == mlp.seed);
    CHECK(image(back).text.find("=" + good(content(names.leaf(0)))) != std::string::npos);
    const Snapshot moved = good(stele::rename(names, {{"layers.0.", "first."}}));
    const Snapshot again = good(recorder.open(good(saved(recorder, moved))));
    CHECK(again.find("first.weight"));
  }
}

TEST_CASE("burn: ids, dtypes and notes go through .stele and through each other") {
  for (const char* name : {"0.21.0/dtypes.mpk", "0.21.0/net-half.mpk", "0.21.0/net-full.mpk"}) {
    CAPTURE(name);
    const std::string file = read_text(test_data("burn") + "/" + std::string(name));
    const auto mpk = recorder_of(BurnEncoding::mpk);
    const auto json = recorder_of(BurnEncoding::json);
    const Bytes binary = good(saved(BinaryRecorder<>(), good(mpk.open(bytes_of(file)))));
    const Bytes text = good(saved(json, good(BinaryRecorder<>().open(binary))));
    const Bytes again = good(saved(BinaryRecorder<>(), good(json.open(text))));
    const Bytes last = good(saved(mpk, good(BinaryRecorder<>().open(again))));
    CHECK(text_of(last.span()) == file);
  }
}

namespace {

/// Counts what is read.
class Counted final : public Source {
 public:
  explicit Counted(std::span<const std::byte> bytes) : Source("counted"), bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    read += out.size();
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  std::span<const std::byte> bytes_;
};

struct Large {
  Vec head;
  std::vector<Vec> layers;
};
struct Head {
  Vec head;
};

}  // namespace

TEST_CASE("burn: opening reads little of a large file, loading a part no more than that") {
  Large large;
  large.head = Vec(vec({1, 2}));
  large.layers.assign(64, Vec(Tensor<float, 1>({std::size_t{1} << 18U})));
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin}) {
    const auto recorder = recorder_of(encoding, false, schema_of<Large>());
    const Bytes bytes = good(saved(recorder, large));
    REQUIRE(bytes.size() > std::size_t{64} << 20U);
    const auto source = std::make_shared<Counted>(bytes.span());
    const Snapshot opened = good(recorder.open(SourcePtr(source)));
    CHECK(opened.leaf_count() == 65);
    CHECK(source->read < std::uint64_t{1} << 20U);
    if (encoding == BurnEncoding::bin) continue;
    LoadOptions options;
    options.allow_unused = {"layers.**"};
    const Head head = good(recorder.load<Head>(SourcePtr(source), options));
    CHECK(head.head.value.span()[1] == 2);
    CHECK(source->read < std::uint64_t{2} << 20U);
  }
}

}  // namespace burn_property_test
