// NumPy's files: those that NumPy wrote (data), and those that stele writes.
#include <doctest/doctest.h>

#include <stele/recorders/numpy.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/archive.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace numpy_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const NpyRecorder<> npy;
const NpzRecorder<> npz;

std::string golden_path(const std::string& name) { return test_data("numpy") + "/" + name; }

constexpr DType numbers[] = {DType::boolean, DType::i8,  DType::i16, DType::i32, DType::i64, DType::u8,  DType::u16,
                             DType::u32,     DType::u64, DType::f16, DType::f32, DType::f64, DType::c64, DType::c128};
constexpr const char* number_names[] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2",
                                        "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
constexpr std::pair<const char*, DType> voids[] = {{"bfloat16", DType::bf16},
                                                   {"float8_e4m3fn", DType::f8_e4m3fn},
                                                   {"float8_e5m2", DType::f8_e5m2},
                                                   {"float8_e8m0fnu", DType::f8_e8m0},
                                                   {"float8_e4m3fnuz", DType::f8_e4m3fnuz},
                                                   {"float8_e5m2fnuz", DType::f8_e5m2fnuz}};

/// Element k of every array, counted in C order, by the rule of interop/numpy_files.py; in file order.
std::string by_rule(DType dtype, std::size_t count) {
  std::string text;
  for (std::size_t k = 0; k < count; ++k) {
    const auto n = static_cast<std::int64_t>(k % 7);
    const auto real = static_cast<float>(n - 2);
    switch (dtype) {
      case DType::boolean:
        put(text, static_cast<std::uint8_t>(k % 2));
        break;
      case DType::f16:
        put(text, float16(real).bits);
        break;
      case DType::f32:
      case DType::c64:
        put(text, std::bit_cast<std::uint32_t>(real));
        if (dtype == DType::c64) put(text, 0U);
        break;
      case DType::f64:
      case DType::c128:
        put(text, std::bit_cast<std::uint64_t>(static_cast<double>(real)));
        if (dtype == DType::c128) put(text, std::uint64_t{0});
        break;
      default: {
        const auto number = static_cast<std::uint64_t>(dtype_class(dtype) == DTypeClass::signed_int ? n - 2 : n);
        for (unsigned i = 0; i < element_size(dtype); ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
      }
    }
  }
  return text;
}

void check_leaf(const LeafView& leaf, DType dtype, const std::vector<Extent>& shape) {
  CHECK(leaf.dtype() == dtype);
  CHECK(Shape(leaf.shape()) == Shape(shape));
  const std::string all = in_file_order(good(content(leaf)), dtype);
  const std::string expected = by_rule(dtype, static_cast<std::size_t>(leaf.size()));
  CHECK((all == expected));
  // Parts.
  const std::size_t size = element_size(dtype);
  for (std::size_t k = 0; k < leaf.size(); k += 3) {
    std::string part(std::min<std::size_t>(2, leaf.size() - k) * size, '\0');
    good(leaf.read(k * size, std::as_writable_bytes(std::span(part))));
    CHECK((in_file_order(part, dtype) == expected.substr(k * size, part.size())));
  }
}

void check_npy(const std::string& name, DType dtype, const std::vector<Extent>& shape) {
  CAPTURE(name);
  for (const bool mapped : {false, true}) {
    LoadOptions options;
    if (mapped) options.storage = Storage::mmap;
    const Snapshot opened = good(npy.open(golden_path(name + ".npy"), options));
    REQUIRE(opened.leaf_count() == 1);
    CHECK(opened.leaf(0).path() == name);
    check_leaf(opened.leaf(0), dtype, shape);
    CHECK(good(stele::open(golden_path(name + ".npy"))).leaf(0).dtype() == dtype);
    CHECK(npy.verify(golden_path(name + ".npy")));
  }
}

template <class T>
bool same(const T& a, const T& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0;
}

LeafView named(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf, name);
  return *leaf;
}

struct One {
  Param<Tensor<float, 2>> weight;
  STELE_MODULE(One, weight)
};
struct Half {
  Tensor<bfloat16> w;
  STELE_MODULE(Half, w)
};
struct Model {
  Tensor<float, 2> weight;
  Tensor<bfloat16> bias;
  std::shared_ptr<Tensor<float>> head, tied;
  std::int64_t steps = 0;
  STELE_MODULE(Model, weight, bias, head, tied, steps)
};
Model model() {
  Model m{Tensor<float, 2>({2, 3}, {1, 2, 3, 4, 5, 6}),
          Tensor<bfloat16>({2}, {bfloat16(1.0F), bfloat16(-2.0F)}),
          std::make_shared<Tensor<float>>(Tensor<float>({1}, {7})),
          {},
          42};
  m.tied = m.head;
  return m;
}

}  // namespace

TEST_CASE("numpy: .npy files of NumPy") {
  check_npy("f4", DType::f32, {3, 5});
  check_npy("version2", DType::f32, {3, 5});
  check_npy("version3", DType::f32, {3, 5});
  check_npy("one_axis", DType::i64, {5});
  check_npy("hollow", DType::f32, {3, 0, 2});
  check_npy("four_axes", DType::i16, {2, 1, 3, 2});
  check_npy("fortran", DType::f32, {2, 3, 4});
  check_npy("fortran_one_axis", DType::f32, {1, 4, 1});
  check_npy("big_endian", DType::f32, {3, 5});
  check_npy("big_endian_fortran", DType::c128, {3, 5});
  const Snapshot scalar = good(npy.open(golden_path("scalar.npy")));
  CHECK(scalar.leaf(0).shape().empty());
  double number = 0;
  good(scalar.leaf(0).read(0, std::as_writable_bytes(std::span(&number, 1))));
  CHECK(number == 1.5);
}

TEST_CASE("numpy: files that NumPy writes again are the same bytes") {
  for (const char* name : {"f4", "one_axis", "hollow", "four_axes", "scalar"}) {
    CAPTURE(name);
    const Snapshot opened = good(npy.open(golden_path(name + ".npy"s)));
    CHECK((text_of(good(saved(npy, opened)).span()) == read_text(golden_path(name + ".npy"s))));
  }
  // Other versions and orders become version 1.0 in C order.
  const std::string plain = read_text(golden_path("f4.npy"));
  for (const char* name : {"version2", "version3", "big_endian"}) {
    CAPTURE(name);
    CHECK((text_of(good(saved(npy, good(npy.open(golden_path(name + ".npy"s))))).span()) == plain));
  }
  // Arrays in .npz files are those of .npy files.
  const Entries theirs = unzipped(read_text(golden_path("numbers.npz")));
  const Entries ours = unzipped(text_of(good(saved(npz, good(npz.open(golden_path("numbers.npz"))))).span()));
  CHECK(names_of(ours) == names_of(theirs));
  CHECK((ours == theirs));
}

TEST_CASE("numpy: .npz files of NumPy") {
  for (const char* file : {"numbers.npz", "compressed.npz"}) {
    CAPTURE(file);
    const bool compressed = file == "compressed.npz"s;
    for (const bool mapped : {false, true}) {
      LoadOptions options;
      if (mapped) options.storage = Storage::mmap;
      const Snapshot opened = good(stele::open(golden_path(file), options));
      REQUIRE(opened.leaf_count() == std::size(numbers) + (compressed ? 2 : 0));
      for (std::size_t i = 0; i < std::size(numbers); ++i) {
        CAPTURE(number_names[i]);
        CHECK(opened.leaf(i).path() == number_names[i]);
        check_leaf(opened.leaf(i), numbers[i], {3, 5});
      }
      if (compressed) {
        check_leaf(named(opened, "big"), DType::i32, {3, 5});
        check_leaf(named(opened, "fortran"), DType::f64, {3, 5});
      }
    }
    CHECK(npz.verify(golden_path(file)));
  }
  const Snapshot unnamed = good(npz.open(golden_path("unnamed.npz")));
  check_leaf(named(unnamed, "arr_0"), DType::f32, {3, 5});
  check_leaf(named(unnamed, "arr_1"), DType::i32, {2});
  const Snapshot names = good(npz.open(golden_path("names.npz")));
  CHECK(names.leaf_count() == 6);
  check_leaf(named(names, "layers/0/weight"), DType::f32, {3, 5});
  check_leaf(named(names, "layers.1.weight"), DType::f32, {3, 5});
  check_leaf(named(names, "日本語"), DType::u16, {3});
  check_leaf(named(names, "a b"), DType::u8, {2});
  CHECK(good(stele::open(golden_path("names.npz"))).leaf_count() == 6);  // not an archive, whose entries have slashes
  CHECK(good(stele::open(golden_path("empty.npz"))).leaf_count() == 0);
}

TEST_CASE("numpy: elements without a type") {
  const auto refused = npy.open(golden_path("bfloat16.npy"));
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::unsupported);
  CHECK(refused.error().found() == "V2");
  CHECK(refused.error().hint() == "set NpyOptions::void2 to their dtype, for example to DType::bf16");
  const Snapshot unknown = good(npz.open(golden_path("voids.npz")));
  REQUIRE(named(unknown, "bfloat16").annotations() != nullptr);
  CHECK(*named(unknown, "bfloat16").annotations()->at("unreadable").as_string() ==
        std::string(refused.error().message()) + ": V2; " + std::string(refused.error().hint()));

  for (const auto& entry : voids) {
    const std::string name = entry.first;
    const DType dtype = entry.second;
    CAPTURE(name);
    if (dtype == DType::f8_e5m2) continue;
    NpyOptions options{DType::f8_e8m0, DType::bf16};
    (dtype == DType::bf16 ? options.void2 : options.void1) = dtype;
    const Snapshot opened = good(NpzRecorder<>(NpzFormat(options)).open(golden_path("voids.npz")));
    const LeafView leaf = named(opened, name);
    CHECK(leaf.dtype() == dtype);
    const std::string all = good(content(leaf));
    for (std::size_t k = 0; k < all.size(); ++k) CHECK(static_cast<unsigned char>(all[k]) == k % 256);
    CHECK(named(opened, "float8_e5m2").dtype() == DType::f8_e5m2);  // which ml_dtypes calls f1
    // Saved again, the file names the dtypes itself.
    const auto again = good(saved(npz, opened));
    CHECK(facts(good(npz.open(again)), can<NpzRecorder<>>()) == facts(opened, can<NpzRecorder<>>()));
  }
  CHECK(NpyRecorder<>(NpyFormat({.void2 = DType::f16})).open(golden_path("bfloat16.npy")));
  CHECK(code_of(NpyRecorder<>(NpyFormat({.void2 = DType::f32})).open(golden_path("bfloat16.npy"))) ==
        Errc::invalid_argument);
  CHECK(code_of(
            NpzRecorder<>(NpzFormat({.void1 = DType::boolean, .void2 = DType::bf16})).open(golden_path("voids.npz"))) ==
        Errc::invalid_argument);
}

TEST_CASE("numpy: a .npy file holds one tensor, whose name it does not have") {
  const TempDir dir;
  const One one{Tensor<float, 2>({2, 2}, {1, 2, 3, 4})};
  good(npy.save(one, dir / "one.npy", quick()));
  CHECK(same(good(npy.load<One>(dir / "one.npy")).weight.value, one.weight.value));
  CHECK(same(good(stele::load<One>(dir / "one.npy")).weight.value, one.weight.value));
  // Without a module, the file's name.
  CHECK(good(npy.open(dir / "one.npy")).leaf(0).path() == "one");
  std::filesystem::copy_file(dir / "one.npy", dir / "a.b.npy");
  CHECK(good(npy.open(dir / "a.b.npy")).leaf(0).path() == "a\\.b");
  // A tensor by itself.
  const Tensor<float, 2> alone({1, 2}, {5, 6});
  good(npy.save(alone, dir / "alone.npy", quick()));
  CHECK(same(good(npy.load<Tensor<float, 2>>(dir / "alone.npy")), alone));

  const auto two = npy.save(snapshot({{"a", {DType::u8, {1}, "x"}}, {"b", {DType::u8, {1}, "y"}}}), dir / "two.npy");
  REQUIRE(!two);
  CHECK(two.error().code() == Errc::not_representable);
  CHECK(two.error().found() == "2");
  CHECK(two.error().hint() == "save to a .npz file");
  CHECK(code_of(npy.save(Snapshot(), dir / "none.npy")) == Errc::not_representable);
  const auto half = npy.save(Half{Tensor<bfloat16>({1})}, dir / "half.npy");
  REQUIRE(!half);
  CHECK(half.error().code() == Errc::not_representable);
  CHECK(half.error().path() == "w");
  CHECK(code_of(npy.save(model(), dir / "model.npy")) == Errc::not_representable);
  CHECK(dir.names() == std::vector<std::string>{"a.b.npy", "alone.npy", "one.npy"});
}

TEST_CASE("numpy: every dtype comes back") {
  Random random(1);
  for (const DType dtype : all_dtypes) {
    CAPTURE(name(dtype));
    const bool number = std::find(std::begin(numbers), std::end(numbers), dtype) != std::end(numbers);
    const bool is_void =
        std::any_of(std::begin(voids), std::end(voids), [&](const auto& v) { return v.second == dtype; });
    CHECK(holds<NpyRecorder<>>(dtype) == number);
    CHECK(holds<NpzRecorder<>>(dtype) == (number || is_void));
    if (!number && !is_void) continue;
    std::string bytes = random.bytes(std::size_t{6} * element_size(dtype));
    if (dtype == DType::boolean) bytes = "\0\1\1\0\1\0"s;
    const Arrays before = {{"w", {dtype, {2, 3}, bytes}},
                           {"empty", {dtype, {0}, ""}},
                           {"scalar", {dtype, {}, bytes.substr(0, element_size(dtype))}}};
    const Bytes file = good(saved(npz, snapshot(before)));
    CHECK(arrays_of(good(npz.open(file))) == before);
    const auto opened = good(stele::open(file));
    for (std::size_t i = 0; i < opened.leaf_count(); ++i) CHECK(opened.leaf(i).location()->offset % 64 == 0);
    // Without a dtype that NumPy lacks, the file is NumPy's alone.
    CHECK((text_of(file.span()).find("__stele__") == std::string_view::npos) == number);
    if (!number) continue;
    const Bytes one = good(saved(npy, snapshot({{"w", before.at("w")}})));
    CHECK(one.size() == 128 + bytes.size());
    CHECK(good(content(good(npy.open(one)).leaf(0))) == bytes);
  }
}

TEST_CASE("numpy: a model in a .npz file") {
  const TempDir dir;
  SaveOptions options = quick();
  options.metadata = {{"license", "MIT \"x\""}};
  const Model before = model();
  good(npz.save(before, dir / "m.npz", options));
  const Entries entries = unzipped(read_text(dir / "m.npz"));
  CHECK(names_of(entries) == std::vector<std::string>{"weight.npy", "bias.npy", "head.npy", "__stele__.npy"});
  CHECK(
      entry(entries, "__stele__.npy").substr(128) ==
      R"({"version":1,"metadata":{"license":"MIT \"x\"","stele":"{\"version\":1,\"values\":{\"steps\":42},\"aliases\":{\"tied\":\"head\"}}"},"dtypes":{"bias":"bf16"}})");
  CHECK(entry(entries, "bias.npy")
            .substr(10, 60)
            .starts_with("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }"));
  const Model now = good(stele::load<Model>(dir / "m.npz"));
  CHECK(same(now.weight, before.weight));
  CHECK(same(now.bias, before.bias));
  CHECK(same(*now.head, *before.head));
  CHECK(now.tied == now.head);
  CHECK(now.steps == 42);
  CHECK(good(npz.open(dir / "m.npz")).metadata() == options.metadata);
  CHECK(npz.verify(dir / "m.npz"));
  // Equal models give equal bytes.
  CHECK((text_of(good(saved(npz, before, options)).span()) == read_text(dir / "m.npz")));
  // Mapped.
  LoadOptions view;
  view.storage = Storage::mmap;
  Report report;
  CHECK(same(good(npz.load<Model>(dir / "m.npz", reporting(view, report))).weight, before.weight));
  CHECK(report.count(Report::What::copied) == 0);
}

TEST_CASE("numpy: names that a zip file cannot store") {
  const std::string deep(70000, 'x');
  const std::vector<std::string> hostile = {"",
                                            "..",
                                            "../../etc/passwd",
                                            "/absolute",
                                            "a//b",
                                            "a/../b",
                                            "a/.",
                                            "C:\\x",
                                            "c:x",
                                            "a\\b",
                                            "nul\0x"s,
                                            "__stele__",
                                            "__stele__/0",
                                            "__stele__/1",
                                            "__stele__.x",
                                            "x/extra/y",
                                            "model.shard",
                                            "tags.txt",
                                            "a/data/0",
                                            "a/data.pkl",
                                            "w.npy",
                                            "w",
                                            "日本語",
                                            "a b\n",
                                            deep};
  Arrays before;
  for (const std::string& name : hostile) {
    std::string path;
    append_segment(path, name);
    for (const std::string& p : {path, name}) {
      before[p] = {DType::u8, {name.size() % 5}, std::string(name.size() % 5, 'z')};
    }
  }
  const Bytes file = good(saved(npz, snapshot(before)));
  CHECK(arrays_of(good(npz.open(file))) == before);
  CHECK(npz.verify(file));
  // Each alone, found by its content.
  for (const auto& entry : before) {
    CAPTURE(entry.first.substr(0, 50));
    const Bytes one = good(saved(npz, snapshot({entry})));
    const auto opened = stele::open(one);
    REQUIRE_MESSAGE(opened, why(opened));
    CHECK(arrays_of(*opened) == Arrays{entry});
  }
  const auto refused = saved(npz, snapshot({{"\xff", {DType::u8, {1}, "x"}}}));
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::not_representable);
  CHECK(refused.error().found() == "a name that is not UTF-8");
}

TEST_CASE("numpy: what a save cannot store") {
  SaveOptions options;
  options.metadata = {{"stele", R"({"version":1})"}};
  CHECK(code_of(saved(npz, snapshot({}), options)) == Errc::not_representable);
  options.metadata = {{"k", "\xff"}};
  CHECK(code_of(saved(npz, snapshot({}), options)) == Errc::not_representable);
  const std::vector<Extent> axes(65, 1);
  CHECK(code_of(saved(npz, snapshot({{"w", {DType::u8, axes, "x"}}}))) == Errc::not_representable);
  // NumPy's maximum, with extents as long as possible, loads.
  std::vector<Extent> most(64, 1);
  most[0] = 0, most[1] = UINT64_MAX;
  for (const Extent e : {UINT64_MAX, Extent{1}}) {
    most[63] = e;
    const auto file = saved(npz, snapshot({{"w", {DType::u8, most, ""}}}));
    CHECK(file.has_value() == (e == 1));
    if (file) CHECK(npz.open(*file));
  }
}

TEST_CASE("numpy: a save announces its exact size") {
  Random random(7);
  for (int round = 0; round < 20; ++round) {
    const Snapshot tree = random_snapshot(random, can<NpzRecorder<>>());
    const Bytes file = good(saved(npz, tree));
    Bytes memory(file.size());
    CHECK(good(MemoryRecorder<NpzFormat>().save(tree, memory.span())) == file.size());
    Bytes less(file.size() - 1);
    const auto refused = MemoryRecorder<NpzFormat>().save(tree, less.span());
    REQUIRE(!refused);
    CHECK(refused.error().found() == std::to_string(file.size()));
  }
}

}  // namespace numpy_test
