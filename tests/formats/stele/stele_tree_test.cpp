// The `.stele` format: trees and values that lie; the reader without a heap.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "passes/byte_order.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace stele_tree_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

Errc open_error(const std::string& file) {
  const auto opened = BinaryRecorder<>().open(bytes_of(file));
  if (!opened) return opened.error().code();
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    if (const auto all = content(opened->leaf(i)); !all) return all.error().code();
  }
  return Errc::none;
}
Errc open_error(const RawFile& file) { return open_error(file.make()); }

Errc value_error(std::string_view encoded) {
  RawFile file;
  file.node(NodeKind::module, "", 2);
  file.value("v", encoded);
  return open_error(file);
}

std::string sized(char kind, std::uint32_t size, std::string_view rest = {}) {
  std::string text(1, kind);
  put(text, size);
  return text + std::string(rest);
}

std::uint64_t hash(const void* data, std::size_t size) { return detail::hash64(data, size); }

}  // namespace

TEST_CASE("stele format: trees that lie") {
  const auto tree = [](const std::function<void(RawFile&)>& change) {
    RawFile f;
    f.node(NodeKind::module, "", 5);
    f.node(NodeKind::module, "m", 4);
    f.node(NodeKind::map, "l", 4);
    f.node(NodeKind::none, "n");
    f.tensor("t", DType::u8, {1}, "1");
    change(f);
    return open_error(f);
  };
  CHECK(tree([](RawFile&) {}) == Errc::none);
  for (const std::size_t i : {0U, 1U, 2U, 3U, 4U}) {
    for (const std::uint32_t end : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 0xffffffffU}) {
      CAPTURE(i);
      CAPTURE(end);
      RawFile f;
      const Errc code = tree([&](RawFile& file) { file.nodes[i].end = end; });
      // A container may end earlier or later as long as its children stay inside and names still fit.
      const bool fits = (i == 0 && end == 5) || (i == 1 && (end == 2 || end == 4)) ||
                        (i == 2 && (end == 3 || end == 4)) || (i == 3 && end == 4) || (i == 4 && end == 5);
      if (i == 1 && end == 2) {
        CHECK((code == Errc::none || code == Errc::malformed));
      } else {
        CHECK((code == Errc::none) == fits);
      }
      if (code != Errc::none) CHECK(code == Errc::malformed);
    }
    for (const unsigned kind : {0U, 1U, 8U, 9U, 10U, 255U}) {
      CAPTURE(i);
      CAPTURE(kind);
      const Errc code = tree([&](RawFile& f) { f.nodes[i].kind = static_cast<std::uint8_t>(kind); });
      if (i == 3 && kind == 8) continue;
      if (i == 4 && kind == 0) continue;
      CHECK(code == Errc::malformed);
    }
    CHECK(tree([&](RawFile& f) { f.nodes[i].flags |= 4; }) == Errc::malformed);
    CHECK(tree([&](RawFile& f) { f.nodes[i].zero = 1; }) == Errc::malformed);
    CHECK(tree([&](RawFile& f) { f.nodes[i].name = 0xffffffff; }) == Errc::malformed);
    CHECK(tree([&](RawFile& f) { f.nodes[i].name_size = 0xffffffff; }) == Errc::malformed);
    CHECK(tree([&](RawFile& f) { f.nodes[i].value = 1; }) == Errc::malformed);
    CHECK(tree([&](RawFile& f) { f.nodes[i].value_size = 1; }) == Errc::malformed);
  }
  for (const std::size_t i : {0U, 1U, 2U}) {
    for (const std::uint32_t type : {0U, 1U, 0xfffffffeU}) {
      CHECK(tree([&](RawFile& f) { f.nodes[i].index = type; }) == Errc::malformed);
    }
  }
  for (const std::uint32_t entry : {1U, 2U, 0xffffffffU}) {
    CHECK(tree([&](RawFile& f) { f.nodes[4].index = entry; }) == Errc::malformed);
  }
  CHECK(tree([](RawFile& f) { f.types.push_back({0, 0, 1, 1}); }) == Errc::malformed);
  CHECK(tree([](RawFile& f) { f.types.push_back({0xffffffff, 0, 1, 0}); }) == Errc::malformed);
  CHECK(tree([](RawFile& f) { f.types.push_back({0, 0xffffffff, 1, 0}); }) == Errc::malformed);
  CHECK(tree([](RawFile& f) { f.flags = 1; }) == Errc::malformed);  // flat names with nested nodes
  // The index field of a value or a none; a value of a container.
  CHECK(tree([](RawFile& f) { f.nodes[3].index = 0; }) == Errc::malformed);
  CHECK(tree([](RawFile& f) {
          f.nodes[3].kind = static_cast<std::uint8_t>(NodeKind::value), f.nodes[3].index = 0;
          f.values = "\0"s, f.nodes[3].value_size = 1;
        }) == Errc::none);
  for (const std::uint32_t index : {1U, 0xffffffffU}) {
    CHECK(tree([&](RawFile& f) {
            f.nodes[3].kind = static_cast<std::uint8_t>(NodeKind::value), f.nodes[3].index = index;
            f.values = "\0"s, f.nodes[3].value_size = 1;
          }) == Errc::malformed);
  }
  for (const std::size_t i : {0U, 1U, 2U, 3U}) {
    CHECK(tree([&](RawFile& f) { f.values = "\0"s, f.nodes[i].value_size = 1; }) == Errc::malformed);
  }
  RawFile nothing;
  CHECK(open_error(nothing) == Errc::none);
  RawFile two_roots;
  two_roots.node(NodeKind::module, "");
  two_roots.node(NodeKind::module, "");
  CHECK(open_error(two_roots) == Errc::malformed);
}

TEST_CASE("stele format: children are named or numbered as their container's kind requires") {
  const auto child = [](NodeKind kind, bool named, std::uint32_t flags = 0) {
    RawFile f;
    f.node(NodeKind::module, "", 3);
    f.node(kind, "c", 3);
    f.node(NodeKind::none, named ? "a" : "");
    if (!named) f.nodes[2].flags = 0, f.nodes[2].name = 0;
    f.flags = flags;
    return open_error(f);
  };
  for (const NodeKind kind : {NodeKind::module, NodeKind::map, NodeKind::variant}) {
    CHECK(child(kind, true) == Errc::none);
    CHECK(child(kind, false) == Errc::malformed);
    CHECK(child(kind, false, 2) == Errc::none);  // kinds are guesses
  }
  for (const NodeKind kind : {NodeKind::list, NodeKind::array, NodeKind::tuple}) {
    CHECK(child(kind, false) == Errc::none);
    CHECK(child(kind, true) == Errc::malformed);
    CHECK(child(kind, true, 2) == Errc::none);
  }

  SnapshotBuilder builder;  // the writer refuses what the reader would
  builder.begin(NodeKind::map, "");
  builder.none(SnapshotBuilder::Name::element(0));
  const auto written = BytesRecorder<>().save(builder.finish());
  REQUIRE(!written);
  CHECK(written.error().code() == Errc::invalid_argument);
  CHECK(written.error().path() == "0");
}

TEST_CASE("stele format: siblings differ") {
  const auto two = [](NodeKind first, NodeKind second, const char* name) {
    RawFile f;
    f.node(NodeKind::module, "", 3);
    f.node(first, "a");
    f.node(second, name);
    return open_error(f);
  };
  CHECK(two(NodeKind::none, NodeKind::module, "b") == Errc::none);
  CHECK(two(NodeKind::none, NodeKind::module, "a") == Errc::malformed);
  CHECK(two(NodeKind::list, NodeKind::list, "a") == Errc::malformed);

  const auto list = [](std::uint32_t first, std::uint32_t second) {
    RawFile f;
    f.node(NodeKind::list, "", 3);
    f.node(NodeKind::none, "");
    f.node(NodeKind::none, "");
    f.nodes[1].flags = f.nodes[2].flags = 0;
    f.nodes[1].name = first, f.nodes[2].name = second;
    f.nodes[1].name_size = f.nodes[2].name_size = 0;
    return open_error(f);
  };
  CHECK(list(0, 1) == Errc::none);
  CHECK(list(3, 0xffffffff) == Errc::none);  // part of a list
  CHECK(list(1, 1) == Errc::malformed);
  CHECK(list(1, 0) == Errc::malformed);

  stele::SnapshotBuilder builder;  // the writer refuses what the reader would
  builder.begin(NodeKind::module, "");
  builder.value("a", stele::Value(true));
  builder.value("a", stele::Value(false));
  const auto written = stele::BytesRecorder<>().save(builder.finish());
  REQUIRE(!written);
  CHECK(written.error().code() == Errc::duplicate);
  CHECK(written.error().path() == "a");
}

TEST_CASE("stele format: aliases that lie") {
  // module { a: u8 [1], m: module { b: u8 [1] }, x: alias }
  const auto alias = [](std::uint32_t target, const std::function<void(RawFile&)>& change = {}) {
    RawFile f;
    f.node(NodeKind::module, "", 5);
    f.tensor("a", DType::u8, {1}, "1");
    f.node(NodeKind::module, "m", 4);
    const auto path = f.text("m.b");
    f.tensor("b", DType::u8, {1}, "2");
    f.entries[1].name = path.at;
    f.entries[1].name_size = path.size;
    f.node(NodeKind::alias, "x", 0, target);
    if (target == 1 || target == 3) {
      RawEntry e = f.entries[target == 1 ? 0 : 1];
      e.name = f.nodes[4].name;
      e.name_size = 1;
      e.flags = 1;
      e.node = 4;
      f.entries.push_back(e);
    }
    if (change) change(f);
    return open_error(f);
  };
  CHECK(alias(1) == Errc::none);
  CHECK(alias(2) == Errc::none);
  CHECK(alias(3) == Errc::none);
  for (const std::uint32_t target : {0U, 4U, 5U, 0xffffffffU}) {  // what it is in, itself, what is not there
    CAPTURE(target);
    CHECK(alias(target) == Errc::malformed);
  }
  CHECK(alias(1, [](RawFile& f) { f.entries.pop_back(); }) == Errc::malformed);
  CHECK(alias(1, [](RawFile& f) { f.entries.back().flags |= 2, f.entries.back().id_low = 7; }) == Errc::malformed);
  CHECK(alias(1, [](RawFile& f) { f.nodes[4].index = 3; }) == Errc::malformed);  // another one than its entry says
  CHECK(alias(2, [](RawFile& f) { f.nodes[2].kind = 8, f.nodes[2].end = 3; }) == Errc::malformed);

  RawFile later;  // x: alias of a, which comes behind it
  later.node(NodeKind::module, "", 3);
  later.node(NodeKind::alias, "x", 0, 2);
  later.tensor("a", DType::u8, {1}, "1");
  CHECK(open_error(later) == Errc::malformed);

  RawFile circle;
  circle.node(NodeKind::module, "", 3);
  circle.node(NodeKind::alias, "x", 0, 2);
  circle.node(NodeKind::alias, "y", 0, 1);
  CHECK(open_error(circle) == Errc::malformed);

  RawFile chain;
  chain.node(NodeKind::module, "", 4);
  chain.node(NodeKind::module, "m");
  chain.node(NodeKind::alias, "x", 0, 1);
  chain.node(NodeKind::alias, "y", 0, 2);
  CHECK(open_error(chain) == Errc::malformed);

  RawFile inside;  // m: module { x: alias of m }
  inside.node(NodeKind::module, "", 3);
  inside.node(NodeKind::module, "m", 3);
  inside.node(NodeKind::alias, "x", 0, 1);
  CHECK(open_error(inside) == Errc::malformed);
}

TEST_CASE("stele format: nesting has a bound") {
  const auto nested = [](std::uint32_t depth) {
    RawFile f;
    for (std::uint32_t i = 0; i < depth; ++i) f.node(NodeKind::module, i == 0 ? "" : "n", depth);
    return open_error(f);
  };
  CHECK(nested(500) == Errc::none);
  CHECK(nested(600) == Errc::limit);
  CHECK(nested(100000) == Errc::limit);
}

TEST_CASE("stele format: values that lie") {
  CHECK(value_error("\0"s) == Errc::none);
  CHECK(value_error("\1\1"s) == Errc::none);
  CHECK(value_error("\1\2"s) == Errc::malformed);
  CHECK(value_error("\x03\xff\xff\xff\xff\xff\xff\xff\xff"s) == Errc::none);
  CHECK(value_error("\x03\xff\xff\xff\xff\xff\xff\xff\x7f"s) == Errc::malformed);  // an i64 holds it
  CHECK(value_error(""s) == Errc::malformed);
  for (const int kind : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 127, 255}) {
    CAPTURE(kind);
    CHECK(value_error(std::string(1, static_cast<char>(kind))) == Errc::malformed);
  }
  CHECK(value_error("\0\0"s) == Errc::malformed);  // bytes behind it
  CHECK(value_error(sized(5, 0)) == Errc::none);
  CHECK(value_error(sized(7, 0)) == Errc::none);
  CHECK(value_error(sized(8, 0)) == Errc::none);
  for (const std::uint32_t n : {1U, 1000U, 0x7fffffffU, 0xffffffffU}) {
    CAPTURE(n);
    CHECK(value_error(sized(5, n)) != Errc::none);
    CHECK(value_error(sized(6, n)) != Errc::none);
    CHECK(value_error(sized(7, n)) != Errc::none);
    CHECK(value_error(sized(8, n)) != Errc::none);
    CHECK(value_error(sized(8, 1, sized(0, n).substr(1))) != Errc::none);
  }
  const auto deep = [](int depth, char kind) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += kind == 7 ? sized(7, 1) : sized(8, 1, "\0\0\0\0"s);
    return value_error(text + std::string(1, '\0'));
  };
  for (const char kind : {'\7', '\10'}) {
    CHECK(deep(64, kind) == Errc::none);
    CHECK(deep(65, kind) == Errc::limit);
    CHECK(deep(1000000, kind) == Errc::limit);
  }
  // Many nulls in few bytes are Values of 40 bytes each: what a save writes.
  CHECK(value_error(sized(7, 1000000, std::string(1000000, '\0'))) == Errc::none);
  CHECK(value_error(sized(7, 100000, std::string(100000, '\0'))) == Errc::none);

  RawFile annotated;
  annotated.node(NodeKind::module, "", 2);
  annotated.tensor("t", DType::u8, {1}, "1");
  annotated.values = sized(7, 0);
  annotated.nodes[1].value_size = static_cast<std::uint32_t>(annotated.values.size());
  CHECK(open_error(annotated) == Errc::malformed);  // no map
  annotated.values = sized(8, 0);
  CHECK(open_error(annotated) == Errc::none);
}

TEST_CASE("stele format: metadata that lie") {
  const auto metadata = [](std::string_view bytes) {
    RawFile f;
    f.node(NodeKind::module, "");
    f.metadata = bytes;
    return open_error(f);
  };
  const auto pair = [](std::string_view key, std::string_view text) {
    std::string bytes;
    put(bytes, static_cast<std::uint32_t>(key.size())), put(bytes, static_cast<std::uint32_t>(text.size()));
    return bytes + std::string(key) + std::string(text);
  };
  CHECK(metadata(""s) == Errc::none);
  CHECK(metadata("\2\0\0\0"s + pair("a", "1") + pair("b", "")) == Errc::none);
  CHECK(metadata("\2\0\0\0"s + pair("b", "1") + pair("a", "")) == Errc::malformed);
  CHECK(metadata("\2\0\0\0"s + pair("a", "1") + pair("a", "1")) == Errc::malformed);
  CHECK(metadata("\1\0\0\0"s + pair("a", "1") + pair("b", "")) == Errc::malformed);
  CHECK(metadata("\3\0\0\0"s + pair("a", "1") + pair("b", "")) == Errc::malformed);
  CHECK(metadata("\xff\xff\xff\xff"s + pair("a", "1")) == Errc::malformed);
  CHECK(metadata("\1\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"s) == Errc::malformed);
  CHECK(metadata("\1\0\0\0\1\0\0\0\xff\xff\xff\xff"
                 "a"s) == Errc::malformed);
  CHECK(metadata("\1\0\0"s) == Errc::malformed);
}

TEST_CASE("stele format: the reader without a heap agrees") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Snapshot snapshot = random_snapshot(random, can<BinaryRecorder<>>());
    const auto bytes = saved(BinaryRecorder<>(), snapshot);
    REQUIRE(bytes);
    // As in flash: something else follows.
    std::string flash(text_of(bytes->span()));
    flash += std::string(100, '\xff');
    format::MemoryFile file;
    REQUIRE(!file.open(bytes_of(flash), hash));
    const auto opened = BinaryRecorder<>().open(bytes_of(flash));
    REQUIRE_MESSAGE(opened, why(opened));
    std::size_t names = 0;
    const auto nodes = opened->nodes();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const Node* node = &nodes[i];
      if (node->kind == NodeKind::alias) node = &nodes[node->index];
      if (node->kind != NodeKind::tensor) continue;
      ++names;
      const std::string path = opened->path(i);
      CAPTURE(path);
      const LeafView leaf = opened->leaf(node->index);
      format::TensorBytes tensor;
      const format::Fault fault = file.tensor(path, tensor, hash);
      REQUIRE(fault.code == Errc::none);
      REQUIRE(tensor.entry.dtype == leaf.dtype());
      REQUIRE(tensor.entry.alias == (nodes[i].kind == NodeKind::alias));
      REQUIRE(tensor.entry.rank == leaf.shape().size());
      for (std::uint32_t d = 0; d < tensor.entry.rank; ++d) {
        REQUIRE(file.index().extent(tensor.entry, d) == leaf.shape()[d]);
      }
      REQUIRE(text_of(tensor.bytes) == in_file_order(content(leaf).value(), leaf.dtype()));
      REQUIRE(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % 8 ==
              (reinterpret_cast<std::uintptr_t>(flash.data()) + tensor.entry.offset) % 8);
      if (leaf.id()) {
        REQUIRE(tensor.entry.id_low == leaf.id()->low);
        REQUIRE(tensor.entry.id_high == leaf.id()->high);
      }
    }
    REQUIRE(file.index().entries() == names);
    format::TensorBytes tensor;
    CHECK(file.tensor("not there", tensor).code == Errc::not_found);
    CHECK(file.tensor(file.index().entries(), tensor).code == Errc::not_found);
  }
}

}  // namespace stele_tree_test
