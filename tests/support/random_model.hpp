// Random values, Snapshots and modules for property tests, and exact comparison of the results.
#pragma once

#include <stele/stele.hpp>
#include <stele/value.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "support/recorders.hpp"

namespace stele_test {

/// Generates the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  /// Returns a number from 0 to n-1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }
  bool chance(unsigned in_a_hundred) { return below(100) < in_a_hundred; }
  void fill(std::span<std::byte> bytes) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(bits() >> 24);
  }
  std::string bytes(std::size_t n) {
    std::string text(n, '\0');
    for (char& c : text) c = static_cast<char>(bits() >> 24);
    return text;
  }
  /// Returns a path segment, in valid UTF-8 if `utf8`.
  std::string name(bool utf8) {
    using namespace std::string_literals;
    static const std::string names[] = {"weight"s, "bias"s, "a"s,      "b"s,   "0"s,       "10"s,         "with space"s,
                                        "a/b"s,    "a.b"s,  "a\\b"s,   "\\e"s, ""s,        "日本語"s,     "caf\u00e9"s,
                                        "q\"o"s,   "\n\t"s, "nul\0x"s, "."s,   "\\"s,      "\U0001f600"s, "$str"s,
                                        "stele"s,  "\x7f"s, "a-b"s,    "a0"s,  "\xff\xfe"s};
    const std::size_t n = std::size(names) - (utf8 ? 1 : 0);
    return names[below(n)] + (chance(40) ? std::to_string(below(30)) : std::string());
  }

 private:
  std::mt19937_64 engine_;
};

inline stele::Value random_value(Random& random, int depth = 0) {
  using stele::Value;
  switch (random.below(depth < 3 ? 9 : 7)) {
    case 0:
      return Value();
    case 1:
      return Value(random.chance(50));
    case 2:
      return Value(static_cast<std::int64_t>(random.bits() >> random.below(64)) * (random.chance(50) ? -1 : 1));
    case 3:
      return Value(random.bits());
    case 4:
      return Value(std::bit_cast<double>(random.bits()));
    case 5:
      return Value(random.chance(70) ? random.name(false) : random.bytes(random.below(20)));
    case 6: {
      const std::string text = random.bytes(random.below(20));
      const auto bytes = bytes_of(text);
      return Value(Value::Bytes(bytes.begin(), bytes.end()));
    }
    case 7: {
      Value::List list(random.below(4));
      for (Value& v : list) v = random_value(random, depth + 1);
      return Value(std::move(list));
    }
    default: {
      Value::Map map;
      std::set<std::string> keys;
      for (std::size_t n = random.below(4); n != 0; --n) {
        std::string key = random.name(false);
        if (keys.insert(key).second) map.emplace_back(std::move(key), random_value(random, depth + 1));
      }
      return Value(std::move(map));
    }
  }
}

/// Returns a Value as text that shows every bit, even of NaNs.
inline std::string to_text(const stele::Value& value) {
  std::string text(name(value.kind()));
  if (const auto* b = value.as_bool()) text += *b ? " true" : " false";
  if (const auto* i = value.as_i64()) text += " " + std::to_string(*i);
  if (const auto* u = value.as_u64()) text += " " + std::to_string(*u);
  if (const auto* f = value.as_f64()) text += " " + std::to_string(std::bit_cast<std::uint64_t>(*f));
  if (const auto* s = value.as_string()) text += " " + std::to_string(s->size()) + ":" + *s;
  if (const auto* b = value.as_bytes()) text += " " + std::to_string(b->size()) + ":" + std::string(text_of(*b));
  if (const auto* l = value.as_list()) {
    text += "(";
    for (const auto& v : *l) text += to_text(v) + ",";
    text += ")";
  }
  if (const auto* m = value.as_map()) {
    text += "(";
    for (const auto& [key, v] : *m) text += std::to_string(key.size()) + ":" + key + "=" + to_text(v) + ",";
    text += ")";
  }
  return text;
}

// ---- Snapshots ------------------------------------------------------------------------------------------------------

/// Operations of leaves whose bytes are in memory owned by the Snapshot.
inline const stele::LeafOps memory_ops{
    .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};

/// Operations of leaves that can only be read in parts.
inline const stele::LeafOps read_only_ops{.read = [](const void* at, std::uint64_t, std::uint64_t offset,
                                                     std::span<std::byte> out, stele::ReadContext&) -> stele::Status {
  std::memcpy(out.data(), static_cast<const std::byte*>(at) + offset, out.size());
  return {};
}};

inline constexpr stele::DType all_dtypes[] = {
    stele::DType::f64,         stele::DType::f32,     stele::DType::f16,     stele::DType::bf16,
    stele::DType::f8_e4m3fn,   stele::DType::f8_e5m2, stele::DType::f8_e8m0, stele::DType::f8_e4m3fnuz,
    stele::DType::f8_e5m2fnuz, stele::DType::f6_e2m3, stele::DType::f6_e3m2, stele::DType::f4_e2m1,
    stele::DType::i64,         stele::DType::i32,     stele::DType::i16,     stele::DType::i8,
    stele::DType::i4,          stele::DType::u64,     stele::DType::u32,     stele::DType::u16,
    stele::DType::u8,          stele::DType::u4,      stele::DType::boolean, stele::DType::c64,
    stele::DType::c128,        stele::DType::string,  stele::DType::opaque};

/// Builds trees that fit a format's capabilities.
class RandomTree {
 public:
  RandomTree(Random& random, const stele::Capabilities& can) : random_(random), can_(can) {}

  stele::Snapshot make() {
    using stele::NodeKind;
    static constexpr NodeKind roots[] = {NodeKind::module, NodeKind::map, NodeKind::list, NodeKind::tuple};
    container(roots[random_.below(4)], "", false, 0);
    std::map<std::string, std::string> metadata;
    if (can_.metadata && random_.chance(50)) {
      for (std::size_t n = random_.below(4); n != 0; --n) {
        std::string key = random_.name(true);
        if (can_.nesting || key != "stele") metadata.emplace(std::move(key), random_.name(true));
      }
    }
    builder_.set_metadata(std::move(metadata));
    return builder_.finish();
  }

 private:
  using Name = stele::SnapshotBuilder::Name;

  void container(stele::NodeKind kind, Name name, bool conditional, int depth) {
    using stele::NodeKind;
    const bool module = kind == NodeKind::module;
    const std::string_view type = module && can_.type_names && random_.chance(60) ? "Linear" : "";
    const auto version = module && random_.chance(20) ? static_cast<std::uint32_t>(random_.below(5)) : 0;
    const std::uint32_t number = builder_.begin(kind, name, conditional, type, version);
    const bool named = module || kind == NodeKind::map || kind == NodeKind::variant;
    const std::size_t children = kind == NodeKind::variant ? 1 : random_.below(depth == 0 ? 9 : 5);
    std::set<std::string> names;
    for (std::size_t i = 0; i < children; ++i) {
      if (!named) {
        child(Name::element(i), kind == NodeKind::list, depth);
        continue;
      }
      std::string text = random_.name(!can_.nesting);
      if (!names.insert(text).second) continue;
      child(builder_.intern(text), !module, depth);
    }
    builder_.end();
    if (depth != 0) closed_.push_back(number);
  }

  void child(Name name, bool conditional, int depth) {
    using stele::NodeKind;
    const std::size_t what = random_.below(100);
    if (what < 55 || (depth > 4 && what < 80)) return tensor(name, conditional);
    if (what < 65 && can_.values) {
      builder_.value(name, random_value(random_), conditional);
      return;
    }
    if (what < 70) {
      builder_.none(name, true);
      return;
    }
    if (what < 78 && can_.aliases && !closed_.empty()) {
      builder_.alias(name, closed_[random_.below(closed_.size())], conditional);
      return;
    }
    static constexpr NodeKind kinds[] = {NodeKind::module, NodeKind::list, NodeKind::array,
                                         NodeKind::tuple,  NodeKind::map,  NodeKind::variant};
    if (depth <= 4) return container(kinds[random_.below(6)], name, conditional || random_.chance(30), depth + 1);
    tensor(name, conditional);
  }

  void tensor(Name name, bool conditional) {
    stele::DType dtype = stele::DType::none;
    do {
      dtype = all_dtypes[random_.below(std::size(all_dtypes))];
    } while (can_.holds != nullptr && !can_.holds(dtype));
    std::vector<stele::Extent> shape(std::min<std::size_t>(random_.below(random_.chance(90) ? 4 : 10), can_.max_rank));
    for (auto& e : shape)
      e = random_.chance(random_.chance(10) ? 60 : 2) ? 0 : 1 + random_.below(shape.size() > 3 ? 2 : 5);
    // Flat files store only whole bytes.
    if (!can_.nesting && bits(dtype) % 8 != 0) shape.push_back(4);
    const std::uint64_t count = *stele::element_count(shape);
    // PyTorch's files have the name of an opaque tensor's type.
    constexpr const char* type_key = "pytorch.dtype";
    const bool typed = dtype == stele::DType::opaque && can_.keeps != nullptr && can_.keeps(type_key);
    const std::uint64_t size = typed              ? count
                               : bits(dtype) == 0 ? (count == 0 ? 0 : random_.below(100))
                                                  : *stele::byte_length(dtype, count);
    auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size) + 1);
    random_.fill(*memory);
    const stele::LeafOps& ops = random_.chance(70) ? memory_ops : read_only_ops;
    closed_.push_back(builder_.tensor(name, dtype, shape, size, {&ops, memory->data(), 0}, conditional));
    builder_.keep(std::move(memory));
    if (typed) builder_.annotate(type_key, stele::Value("bits8"));
    if (can_.ids && random_.chance(30)) {
      builder_.set_id(random_.chance(50) ? stele::ParamId::from_u64(random_.bits())
                                         : stele::ParamId::from_uuid(random_.bits(), random_.bits()));
    }
    if (can_.annotations && random_.chance(15)) {
      builder_.annotate("scale", random_value(random_));
      builder_.annotate(random_.name(true), random_value(random_));
    }
  }

  Random& random_;
  const stele::Capabilities& can_;
  stele::SnapshotBuilder builder_;
  std::vector<std::uint32_t> closed_;  // possible targets of an alias
};

inline stele::Snapshot random_snapshot(Random& random, const stele::Capabilities& can) {
  return RandomTree(random, can).make();
}

/// Returns all facts of a Snapshot as text, by path, except those that the format cannot store.
inline std::map<std::string, std::string> facts(const stele::Snapshot& snapshot, const stele::Capabilities& can) {
  using stele::NodeKind;
  std::map<std::string, std::string> all;
  const auto add = [&](const std::string& key, std::string fact) {
    if (!all.emplace(key, std::move(fact)).second) throw std::runtime_error("two of one name: " + key);
  };
  const auto nodes = snapshot.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const stele::Node& node = nodes[i];
    const std::string path = snapshot.path(i);
    // JSON only distinguishes objects from arrays. In flat files, containers are not compared.
    const bool named = node.kind == NodeKind::module || node.kind == NodeKind::map;
    const bool listed = node.kind == NodeKind::list || node.kind == NodeKind::array || node.kind == NodeKind::tuple;
    std::string fact(can.type_names ? name(node.kind) : named ? "object" : listed ? "array" : name(node.kind));
    if (node.kind == NodeKind::tensor) {
      const stele::LeafView leaf = snapshot.leaf(node.index);
      fact += " " + std::string(name(leaf.dtype())) + " " + stele::to_string(leaf.shape()) + " ";
      const auto bytes = content(leaf);
      fact += bytes ? *bytes : bytes.error().to_string();
      if (const auto id = leaf.id(); id && can.ids) {
        fact += " id " + std::to_string(static_cast<int>(id->form)) + " " + std::to_string(id->high) + " " +
                std::to_string(id->low);
      }
      if (leaf.annotations() != nullptr && can.annotations) {
        for (const auto& [key, value] : *leaf.annotations()) fact += " @" + key + "=" + to_text(value);
      }
    } else if (node.kind == NodeKind::value) {
      fact += " " + to_text(snapshot.value(node));
    } else if (node.kind == NodeKind::alias) {
      fact += " " + snapshot.path(node.index);
    } else if (!can.nesting) {
      continue;
    }
    if (can.nesting) {
      fact += " #" + std::to_string(i) + " parent " + std::to_string(node.parent) + " end " + std::to_string(node.end);
      fact += node.conditional && can.type_names ? " conditional" : "";
      fact += node.name == nullptr ? " element" : "";
      if (can.type_names) fact += " " + std::string(snapshot.type_name(node));
      fact += " v" + std::to_string(snapshot.version(node));
    }
    // The root of a nested snapshot differs from a child with an empty name.
    add((node.parent == stele::no_index ? "root " : "node ") + path, std::move(fact));
  }
  for (const auto& [key, text] : snapshot.metadata()) add("metadata " + key, text);
  return all;
}

/// Returns the first difference; empty if there is none.
inline std::string difference(const std::map<std::string, std::string>& a,
                              const std::map<std::string, std::string>& b) {
  const auto show = [](const std::string& text) {
    std::string shown;
    for (const char c : text.substr(0, 300)) shown += c >= ' ' && c <= '~' ? c : '?';
    return shown;
  };
  for (const auto& [key, fact] : a) {
    const auto found = b.find(key);
    if (found == b.end()) return "only before: " + show(key) + ": " + show(fact);
    if (found->second != fact) return show(key) + ": before " + show(fact) + ", after " + show(found->second);
  }
  for (const auto& [key, fact] : b) {
    if (a.find(key) == a.end()) return "only after: " + show(key) + ": " + show(fact);
  }
  return {};
}

// ---- modules --------------------------------------------------------------------------------------------------------

struct Twig {
  stele::Param<stele::Tensor<float>> weight;
  std::optional<stele::Param<stele::Tensor<double, 2>>> bias;
  STELE_MODULE(Twig, weight, bias)
};

struct Nothing {
  int unrecorded = 0;
  STELE_MODULE(Nothing)
};

enum class Mood : std::uint8_t { calm, brisk };

/// Contains examples of each container, tensor and value kind.
class Branch {
 public:
  std::map<std::string, stele::Tensor<float>> named;
  std::vector<std::optional<stele::Tensor<stele::float16>>> gaps;
  std::variant<Twig, Nothing, stele::Tensor<std::int64_t>> choice;
  std::vector<std::variant<Nothing, Twig>> choices;
  std::map<std::string, std::vector<stele::Tensor<std::uint8_t, 1>>> lists;
  std::map<std::string, std::variant<std::vector<double>, stele::Tensor<stele::float16>, Twig>> kinds;
  std::optional<std::vector<Twig>> maybe;
  std::tuple<stele::Tensor<bool>, std::array<Twig, 2>> pair;
  std::unique_ptr<Branch> next;
  std::shared_ptr<stele::Tensor<stele::bfloat16>> tied_a, tied_b;
  std::shared_ptr<Twig> shared_a, shared_b;
  std::shared_ptr<std::string> note_a, note_b;
  std::shared_ptr<std::vector<Twig>> twigs_a, twigs_b;
  std::array<std::array<float, 2>, 3> grid{};
  std::vector<std::int32_t> indices;
  std::string text;
  std::uint64_t number = 0;
  std::int8_t small = 0;
  double real = 0;
  bool flag = false;
  Mood mood = Mood::calm;
  stele::Value any;
  STELE_MODULE(Branch, named, gaps, choice, choices, lists, kinds, maybe, pair, next, tied_a, tied_b, shared_a,
               shared_b, note_a, note_b, twigs_a, twigs_b, grid, indices, text, number, small, real, flag, mood, any)
};

class RandomModule {
 public:
  /// `utf8`: uses names that any format can store.
  RandomModule(Random& random, bool utf8) : random_(random), utf8_(utf8) {}

  Branch make(int depth = 0) {
    Branch b;
    for_names(4, [&](std::string name) { b.named.emplace(std::move(name), tensor<stele::Tensor<float>>()); });
    b.gaps.resize(random_.below(5));
    for (auto& gap : b.gaps) {
      if (random_.chance(50)) gap = tensor<stele::Tensor<stele::float16>>();
    }
    if (const auto which = random_.below(3); which == 0) {
      b.choice = twig();
    } else if (which == 1) {
      b.choice = Nothing{};
    } else {
      b.choice = tensor<stele::Tensor<std::int64_t>>();
    }
    b.choices.resize(random_.below(4));
    for (auto& choice : b.choices) {
      if (random_.chance(50)) choice = twig();
    }
    for_names(3, [&](std::string name) {
      auto& list = b.lists[std::move(name)];
      for (std::size_t n = random_.below(4); n != 0; --n) list.push_back(tensor<stele::Tensor<std::uint8_t, 1>>());
    });
    for_names(3, [&](std::string name) {
      auto& kind = b.kinds[std::move(name)];
      if (const auto which = random_.below(3); which == 0) {
        kind = std::vector<double>(random_.below(5), -0.0);
      } else if (which == 1) {
        kind = tensor<stele::Tensor<stele::float16>>();
      } else {
        kind = twig();
      }
    });
    if (random_.chance(50)) {
      b.maybe.emplace();
      for (std::size_t n = random_.below(3); n != 0; --n) b.maybe->push_back(twig());
    }
    std::get<0>(b.pair) = stele::Tensor<bool>({3}, {true, false, random_.chance(50)});
    for (Twig& t : std::get<1>(b.pair)) t = twig();
    if (depth < 3 && random_.chance(50)) b.next = std::make_unique<Branch>(make(depth + 1));
    tie(b.tied_a, b.tied_b, tensors_, [&] { return tensor<stele::Tensor<stele::bfloat16>>(); });
    tie(b.shared_a, b.shared_b, twigs_, [&] { return twig(); });
    tie(b.note_a, b.note_b, notes_, [&] { return random_.name(false); });
    tie(b.twigs_a, b.twigs_b, lists_, [&] {
      std::vector<Twig> list;
      for (std::size_t n = random_.below(3); n != 0; --n) list.push_back(twig());
      return list;
    });
    for (auto& row : b.grid) random_.fill(std::as_writable_bytes(std::span(row)));
    b.indices.resize(random_.below(6), -7);
    b.text = random_.chance(50) ? random_.name(false) : random_.bytes(random_.below(9));
    b.number = random_.bits();
    b.small = static_cast<std::int8_t>(random_.bits());
    b.real = std::bit_cast<double>(random_.bits());
    b.flag = random_.chance(50);
    b.mood = random_.chance(50) ? Mood::calm : Mood::brisk;
    b.any = random_value(random_);
    return b;
  }

 private:
  template <class F>
  void for_names(std::size_t most, F use) {
    std::set<std::string> names;
    for (std::size_t n = random_.below(most + 1); n != 0; --n) {
      std::string name = random_.name(utf8_);
      if (names.insert(name).second) use(std::move(name));
    }
  }

  template <class T>
  T tensor() {
    std::vector<stele::Extent> extents(stele::tensor_traits<T>::rank < 0
                                           ? random_.below(random_.chance(80) ? 4 : 10)
                                           : static_cast<std::size_t>(stele::tensor_traits<T>::rank));
    for (auto& e : extents) e = random_.below(20) == 0 ? 0 : 1 + random_.below(extents.size() > 3 ? 2 : 6);
    T t;
    stele::tensor_traits<T>::resize(t, stele::Shape(extents));
    random_.fill(std::as_writable_bytes(t.span()));
    return t;
  }

  Twig twig() {
    Twig t;
    t.weight = tensor<stele::Tensor<float>>();
    if (random_.chance(40)) t.weight.id = stele::ParamId::from_u64(random_.bits());
    if (random_.chance(50)) {
      t.bias.emplace(tensor<stele::Tensor<double, 2>>());
      if (random_.chance(40)) t.bias->id = stele::ParamId::from_uuid(random_.bits(), random_.bits());
    }
    return t;
  }

  /// Makes both null, two separate objects, or one object for both names, possibly one from another branch.
  template <class T, class F>
  void tie(std::shared_ptr<T>& a, std::shared_ptr<T>& b, std::vector<std::shared_ptr<T>>& known, F create) {
    if (random_.chance(70)) a = std::make_shared<T>(create());
    if (random_.chance(40)) {
      b = a;
    } else if (random_.chance(50)) {
      b = std::make_shared<T>(create());
    }
    if (!known.empty() && random_.chance(30)) b = known[random_.below(known.size())];
    if (a) known.push_back(a);
  }

  Random& random_;
  bool utf8_;
  std::vector<std::shared_ptr<stele::Tensor<stele::bfloat16>>> tensors_;
  std::vector<std::shared_ptr<Twig>> twigs_;
  std::vector<std::shared_ptr<std::string>> notes_;
  std::vector<std::shared_ptr<std::vector<Twig>>> lists_;
};

}  // namespace stele_test
