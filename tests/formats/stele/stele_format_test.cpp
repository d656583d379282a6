// The `.stele` format: golden bytes, damage of every kind, files that lie, the reader without a heap.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace stele_format_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

struct Small {
  Param<Tensor<float, 1>> a;
  Tensor<std::uint8_t, 1> b;
  Tensor<double, 2> none;
  std::shared_ptr<Twig> tied, again;
  std::vector<std::optional<Twig>> list;
  std::string text = "value";
  Value any;
  STELE_MODULE(Small, a, b, none, tied, again, list, text, any)
};

Small small() {
  Small s;
  s.a = {Tensor<float, 1>({3}, {1.F, 2.F, 3.F}), ParamId::from_u64(7)};
  s.b = Tensor<std::uint8_t, 1>({5}, {1, 2, 3, 4, 5});
  s.none = Tensor<double, 2>({0, 4});
  s.tied = s.again = std::make_shared<Twig>();
  s.tied->weight = Tensor<float>(Shape{}, {5.F});
  s.list.resize(2);
  s.any = Value(Value::Map{{"k", Value(Value::List{Value(1.5), Value()})}});
  return s;
}

std::string small_file() {
  SaveOptions options;
  options.metadata = {{"author", "x"}};
  const auto bytes = saved(BinaryRecorder<>(), small(), options);
  REQUIRE_MESSAGE(bytes, why(bytes));
  return std::string(text_of(bytes->span()));
}

const Capabilities& all() { return can<BinaryRecorder<>>(); }

/// Opens, reads everything and says what it was; the error where there is one.
Result<std::map<std::string, std::string>> everything(std::string_view file) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, BinaryRecorder<>().open(bytes_of(file)));
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) STELE_TRY(content(snapshot.leaf(i)));
  return facts(snapshot, all());
}

Errc open_error(const std::string& file) { return code_of(everything(file)); }

std::uint64_t hash(const void* data, std::size_t size) { return detail::hash64(data, size); }

}  // namespace

TEST_CASE("stele format: the bytes of a small file, put together by hand") {
  // The three hashes were computed with xxHash 0.8.1 itself, XXH3_64bits.
  // One tensor `w` f32 [3] with the id 5 in a module of type M, version 2, and one value `n`.
  SnapshotBuilder builder;
  const float w[3] = {1.F, -2.F, 0.5F};
  builder.begin(NodeKind::module, "", false, "M", 2);
  builder.tensor("w", DType::f32, std::vector<Extent>{3}, sizeof w, {&memory_ops, w, 0});
  builder.set_id(ParamId::from_u64(5));
  builder.value("n", Value(std::int64_t{-2}), true);
  builder.set_metadata({{"k", "v!"}});
  builder.end();
  const auto written = saved(BinaryRecorder<>(), builder.finish());
  REQUIRE_MESSAGE(written, why(written));

  std::string file;
  const auto hex = [&](std::string_view text) {
    unsigned byte = 0;
    int digits = 0;
    for (const char c : text) {
      if (c == ' ') continue;
      byte = byte << 4 | static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
      if (++digits % 2 == 0) file += static_cast<char>(byte), byte = 0;
    }
  };
  const auto zeros = [&](std::size_t n) { file.append(n, '\0'); };
  // Header.
  hex("93 5354454c45 0d0a"), hex("01000000 40000000"), zeros(16);
  hex("e001000000000000"), zeros(16), hex("041f3b917a5f078d");
  // The block.
  hex("0000803f 000000c0 0000003f"), zeros(52);
  // Index header: 3 nodes, 1 entry, 1 extent, 9 + 15 + 3 bytes of values, metadata, strings, 1 type.
  hex("03000000 01000000 0100000000000000 0900000000000000 0f00000000000000 0300000000000000 01000000 00000000"),
      zeros(16);
  // Nodes: module "", tensor "w", value "n".
  hex("02 01 0000 00000000 00000000 03000000 00000000 00000000 0000000000000000");
  hex("00 01 0000 00000000 01000000 02000000 00000000 00000000 0000000000000000");
  hex("01 03 0000 01000000 01000000 03000000 00000000 09000000 0000000000000000");
  // Type M, version 2.
  hex("02000000 01000000 02000000 00000000");
  // Entry.
  hex("00000000 01000000 4000000000000000 0c00000000000000"), hex("a409f7e5f68962a2");
  hex("0200 0100 00000000 02000000 01000000 0500000000000000 0000000000000000");
  hex("0300000000000000");                              // extents
  hex("02 feffffffffffffff"), zeros(7);                 // values: i64 -2
  hex("01000000 01000000 02000000 6b 7621"), zeros(1);  // metadata: one pair, k, v!
  hex("77 6e 4d"), zeros(5);                            // strings: w n M
  // Trailer.
  hex("8000000000000000 2001000000000000 e001000000000000"), zeros(24), hex("dba5d54efa8f6ab2"),
      hex("0a0d 454c455453 93");
  REQUIRE(file.size() == 480);
  CHECK(text_of(written->span()) == file);
  const auto back = everything(file);
  REQUIRE_MESSAGE(back, why(back));
}

TEST_CASE("stele format: every truncation is named so, and found without a heap") {
  const std::string file = small_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    REQUIRE(open_error(file.substr(0, size)) == Errc::truncated);
    format::MemoryFile memory;
    REQUIRE(memory.open(bytes_of(file).first(size), hash));
    REQUIRE(memory.open(bytes_of(file).first(size)));
  }
}

TEST_CASE("stele format: every flipped bit with hashes made right again is safe to read without a heap") {
  const std::string file = small_file();
  std::size_t opened = 0;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    fix_hashes(damaged);
    format::MemoryFile memory;
    if (memory.open(bytes_of(damaged))) continue;
    ++opened;
    format::TensorBytes tensor;
    for (std::uint32_t i = 0; i < memory.index().entries(); ++i) static_cast<void>(memory.tensor(i, tensor, hash));
  }
  // Bits of elements and names change what a file says, those of its structure make it invalid.
  CHECK(opened != 0);
  CHECK(opened < 8 * file.size());
}

// ---- files that lie -------------------------------------------------------------------------------------------------

namespace {

const std::string floats("\0\0\x80\x3f\0\0\0\x40", 8);

/// module { a: f32 [2], b: u8 [3], c: alias of a, l: list { 0: value }, v: value }
RawFile honest() {
  RawFile f;
  f.node(NodeKind::module, "", 7, 0);
  f.tensor("a", DType::f32, {2}, floats);
  f.tensor("b", DType::u8, {3}, "\x01\x02\x03");
  f.node(NodeKind::alias, "c", 0, 1);
  RawEntry alias = f.entries[0];
  alias.name = f.nodes[3].name;
  alias.flags = 1;
  alias.node = 3;
  f.entries.push_back(alias);
  f.node(NodeKind::list, "l", 6);
  f.value("", "\x02\xff\xff\xff\xff\xff\xff\xff\xff");
  f.nodes[5].flags = 2;
  f.nodes[5].name = f.nodes[5].name_size = 0;
  f.value("v", "\x05\x02\0\0\0hi"s);
  const auto type = f.text("Model");
  f.types.push_back({type.at, type.size, 3, 0});
  put(f.metadata, 1U), put(f.metadata, 1U), put(f.metadata, 2U);
  f.metadata += "kvv";
  return f;
}

Errc after(const std::function<void(RawFile&)>& change) {
  RawFile file = honest();
  change(file);
  return open_error(file.make());
}

}  // namespace

TEST_CASE("stele format: the file that the lies are told of is a good one") {
  const std::string file = honest().make();
  const auto opened = everything(file);
  REQUIRE_MESSAGE(opened, why(opened));
  CHECK(opened->at("node a").starts_with("tensor f32 [2]"));
  CHECK(opened->at("node c").starts_with("alias a"));
  CHECK(opened->at("node l.0").starts_with("value i64 -1"));
  CHECK(opened->at("root ").find("Model v3") != std::string::npos);
  CHECK(opened->at("metadata k") == "vv");
  // Written again it is the same record.
  const auto again = saved(BinaryRecorder<>(), BinaryRecorder<>().open(bytes_of(file)).value());
  REQUIRE(again);
  CHECK(difference(*opened, everything(text_of(again->span())).value()) == "");
}

TEST_CASE("stele format: header and trailer that lie") {
  CHECK(after([](RawFile& f) { f.version = 2; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.version = 0; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.alignment = 128; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.alignment = 0; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.required = 1; }) == Errc::malformed);  // without the flag of the index
  CHECK(after([](RawFile& f) { f.flags |= 4; }) == Errc::malformed);    // without the feature
  CHECK(after([](RawFile& f) { f.required = 2; }) == Errc::malformed);  // without the metadata of a delta
  CHECK(after([](RawFile& f) { f.required = 4; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.required = std::uint64_t{1} << 63; }) == Errc::unsupported);
  CHECK(after([](RawFile& f) { f.optional = ~std::uint64_t{0}; }) == Errc::none);
  const std::uint64_t size = honest().make().size();
  for (const std::uint64_t total : {std::uint64_t{1}, std::uint64_t{191}, size - 64, size - 1, size + 1,
                                    std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    CAPTURE(total);
    const Errc code = after([&](RawFile& f) { f.header_total = total; });
    CHECK((code == Errc::truncated || code == Errc::malformed));
    CHECK(after([&](RawFile& f) { f.trailer_total = total; }) == Errc::malformed);
  }
  // Unknown when it was written: the file ends where it ends.
  CHECK(after([](RawFile& f) { f.header_total = 0; }) == Errc::none);
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64}, std::uint64_t{128},
                                 std::uint64_t{193}, size, size - 64, ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
    CAPTURE(at);
    if (at == 192) continue;
    CHECK(after([&](RawFile& f) { f.index_offset = at; }) != Errc::none);
    CHECK(after([&](RawFile& f) { f.index_offset = at, f.index_size = size - 64 - at; }) != Errc::none);
  }
  CHECK(after([](RawFile& f) { f.index_size = 64; }) == Errc::malformed);
  CHECK(after([](RawFile& f) { f.flags = 4; }) == Errc::malformed);
  // Nothing behind the file is looked at: flash is larger than what was put there.
  const std::string good = honest().make();
  CHECK(open_error(good + std::string(1000, '\xff')) == Errc::none);
  CHECK(open_error(good + good) == Errc::none);
  std::string open_end = honest().make();
  put_at(open_end, 32, std::uint64_t{0});
  fix_hashes(open_end);
  CHECK(open_error(open_end) == Errc::none);
  CHECK(open_error(open_end + "x") == Errc::truncated);
  CHECK(open_error("") == Errc::truncated);
  CHECK(open_error("\x93STELE\r\n") == Errc::truncated);
  CHECK(open_error("\x93STELE\n\n" + good.substr(8)) == Errc::bad_magic);
  CHECK(open_error(std::string(500, '\0')) == Errc::bad_magic);
}

TEST_CASE("stele format: counts that lie") {
  for (const std::uint32_t n : {0U, 6U, 8U, 1U << 27, 0x7fffffffU, 0xffffffffU}) {
    CAPTURE(n);
    CHECK(after([&](RawFile& f) { f.node_count = n; }) == Errc::malformed);
    CHECK(after([&](RawFile& f) { f.entry_count = n; }) == Errc::malformed);
    CHECK(after([&](RawFile& f) { f.type_count = n; }) == Errc::malformed);
  }
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{1} << 32, std::uint64_t{1} << 61,
                                std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    CAPTURE(n);
    CHECK(after([&](RawFile& f) { f.extent_count = n; }) == Errc::malformed);
    CHECK(after([&](RawFile& f) { f.value_bytes = n; }) == Errc::malformed);
    CHECK(after([&](RawFile& f) { f.metadata_bytes = n; }) == Errc::malformed);
    CHECK(after([&](RawFile& f) { f.string_bytes = n; }) == Errc::malformed);
  }
}

TEST_CASE("stele format: entries that lie") {
  const auto entry = [](std::size_t i, const std::function<void(RawEntry&)>& change) {
    return after([&](RawFile& f) { change(f.entries[i]); });
  };
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{65}, std::uint64_t{128}, std::uint64_t{192},
        std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    CAPTURE(at);
    CHECK(entry(0, [&](RawEntry& e) { e.offset = at; }) == Errc::malformed);
    if (at != 128)
      CHECK(entry(1, [&](RawEntry& e) { e.offset = at; }) == Errc::malformed);  // overlap, gap, beyond the end
    CHECK(entry(2, [&](RawEntry& e) { e.offset = at; }) == Errc::malformed);
  }
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{9}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    CAPTURE(length);
    for (const std::size_t i : {0U, 1U, 2U})
      CHECK(entry(i, [&](RawEntry& e) { e.length = length; }) == Errc::malformed);
  }
  CHECK(entry(0, [](RawEntry& e) { e.hash ^= 1; }) != Errc::none);
  CHECK(after([](RawFile& f) { f.entries[0].hash ^= 1, f.entries[2].hash ^= 1; }) == Errc::checksum);
  CHECK(entry(2, [](RawEntry& e) { e.hash ^= 1; }) == Errc::malformed);
  for (const unsigned code : {0U, 13U, 15U, 21U, 35U, 39U, 42U, 0xffffU}) {
    CAPTURE(code);
    CHECK(entry(0, [&](RawEntry& e) { e.dtype = static_cast<std::uint16_t>(code); }) == Errc::unsupported);
  }
  CHECK(entry(0, [](RawEntry& e) { e.dtype = static_cast<std::uint16_t>(DType::f64); }) == Errc::malformed);
  CHECK(entry(2, [](RawEntry& e) { e.dtype = static_cast<std::uint16_t>(DType::i32); }) == Errc::malformed);
  // Shapes.
  CHECK(entry(0, [](RawEntry& e) { e.rank = 2; }) == Errc::malformed);
  CHECK(entry(0, [](RawEntry& e) { e.rank = 0xffff; }) == Errc::malformed);
  CHECK(entry(0, [](RawEntry& e) { e.extent = 0xffffffff; }) == Errc::malformed);
  CHECK(entry(1, [](RawEntry& e) { e.extent = 2; }) == Errc::malformed);
  const auto shape = [](std::vector<std::uint64_t> extents, DType dtype, std::string_view bytes) {
    RawFile f;
    f.node(NodeKind::module, "", 2);
    f.tensor("t", dtype, std::move(extents), bytes);
    return open_error(f.make());
  };
  constexpr std::uint64_t big = std::uint64_t{1} << 32;
  CHECK(shape({big, big}, DType::u8, "") == Errc::malformed);
  CHECK(shape({big, big, 2}, DType::f32, "12345678") == Errc::malformed);
  CHECK(shape({std::uint64_t{1} << 61}, DType::f64, "") == Errc::malformed);
  CHECK(shape({std::uint64_t{1} << 63, 2}, DType::i4, "") == Errc::malformed);
  CHECK(shape({~std::uint64_t{0}}, DType::f6_e2m3, "1") == Errc::malformed);
  CHECK(shape({big, big}, DType::string, "") == Errc::malformed);
  CHECK(shape({big, big, 0}, DType::f64, "") == Errc::malformed);
  CHECK(shape({big, big / 2, 0}, DType::f64, "") == Errc::none);
  CHECK(shape({big, big / 2, 0}, DType::f64, "1") == Errc::malformed);
  CHECK(shape({3}, DType::i4, "12") == Errc::none);
  CHECK(shape({3}, DType::i4, "1") == Errc::malformed);
  CHECK(shape({}, DType::f64, "12345678") == Errc::none);
  CHECK(shape({}, DType::f64, "") == Errc::malformed);
  // Flags, ids, nodes.
  for (const unsigned flags : {1U, 8U, 6U, 0x80000000U}) {
    CAPTURE(flags);
    CHECK(entry(0, [&](RawEntry& e) { e.flags = flags; }) == Errc::malformed);
  }
  CHECK(entry(2, [](RawEntry& e) { e.flags = 0; }) == Errc::malformed);
  CHECK(entry(0, [](RawEntry& e) { e.id_low = 1; }) == Errc::malformed);  // bytes of an id, but no id
  CHECK(entry(0, [](RawEntry& e) { e.id_high = 1; }) == Errc::malformed);
  for (const unsigned node : {0U, 2U, 3U, 4U, 7U, 0xffffffffU}) {
    CAPTURE(node);
    CHECK(entry(0, [&](RawEntry& e) { e.node = node; }) == Errc::malformed);
  }
  // Names: out of order, twice, another one than the tree's, outside the strings.
  CHECK(after([](RawFile& f) { std::swap(f.entries[0], f.entries[1]); }) == Errc::malformed);
  CHECK(after([](RawFile& f) { f.entries[1].name = f.entries[0].name; }) == Errc::malformed);
  CHECK(after([](RawFile& f) { f.entries[2].name = f.text("d").at; }) == Errc::malformed);
  CHECK(entry(2, [](RawEntry& e) { e.name = 0xffffffff; }) == Errc::malformed);
  CHECK(entry(2, [](RawEntry& e) { e.name_size = 0xffffffff; }) == Errc::malformed);
  CHECK(after([](RawFile& f) { f.blocks.resize(256); }) == Errc::malformed);  // a gap before the index
  CHECK(after([](RawFile& f) { f.blocks[8] = 1; }) == Errc::malformed);       // padding
  CHECK(after([](RawFile& f) { f.blocks[127] = 1; }) == Errc::malformed);
}

}  // namespace stele_format_test
