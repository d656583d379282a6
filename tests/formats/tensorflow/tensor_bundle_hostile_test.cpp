// Checkpoints that are damaged, that lie, that are made to take long or much.
#include <stele/recorders/any.hpp>
#include <stele/recorders/tensorflow.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/tensor_bundle.hpp"

namespace tensor_bundle_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::tensor_bundle;
using namespace std::string_literals;
using tensor_bundle::Entry;

const TensorBundleRecorder<> recorder;

Result<Snapshot> open(const Files& files, const LoadOptions& options = {}) {
  return recorder.open(good(files.bundle()->open("x.index")), options);
}

/// Two tensors of two numbers.
Files two() {
  Files files;
  files.add("a", 1, {2}, std::string(8, '1'));
  files.add("b", 9, {2}, std::string(16, '2'));
  return files;
}

/// Changes the entry of "b".
template <class Change>
Error changed(Change change) {
  Files files = two();
  change(files.tensors[1].second);
  return bad(open(files));
}

std::string child(std::uint64_t node, const std::string& name) {
  return message(1, number(1, node) + message(2, name));
}
std::string value_of(const std::string& key, const std::string& full_name = {}) {
  return message(2, message(1, "VARIABLE_VALUE") + message(2, full_name) + message(3, key));
}
std::string slot(std::uint64_t variable, const std::string& name, std::uint64_t slot) {
  return message(3, number(1, variable) + message(2, name) + number(3, slot));
}

/// Adds a string tensor of one string.
void add_string(Files& files, const std::string& key, const std::string& text, std::vector<std::uint64_t> shape = {}) {
  const std::string lengths = text.size() >> 32 == 0 ? u32(text.size()) : "";
  const std::string crc = u32(masked_crc(lengths));
  Entry& entry = files.add(key, 7, std::move(shape), varint(text.size()) + crc + text);
  entry.crc = masked_crc(lengths + crc + text);
}

/// A checkpoint of TensorFlow 2 with these nodes, and tensors of one float.
Files with_graph(const std::vector<std::string>& nodes, const std::vector<std::string>& keys) {
  Files files;
  std::string graph;
  for (const std::string& node : nodes) graph += message(1, node);
  add_string(files, "_CHECKPOINTABLE_OBJECT_GRAPH", graph);
  for (const std::string& key : keys) files.add(key, 1, {1}, u32(files.tensors.size()));
  return files;
}

std::vector<std::string> names(const Snapshot& snapshot) {
  std::vector<std::string> all;
  for (std::uint32_t i = 1; i < snapshot.nodes().size(); ++i) all.push_back(snapshot.path(i));
  std::sort(all.begin(), all.end());
  return all;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("tensor bundle hostile: entries that lie") {
  REQUIRE(open(two()));
  CHECK(open(Files())->leaf_count() == 0);
  const Error size = changed([](Entry& e) { e.size = 8; });
  CHECK(size.code() == Errc::malformed);
  CHECK(size.path() == "b");
  CHECK(size.expected() == "16 bytes");
  CHECK(size.found() == "8");
  CHECK(size.file() == "x.index");
  CHECK(size.offset().has_value());
  CHECK(changed([](Entry& e) { e.offset = 9; }).code() == Errc::truncated);
  CHECK(changed([](Entry& e) { e.offset = UINT64_MAX; }).code() == Errc::truncated);
  CHECK(changed([](Entry& e) { e.offset = 7; }).code() == Errc::malformed);  // overlaps
  CHECK(changed([](Entry& e) { e.offset = 0; }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) { e.shard = 1; }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) { e.shard = UINT64_MAX; }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) { e.shape = {4}; }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) { e.shape = {UINT64_MAX, 2}; }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) {
          e.shape = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};
        }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) {
          e.shape = {std::uint64_t{1} << 40, std::uint64_t{1} << 40, 0};
        }).code() == Errc::malformed);
  CHECK(changed([](Entry& e) { e.shape.assign(70000, 1); }).code() == Errc::limit);
  CHECK(changed([](Entry& e) { e.dtype = 0; }).code() == Errc::unsupported);
  CHECK(changed([](Entry& e) { e.dtype = 20; }).found() == "DT_RESOURCE");
  CHECK(changed([](Entry& e) { e.dtype = 34; }).code() == Errc::unsupported);
  CHECK(changed([](Entry& e) { e.dtype = UINT64_MAX; }).code() == Errc::unsupported);
}

TEST_CASE("tensor bundle hostile: headers") {
  const auto refused = [](const std::string& header) {
    Files files = two();
    files.entries = {{"", header}};
    return code_of(open(files));
  };
  REQUIRE(refused(header()) == Errc::none);
  CHECK(refused(header(1, number(2, 1))) == Errc::unsupported);              // big-endian
  CHECK(refused(header(1, message(3, number(2, 2)))) == Errc::unsupported);  // a later reader
  CHECK(refused(header(0)) == Errc::malformed);
  CHECK(refused(header(2)) == Errc::not_found);  // a shard with that number
  CHECK(refused(header(UINT64_MAX)) == Errc::limit);
  CHECK(refused("\x08") == Errc::malformed);
  Files files = two();
  files.entries.clear();
  CHECK(code_of(open(files)) == Errc::malformed);
  CHECK(code_of(recorder.open(bytes_of(two().index()))) == Errc::unsupported);  // no other files
}

TEST_CASE("tensor bundle hostile: every cut and every changed bit is found") {
  Files files = two();
  add_string(files, "c", "a string");
  files.add("d", 29, {3}, "\1\2\xf"s);
  const std::string index = files.index(), shard = files.shards[0];
  const auto outcome = [](std::string_view index, const std::string& shard) {
    const auto bundle = Files::bundle_of(index, {shard});
    return recorder.verify(good(bundle->open("x.index"))).has_value();
  };
  REQUIRE(outcome(index, shard));
  for (std::size_t i = 0; i < index.size(); ++i) {
    REQUIRE(!outcome(std::string_view(index).substr(0, i), shard));
    std::string other = index;
    other[i] = static_cast<char>(other[i] ^ 1 << i % 8);
    REQUIRE(!outcome(other, shard));
  }
  for (std::size_t i = 0; i < shard.size(); ++i) {
    REQUIRE(!outcome(index, shard.substr(0, i)));
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = shard;
      other[i] = static_cast<char>(other[i] ^ 1 << bit);
      REQUIRE(!outcome(index, other));
    }
  }
}

TEST_CASE("tensor bundle hostile: string tensors") {
  const auto refused = [](const std::string& bytes, std::vector<std::uint64_t> shape) {
    Files files;
    files.add("s", 7, std::move(shape), bytes);
    return code_of(open(files));
  };
  Files files;
  add_string(files, "s", "text");
  const Snapshot text = good(open(files));
  CHECK(text.value(text.nodes()[1]) == Value("text"));
  CHECK(refused("", {}) == Errc::malformed);
  CHECK(refused("\xff\xff", {}) == Errc::malformed);
  CHECK(refused("\4abc", {}) == Errc::truncated);
  CHECK(refused("\4abcdtext", {}) == Errc::checksum);
  CHECK(refused("\4abcdtext", {10}) == Errc::malformed);
  CHECK(refused("\4abcdtext", {std::uint64_t{1} << 60}) == Errc::malformed);
  CHECK(refused("abcdefgh", {std::uint64_t{1} << 40, 0}) == Errc::limit);  // lists of nothing
  CHECK(refused("abcdefgh", std::vector<std::uint64_t>(61, 1)) == Errc::limit);
  Files damaged;
  add_string(damaged, "s", "text");
  damaged.shards[0].back() = 'T';
  CHECK(code_of(open(damaged)) == Errc::checksum);
}

TEST_CASE("tensor bundle hostile: names from the graph of objects") {
  const std::string suffix = "/.ATTRIBUTES/VARIABLE_VALUE";
  // A cycle, a way through two objects, an object of two names, one that nothing leads to.
  const Files files = with_graph({child(1, "net") + child(2, "twin"), child(0, "up") + child(1, "self") + child(2, "w"),
                                  value_of("net/w" + suffix), value_of("lost" + suffix)},
                                 {"net/w" + suffix, "lost" + suffix, "unlisted/a..b" + suffix, "plain"});
  CHECK(names(good(open(files))) == Names{"lost", "net.w", "plain", "twin", "unlisted.a\\.b"});
  // The variables of an optimizer that nothing else leads to keep its path.
  const Files slots = with_graph(
      {child(1, "opt") + child(2, "w"), child(2, "var") + child(3, "beta") + slot(2, "m", 4),
       value_of("opt/var" + suffix), value_of("beta" + suffix), value_of("w/.OPTIMIZER_SLOT/opt/m" + suffix)},
      {"opt/var" + suffix, "beta" + suffix, "w/.OPTIMIZER_SLOT/opt/m" + suffix});
  const Checkpoint all = good(recorder.open_checkpoint(good(slots.bundle()->open("x.index"))));
  CHECK(names(all.parameters) == Names{"opt.beta", "w"});
  REQUIRE(all.optimizer.find("m") != nullptr);
  CHECK(names(*all.optimizer.find("m")) == Names{"w"});
  // Without a graph, keys tell the slots, too; two optimizers have kinds of their own.
  const Files keyed =
      with_graph({}, {"w" + suffix, "w/.OPTIMIZER_SLOT/a/m" + suffix, "w/.OPTIMIZER_SLOT/b/m" + suffix});
  const Checkpoint both = good(recorder.open_checkpoint(good(keyed.bundle()->open("x.index"))));
  CHECK(names(both.parameters) == Names{"w"});
  CHECK(both.optimizer.kinds().size() == 2);
  CHECK(both.optimizer.find("a.m") != nullptr);
  CHECK(both.optimizer.find("b.m") != nullptr);
  const auto refused = [](const std::vector<std::string>& nodes) { return code_of(open(with_graph(nodes, {}))); };
  CHECK(refused({child(1, "x")}) == Errc::malformed);
  CHECK(refused({child(UINT64_MAX, "x")}) == Errc::malformed);
  CHECK(refused({slot(0, "m", 7)}) == Errc::malformed);
  CHECK(refused({"\x0a\x7f"s}) == Errc::malformed);
  // Two variables of one name, which only their keys tell apart.
  const Files same = with_graph({child(1, "a") + child(2, "a"), value_of("a" + suffix), value_of("a_1" + suffix)},
                                {"a" + suffix, "a_1" + suffix});
  CHECK(code_of(open(same)) == Errc::duplicate);
  const TensorBundleRecorder<> keys(TensorBundleFormat({.names = TensorBundleNames::keys}));
  CHECK(good(keys.open(good(same.bundle()->open("x.index")))).leaf_count() == 2);
}

TEST_CASE("tensor bundle hostile: long ways and many names take bounded memory") {
  // A chain of objects with a variable at each: their paths have 10^10 segments.
  std::vector<std::string> nodes;
  std::vector<std::string> keys;
  constexpr std::size_t count = 30000;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back("k" + std::to_string(i));
    nodes.push_back(value_of(keys.back()) + (i + 1 < count ? child(i + 1, "n") : ""));
  }
  CHECK(code_of(open(with_graph(nodes, keys))) == Errc::limit);
  // Keys that share a long beginning.
  Files files;
  files.style = {3001, 3001};
  for (std::size_t i = 0; i < 3000; ++i) files.add(std::string(60000, 'k') + std::to_string(10000 + i), 1, {0}, "");
  CHECK(code_of(open(files)) == Errc::limit);
  LoadOptions more;
  more.limits.index_bytes = std::uint64_t{4} << 30;
  CHECK(good(open(files, more)).leaf_count() == 3000);
}

TEST_CASE("tensor bundle hostile: the memory of extents is counted") {
  Files files;
  for (int i = 0; i < 10; ++i) files.add("k" + std::to_string(i), 1, std::vector<std::uint64_t>(60000, 1), u32(1));
  LoadOptions options;
  options.limits.index_bytes = 10 * 60000 * 3 * sizeof(Extent);
  CHECK(code_of(open(files, options)) == Errc::limit);
  options.limits.index_bytes *= 2;
  CHECK(good(open(files, options)).leaf_count() == 10);
}

TEST_CASE("tensor bundle hostile: objects and lists that others share are read once, or counted") {
  constexpr std::uint64_t many = 20000;
  const auto children = [](std::uint64_t of, std::uint64_t count, std::uint64_t step) {
    std::string node;
    for (std::uint64_t i = 0; i < count; ++i) node += child(of + i * step, std::to_string(i));
    return node;
  };
  // An object with as many attributes as it has names.
  std::string attributes;
  for (std::uint64_t i = 0; i < many; ++i) attributes += message(2, message(1, "a") + message(3, std::to_string(i)));
  CHECK(good(open(with_graph({children(1, many, 0), attributes}, {"w"}))).leaf_count() == 1);
  // Optimizers of Keras 3 with the same lists.
  std::vector<std::string> nodes{children(3, many, 1), children(0, many, 0), children(0, many, 0)};
  const std::string optimizer = child(1, "_variables") + child(2, "_trainable_variables");
  for (std::uint64_t i = 0; i < many; ++i) nodes.push_back(optimizer);
  CHECK(code_of(open(with_graph(nodes, {"w"}))) == Errc::limit);
  // One optimizer, whose slots are one list.
  nodes = {child(3, "optimizer"), children(0, many, 0), children(0, many, 0), optimizer + children(4, many, 0),
           children(0, many, 0)};
  CHECK(code_of(open(with_graph(nodes, {"w"}))) == Errc::limit);
}

TEST_CASE("tensor bundle hostile: lists of checkpoints") {
  const auto refused = [](const std::string& text) {
    const auto bundle = two().bundle();
    const auto sink = good(bundle->create("checkpoint"));
    good(sink->write(bytes_of(text)));
    good(sink->commit());
    const auto opened = recorder.open(bundle_source(bundle));
    const auto direct = recorder.open(good(bundle->open("checkpoint")));
    CHECK(code_of(opened) == code_of(direct));
    return code_of(opened);
  };
  CHECK(refused("model_checkpoint_path: \"x\"\n") == Errc::none);
  CHECK(refused("model_checkpoint_path:'x'") == Errc::none);
  CHECK(refused("model_checkpoint_path: \"\\170\"") == Errc::none);
  CHECK(refused("model_checkpoint_path: \"/somewhere/else/x\"") == Errc::none);
  CHECK(refused("model_checkpoint_path: \"y\"") == Errc::not_found);
  CHECK(refused("model_checkpoint_path: \"../x\"") == Errc::malformed);
  CHECK(refused("model_checkpoint_path: \"\"") == Errc::malformed);
  CHECK(refused("model_checkpoint_path: \"x") == Errc::malformed);
  CHECK(refused("model_checkpoint_path: \"x\\") == Errc::malformed);
  CHECK(refused("model_checkpoint_path: x") == Errc::malformed);
  CHECK(refused("model_checkpoint_path: axa") == Errc::malformed);
  CHECK(refused("model_checkpoint_path:\n\n  model_checkpoint_path: \"x\"\n") == Errc::none);
  // Folders without a list.
  CHECK(recorder.open(bundle_source(two().bundle())));
  const auto several = two().bundle();
  const auto sink = good(several->create("y.index"));
  good(sink->commit());
  CHECK(code_of(recorder.open(bundle_source(several))) == Errc::invalid_argument);
  CHECK(code_of(recorder.open(bundle_source(memory_bundle()))) == Errc::not_found);
}

TEST_CASE("tensor bundle: paths with and without extension, and content") {
  const TempDir dir;
  const Files files = two();
  write_text(dir / "model.ckpt-7.index", files.index());
  write_text(dir / "model.ckpt-7.data-00000-of-00001", files.shards[0]);
  CHECK(good(recorder.open(dir / "model.ckpt-7")).leaf_count() == 2);
  CHECK(good(stele::open(dir / "model.ckpt-7.index")).leaf_count() == 2);
  CHECK(good(stele::open(dir / "model.ckpt-7")).leaf_count() == 2);  // the prefix, as TensorFlow has it
  const stele::Error none = bad(stele::open(dir / "model.ckpt-8"));
  CHECK(none.code() == Errc::not_found);
  CHECK(none.file() == dir / "model.ckpt-8");
  CHECK(good(recorder.open(dir.path())).leaf_count() == 2);
  CHECK(code_of(recorder.open(dir / "model.ckpt-8")) == Errc::not_found);
  CHECK(code_of(recorder.open(dir / "model.ckpt-7.data-00000-of-00001")) == Errc::truncated);
  for (const auto compress : {literals_of_snappy, copies}) {
    Files old = two();
    old.style.compress = compress;
    write_text(dir / "old.index", old.index());
    write_text(dir / "old.data-00000-of-00001", old.shards[0]);
    CHECK(good(content(good(stele::open(dir / "old.index")).leaf(1))) == std::string(16, '2'));
  }
}

TEST_CASE("tensor bundle: a header that ends with the head, or after it") {
  const TensorBundleFormat format;
  std::string header = "\x1a\x02\x08\x01";  // its version, and numbers
  while (header.size() < 56) header += "\x08\x01";
  for (const std::size_t size : {std::size_t{54}, std::size_t{56}}) {
    CAPTURE(size);
    std::string head = std::string(6, '\1') + "\0\0"s + static_cast<char>(size) + header;
    CHECK(format.recognises(bytes_of(head), 1000) == true);
    head.resize(63);
    CHECK(format.recognises(bytes_of(head), 1000) == (size == 54));
  }
}

}  // namespace tensor_bundle_hostile_test
