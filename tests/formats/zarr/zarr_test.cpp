// Folders of zarr: those of zarr-python and TensorStore, damaged ones, and saved ones.
#include <doctest/doctest.h>

#include <stele/bundle.hpp>
#include <stele/precision/convert.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/zarr.hpp>
#include <stele/recover.hpp>

#include <cmath>
#include <complex>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "encodings/zarr/blosc.hpp"
#include "encodings/zarr/codecs.hpp"
#include "snapshot/data.hpp"
#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace zarr_test {

namespace {

using namespace stele;
using namespace stele_test;

using Files = std::map<std::string, std::string>;

/// Reads the files of a golden folder.
Files files_of(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), folder).generic_string();
    files.emplace(name, read_text(entry.path().string()));
  }
  return files;
}

std::shared_ptr<Bundle> bundle_of(const Files& files) {
  auto bundle = memory_bundle();
  for (const auto& [name, text] : files) {
    const auto sink = good(bundle->create(name));
    good(sink->write(std::as_bytes(std::span(text))));
    good(sink->commit());
  }
  return bundle;
}

Result<Snapshot> open_files(const Files& files) { return ZarrRecorder<>().open(bundle_source(bundle_of(files))); }

/// Returns the elements as numbers; of complex numbers, the real parts.
std::vector<double> numbers(const LeafView& leaf) {
  std::string bytes = good(content(leaf));
  std::vector<double> all(static_cast<std::size_t>(leaf.size()));
  DType dtype = leaf.dtype();
  std::size_t width = element_size(dtype);
  if (dtype_class(dtype) == DTypeClass::complex) dtype = width == 8 ? DType::f32 : DType::f64;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto outcome = convert(dtype, reinterpret_cast<const std::byte*>(bytes.data()) + i * width, DType::f64,
                                 reinterpret_cast<std::byte*>(&all[i]), 1, {.allow_kind_change = true});
    CHECK(outcome.status == ConvertStatus::ok);
  }
  return all;
}

/// Returns true if element i is i % 8, or for booleans true unless that is 0.
bool counts(const LeafView& leaf) {
  const std::vector<double> found = numbers(leaf);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = leaf.dtype() == DType::boolean ? (i % 8 != 0 ? 1 : 0) : static_cast<double>(i % 8);
    if (found[i] != expected) return false;
  }
  return !found.empty();
}

struct Layer {
  Tensor<float, 1> bias;
  Tensor<float, 2> weight;
};
struct Net {
  std::vector<Layer> layers;
};
const LoadOptions rest = [] {
  LoadOptions options;
  options.allow_unused = {"*"};
  return options;
}();

const std::string one_array =
    R"({"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"|u1","order":"C","fill_value":9,"filters":null,)"
    R"("compressor":null})";

}  // namespace

TEST_CASE("zarr: version 2 of zarr-python") {
  const Snapshot opened = good(ZarrRecorder<>().open(test_data("zarr") + "/v2.zarr"));
  std::size_t counted = 0;
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const LeafView leaf = opened.leaf(i);
    const std::string path = leaf.path();
    CAPTURE(path);
    if (!unreadable_reason(leaf).empty() || path.starts_with("fill") || path == "scalar" || path == "empty") continue;
    CHECK(counts(leaf));
    ++counted;
  }
  CHECK(counted == 34);
  CHECK(opened.find("types.big_c8")->dtype() == DType::c64);
  CHECK(numbers(*opened.find("scalar")) == std::vector<double>{5});
  CHECK(opened.find("empty")->byte_size() == 0);
  std::vector<double> fill(30, 3);
  fill[0] = 1;
  CHECK(numbers(*opened.find("fill")) == fill);
  CHECK(numbers(*opened.find("fill_nan"))[1] != numbers(*opened.find("fill_nan"))[1]);
  CHECK(unreadable_reason(*opened.find("codecs.blosc_blosclz")) == "the codec blosc with \"blosclz\"");
  CHECK(unreadable_reason(*opened.find("codecs.delta")) == "the filter \"delta\"");
  CHECK(unreadable_reason(*opened.find("text")) == "the dtype \"U4\"");
  CHECK(opened.metadata() == std::map<std::string, std::string>{{"author", "a test"}});
  CHECK(good(opened.properties().at("epoch").to<int>()) == 3);
  CHECK(*opened.find("layers.0.weight")->annotations()->at("zarr.attributes").find("unit") == Value("m"));
  const Net net = good(load<Net>(opened, rest));
  REQUIRE(net.layers.size() == 2);
  CHECK(net.layers[1].weight(4, 5) == 29 % 8);
}

TEST_CASE("zarr: Blosc's frames of elements of every width") {
  const std::string all = read_text(test_data("zarr") + "/blosc.bin");
  const auto bytes = std::as_bytes(std::span(all));
  std::size_t frames = 0;
  for (std::size_t at = 0; at < bytes.size(); ++frames) {
    const std::size_t size = detail::load_le<std::uint32_t>(bytes.data() + at + 12);
    const auto width = std::to_integer<unsigned>(bytes[at + 3]), flags = std::to_integer<unsigned>(bytes[at + 2]);
    CAPTURE(width);
    CAPTURE(flags);
    std::vector<std::byte> out(detail::load_le<std::uint32_t>(bytes.data() + at + 4));
    CHECK(good(detail::zarr::blosc_decode(bytes.subspan(at, size), out)) == out.size());
    bool same = true;
    for (std::size_t i = 0; i < out.size(); ++i) same = same && out[i] == static_cast<std::byte>(i / 256 % 7);
    CHECK(same);
    at += size;
  }
  CHECK(frames == 12 * 2 * 3 * 3);
}

TEST_CASE("zarr: LZ4 blocks of Blosc's frames") {
  using std::string_view_literals::operator""sv;
  struct Row {
    std::string_view block, decoded;
  };
  const Row rows[] = {
      {"\x11z\1\0\x50ghijk"sv, "zzzzzzghijk"},
      {"\x3fghi\3\0\5\x10."sv, "ghighighighighighighighighi."},
      {"\xf0\1ghijklmnopqrstuv\x10\0\x20xy"sv, "ghijklmnopqrstuvghijxy"},
      {"\xff\1ghijklmnopqrstuv\x10\0\1\x20xy"sv, "ghijklmnopqrstuvghijklmnopqrstuvghijxy"},
      {"\x11z\0\0\x50ghijk"sv, ""},  // a copy of distance 0
      {"\x11z\2\0\x50ghijk"sv, ""},  // from before the first byte
      {"\x1az\1\0\x10g"sv, ""},      // longer than the rest of the output
      {"\x11z\1\0\x60ghijk"sv, ""},  // more literals than the rest of the block
      {"\x11z\1\0\x40ghij"sv, ""},   // one byte less than the output
      {"\x1fz\1\0\xff"sv, ""},       // a length without an end
      {"\x10z\1"sv, ""},             // half of a distance
  };
  for (const Row& row : rows) {
    CAPTURE(row.block);
    const std::size_t size = row.decoded.empty() ? 11 : row.decoded.size();
    const auto byte = [](std::size_t n) { return std::string{static_cast<char>(n), 0, 0, 0}; };
    const std::string frame = "\2\1\x30\1" + byte(size) + byte(size) + byte(24 + row.block.size()) + byte(20) +
                              byte(row.block.size()) + std::string(row.block);
    std::string out(size, '?');
    const auto made =
        detail::zarr::blosc_decode(std::as_bytes(std::span(frame)), std::as_writable_bytes(std::span(out)));
    if (row.decoded.empty()) {
      REQUIRE(!made);
      CHECK(made.error().code() == Errc::malformed);
    } else {
      CHECK(good(made) == size);
      CHECK(out == row.decoded);
    }
  }
}

TEST_CASE("zarr: codecs of numcodecs") {
  using std::string_view_literals::operator""sv;
  using detail::zarr::Codec;
  struct Row {
    Codec codec;
    std::string_view in, out;  // an empty `out`: six bytes are expected, and the data are damaged
  };
  const Row rows[] = {
      {{Codec::lz4}, "\x0b\0\0\0\x11z\1\0\x50ghijk"sv, "zzzzzzghijk"},
      {{Codec::lz4}, "\6\0\0\0\x60ghijkl"sv, "ghijkl"},
      {{Codec::lz4}, "\6\0\0"sv, ""},
      {{Codec::lz4}, "\6\0\0\0"sv, ""},
      {{Codec::lz4}, "\7\0\0\0\x60ghijkl"sv, ""},
      {{Codec::lz4}, "\5\0\0\0\x60ghijkl"sv, ""},
      {{Codec::lz4}, "\5\0\0\0\x50ghijk"sv, ""},  // one byte less than the chunk
      {{Codec::lz4}, "\xff\xff\xff\xff\x60ghijkl"sv, ""},
      {{Codec::shuffle, 2}, "abcxyz"sv, "axbycz"},
      {{Codec::shuffle, 3}, "abuvxy"sv, "auxbvy"},
      {{Codec::shuffle, 6}, "abcdef"sv, "abcdef"},
      {{Codec::shuffle, 1}, "abcdef"sv, "abcdef"},
      {{Codec::shuffle, 0}, "abcdef"sv, "abcdef"},
      {{Codec::shuffle, 4}, "abcdef"sv, ""},
      {{Codec::shuffle, UINT64_MAX}, "abcdef"sv, ""},
      {{Codec::shuffle, 2}, "abcdefgh"sv, ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.in);
    const std::size_t size = row.out.empty() ? 6 : row.out.size();
    const auto made = detail::zarr::decode(row.codec, bytes_of(row.in), size, false);
    if (row.out.empty()) {
      REQUIRE(!made);
      CHECK(made.error().code() == Errc::malformed);
    } else {
      REQUIRE(made);
      CHECK(text_of(made->span()) == row.out);
    }
  }
  // Version 2 lists codecs before the compressor as filters.
  const std::string filters = R"("filters":[{"id":"shuffle","elementsize":2},{"id":"lz4","acceleration":1}])";
  std::string array = one_array;
  array.replace(array.find("[2]"), 3, "[4]");
  array.replace(array.find(R"("filters":null)"), 14, filters);
  const auto folder = memory_bundle();
  const std::pair<const char*, std::string> files[] = {{"w/.zarray", array},
                                                       {"w/0", std::string("\4\0\0\0\x40\x61\x63\x62\x64", 9)}};
  for (const auto& [name, text] : files) {
    const auto sink = good(folder->create(name));
    good(sink->write(bytes_of(text)));
    good(sink->commit());
  }
  CHECK(good(content(*good(ZarrRecorder<>().open(bundle_source(folder))).find("w"))) == "abcd");
  for (const char* const width : {"0", "-2", "\"2\"", "null", "2.5"}) {
    CAPTURE(width);
    std::string wrong = array;
    wrong.replace(wrong.find(R"("elementsize":2)") + 14, 1, width);
    const auto other = memory_bundle();
    const auto sink = good(other->create("w/.zarray"));
    good(sink->write(bytes_of(wrong)));
    good(sink->commit());
    const Snapshot opened = good(ZarrRecorder<>().open(bundle_source(other)));
    CHECK(unreadable_reason(*opened.find("w")) == "the codec shuffle with an elementsize that is not positive");
  }
}

TEST_CASE("zarr: version 3 of zarr-python") {
  const Snapshot opened = good(ZarrRecorder<>().open(test_data("zarr") + "/v3.zarr"));
  std::size_t counted = 0;
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const LeafView leaf = opened.leaf(i);
    const std::string path = leaf.path();
    CAPTURE(path);
    CHECK(unreadable_reason(leaf).empty());
    if (path.starts_with("fill") || path == "scalar" || path == "shards_absent") continue;
    CHECK(counts(leaf));
    ++counted;
  }
  CHECK(counted == 13);
  const std::vector<double> absent = numbers(*opened.find("shards_absent"));
  CHECK(std::count(absent.begin(), absent.end(), 7) == 60);
  CHECK(absent[9] == 1);
  CHECK(numbers(*opened.find("scalar")) == std::vector<double>{5});
  CHECK(numbers(*opened.find("fill_inf"))[0] < -1e300);
  CHECK(good(content(*opened.find("fill_complex"))).substr(0, 8) == std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  const Annotations& notes = *opened.find("plain")->annotations();
  CHECK(notes.at("zarr.dimension_names") == Value(Value::List{Value("row"), Value()}));
  // A plain array in one chunk is a range of its file.
  CHECK(opened.find("whole")->location());
  CHECK_FALSE(opened.find("zstd")->location());
}

TEST_CASE("zarr: TensorStore's floats") {
  for (const std::string version : {"v2", "v3"}) {
    CAPTURE(version);
    const Snapshot opened = good(open(*find_format("zarr"), test_data("zarr") + "/tensorstore/" + version));
    CHECK(opened.find("bfloat16")->dtype() == DType::bf16);
    CHECK(opened.find("float8_e4m3fn")->dtype() == DType::f8_e4m3fn);
    for (const char* name : {"bfloat16", "float8_e4m3fn", "float8_e5m2"}) CHECK(counts(*opened.find(name)));
  }
  const Snapshot opened = good(ZarrRecorder<>().open(test_data("zarr") + "/tensorstore/v3/zarr.json"));
  CHECK(counts(*opened.find("int4")));
}

TEST_CASE("zarr: integers of 2 and 4 bits") {
  using std::string_literals::operator""s;
  struct Row {
    const char* dtype;
    std::string bytes;  // of TensorStore 0.1.86; the upper bits are those that the program had in memory
    std::vector<double> expected;
    DType type;
  };
  for (const Row& row : {Row{"int4", "\x0d\x0f\x00\x01"s, {-3, -1, 0, 1}, DType::i8},
                         {"int4", "\xfd\xff\x07\x08"s, {-3, -1, 7, -8}, DType::i8},
                         {"int2", "\x00\x01\x02\x03"s, {0, 1, -2, -1}, DType::i8},
                         {"int2", "\x00\x01\xfe\xff"s, {0, 1, -2, -1}, DType::i8},
                         {"uint4", "\x00\x01\x0f\xf8"s, {0, 1, 15, 8}, DType::u8},
                         {"uint2", "\x00\x01\x02\x03"s, {0, 1, 2, 3}, DType::u8}}) {
    CAPTURE(row.dtype);
    const std::string v2 = R"({"zarr_format":2,"shape":[4],"chunks":[4],"dtype":")" + std::string(row.dtype) +
                           R"(","order":"C","fill_value":null,"filters":null,"compressor":null})";
    const std::string v3 = R"({"zarr_format":3,"node_type":"array","shape":[4],"data_type":")" +
                           std::string(row.dtype) +
                           R"(","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},)"
                           R"("chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"}],"fill_value":0})";
    for (const Files& files :
         {Files{{".zgroup", R"({"zarr_format":2})"}, {"w/.zarray", v2}, {"w/0", row.bytes}},
          Files{
              {"zarr.json", R"({"zarr_format":3,"node_type":"group"})"}, {"w/zarr.json", v3}, {"w/c/0", row.bytes}}}) {
      const Snapshot s = good(open_files(files));
      CHECK(s.find("w")->dtype() == row.type);
      CHECK(numbers(*s.find("w")) == row.expected);
    }
  }
}

TEST_CASE("zarr: parts of arrays") {
  const Snapshot opened = good(ZarrRecorder<>().open(test_data("zarr") + "/v3.zarr"));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const LeafView leaf = opened.leaf(i);
    const std::string path = leaf.path();
    CAPTURE(path);
    const std::string all = good(content(leaf));
    const std::size_t size = element_size(leaf.dtype());
    for (std::size_t begin = 0; begin <= all.size(); begin += size) {
      for (std::size_t end = begin; end <= all.size(); end += 3 * size) {
        std::string part(end - begin, '\0');
        good(leaf.read(begin, std::as_writable_bytes(std::span(part))));
        if (part != all.substr(begin, part.size())) FAIL("another part");
      }
    }
  }
}

TEST_CASE("zarr: an array alone") {
  const Files files{{".zarray", one_array}, {"0", std::string("\1\2", 2)}};
  const auto loaded = ZarrRecorder<>().load<std::vector<std::uint8_t>>(bundle_source(bundle_of(files), "w.zarr"));
  CHECK(good(loaded) == std::vector<std::uint8_t>{1, 2, 9, 9});
  CHECK(good(ZarrRecorder<>().open(bundle_source(bundle_of(files), "w.zarr"))).leaf(0).path() == "w");
}

TEST_CASE("zarr: absent chunks have the fill value, and are listed") {
  const auto opened = [](const Files& files) {
    Files all = files;
    all.emplace(".zgroup", R"({"zarr_format":2})");
    all.emplace("w/.zarray", one_array);
    return good(open_files(all));
  };
  CHECK(opened({{"w/0", "ab"}, {"w/1", "cd"}}).notes().empty());
  // Files that are no chunks of the array do not stand for one.
  for (const Files& files : {Files{{"w/0", "ab"}}, Files{{"w/0", "ab"}, {"w/2", "cd"}},
                             Files{{"w/0", "ab"}, {"w/01", "cd"}, {"w/1.0", "cd"}, {"w/1x", "cd"}}}) {
    const Snapshot one = opened(files);
    CHECK(good(content(*one.find("w"))) == "ab\t\t");
    CHECK(one.notes() == std::vector<std::string>{"1 of 2 chunks of w are absent: their elements are the fill value"});
  }
  CHECK(good(content(*opened({{"w/1", "cd"}}).find("w"))) == "\t\tcd");
  const Files none{{".zgroup", R"({"zarr_format":2})"}, {"w/.zarray", one_array}};
  const Report report = good(ZarrRecorder<>().verify(bundle_source(bundle_of(none))));
  CHECK(report.paths(Report::What::unchecked).front().starts_with("2 of 2 chunks of w are absent"));
  const Snapshot shards = good(ZarrRecorder<>().open(test_data("zarr") + "/v3.zarr"));
  CHECK(std::count(shards.notes().begin(), shards.notes().end(),
                   "3 of 4 shards of shards_absent are absent: their elements are the fill value") == 1);
}

TEST_CASE("zarr: millions of absent chunks are filled") {
  for (const std::string extents : {"[4000000]", "[2000,2000]", "[4000000,1]", "[1,4000000]"}) {
    CAPTURE(extents);
    std::string text = one_array, chunks = "[1]";
    if (extents.find(',') != extents.npos) chunks = "[1,1]";
    text.replace(text.find("[4]"), 3, extents);
    text.replace(text.find("[2]"), 3, chunks);
    const Snapshot opened = good(open_files({{".zgroup", R"({"zarr_format":2})"}, {"w/.zarray", text}}));
    CHECK(good(content(*opened.find("w"))) == std::string(4'000'000, '\t'));
  }
}

TEST_CASE("zarr: attributes that are not JSON are listed") {
  const std::string group = R"({"zarr_format":2})";
  const Snapshot opened = good(open_files(
      {{".zgroup", group}, {".zattrs", R"({"a":nan})"}, {"g/.zgroup", group}, {"g/.zattrs", R"({"b":NaN})"}}));
  CHECK(opened.data()->left_out ==
        std::vector<std::string>{"attributes of groups: the root: attributes that are not JSON, g"});
}

TEST_CASE("zarr: attributes with numbers that only Python's JSON has") {
  const std::string attributes =
      R"({"a":NaN,"b":[-Infinity,Infinity,"NaN"],"N":"\\","t":"\"-Infinity","n":-1,"z":"\u0000NaN"})";
  const Files v3 = {{"zarr.json", R"({"zarr_format":3,"node_type":"group","attributes":)" + attributes + "}"}};
  for (const Files& files : {v3, Files{{".zgroup", R"({"zarr_format":2})"}, {".zattrs", attributes}}}) {
    const Snapshot opened = good(open_files(files));
    const Value& found = opened.properties();
    CHECK(std::isnan(*found.find("a")->as_f64()));
    const Value::List& list = *found.find("b")->as_list();
    CHECK(*list[0].as_f64() == -std::numeric_limits<double>::infinity());
    CHECK(*list[1].as_f64() == std::numeric_limits<double>::infinity());
    CHECK(*list[2].as_string() == "NaN");
    CHECK(*found.find("N")->as_string() == "\\");
    CHECK(*found.find("t")->as_string() == "\"-Infinity");
    CHECK(*found.find("n")->as_i64() == -1);
    CHECK(*found.find("z")->as_string() == std::string("\0NaN", 4));
    CHECK(code_of(saved(ZarrRecorder<>(), opened)) == Errc::not_representable);
  }
  for (const char* text : {"{\"a\":Na}", "{\"a\":NaN", "{\"a\":NaNNaN}", "{NaN:1}", "\"NaN"}) {
    CAPTURE(text);
    const Files files = {
        {"zarr.json", R"({"zarr_format":3,"node_type":"group","attributes":)" + std::string(text) + "}"}};
    CHECK_FALSE(open_files(files));
  }
}

TEST_CASE("zarr: extensions of an array") {
  const auto opened = [](const std::string& member) {
    return good(open_files(
        {{"zarr.json", R"({"zarr_format":3,"node_type":"group"})"},
         {"w/zarr.json",
          R"({"zarr_format":3,"node_type":"array","shape":[2],"data_type":"uint8","fill_value":0,"chunk_grid":{"name":)"
          R"("regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},"codecs":[{"name":)"
          R"("bytes"}],)" +
              member + "}"},
         {"w/c/0", "ab"}}));
  };
  CHECK(good(content(*opened(R"("other":{"must_understand":false})").find("w"))) == "ab");
  for (const char* member : {R"("other":{"must_understand":true})", R"("other":{"name":"x"})", R"("other":1)"}) {
    CHECK(unreadable_reason(*opened(member).find("w")) == "the extension \"other\"");
  }
}

TEST_CASE("zarr: consolidated metadata alone") {
  const std::string document = R"({"zarr_consolidated_format":1,"metadata":{".zgroup":{"zarr_format":2},"w/.zarray":)" +
                               one_array + R"(,"w/.zattrs":{"a":1}}})";
  const Snapshot opened = good(open_files({{".zmetadata", document}, {"w/0", "ab"}, {"w/1", "cd"}}));
  CHECK(good(content(*opened.find("w"))) == "abcd");
  CHECK(opened.find("w")->annotations() != nullptr);
}

TEST_CASE("zarr: saves load again, and replace only their own folders") {
  const Snapshot golden = good(ZarrRecorder<>().open(test_data("zarr") + "/v2.zarr"));
  const TempDir dir;
  SaveOptions lossy;
  lossy.allow_loss = true;
  lossy.metadata = {{"key", "text"}};
  for (const ZarrOptions& options : {ZarrOptions{}, ZarrOptions{.level = 0}, ZarrOptions{.level = 1, .chunk_bytes = 64},
                                     ZarrOptions{.level = 0, .chunk_bytes = 40}}) {
    const ZarrRecorder<> recorder{ZarrFormat(options)};
    const std::string path = dir / ("m" + std::to_string(options.level) + std::to_string(options.chunk_bytes));
    good(recorder.save(golden, path, lossy));
    const Snapshot again = good(recorder.open(path + ".zarr"));
    CHECK(again.metadata().at("key") == "text");
    CHECK(again.properties().at("list").get() != nullptr);
    CHECK(again.leaf_count() == golden.leaf_count() - 3);
    for (std::size_t i = 0; i < again.leaf_count(); ++i) {
      const LeafView leaf = again.leaf(i), old = *golden.find(leaf.path());
      CHECK(leaf.dtype() == old.dtype());
      CHECK(std::equal(leaf.shape().begin(), leaf.shape().end(), old.shape().begin(), old.shape().end()));
      CHECK(good(content(leaf)) == good(content(old)));
    }
    CHECK(*again.find("layers.0.weight")->annotations()->at("zarr.attributes").find("unit") == Value("m"));
    good(recorder.save(golden, path, lossy));  // replaces the folder
    write_text(path + ".zarr/other.txt", "mine");
    CHECK(code_of(recorder.save(golden, path, lossy)) == Errc::exists);
  }
  std::filesystem::copy(test_data("zarr") + "/v3.zarr", dir / "foreign.zarr", std::filesystem::copy_options::recursive);
  CHECK(code_of(ZarrRecorder<>().save(golden, dir / "foreign.zarr", lossy)) == Errc::exists);
}

TEST_CASE("zarr: names that zarr cannot express") {
  const TempDir dir;
  for (const std::string name : {"a/b", "", "..", "__x", "zarr.json", "a\\b"}) {
    CAPTURE(name);
    struct Model {
      std::map<std::string, Tensor<float, 1>> of;  // a map alone is a state dict, whose names have dots
    } model;
    model.of.emplace(name, Tensor<float, 1>({2}));
    CHECK(code_of(ZarrRecorder<>().save(model, dir / "m")) == Errc::not_representable);
  }
}

TEST_CASE("zarr: damaged folders") {
  const std::string group = R"({"zarr_format":2})";
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = one_array;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::pair<const char*, std::string> malformed[] = {
      {"no shape", with("\"shape\":[4],", "")},
      {"a negative extent", with("[4]", "[-4]")},
      {"a fraction", with("[4]", "[4.5]")},
      {"an empty chunk", with("[2]", "[0]")},
      {"another rank", with("[2]", "[2,2]")},
      {"a product above 64 bits", with("[4]", "[18446744073709551615]")},
      {"chunks above 64 bits", with("[2]", "[18446744073709551615]")},
      {"another order", with("\"C\"", "\"D\"")},
      {"no JSON", "{"},
      {"a list", "[]"},
  };
  for (const auto& [fault, text] : malformed) {
    const std::string what = fault;
    CAPTURE(what);
    const Errc code = code_of(open_files({{".zgroup", group}, {"w/.zarray", text}}));
    CHECK((code == Errc::malformed || code == Errc::truncated || code == Errc::unsupported));
  }
  CHECK(code_of(open_files({{"w/.zarray", with("_format\":2", "_format\":4")}})) == Errc::unsupported);
  const auto open_with = [&](const std::string& text, const std::string& chunk) {
    return good(open_files({{".zgroup", group}, {"w/.zarray", text}, {"w/0", chunk}}));
  };
  CHECK(unreadable_reason(*open_with(with("\"|u1\"", "[[\"a\",\"<i4\"]]"), "ab").find("w")) == "a structured dtype");
  CHECK(unreadable_reason(*open_with(with(":9", ":300"), "ab").find("w")) == "a fill value that is not an element");
  CHECK(unreadable_reason(*open_with(with("[4]", "[4611686018427387903]"), "ab").find("w")).ends_with("absent"));
  CHECK(code_of(content(*open_with(one_array, "a").find("w"))) == Errc::malformed);
  CHECK(code_of(content(*open_with(one_array, "abc").find("w"))) == Errc::malformed);
  CHECK(code_of(content(*open_with(with("\"compressor\":null", R"("compressor":{"id":"zstd"})"), "abcd").find("w"))) ==
        Errc::malformed);
  // A bomb: a small chunk cannot decode to more bytes than its array has.
  const Snapshot bomb = open_with(with("[2]", "[1099511627776]"), "ab");
  CHECK(code_of(content(*bomb.find("w"))) == Errc::malformed);
}

TEST_CASE("zarr: every truncation and every changed byte of small folders") {
  const Files all = files_of(test_data("zarr") + "/v3.zarr");
  for (const std::string array : {"sharded", "zstd", "two", "blosc"}) {
    Files files;
    for (const auto& [name, text] : all) {
      if (name.starts_with(array + "/")) files.emplace(name, text);
    }
    files.emplace("zarr.json", R"({"zarr_format":3,"node_type":"group","attributes":{}})");
    const auto read_all = [&] {
      const auto opened = open_files(files);
      if (!opened) return;
      for (std::size_t i = 0; i < opened->leaf_count(); ++i) static_cast<void>(content(opened->leaf(i)));
    };
    for (auto& [name, text] : files) {
      const std::string file = name, whole = text;
      CAPTURE(file);
      const std::size_t step = whole.size() > 300 ? 3 : 1;
      for (std::size_t i = 0; i < whole.size(); i += step) {
        text = whole.substr(0, i);
        read_all();
        text = whole;
        text[i] = static_cast<char>(text[i] ^ (1 << i % 8));
        read_all();
      }
      text = whole;
    }
  }
}

}  // namespace zarr_test
