// Folders of models of the Hugging Face hub: opened, converted and saved as a whole.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "stele/bundle.hpp"
#include "stele/composite.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/transform.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace hub_test {

namespace {

namespace fs = std::filesystem;
using namespace stele;
using namespace stele_test;

struct Linear {
  Tensor<float, 2> weight;
  std::vector<float> bias;
  STELE_MODULE(Linear, weight, bias)
};
struct Model {
  Linear up, down;
  STELE_MODULE(Model, up, down)
};

Model model() {
  Model m;
  for (Linear* linear : {&m.up, &m.down}) {
    linear->weight = Tensor<float, 2>({8, 128});
    for (std::size_t i = 0; i < linear->weight.size(); ++i) linear->weight[i] = static_cast<float>(i % 29) / 8 - 1.5F;
    linear->bias.assign(8, 0.5F);
  }
  return m;
}

constexpr const char* config = R"({
  "architectures": ["LlamaForCausalLM"],
  "rms_norm_eps": 1e-06,
  "name": "caf\u00e9"
}
)";

/// Makes the folder of a model, as the hub has it.
void make_folder(const std::string& path, const std::string& config_text = config) {
  fs::create_directories(path + "/assets");
  good(save(model(), path + "/model.safetensors"));
  write_text(path + "/config.json", config_text);
  write_text(path + "/tokenizer.json", "{\"version\": \"1.0\"}");
  write_text(path + "/assets/logo.txt", std::string("\0\xff logo", 7));
  write_text(path + "/pytorch_model.bin", "the same weights");
  write_text(path + "/.gitattributes", "*.bin filter=lfs");
}

SaveOptions as_hub(const Format& format) {
  SaveOptions options;
  options.format = &format;
  options.file.durability = Durability::process;
  return options;
}

std::vector<std::string> names_of(const std::string& folder) { return good(folder_bundle(folder)->names()); }

}  // namespace

TEST_CASE("hub: a folder is saved with its other files, byte for byte") {
  const TempDir dir;
  const std::string in = dir / "in", out = dir / "out";
  make_folder(in);
  const Snapshot opened = good(stele::open(in));
  CHECK(opened.leaf_count() == 4);
  const HubFormat hub;
  const Report report = good(save(opened, out, as_hub(hub)));
  REQUIRE(report.count(Report::What::lost) == 1);
  CHECK(report[0].detail == "files that are not copied: .gitattributes, pytorch_model.bin");
  CHECK(names_of(out) ==
        std::vector<std::string>{"assets/logo.txt", "config.json", "model.safetensors", "tokenizer.json"});
  for (const char* const name : {"config.json", "tokenizer.json", "assets/logo.txt"}) {
    CHECK(read_text(out + "/" + name) == read_text(in + "/" + name));
  }
  CHECK(good(load<Model>(out)).down.weight[77] == model().down.weight[77]);
  // transformers requires this of a file.
  CHECK(good(stele::open(out + "/model.safetensors")).metadata().at("format") == "pt");

  // Transforms keep the files; another format has a row for them.
  const Snapshot renamed = good(rename(opened, {{"^up", "gate"}}));
  good(save(renamed, dir / "renamed", as_hub(hub)));
  CHECK(read_text((dir / "renamed") + "/tokenizer.json") == read_text(in + "/tokenizer.json"));
  const Report other = good(save(opened, dir / "m.gguf"));
  REQUIRE(other.count(Report::What::lost) == 2);
  CHECK(other[1].detail == "the files beside the weights: assets/logo.txt, config.json, tokenizer.json");

  // A folder with content is not replaced.
  const auto again = save(opened, out, as_hub(hub));
  REQUIRE(!again);
  CHECK(again.error().code() == Errc::exists);
}

TEST_CASE("hub: several files with an index") {
  const TempDir dir;
  const std::string in = dir / "in", out = dir / "out";
  make_folder(in);
  const HubFormat small(5000);
  good(save(good(stele::open(in)), out, as_hub(small)));
  const auto names = names_of(out);
  CHECK(std::find(names.begin(), names.end(), "model.safetensors.index.json") != names.end());
  CHECK(std::find(names.begin(), names.end(), "model-00001-of-00002.safetensors") != names.end());
  CHECK(good(load<Model>(out)).up.bias == model().up.bias);
  // From several files to one.
  good(save(good(stele::open(out)), dir / "one", as_hub(HubFormat())));
  CHECK(good(load<Model>(dir / "one")).up.bias == model().up.bias);
  CHECK(read_text((dir / "one") + "/config.json") == config);
}

TEST_CASE("hub: the configuration describes the quantization that is written") {
  const TempDir dir;
  const std::string in = dir / "in";
  make_folder(in);
  write_text(in + "/quantize_config.json", "{\"bits\": 4}");
  const HubFormat hub;
  const auto config_of = [&](const std::string& folder) { return read_text((dir / folder) + "/config.json"); };
  const auto write = [&](const Snapshot& snapshot, const std::string& folder) {
    good(save(snapshot, dir / folder, as_hub(hub)));
    return good(stele::open(dir / folder));
  };
  const Snapshot int4 = write(good(quantize_weights(good(stele::open(in)), {.name = "int4"})), "int4");
  REQUIRE(composite(*int4.find("up.weight")));
  const std::string text = config_of("int4");
  CHECK(
      text.starts_with("{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"rms_norm_eps\": 1e-06,\n"
                       "  \"name\": \"caf\\u00e9\",\n  \"quantization_config\": {\"config_groups\":"));
  CHECK(text.ends_with("}\n}\n"));
  CHECK(good(parse_json(text)).at("quantization_config").at("quant_method").to<std::string>().value() ==
        "compressed-tensors");
  CHECK(!fs::exists((dir / "int4") + "/quantize_config.json"));  // it described another quantization
  CHECK(!good(stele::open((dir / "int4") + "/model.safetensors", LoadOptions())).metadata().contains("stele"));

  // Unchanged: byte for byte. To another scheme: the entry is replaced. Decoded: it is removed.
  write(int4, "same");
  CHECK(config_of("same") == text);
  write(good(quantize_weights(int4, {.name = "nf4"})), "nf4");
  CHECK(good(parse_json(config_of("nf4"))).at("quantization_config").at("quant_method").to<std::string>().value() ==
        "bitsandbytes");
  SaveOptions bf16 = as_hub(hub);
  bf16.precision = DType::bf16;
  good(save(int4, dir / "bf16", bf16));
  CHECK(config_of("bf16") == config);
  CHECK(good(stele::open(dir / "bf16")).find("up.weight")->dtype() == DType::bf16);
  write(good(dequantize(int4)), "f32");
  CHECK(config_of("f32") == config);

  // The file that described another quantization has a row.
  const Report report =
      good(save(good(quantize_weights(good(stele::open(in)), {.name = "int4"})), dir / "row", as_hub(hub)));
  CHECK(report.to_string().find("quantize_config.json, which describes another quantization") != std::string::npos);

  // A scheme that is not known stays described, since its tensors stay.
  make_folder(dir / "exotic", R"({"quantization_config": {"quant_method": "exotic"}, "a": 1})");
  write(good(stele::open(dir / "exotic")), "exotic2");
  CHECK(config_of("exotic2") == R"({"quantization_config": {"quant_method": "exotic"}, "a": 1})");
}

TEST_CASE("hub: the configuration names the dtype that is written") {
  const TempDir dir;
  const std::string in = dir / "in";
  make_folder(in, R"({"torch_dtype": "float32", "a": 1, "dtype": "float32", "inner": {"dtype": "float32"}})");
  const HubFormat hub;
  SaveOptions options = as_hub(hub);
  good(save(good(stele::open(in)), dir / "same", options));
  CHECK(read_text(dir / "same/config.json") == read_text(in + "/config.json"));
  options.precision = DType::bf16;
  good(save(good(stele::open(in)), dir / "bf16", options));
  CHECK(read_text(dir / "bf16/config.json") ==
        R"({"torch_dtype": "bfloat16", "a": 1, "dtype": "bfloat16", "inner": {"dtype": "float32"}})");
}

TEST_CASE("hub: entries of configurations in any place") {
  const TempDir dir;
  const HubFormat hub;
  const std::string entry = R"("quantization_config": {"x": 1})";
  int number = 0;
  for (const auto& texts : std::vector<std::pair<std::string, std::string>>{
           {"{" + entry + "}", "{}"},
           {"{" + entry + R"(, "a": "}"})", R"({"a": "}"})"},
           {R"({"a": [1, {"quantization_config": 2}], )" + entry + "}", R"({"a": [1, {"quantization_config": 2}]})"},
           {R"({"a": 1, )" + entry + R"( , "b": 2})", R"({"a": 1 , "b": 2})"},
           {R"({"quantization": {"bits": 4}, "a": 1})", R"({"a": 1})"},
           {R"({"quantization": {"bits": 4}, )" + entry + R"(, "a": 1})", R"({"a": 1})"},
           {R"({"text_config": {"a": 1, )" + entry + R"(}, "b": 2})", R"({"text_config": {"a": 1}, "b": 2})"},
           {R"({"a": {)" + entry + R"(}, "b": {"c": {)" + entry + "}}}", R"({"a": {}, "b": {"c": {}}})"}}) {
    const std::string &before = texts.first, &after = texts.second;  // clang 14 captures no structured bindings
    CAPTURE(before);
    const std::string in = dir / ("in" + std::to_string(number)), out = dir / ("out" + std::to_string(number));
    ++number;
    make_folder(in, before);
    Snapshot opened = good(stele::open(in));
    CHECK(opened.metadata().contains("quantization_config"));
    good(save(opened, out + "same", as_hub(hub)));
    CHECK(read_text(out + "same/config.json") == before);
    opened = good(quantize_weights(opened, {.name = "int4"}));
    good(save(good(dequantize(opened)), out, as_hub(hub)));
    CHECK(read_text(out + "/config.json") == after);
  }
  // A configuration that is no JSON is copied; a folder without one gets one for a quantization.
  make_folder(dir / "text", "no JSON");
  good(save(good(stele::open(dir / "text")), dir / "text2", as_hub(hub)));
  CHECK(read_text((dir / "text2") + "/config.json") == "no JSON");
  const Model own = model();
  good(save(good(quantize_weights(good(snapshot_of(own)), {.name = "int4"})), dir / "new", as_hub(hub)));
  CHECK(composite(*good(stele::open(dir / "new")).find("up.weight")));
  good(save(model(), dir / "plain", as_hub(hub)));
  CHECK(names_of(dir / "plain") == std::vector<std::string>{"model.safetensors"});
  CHECK(good(load<Model>(dir / "plain")).up.bias == model().up.bias);
}

#ifndef _WIN32  // links need a privilege there
TEST_CASE("hub: a weight whose parts contradict each other does not verify") {
  const std::string file = test_data() + "/formats/safetensors/fuzz/corpus/safetensors_fuzz/group_out_of_range";
  const auto verified = verify(SafetensorsFormat(), file);
  REQUIRE(!verified);
  CHECK(verified.error().code() == Errc::out_of_range);
  CHECK(verified.error().path() == "l.g_idx");
}

TEST_CASE("hub: the cache of the hub has links out of its folders") {
  const TempDir dir;
  const std::string root = dir / "models--owner--name", folder = root + "/snapshots/0123";
  make_folder(folder);
  fs::create_directories(root + "/blobs");
  int number = 0;
  for (const char* const name : {"model.safetensors", "config.json", "tokenizer.json", "assets/logo.txt"}) {
    const std::string blob = "b" + std::to_string(number++), path = folder + "/" + name;
    fs::rename(path, root + "/blobs/" + blob);
    const bool below = std::string(name).find('/') != std::string::npos;
    fs::create_symlink((below ? "../../../blobs/" : "../../blobs/") + blob, path);
  }
  const Snapshot opened = good(stele::open(folder));
  CHECK(opened.leaf_count() == 4);
  good(save(opened, dir / "out", as_hub(HubFormat())));
  CHECK(names_of(dir / "out") ==
        std::vector<std::string>{"assets/logo.txt", "config.json", "model.safetensors", "tokenizer.json"});
  CHECK(!fs::is_symlink((dir / "out") + "/config.json"));

  // Other links out of the folder are not followed.
  write_text(root + "/secret", "secret");
  write_text(root + "/blobs/other", "other");
  for (const char* const target : {"../../secret", "../../blobs/../secret", "../blobs/other", "../../../blobs/other",
                                   "../../blobs/nothing", "../../blobs/", "../../blobs/.."}) {
    CAPTURE(target);
    fs::remove(folder + "/tokenizer.json");
    fs::create_symlink(target, folder + "/tokenizer.json");
    const std::string out = dir / "refused";
    const auto saved = [&]() -> Result<Report> {
      STELE_TRY_ASSIGN(const Snapshot snapshot, stele::open(folder));
      return save(snapshot, out, as_hub(HubFormat()));
    }();
    CHECK(!fs::exists(out + "/tokenizer.json"));
    fs::remove_all(out);
  }
}
#endif

}  // namespace hub_test
