// Writes NumPy's files into a folder, for numpy_files.py, or reads those that it wrote. Both follow its rule for
// values.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <stele/recorders/numpy.hpp>
#include <stele/snapshot.hpp>
#include <stele/stele.hpp>

namespace {

using namespace stele;

constexpr std::pair<const char*, DType> numbers[] = {
    {"b1", DType::boolean}, {"i1", DType::i8},  {"i2", DType::i16}, {"i4", DType::i32},  {"i8", DType::i64},
    {"u1", DType::u8},      {"u2", DType::u16}, {"u4", DType::u32}, {"u8", DType::u64},  {"f2", DType::f16},
    {"f4", DType::f32},     {"f8", DType::f64}, {"c8", DType::c64}, {"c16", DType::c128}};
constexpr std::pair<const char*, DType> voids[] = {{"bfloat16", DType::bf16},
                                                   {"float8_e4m3fn", DType::f8_e4m3fn},
                                                   {"float8_e5m2", DType::f8_e5m2},
                                                   {"float8_e8m0fnu", DType::f8_e8m0},
                                                   {"float8_e4m3fnuz", DType::f8_e4m3fnuz},
                                                   {"float8_e5m2fnuz", DType::f8_e5m2fnuz}};

template <class T>
void put(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The elements by the rule, in the machine's order.
std::string by_rule(DType dtype, std::uint64_t count) {
  std::string bytes;
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto n = static_cast<std::int64_t>(k % 7);
    const std::int64_t s = n - 2;
    switch (dtype) {
      case DType::boolean:
        put(bytes, static_cast<std::uint8_t>(k % 2));
        break;
      case DType::i8:
        put(bytes, static_cast<std::int8_t>(s));
        break;
      case DType::u8:
        put(bytes, static_cast<std::uint8_t>(n));
        break;
      case DType::i16:
        put(bytes, static_cast<std::int16_t>(s));
        break;
      case DType::u16:
        put(bytes, static_cast<std::uint16_t>(n));
        break;
      case DType::i32:
        put(bytes, static_cast<std::int32_t>(s));
        break;
      case DType::u32:
        put(bytes, static_cast<std::uint32_t>(n));
        break;
      case DType::i64:
        put(bytes, s);
        break;
      case DType::u64:
        put(bytes, static_cast<std::uint64_t>(n));
        break;
      case DType::f16:
        put(bytes, float16(static_cast<float>(s)).bits);
        break;
      case DType::f32:
      case DType::c64:
        put(bytes, static_cast<float>(s));
        if (dtype == DType::c64) put(bytes, 0.0F);
        break;
      case DType::f64:
      case DType::c128:
        put(bytes, static_cast<double>(s));
        if (dtype == DType::c128) put(bytes, 0.0);
        break;
      default:  // a dtype that NumPy does not have
        for (unsigned i = 0; i < element_size(dtype); ++i) bytes += static_cast<char>(bytes.size() % 256);
    }
  }
  return bytes;
}

struct Entry {
  std::string name;
  DType dtype;
  std::vector<Extent> shape = {3, 5};
};

Snapshot snapshot(const std::vector<Entry>& entries) {
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.set_flat();
  for (const Entry& e : entries) {
    const std::string bytes = by_rule(e.dtype, *element_count(e.shape));
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(memory->data()));
    builder.tensor(builder.intern(e.name), e.dtype, e.shape, bytes.size(), {&ops, memory->data(), 0});
    builder.keep(memory);
  }
  return builder.finish();
}

int write(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const NpyRecorder<> npy;
  const NpzRecorder<> npz;
  const auto one = [&](const Entry& e) { npy.save(snapshot({e}), folder + "/" + e.name + ".npy").value(); };
  std::vector<Entry> all;
  for (const auto& [name, dtype] : numbers) all.push_back({name, dtype});
  for (const Entry& e : all) one(e);
  one({"scalar", DType::f32, {}});
  one({"hollow", DType::f32, {3, 0, 2}});
  one({"axes", DType::f32, std::vector<Extent>(64, 1)});
  npz.save(snapshot(all), folder + "/numbers.npz").value();
  all.clear();
  for (const auto& [name, dtype] : voids) all.push_back({name, dtype});
  npz.save(snapshot(all), folder + "/voids.npz").value();
  // Names as paths of a zip file, and others.
  all.clear();
  std::ofstream names(folder + "/names.json");
  names << '[';
  for (const char* name : {"", "w", "w.npy", "layers.0.weight", "layers/0/weight", "..", "../x", "/etc/x", "a b",
                           "日本語", "c:x", "__stele__", "__stele__/0", "x/extra/y"}) {
    names << (all.empty() ? "" : ", ") << '"' << name << '"';
    all.push_back({name, DType::f32, {2}});
  }
  names << "]\n";
  npz.save(snapshot(all), folder + "/names.npz").value();
  return 0;
}

int check(const std::string& file, const LeafView& leaf, DType dtype, const std::vector<Extent>& shape) {
  std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
  leaf.read(0, std::as_writable_bytes(std::span(bytes))).value();
  if (leaf.dtype() == dtype && Shape(leaf.shape()) == Shape(shape) && bytes == by_rule(dtype, leaf.size())) return 0;
  std::printf("%s: %s is %s %s\n", file.c_str(), leaf.path().c_str(), std::string(name(leaf.dtype())).c_str(),
              to_string(leaf.shape()).c_str());
  return 1;
}

int read(const std::string& folder) {
  int wrong = 0;
  const auto path = [&](const char* name) { return folder + "/" + name; };
  const std::pair<const char*, Entry> arrays[] = {{"f4.npy", {"", DType::f32}},
                                                  {"version2.npy", {"", DType::f32}},
                                                  {"version3.npy", {"", DType::f32}},
                                                  {"one_axis.npy", {"", DType::i64, {5}}},
                                                  {"hollow.npy", {"", DType::f32, {3, 0, 2}}},
                                                  {"four_axes.npy", {"", DType::i16, {2, 1, 3, 2}}},
                                                  {"fortran.npy", {"", DType::f32, {2, 3, 4}}},
                                                  {"fortran_one_axis.npy", {"", DType::f32, {1, 4, 1}}},
                                                  {"big_endian.npy", {"", DType::f32}},
                                                  {"big_endian_fortran.npy", {"", DType::c128}}};
  for (const auto& [file, e] : arrays) {
    const Snapshot opened = open(path(file)).value();
    wrong += check(file, opened.leaf(0), e.dtype, e.shape);
  }
  for (const char* file : {"numbers.npz", "compressed.npz"}) {
    const Snapshot opened = open(path(file)).value();
    for (const auto& [key, dtype] : numbers) wrong += check(file, opened.find(key).value(), dtype, {3, 5});
    if (opened.leaf_count() == std::size(numbers)) continue;
    wrong += check(file, opened.find("big").value(), DType::i32, {3, 5});
    wrong += check(file, opened.find("fortran").value(), DType::f64, {3, 5});
  }
  for (const auto& [key, dtype] : voids) {
    const NpyOptions options{dtype == DType::bf16 || dtype == DType::f8_e5m2 ? DType::f8_e8m0 : dtype, DType::bf16};
    const NpzRecorder<> recorder{NpzFormat(options)};
    wrong += check("voids.npz", recorder.open(path("voids.npz")).value().find(key).value(), dtype, {3, 5});
  }
  for (const char* file : {"objects.npy", "strings.npy", "bytes.npy", "dates.npy", "structured.npy",
                           "structured_names.npy", "bfloat16.npy"}) {
    const auto opened = open(path(file));
    if (!opened && opened.error().code() == Errc::unsupported) continue;
    std::printf("%s: not refused as unsupported\n", file);
    ++wrong;
  }
  // Arrays of numbers; f8_e5m2 is `<f1`, which no other dtype is.
  wrong += check("objects.npz", open(path("objects.npz")).value().find("fine").value(), DType::f32, {3, 5});
  wrong += check("voids.npz", open(path("voids.npz")).value().find("float8_e5m2").value(), DType::f8_e5m2, {3, 5});
  for (const auto& [file, readable, leaves] :
       {std::tuple("objects.npz", "fine", std::size_t{2}), std::tuple("voids.npz", "float8_e5m2", std::size(voids))}) {
    const Snapshot opened = open(path(file)).value();
    if (opened.leaf_count() != leaves) ++wrong;
    for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
      const auto leaf = opened.leaf(i);
      if ((leaf.dtype() == DType::opaque) == (leaf.path() != readable)) continue;
      std::printf("%s: %s is %sopaque\n", file, leaf.path().c_str(), leaf.path() == readable ? "" : "not ");
      ++wrong;
    }
  }
  if (open(path("names.npz")).value().leaf_count() != 6 || open(path("empty.npz")).value().leaf_count() != 0) ++wrong;
  std::printf("numpy: %s\n", wrong == 0 ? "ok" : "FAILED");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 3 ? argv[1] : "";
  try {
    if (what == "write") return write(argv[2]);
    if (what == "read") return read(argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "interop_numpy write|read FOLDER\n");
  return 2;
}
