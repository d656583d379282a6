// Classes with derived classes, and modules that hold pointers to their bases.
#pragma once

#include <stele/derived.hpp>
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace derived_models {

using namespace stele_test;
using stele::Errc;
using stele::Report;
using stele::Snapshot;

// ---- an abstract base of layers, declared before its classes are defined --------------------------------------------

class Layer;
class Dense;
class Dropout;
class Stack;

}  // namespace derived_models

template <>
struct stele::derived<derived_models::Layer>
    : stele::derived_list<derived_models::Dense, derived_models::Dropout, derived_models::Stack> {};

namespace derived_models {

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
inline Net net(float n) {
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
inline constexpr const char* net_outline =
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

}  // namespace derived_models

template <>
struct stele::attributes<derived_models::Twin> {
  static constexpr stele::Attribute list[] = {stele::attr::type_name("Short")};
};

namespace derived_models {

/// Tensors alone, for formats without values.
struct Tensors {
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Layer> head;
};
inline Tensors tensors(float n) {
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

}  // namespace derived_models

template <>
struct stele::derived<derived_models::Block>
    : stele::derived_list<derived_models::Block, derived_models::Wide, derived_models::Both, derived_models::Virtual> {
};
template <>
struct stele::derived<derived_models::Tagged> : stele::derived_list<derived_models::Virtual, derived_models::Both> {};

namespace derived_models {

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
inline Graph graph(float n) {
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
inline void check_tied(const Graph& m) {
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
inline Graph untied(float n) {
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

}  // namespace derived_models

template <>
struct stele::derived<derived_models::Cell> : stele::derived_list<derived_models::Knot> {};

namespace derived_models {

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

}  // namespace derived_models

template <>
struct stele::attributes<derived_models::Sized<double>> {
  static constexpr stele::Attribute list[] = {stele::attr::type_name("Long"), stele::attr::alias("w", "older")};
};
template <>
struct stele::derived<derived_models::Part> : stele::derived_list<derived_models::Sized<float>, derived_models::Fixed,
                                                                  derived_models::Sized<double>, derived_models::Relu> {
};

namespace derived_models {

struct Parts {
  std::vector<std::unique_ptr<Part>> own;
  std::shared_ptr<Part> shared, again;
  STELE_MODULE(Parts, own, shared, again)
};
inline Parts parts(float n) {
  Parts m;
  m.own.push_back(std::make_unique<Fixed>(n));
  m.own.push_back(std::make_unique<Sized<double>>(n + 1));
  m.own.push_back(std::make_unique<Sized<float>>(n + 2));
  m.shared = m.again = std::make_shared<Fixed>(n + 3);
  return m;
}

inline const stele::LoadOptions rebuilding = [] {
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
inline Holders holders(float n) {
  Holders m;
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.head = std::make_shared<Undeclared>(n);
  return m;
}

inline void check_refused(const stele::Error& e, const std::string& path) {
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == path);
  CHECK(e.hint().find("stele::derived") != std::string::npos);
  CHECK(e.expected() == "Undeclared");
  CHECK(e.found().ends_with("::More"));
}

}  // namespace derived_models
