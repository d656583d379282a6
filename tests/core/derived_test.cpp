// Pointers to a base: what they hold is saved whole under its class's name, or refused.
#include <stele/derived.hpp>
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/recorders/burn.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/recorders/stele_writer.hpp>
#include <stele/schema.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/hash.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::Report;
using stele::Snapshot;

namespace stele_test {
namespace {

using Paths = std::vector<std::string>;

// ---- an abstract base of layers, declared before its classes are defined --------------------------------------------

class Layer;
class Dense;
class Dropout;
class Stack;

}  // namespace
}  // namespace stele_test

template <>
struct stele::derived<stele_test::Layer>
    : stele::derived_list<stele_test::Dense, stele_test::Dropout, stele_test::Stack> {};

namespace stele_test {
namespace {

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string kind() const = 0;
  Vec scale;
  STELE_MODULE(Layer, scale)
};

class Dense : public Layer {
 public:
  Dense() = default;
  explicit Dense(float n) : weight(mat(2, 3, n)), bias(vec({n, n + 1})) { scale = vec({n}); }
  std::string kind() const override { return "dense"; }
  Mat weight;
  std::optional<Vec> bias;

 private:
  STELE_MODULE_DERIVED(Dense, (Layer), weight, bias)
};
class Dropout final : public Layer {
 public:
  Dropout() = default;
  explicit Dropout(double r) : rate(r) { scale = vec({2}); }
  std::string kind() const override { return "dropout"; }
  double rate = 0;
  STELE_MODULE_DERIVED(Dropout, (Layer), rate)
};
/// Holds its like.
class Stack : public Layer {
 public:
  std::string kind() const override { return "stack"; }
  std::vector<std::unique_ptr<Layer>> layers;
  STELE_MODULE_DERIVED(Stack, (Layer), layers)
};
class Unlisted : public Dense {
 public:
  using Dense::Dense;
};

struct Net {
  std::vector<std::unique_ptr<Layer>> layers;
  std::map<std::string, std::unique_ptr<Layer>> named;
  std::optional<std::unique_ptr<Layer>> maybe;
  std::array<std::unique_ptr<const Layer>, 2> fixed;
  std::unique_ptr<Layer> head, none;
  STELE_MODULE(Net, layers, named, maybe, fixed, head, none)
};
Net net(float n) {
  Net m;
  m.layers.push_back(std::make_unique<Dense>(n));
  m.layers.push_back(std::make_unique<Dropout>(0.5));
  auto stack = std::make_unique<Stack>();
  stack->scale = vec({n});
  stack->layers.push_back(std::make_unique<Dropout>(0.25));
  stack->layers.push_back(std::make_unique<Dense>(n + 10));
  m.layers.push_back(std::move(stack));
  m.named["a"] = std::make_unique<Dense>(n + 20);
  m.named["b"] = std::make_unique<Dropout>(0.75);
  m.maybe = std::make_unique<Dense>(n + 30);
  m.fixed = {std::make_unique<Dense>(n + 40), std::make_unique<Dropout>(0.125)};
  m.head = std::make_unique<Dense>(n + 50);
  return m;
}
constexpr const char* net_outline =
    "list layers\n"
    "variant layers.0\nmodule layers.0.Dense\ntensor layers.0.Dense.scale\ntensor layers.0.Dense.weight\n"
    "tensor layers.0.Dense.bias\n"
    "variant layers.1\nmodule layers.1.Dropout\ntensor layers.1.Dropout.scale\nvalue layers.1.Dropout.rate\n"
    "variant layers.2\nmodule layers.2.Stack\ntensor layers.2.Stack.scale\nlist layers.2.Stack.layers\n"
    "variant layers.2.Stack.layers.0\nmodule layers.2.Stack.layers.0.Dropout\n"
    "tensor layers.2.Stack.layers.0.Dropout.scale\nvalue layers.2.Stack.layers.0.Dropout.rate\n"
    "variant layers.2.Stack.layers.1\nmodule layers.2.Stack.layers.1.Dense\n"
    "tensor layers.2.Stack.layers.1.Dense.scale\ntensor layers.2.Stack.layers.1.Dense.weight\n"
    "tensor layers.2.Stack.layers.1.Dense.bias\n"
    "map named\n"
    "variant named.a\nmodule named.a.Dense\ntensor named.a.Dense.scale\ntensor named.a.Dense.weight\n"
    "tensor named.a.Dense.bias\n"
    "variant named.b\nmodule named.b.Dropout\ntensor named.b.Dropout.scale\nvalue named.b.Dropout.rate\n"
    "variant maybe\nmodule maybe.Dense\ntensor maybe.Dense.scale\ntensor maybe.Dense.weight\n"
    "tensor maybe.Dense.bias\n"
    "array fixed\n"
    "variant fixed.0\nmodule fixed.0.Dense\ntensor fixed.0.Dense.scale\ntensor fixed.0.Dense.weight\n"
    "tensor fixed.0.Dense.bias\n"
    "variant fixed.1\nmodule fixed.1.Dropout\ntensor fixed.1.Dropout.scale\nvalue fixed.1.Dropout.rate\n"
    "variant head\nmodule head.Dense\ntensor head.Dense.scale\ntensor head.Dense.weight\ntensor head.Dense.bias\n"
    "none none\n";

/// The same files, without pointers.
struct Twin {
  std::vector<std::variant<Dense, Dropout>> layers;
};
struct Short {
  std::vector<std::unique_ptr<Layer>> layers;
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Twin> {
  static constexpr stele::Attribute list[] = {stele::attr::type_name("Short")};
};

namespace stele_test {
namespace {

/// Tensors alone, for formats without values.
struct Tensors {
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Layer> head;
};
Tensors tensors(float n) {
  Tensors m;
  m.layers.push_back(std::make_unique<Dense>(n));
  m.layers.push_back(std::make_unique<Stack>());
  m.layers[1]->scale = vec({n});
  static_cast<Stack&>(*m.layers[1]).layers.push_back(std::make_unique<Dense>(n + 1));
  m.head = std::make_unique<Dense>(n + 2);
  return m;
}

// ---- shared objects, under several bases ----------------------------------------------------------------------------

class Block {
 public:
  Block() = default;
  explicit Block(float n) : w(vec({n})) {}
  virtual ~Block() = default;
  Vec w;
  STELE_MODULE(Block, w)
};
/// No field list: it is an interface.
class Tagged {
 public:
  virtual ~Tagged() = default;
  virtual int tag() const = 0;
};
class Wide : public Block {
 public:
  Wide() = default;
  explicit Wide(float n) : Block(n), more(vec({n, n})) {}
  Vec more;
  STELE_MODULE_DERIVED(Wide, (Block), more)
};
/// A pointer to its Block is no pointer to it.
class Both : public Tagged, public Block {
 public:
  Both() = default;
  explicit Both(float n) : Block(n), own(vec({n, n, n})) {}
  int tag() const override { return 3; }
  Vec own;
  STELE_MODULE_DERIVED(Both, (Block), own)
};
/// Its Block cannot be cast to it statically.
class Virtual : public Tagged, public virtual Block {
 public:
  int tag() const override { return 4; }
  Vec own = vec({4});
  STELE_MODULE_DERIVED(Virtual, (Block), own)
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::derived<stele_test::Block>
    : stele::derived_list<stele_test::Block, stele_test::Wide, stele_test::Both, stele_test::Virtual> {};
template <>
struct stele::derived<stele_test::Tagged> : stele::derived_list<stele_test::Virtual, stele_test::Both> {};

namespace stele_test {
namespace {

struct Graph {
  std::shared_ptr<Block> first, second;
  std::shared_ptr<Tagged> tagged;
  std::shared_ptr<Both> both;
  std::vector<std::shared_ptr<Block>> blocks;
  std::map<std::string, std::shared_ptr<const Tagged>> tags;
  std::shared_ptr<Wide> wide;
  std::optional<std::shared_ptr<Block>> last;
  STELE_MODULE(Graph, first, second, tagged, both, blocks, tags, wide, last)
};
Graph graph(float n) {
  Graph m;
  const auto both = std::make_shared<Both>(n);
  const auto wide = std::make_shared<Wide>(n + 1);
  const auto lone = std::make_shared<Virtual>();
  lone->w = vec({n + 2});
  m.first = m.second = both;
  m.tagged = both;
  m.both = both;
  m.blocks = {wide, lone, std::make_shared<Block>(n + 3), nullptr};
  m.tags = {{"a", lone}, {"b", both}};
  m.wide = wide;
  m.last = m.blocks[2];
  return m;
}
void check_tied(const Graph& m) {
  REQUIRE(m.both != nullptr);
  CHECK(m.first == m.both);
  CHECK(m.second == m.both);
  CHECK(m.tagged == m.both);
  CHECK(m.tags.at("b") == m.both);
  REQUIRE(m.wide != nullptr);
  CHECK(m.blocks.at(0) == m.wide);
  CHECK(dynamic_cast<const void*>(m.blocks.at(1).get()) == dynamic_cast<const void*>(m.tags.at("a").get()));
  CHECK(m.tags.at("a")->tag() == 4);
  CHECK(m.blocks.at(2) == m.last);
  CHECK(m.blocks.at(3) == nullptr);
  // The pointers to one object count it together.
  CHECK(m.both.use_count() == 5);
  CHECK(m.wide.use_count() == 2);
}

/// The same names without any tie.
Graph untied(float n) {
  Graph m;
  m.first = std::make_shared<Both>(n);
  m.second = std::make_shared<Both>(n + 1);
  m.tagged = std::make_shared<Both>(n + 2);
  m.both = std::make_shared<Both>(n + 3);
  const auto lone = std::make_shared<Virtual>();
  lone->w = vec({n});
  m.blocks = {std::make_shared<Wide>(n), lone, std::make_shared<Block>(n), nullptr};
  const auto other = std::make_shared<Virtual>();
  other->w = vec({n});
  m.tags = {{"a", other}, {"b", std::make_shared<Both>(n + 4)}};
  m.wide = std::make_shared<Wide>(n);
  m.last = std::make_shared<Block>(n);
  return m;
}

/// One object named in a class with a field list and in a plain aggregate.
struct Loose {
  std::shared_ptr<Wide> wide;
  std::shared_ptr<Vec> tensor;
};
struct Mixed {
  std::shared_ptr<Block> block;
  Loose loose;
  std::shared_ptr<Vec> tensor;
  STELE_MODULE(Mixed, block, loose, tensor)
};

/// Not in the list.
class Ring : public Block {
 public:
  std::shared_ptr<Block> next;
  STELE_MODULE_DERIVED(Ring, (Block), next)
};

/// May hold itself.
class Cell {
 public:
  virtual ~Cell() = default;
};
class Knot final : public Cell {
 public:
  Vec w = vec({1});
  std::shared_ptr<Cell> next;
  STELE_MODULE(Knot, w, next)
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::derived<stele_test::Cell> : stele::derived_list<stele_test::Knot> {};

namespace stele_test {
namespace {

// ---- classes that are made by a hook, or named by an attribute ------------------------------------------------------

class Part {
 public:
  virtual ~Part() = default;
  virtual float sum() const = 0;
};
class Fixed final : public Part {
 public:
  explicit Fixed(float n) : w(vec({n})) {}
  explicit Fixed(Vec v) : w(std::move(v)) {}
  static Fixed from_record(stele::Record<Fixed>&& record) { return Fixed(good(record.w.load())); }
  float sum() const override { return (*w)[0]; }
  const Vec w;
  STELE_MODULE(Fixed, w)
};
/// Has no parameters.
class Relu final : public Part {
 public:
  float sum() const override { return -1; }
  STELE_MODULE(Relu)
};
template <class T>
class Sized final : public Part {
 public:
  Sized() = default;
  explicit Sized(T n) : w(stele::Tensor<T, 1>::filled({1}, n)) {}
  float sum() const override { return static_cast<float>(w[0]); }
  stele::Tensor<T, 1> w;
  STELE_MODULE(Sized, w)
};

}  // namespace
}  // namespace stele_test

template <>
struct stele::attributes<stele_test::Sized<double>> {
  static constexpr stele::Attribute list[] = {stele::attr::type_name("Long"), stele::attr::alias("w", "older")};
};
template <>
struct stele::derived<stele_test::Part>
    : stele::derived_list<stele_test::Sized<float>, stele_test::Fixed, stele_test::Sized<double>, stele_test::Relu> {};

namespace stele_test {
namespace {

struct Parts {
  std::vector<std::unique_ptr<Part>> own;
  std::shared_ptr<Part> shared, again;
  STELE_MODULE(Parts, own, shared, again)
};
Parts parts(float n) {
  Parts m;
  m.own.push_back(std::make_unique<Fixed>(n));
  m.own.push_back(std::make_unique<Sized<double>>(n + 1));
  m.own.push_back(std::make_unique<Sized<float>>(n + 2));
  m.shared = m.again = std::make_shared<Fixed>(n + 3);
  return m;
}

const stele::LoadOptions rebuilding = [] {
  stele::LoadOptions options;
  options.rebuild = true;
  return options;
}();

// ---- without a declaration ------------------------------------------------------------------------------------------

class Undeclared {
 public:
  Undeclared() = default;
  explicit Undeclared(float n) : w(vec({n})) {}
  virtual ~Undeclared() = default;
  Vec w;
  STELE_MODULE(Undeclared, w)
};
class More : public Undeclared {
 public:
  More() = default;
  explicit More(float n) : Undeclared(n), more(vec({n, n})) {}
  Vec more;
  STELE_MODULE_DERIVED(More, (Undeclared), more)
};
/// Adds no field, but may compute something else.
class Renamed : public Undeclared {};

class Last final : public Undeclared {
 public:
  STELE_MODULE_DERIVED(Last, (Undeclared))
};
struct Plain {
  Vec w;
};

struct Holders {
  std::vector<std::unique_ptr<Undeclared>> layers;
  std::shared_ptr<Undeclared> head;
  STELE_MODULE(Holders, layers, head)
};
Holders holders(float n) {
  Holders m;
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.head = std::make_shared<Undeclared>(n);
  return m;
}

void check_refused(const stele::Error& e, const std::string& path) {
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == path);
  CHECK(e.message().find("stele::derived") != std::string::npos);
  CHECK(e.expected() == "Undeclared");
  CHECK(e.found().ends_with("::More"));
}

}  // namespace

TEST_CASE_TEMPLATE("derived: an object of a class that no pointer names is not saved", R, STELE_TEST_RECORDERS) {
  Holders m = holders(1);
  good(saved(R{}, m));
  m.layers[1] = std::make_unique<More>(2.0F);
  check_refused(bad(saved(R{}, m)), "layers.1");
  m = holders(1);
  m.head = std::make_shared<More>(2.0F);
  check_refused(bad(saved(R{}, m)), "head");
  m.head = std::make_shared<Renamed>();
  CHECK(bad(saved(R{}, m)).found().ends_with("::Renamed"));
}

TEST_CASE("derived: nothing is written where an object is refused") {
  const TempDir folder;
  Holders m = holders(1);
  m.layers[0] = std::make_unique<More>(2.0F);
  check_refused(bad(stele::save(m, folder / "m.stele")), "layers.0");
  CHECK(folder.names().empty());
}

TEST_CASE("derived: an object of a class that no pointer names is not loaded, and nothing changes") {
  const Holders file = holders(1);
  const Snapshot s = good(stele::snapshot_of(file));
  Holders m = holders(5);
  m.layers[1] = std::make_unique<More>(6.0F);
  for (const bool rebuild : {false, true}) {
    stele::LoadOptions options;
    options.rebuild = rebuild;
    Report report;
    check_refused(bad(stele::load_snapshot(m, s, options, &report)), "layers.1");
    CHECK(report.paths(Report::What::mismatched) == Paths{"layers.1"});
    CHECK((*m.layers[0]->w)[0] == 5);
    CHECK((*m.layers[1]->w)[0] == 6);
    check_refused(bad(stele::dry_run(m, s, options)), "layers.1");
  }
}

TEST_CASE("derived: a reference to a base") {
  const More derived(3);
  const Undeclared& base = derived;
  check_refused(bad(stele::snapshot_of(base)), "");
  More target(4);
  const Undeclared plain(1);
  check_refused(bad(stele::load_snapshot<Undeclared>(target, good(stele::snapshot_of(plain)))), "");
  CHECK((*target.w)[0] == 4);
  CHECK(tensor_paths(derived) == Paths{"w", "more"});
}

TEST_CASE("derived: only classes that may have derived ones are asked for theirs") {
  const auto asked = []<class T>(std::type_identity<T>) {
    return stele::detail::type_info<T, true>::value.other_class != nullptr;
  };
  CHECK(asked(std::type_identity<Undeclared>()));
  CHECK(!asked(std::type_identity<Last>()));
  CHECK(!asked(std::type_identity<Plain>()));
  CHECK(!asked(std::type_identity<Vec>()));
}

// ---- with a declaration ---------------------------------------------------------------------------------------------

TEST_CASE("derived: each object stands under its class's name, as a variant's alternative") {
  CHECK(outline(net(1)) == net_outline);
  CHECK(outline(tensors(1)).starts_with("list layers\nvariant layers.0\nmodule layers.0.Dense\n"));
}

TEST_CASE_TEMPLATE("derived: the bytes are those of variants", R, STELE_TEST_RECORDERS) {
  Short pointers;
  pointers.layers.push_back(std::make_unique<Dense>(1.0F));
  pointers.layers.push_back(std::make_unique<Dropout>(0.5));
  Twin variants;
  variants.layers.emplace_back(Dense(1.0F));
  variants.layers.emplace_back(Dropout(0.5));
  const stele::Bytes bytes = good(saved(R{}, pointers));
  if constexpr (!is_zip<R>) CHECK(text_of(bytes.span()) == text_of(good(saved(R{}, variants)).span()));
  const Twin twin = good(R{}.template load<Twin>(bytes));
  CHECK(image(twin) == image(variants));
  const stele::Bytes other = good(saved(R{}, variants));
  CHECK(image(good(R{}.template load<Short>(other))) == image(variants));
}

TEST_CASE_TEMPLATE("derived: a new module", R, STELE_TEST_RECORDERS) {
  const Net m = net(1);
  const stele::Bytes bytes = good(saved(R{}, m));
  Report report;
  const Net back = good(R{}.template load<Net>(bytes, {}, &report));
  CHECK(image(back) == image(m));
  CHECK(back.layers.at(0)->kind() == "dense");
  CHECK(back.layers.at(1)->kind() == "dropout");
  CHECK(back.layers.at(2)->kind() == "stack");
  CHECK(static_cast<Stack&>(*back.layers[2]).layers.at(1)->kind() == "dense");
  CHECK(back.fixed[1]->kind() == "dropout");
  CHECK(back.none == nullptr);
  CHECK(report.paths(Report::What::missing).empty());
  good(R{}.verify(bytes));
  CHECK(good(R{}.open(bytes)).find("layers.2.Stack.layers.1.Dense.bias").has_value());
}

TEST_CASE_TEMPLATE("derived: in place, the objects stay", R, STELE_TEST_RECORDERS) {
  const stele::Bytes bytes = good(saved(R{}, net(1)));
  Net m = net(100);
  const auto* first = m.layers[0].get();
  const auto* inner = static_cast<Stack&>(*m.layers[2]).layers[1].get();
  good(R{}.load_into(m, bytes));
  CHECK(image(m) == image(net(1)));
  CHECK(m.layers[0].get() == first);
  CHECK(static_cast<Stack&>(*m.layers[2]).layers[1].get() == inner);
}

TEST_CASE_TEMPLATE("derived: in place, another class", R, STELE_TEST_RECORDERS) {
  const stele::Bytes bytes = good(saved(R{}, net(1)));
  Net m = net(100);
  std::swap(m.layers[0], m.layers[1]);
  m.head = nullptr;
  m.none = std::make_unique<Dropout>(0.5);
  const Image before = image(m);
  const stele::Error e = bad(R{}.load_into(m, bytes));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.0.Dense");
  CHECK(e.expected() == "Dropout");
  CHECK(e.found() == "Dense");
  CHECK(image(m) == before);
  // Null here and an object there, and the reverse, are in the report too.
  CHECK(e.report()->paths(Report::What::mismatched) == Paths{"layers.0.Dense", "layers.1.Dropout", "head"});
  CHECK(e.report()->paths(Report::What::missing) == Paths{"none"});

  good(R{}.load_into(m, bytes, rebuilding));
  CHECK(image(m) == image(net(1)));
  CHECK(m.layers[0]->kind() == "dense");
  CHECK(m.none == nullptr);
}

TEST_CASE_TEMPLATE("derived: an object whose class is not listed", R, STELE_TEST_RECORDERS) {
  Net m = net(1);
  static_cast<Stack&>(*m.layers[2]).layers[1] = std::make_unique<Unlisted>(5.0F);
  stele::Error e = bad(saved(R{}, m));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.2.Stack.layers.1");
  CHECK(e.expected() == "Dense or Dropout or Stack");
  CHECK(e.found().ends_with("::Unlisted"));
  const stele::Bytes bytes = good(saved(R{}, net(1)));
  e = bad(R{}.load_into(m, bytes));
  CHECK(e.path() == "layers.2.Stack.layers.1");
  CHECK(e.found().ends_with("::Unlisted"));

  Graph g = graph(1);
  const auto ring = std::make_shared<Ring>();
  g.blocks[1] = ring;
  e = bad(saved(R{}, g));
  CHECK(e.path() == "blocks.1");
  CHECK(e.expected() == "Block or Wide or Both or Virtual");
  // A pointer to a listed class may hold one derived from it.
  struct Deeper {
    std::shared_ptr<Dense> dense;
  };
  e = bad(saved(R{}, Deeper{std::make_shared<Unlisted>(1.0F)}));
  CHECK(e.path() == "dense");
  CHECK(e.expected() == "Dense");
}

TEST_CASE_TEMPLATE("derived: ties hold across bases and classes", R, STELE_TEST_RECORDERS) {
  const Graph m = graph(1);
  check_tied(m);
  CHECK(stele::num_params(m) == 4 + 3 + 2 + 1);
  const stele::Bytes bytes = good(saved(R{}, m));
  Report report;
  const Graph back = good(R{}.template load<Graph>(bytes, {}, &report));
  check_tied(back);
  CHECK(image(back) == image(m));
  CHECK(report.paths(Report::What::tied) ==
        Paths{"second.Both", "tagged.Both", "both", "tags.a.Virtual", "tags.b.Both", "wide", "last.Block"});

  Graph target = graph(50);
  const auto* object = target.both.get();
  good(R{}.load_into(target, bytes));
  check_tied(target);
  CHECK(target.both.get() == object);
  CHECK(image(target) == image(m));

  // Rebuilding ties what the file has tied, and takes apart what it has apart.
  Graph apart = untied(50);
  good(R{}.load_into(apart, bytes, rebuilding));
  CHECK(image(apart) != image(graph(50)));
  const stele::Bytes loose = good(saved(R{}, untied(7)));
  const Graph fresh = good(R{}.template load<Graph>(loose));
  CHECK(image(fresh) == image(untied(7)));
  CHECK(fresh.first != fresh.second);
  CHECK((*fresh.second->w)[0] == 8);
}

TEST_CASE("derived: ties, module tied, file not") {
  const Graph file = untied(7);
  Graph m = graph(1);
  const stele::Error e = bad(stele::load_snapshot(m, good(stele::snapshot_of(file))));
  CHECK(e.code() == Errc::unused);
  CHECK(e.path() == "second.Both.w");
  CHECK(e.expected() == "the same as first.Both.w");
  // What is under further names is the same.
  Graph same = graph(7);
  same.second = std::make_shared<Both>(7.0F);
  same.tagged = std::make_shared<Both>(7.0F);
  same.tags["b"] = std::make_shared<Both>(7.0F);
  Report report;
  good(stele::load_snapshot(m, good(stele::snapshot_of(same)), {}, &report));
  check_tied(m);
  CHECK((*m.both->w)[0] == 7);
  CHECK(report.paths(Report::What::tied) ==
        Paths{"second.Both", "tagged.Both", "both", "tags.a.Virtual", "tags.b.Both", "wide", "last.Block"});
}

TEST_CASE("derived: ties, module tied, the file has one of the names") {
  struct Both1 {
    std::shared_ptr<Block> first, second;
    std::shared_ptr<Tagged> tagged;
    std::shared_ptr<Both> both;
  };
  struct Only {
    std::shared_ptr<Tagged> tagged;
  };
  Both1 m;
  m.both = std::make_shared<Both>(1.0F);
  m.first = m.second = m.both;
  m.tagged = m.both;
  const Only file{std::make_shared<Both>(7.0F)};
  for (const bool flat : {false, true}) {
    CAPTURE(flat);
    (*m.both->w)[0] = 1;
    const stele::Bytes bytes =
        flat ? good(saved(stele::SafetensorsRecorder<>{}, file)) : good(saved(stele::BytesRecorder<>{}, file));
    Report report;
    good(stele::load_snapshot(m, good(stele::open(bytes)), {}, &report));
    CHECK((*m.both->w)[0] == 7);
    CHECK(m.first == m.both);
    CHECK(report.paths(Report::What::tied) == Paths{"both"});
  }
  // A `none` under one of the names, and nothing under any.
  struct Nulls {
    std::shared_ptr<Block> first, second;
    std::shared_ptr<Tagged> tagged;
  };
  const Nulls nulls{nullptr, nullptr, file.tagged};
  Report report;
  good(stele::load_snapshot(m, good(stele::snapshot_of(nulls)), {}, &report));
  CHECK(m.first == m.both);
  const Nulls nothing;
  const stele::Error e = bad(stele::load_snapshot(m, good(stele::snapshot_of(nothing))));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "first");
  CHECK((*m.both->w)[0] == 7);
  // A second name of another class does not fit.
  Nulls other{file.tagged == nullptr ? nullptr : std::make_shared<Both>(1.0F), std::make_shared<Wide>(1.0F), nullptr};
  CHECK(bad(stele::load_snapshot(m, good(stele::snapshot_of(other)))).path() == "second.Wide");
}

TEST_CASE_TEMPLATE("derived: ties hold between a field list and a plain aggregate", R, STELE_TEST_RECORDERS) {
  Mixed m;
  m.loose.wide = std::make_shared<Wide>(1.0F);
  m.block = m.loose.wide;
  m.tensor = m.loose.tensor = std::make_shared<Vec>(vec({1, 2}));
  CHECK(stele::num_params(m) == 3 + 2);
  const stele::Bytes bytes = good(saved(R{}, m));
  const Mixed back = good(R{}.template load<Mixed>(bytes));
  CHECK(back.block == back.loose.wide);
  CHECK(back.tensor == back.loose.tensor);
}

TEST_CASE("derived: hooks, const members and names of one's own") {
  const Parts m = parts(1);
  CHECK(outline(m) ==
        "list own\nvariant own.0\nmodule own.0.Fixed\ntensor own.0.Fixed.w\nvariant own.1\nmodule own.1.Long\n"
        "tensor own.1.Long.w\nvariant own.2\nmodule own.2.Sized\ntensor own.2.Sized.w\nvariant shared\n"
        "module shared.Fixed\ntensor shared.Fixed.w\nvariant again\nalias again.Fixed\n");
  const auto check = [&](const Parts& back) {
    CHECK(image(back) == image(m));
    CHECK(back.shared == back.again);
    CHECK(back.own.at(1)->sum() == 2);
    CHECK(back.shared->sum() == 4);
  };
  check(good(stele::from_snapshot<Parts>(good(stele::snapshot_of(m)))));
  check(good(stele::from_record(good(stele::record_of(m)))));
  // An object that is made by its hook cannot be written, only replaced.
  Parts target = parts(5);
  const stele::Error e = bad(stele::load_snapshot(target, good(stele::snapshot_of(m))));
  CHECK(e.path() == "own.0.Fixed");
  good(stele::load_snapshot(target, good(stele::snapshot_of(m)), rebuilding));
  check(target);
  // Nor one that has a name of its own class.
  struct Plains {
    std::shared_ptr<Fixed> shared, again;
  };
  Plains plains, file;
  plains.shared = plains.again = std::make_shared<Fixed>(1.0F);
  file.shared = file.again = std::make_shared<Fixed>(2.0F);
  good(stele::load_snapshot(plains, good(stele::snapshot_of(file)), rebuilding));
  CHECK(plains.again->sum() == 2);
  CHECK(plains.shared == plains.again);
  file.again = std::make_shared<Fixed>(3.0F);
  good(stele::load_snapshot(plains, good(stele::snapshot_of(file)), rebuilding));
  CHECK(plains.shared->sum() == 2);
  CHECK(plains.again->sum() == 3);
}

TEST_CASE_TEMPLATE("derived: classes made by a hook, with names of their own, and without parameters", R,
                   STELE_TEST_RECORDERS) {
  Parts m = parts(1);
  m.own.insert(m.own.begin() + 1, std::make_unique<Relu>());
  m.own.push_back(std::make_unique<Relu>());
  const stele::Bytes bytes = good(saved(R{}, m));
  const Parts back = good(R{}.template load<Parts>(bytes));
  CHECK(image(back) == image(m));
  REQUIRE(back.own.size() == 5);
  CHECK(back.own[1]->sum() == -1);
  CHECK(back.own[4]->sum() == -1);
  CHECK(back.shared == back.again);
  // Each Fixed is made anew.
  Parts target = parts(5);
  good(R{}.load_into(target, bytes, rebuilding));
  CHECK(image(target) == image(m));
  CHECK(target.shared == target.again);
}

TEST_CASE_TEMPLATE("derived: records", R, STELE_TEST_RECORDERS) {
  using NetRecord = stele::Record<Net>;
  static_assert(std::is_same_v<
                decltype(NetRecord::head),
                std::unique_ptr<std::variant<stele::Record<Dense>, stele::Record<Dropout>, stele::Record<Stack>>>>);
  const stele::Bytes bytes = good(saved(R{}, net(1)));
  NetRecord record = good(R{}.template load_record<Net>(bytes));
  CHECK(good(std::get<stele::Record<Dense>>(*record.layers.at(0)).bias->load()).value[0] == 1);
  CHECK(std::get<stele::Record<Dropout>>(*record.layers.at(1)).rate == 0.5);
  CHECK(record.none == nullptr);
  CHECK(image(record) == image(net(1)));
  CHECK(image(good(stele::from_record(std::move(record)))) == image(net(1)));

  const Graph m = graph(1);
  const stele::Bytes tied = good(saved(R{}, m));
  stele::Record<Graph> shared = good(R{}.template load_record<Graph>(tied));
  const auto& first = std::get<stele::SharedRecord<Both>>(*shared.first);
  CHECK(first == std::get<stele::SharedRecord<Both>>(*shared.tagged));
  CHECK(first == shared.both);
  CHECK(image(shared) == image(m));
  const stele::Bytes again = good(saved(R{}, shared));
  if constexpr (!is_zip<R>) CHECK(text_of(again.span()) == text_of(tied.span()));
  check_tied(good(stele::from_record(std::move(shared))));
  check_tied(good(stele::from_record(good(stele::into_record(graph(1))))));
}

TEST_CASE("derived: the Schema shows a variant") {
  const stele::Schema layer = stele::schema_of<Net>().field(0).type.element();
  CHECK(layer.kind() == stele::TypeKind::pointer);
  CHECK(layer.open());
  const stele::Schema variant = layer.element();
  CHECK(variant.kind() == stele::TypeKind::variant);
  REQUIRE(variant.field_count() == 3);
  CHECK(variant.field(0).name == "Dense");
  CHECK(variant.field(0).type == stele::schema_of<Dense>());
  CHECK(variant.field(2).name == "Stack");
  const stele::Schema shared = stele::schema_of<Graph>().field(0).type.element();
  CHECK(shared.kind() == stele::TypeKind::variant);
  CHECK(shared.field(1).name == "Wide");
  CHECK(shared.field(1).type.kind() == stele::TypeKind::shared);
  CHECK(shared.field(1).type.element() == stele::schema_of<Wide>());
  CHECK(code_of(stele::layout_of(stele::schema_of<Net>())) == Errc::needs_layout);
  CHECK(good(stele::layout_of(tensors(1))).tensors.at(1).path == "layers.0.Dense.weight");
}

TEST_CASE_TEMPLATE("derived: dry runs, lazy loads and views", R, STELE_TEST_RECORDERS) {
  const stele::Bytes bytes = good(saved(R{}, net(1)));
  const Snapshot s = good(R{}.open(bytes));
  const Report report = good(stele::dry_run<Net>(s));
  const Paths applied = report.paths(Report::What::applied);
  CHECK(std::find(applied.begin(), applied.end(), "layers.2.Stack.layers.1.Dense.weight") != applied.end());
  stele::LoadOptions options;
  options.storage = stele::storage::view;
  CHECK(image(good(R{}.template load<Net>(bytes, options))) == image(net(1)));
  options = {};
  options.threads = 1;
  CHECK(image(good(R{}.template load<Net>(bytes, options))) == image(net(1)));
}

TEST_CASE("derived: ties, the file lacks the module's first name") {
  struct Names {
    std::shared_ptr<Block> first, second, third;
  };
  struct Plains {
    std::shared_ptr<Wide> first, second, third;
  };
  const auto check = [](auto m, auto file) {
    m.first = m.second = m.third = std::make_shared<Wide>(1.0F);
    file.second = std::make_shared<Wide>(7.0F);
    file.third = std::make_shared<Wide>(7.0F);
    good(stele::load_snapshot(m, good(stele::snapshot_of(file))));
    CHECK((*m.first->w)[0] == 7);
    (*file.third->w)[0] = 8;
    const stele::Error e = bad(stele::load_snapshot(m, good(stele::snapshot_of(file))));
    CHECK(e.code() == Errc::unused);
    CHECK(e.path().starts_with("third"));
    CHECK(e.expected().starts_with("the same as second"));
  };
  check(Names(), Names());
  check(Plains(), Plains());
}

TEST_CASE("derived: a cycle, and too deep a nesting") {
  auto knot = std::make_shared<Knot>();
  knot->next = knot;
  std::shared_ptr<Cell> cell = knot;
  const stele::Error e = bad(stele::snapshot_of(cell));
  CHECK(e.code() == Errc::cycle);
  CHECK(e.path() == "Knot.next.Knot");
  knot->next = nullptr;

  std::unique_ptr<Layer> top = std::make_unique<Stack>();
  auto* inner = static_cast<Stack*>(top.get());
  for (int i = 0; i < 100; ++i) {
    inner->layers.push_back(std::make_unique<Stack>());
    inner = static_cast<Stack*>(inner->layers[0].get());
  }
  for (const bool too_deep : {false, true}) {
    const auto s = stele::snapshot_of(top);
    CHECK(code_of(s) == (too_deep ? Errc::limit : Errc::none));
    if (!too_deep) {
      std::unique_ptr<Layer> back;
      good(stele::load_snapshot(back, good(s), rebuilding));
      CHECK(image(back) == image(top));
    }
    for (int i = 0; i < 100 && !too_deep; ++i) {
      inner->layers.push_back(std::make_unique<Stack>());
      inner = static_cast<Stack*>(inner->layers[0].get());
    }
  }
}

// ---- older and foreign files ----------------------------------------------------------------------------------------

namespace {

/// What pointers to a Block held before its classes were listed.
struct OldGraph {
  std::vector<stele_test::Mat> unrelated;
  std::unique_ptr<Undeclared> first;
  std::vector<std::shared_ptr<Undeclared>> blocks;
};
struct NewGraph {
  std::vector<stele_test::Mat> unrelated;
  std::unique_ptr<Block> first;
  std::vector<std::shared_ptr<Block>> blocks;
};

}  // namespace

TEST_CASE_TEMPLATE("derived: a file from before the declaration", R, STELE_TEST_RECORDERS) {
  OldGraph old;
  old.first = std::make_unique<Undeclared>(1.0F);
  old.blocks.push_back(std::make_shared<Undeclared>(2.0F));
  old.blocks.push_back(old.blocks[0]);
  const stele::Bytes bytes = good(saved(R{}, old));
  const NewGraph fresh = good(R{}.template load<NewGraph>(bytes));
  CHECK((*fresh.first->w)[0] == 1);
  CHECK((*fresh.blocks.at(0)->w)[0] == 2);
  CHECK(fresh.blocks[0] == fresh.blocks.at(1));
  NewGraph target;
  target.first = std::make_unique<Block>(8.0F);
  target.blocks = {std::make_shared<Block>(9.0F), std::make_shared<Block>(9.0F)};
  good(R{}.load_into(target, bytes));
  CHECK((*target.first->w)[0] == 1);
  // What such a file has is a Block.
  target.first = std::make_unique<Wide>(8.0F);
  CHECK(bad(R{}.load_into(target, bytes)).path() == "first.Block");
}

TEST_CASE_TEMPLATE("derived: a listed class that has changed", R, STELE_TEST_RECORDERS) {
  struct OldLong {
    stele::Tensor<double, 1> older;
  };
  struct OldFile {
    std::vector<std::map<std::string, OldLong>> own;
  };
  struct Now {
    std::vector<std::unique_ptr<Part>> own;
  };
  OldFile file;
  file.own.resize(1);
  file.own[0]["Long"].older = stele::Tensor<double, 1>::filled({1}, 9);
  const stele::Bytes bytes = good(saved(R{}, file));
  CHECK(good(R{}.template load<Now>(bytes)).own.at(0)->sum() == 9);
}

TEST_CASE_TEMPLATE("derived: a class that the file has and the list has not", R, STELE_TEST_RECORDERS) {
  struct Other {
    Vec scale = vec({1});
  };
  struct File {
    std::vector<std::variant<Other>> layers;
  };
  File file;
  file.layers.emplace_back();
  const stele::Bytes bytes = good(saved(R{}, file));
  const stele::Error e = bad(R{}.template load<Short>(bytes));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.0");
  CHECK(e.expected() == "Dense or Dropout or Stack");
  CHECK(e.found() == "Other");

  struct Two {
    std::map<std::string, Other> first;
  };
  struct OneOf {
    std::unique_ptr<Layer> first;
  };
  Two two;
  two.first["Dense"];
  two.first["Stack"];
  const stele::Bytes both = good(saved(R{}, two));
  CHECK(bad(R{}.template load<OneOf>(both)).code() == Errc::kind_mismatch);
}

// ---- other formats --------------------------------------------------------------------------------------------------

TEST_CASE("derived: Burn's encodings") {
  using stele::BurnEncoding;
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    const stele::BurnRecorder<> recorder(stele::BurnFormat({.encoding = encoding}));
    const Tensors m = tensors(1);
    const stele::Bytes bytes = good(saved(recorder, m));
    const Tensors back = good(recorder.load<Tensors>(bytes));
    REQUIRE(back.layers.size() == 2);
    CHECK(back.layers[0]->kind() == "dense");
    CHECK(back.layers[1]->kind() == "stack");
    CHECK((*static_cast<Dense&>(*back.head).weight)(0, 0) == 3);
    Tensors target = tensors(9);
    good(recorder.load_into(target, bytes));
    CHECK((*static_cast<Dense&>(*target.head).weight)(0, 0) == 3);
    if (encoding == BurnEncoding::bin) continue;
    stele::SaveOptions lossy;
    lossy.allow_loss = true;  // ties are written under each name
    Graph g = graph(1);
    g.blocks.pop_back();
    const stele::Bytes written = good(saved(recorder, g, lossy));
    Graph tied = graph(30);
    tied.blocks.pop_back();
    good(recorder.load_into(tied, written));
    CHECK((*tied.both->w)[0] == 1);
    CHECK(tied.tagged == tied.both);
  }
}

TEST_CASE("derived: Burn's modules without parameters") {
  using stele::BurnEncoding;
  struct Own {
    std::vector<std::unique_ptr<Part>> own;
  };
  Own m;
  m.own.push_back(std::make_unique<Relu>());
  m.own.push_back(std::make_unique<Sized<float>>(2.0F));
  m.own.push_back(std::make_unique<Relu>());
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
    CAPTURE(static_cast<int>(encoding));
    const stele::BurnRecorder<> recorder(stele::BurnFormat({.encoding = encoding}));
    const stele::Bytes bytes = good(saved(recorder, m));
    const Own back = good(recorder.load<Own>(bytes));
    REQUIRE(back.own.size() == 3);
    CHECK(back.own[0]->sum() == -1);
    CHECK(back.own[1]->sum() == 2);
    CHECK(back.own[2]->sum() == -1);
  }
}

TEST_CASE("derived: SameDiff's names") {
  const TempDir folder;
  for (const char* name : {"m.fb", "m.sdz"}) {
    CAPTURE(name);
    const std::string path = folder / name;
    good(stele::SameDiffRecorder<>{}.record(net(1), path));
    CHECK(image(good(stele::SameDiffRecorder<>{}.load<Net>(path))) == image(net(1)));
    Net target = net(5);
    good(stele::SameDiffRecorder<>{}.load_into(target, path));
    CHECK(image(target) == image(net(1)));
  }
}

TEST_CASE("derived: from one format to the next") {
  const TempDir folder;
  const auto path = [&](std::size_t i, const char* extension) { return folder / (std::to_string(i) + extension); };
  const char* extensions[] = {".stele", ".safetensors", ".json", ".bpk", ".zip", ".stele"};
  good(stele::save(graph(1), path(0, ".stele")));
  good(stele::save(net(1), path(10, ".stele")));
  for (std::size_t i = 1; i < std::size(extensions); ++i) {
    CAPTURE(extensions[i]);
    for (const std::size_t first : {0U, 10U}) {
      good(stele::save(good(stele::open(path(first + i - 1, extensions[i - 1]))), path(first + i, extensions[i])));
    }
    const Graph g = good(stele::load<Graph>(path(i, extensions[i])));
    check_tied(g);
    CHECK(image(g) == image(graph(1)));
    CHECK(image(good(stele::load<Net>(path(10 + i, extensions[i])))) == image(net(1)));
  }
}

TEST_CASE("derived: the writer without a heap writes the same bytes") {
  const Tensors m = tensors(1);
  alignas(8) std::byte memory[16384];
  std::size_t size = 0;
  REQUIRE(stele::write_to(m, memory, size, stele::detail::hash64).code == Errc::none);
  CHECK(text_of(std::span(memory, size)) == text_of(good(stele::BytesRecorder<>{}.record(m)).span()));
  Tensors other = tensors(1);
  other.head = std::make_unique<Unlisted>(1.0F);
  CHECK(stele::write_to(other, memory, size, stele::detail::hash64).code == Errc::kind_mismatch);
}

TEST_CASE("derived: a class that no list names, and a base that is no module") {
  const Net m = net(1);
  const Layer& layer = *m.head;
  CHECK(bad(stele::snapshot_of(layer)).path().empty());
  CHECK(outline(m.head) == "module Dense\ntensor Dense.scale\ntensor Dense.weight\ntensor Dense.bias\n");
  std::unique_ptr<Layer> target;
  good(stele::load_snapshot(target, good(stele::snapshot_of(m.head)), rebuilding));
  CHECK(target->kind() == "dense");
}

}  // namespace stele_test
