// JSON records for json_records.py: interop_json write FOLDER, or read FOLDER.
// For check_stele.py of .stele, interop_json stele FOLDER FILES... writes the Nth file, which may have any format,
// as N.json and N.json.zst, and a file that is not `.stele` as N.stele and N.compressed.stele.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <stele/stele.hpp>
#include <stele/value.hpp>

namespace {

using namespace stele;

struct Layer {
  Tensor<float, 2> weight;
  std::optional<Tensor<float16, 1>> bias;
};
struct Model {
  std::vector<Layer> layers;
  Tensor<double, 1> special;
  Tensor<std::int64_t, 2> counts;
  Tensor<bool, 1> mask;
  std::string text;
  Value any;
  STELE_MODULE(Model, layers, special, counts, mask, text, any)
};

/// Returns the model that the Python half makes by the same rule.
Model model() {
  Model m;
  for (std::size_t i = 0; i < 3; ++i) {
    Layer& layer = m.layers.emplace_back();
    layer.weight = Tensor<float, 2>({500, 700});
    for (std::size_t k = 0; k < layer.weight.size(); ++k) {
      layer.weight[k] = static_cast<float>((k * 2654435761U + i) % 1000003) / 1000.0F;
    }
    if (i != 1) layer.bias = Tensor<float16, 1>({3}, {float16(0.1F), float16(-2.0F), float16(65504.0F)});
  }
  m.special = Tensor<double, 1>({5}, {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3});
  m.counts = Tensor<std::int64_t, 2>({1, 3}, {INT64_MIN, 0, INT64_MAX});
  m.mask = Tensor<bool, 1>({2}, {true, false});
  m.text = "line\n\"ü\" \U0001F600";
  m.any = Value(Value::Map{{"list", Value(Value::List{Value(), Value(true), Value(2.5)})}});
  return m;
}

struct Kind {
  const char* name;
  JsonOptions options;
};
const Kind kinds[] = {
    {"plain.json", {}},
    {"pretty.json", {.pretty = true, .numbers_up_to = 10}},
    {"numbers.json", {.numbers_up_to = UINT64_MAX}},
    {"packed.json.gz", {}},
    {"packed.json.zst", {}},
};

bool same(const Model& a, const Model& b) {
  const auto packed = [](const Model& m) { return BytesRecorder<>{}.save(m).value(); };
  const Bytes x = packed(a);
  const Bytes y = packed(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string order = argc == 3 || (argc > 3 && argv[1] == std::string("stele")) ? argv[1] : "";
  for (int i = 3; i < argc && order == "stele"; ++i) {
    const std::string to = argv[2] + std::string("/") + std::to_string(i - 3);
    const Snapshot record = open(std::string(argv[i])).value();
    save(record, to + ".json").value();
    save(record, to + ".json.zst").value();
    if (std::string_view(argv[i]).ends_with(".stele")) continue;
    save(record, to + ".stele").value();
    CompressedRecorder<>().save(record, to + ".compressed.stele").value();
  }
  if (order == "stele") return 0;
  if (order == "write") {
    for (const Kind& kind : kinds) {
      JsonRecorder<>(JsonFormat(kind.options)).save(model(), argv[2] + std::string("/") + kind.name).value();
    }
    return 0;
  }
  if (order != "read") {
    std::fprintf(stderr, "usage: interop_json write|read FOLDER, or stele FOLDER FILES...\n");
    return 2;
  }
  const Model expected = model();
  for (const char* name : {"sorted.json", "indented.json", "numbers.json", "one.json.gz", "members.json.gz",
                           "one.json.zst", "frames.json.zst", "seekable.json.zst"}) {
    const Model found = load<Model>(argv[2] + std::string("/") + name).value();
    std::printf("%s: %s\n", name, same(found, expected) ? "ok" : "DIFFERENT");
    if (!same(found, expected)) return 1;
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
