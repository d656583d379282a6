// Writes safetensors files into the folder given, for check_safetensors.py. All values follow the rule of
// make_golden_safetensors.py.
#include <complex>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stele/precision/complex.hpp>
#include <stele/stele.hpp>

namespace {

using namespace stele;

template <class T>
T element(std::size_t k) {
  const int n = static_cast<int>(k % 7);
  if constexpr (std::is_same_v<T, bool>) {
    return k % 2 == 1;
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(n);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(n - 2);
  } else {
    return T(static_cast<float>(n - 2));
  }
}

template <class T>
Tensor<T> tensor(const Shape& shape) {
  Tensor<T> t(shape);
  for (std::size_t k = 0; k < t.size(); ++k) t[k] = element<T>(k);
  return t;
}

struct Types {
  Tensor<double> f64;
  Tensor<float> f32;
  Tensor<float16> f16;
  Tensor<bfloat16> bf16;
  Tensor<std::int64_t> i64;
  Tensor<std::int32_t> i32;
  Tensor<std::int16_t> i16;
  Tensor<std::int8_t> i8;
  Tensor<std::uint64_t> u64;
  Tensor<std::uint32_t> u32;
  Tensor<std::uint16_t> u16;
  Tensor<std::uint8_t> u8;
  Tensor<bool> mask;
  Tensor<std::complex<float>> c64;
  STELE_MODULE(Types, f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, mask, c64)
};

Types types(const Shape& s) {
  return {tensor<double>(s),        tensor<float>(s),
          tensor<float16>(s),       tensor<bfloat16>(s),
          tensor<std::int64_t>(s),  tensor<std::int32_t>(s),
          tensor<std::int16_t>(s),  tensor<std::int8_t>(s),
          tensor<std::uint64_t>(s), tensor<std::uint32_t>(s),
          tensor<std::uint16_t>(s), tensor<std::uint8_t>(s),
          tensor<bool>(s),          tensor<std::complex<float>>(s)};
}

struct Zoo {
  std::vector<Types> all;
  STELE_MODULE(Zoo, all)
};

struct Names {
  std::map<std::string, Tensor<float>> names;
  STELE_MODULE(Names, names)
};

struct Model {
  std::vector<std::optional<Tensor<float>>> layers;
  std::shared_ptr<Tensor<float>> embedding, head;
  std::map<std::string, std::vector<Tensor<std::int32_t>>> lists;
  std::string note = "caf\u00e9 \"quoted\"";
  double rate = 0.1;
  STELE_MODULE(Model, layers, embedding, head, lists, note, rate)
};

/// Returns tensors whose element types C++ lacks; their bytes count up.
Snapshot packed() {
  static const struct {
    const char* name;
    DType dtype;
    std::vector<Extent> shape;
  } leaves[] = {{"e4m3", DType::f8_e4m3fn, {20, 15}},  {"e5m2", DType::f8_e5m2, {20, 15}},
                {"e8m0", DType::f8_e8m0, {20, 15}},    {"e4m3fnuz", DType::f8_e4m3fnuz, {7}},
                {"e5m2fnuz", DType::f8_e5m2fnuz, {7}}, {"f4", DType::f4_e2m1, {20, 30}},
                {"none", DType::f4_e2m1, {0}}};
  static const auto bytes = [] {
    std::vector<std::byte> all(1000);
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<std::byte>(k % 256);
    return all;
  }();
  static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  for (const auto& leaf : leaves) {
    builder.tensor(leaf.name, leaf.dtype, leaf.shape, *byte_length(leaf.dtype, *element_count(leaf.shape)),
                   {&ops, bytes.data(), 0});
  }
  return builder.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  bool good = true;
  const auto write = [&](const char* name, const auto& module, const auto& recorder, const SaveOptions& options = {}) {
    if (const auto r = recorder.save(module, folder + "/" + name + ".safetensors", options); !r) {
      std::fprintf(stderr, "%s: %s\n", name, r.error().to_string().c_str());
      good = false;
    }
  };
  const SafetensorsRecorder<> recorder;
  const Zoo zoo{{types({3, 5}), types(Shape{}), types({0}), types({3, 0, 2}), types({1, 1, 1, 1, 1, 1, 1, 1, 2})}};
  write("types", zoo, recorder);
  write("packed", packed(), recorder);

  Names names;
  for (const char* name :
       {"\U0001f600", "\uff5e", "\u65e5\u672c\u8a9e", "caf\u00e9", "cafe\u0301", "with space", "quo\"te", "back\\slash",
        "a.b", "a/b", "", "tab\tline\nbell\a", "\x7f", "a", "Z", "10", "9"}) {
    names.names.emplace(name, tensor<float>({names.names.size() + 1}));
  }
  write("names", names, recorder);
  write("nothing", Names{}, recorder);

  const Names big{{{"big", tensor<float>({1000, 1000})}, {"other", tensor<float>({777777})}}};
  write("big", big, recorder);
  write("half", big, SafetensorsRecorder<HalfPrecision>());
  write("brain", big, SafetensorsRecorder<BrainPrecision>());
  write("double", big, SafetensorsRecorder<DoublePrecision>());

  SaveOptions noted;
  noted.metadata = {{"note", "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 said \"yes\" \\ no / end"}};
  write("metadata", names, recorder, noted);

  // Values, ties and absent elements: one key of metadata, and the tensors as ever.
  Model model;
  model.layers = {tensor<float>({4, 2}), std::nullopt, tensor<float>({4})};
  model.embedding = model.head = std::make_shared<Tensor<float>>(tensor<float>({5, 5}));
  model.lists["empty"];
  model.lists["one"].push_back(tensor<std::int32_t>({2}));
  write("model", model, recorder);
  return good ? 0 : 1;
}
