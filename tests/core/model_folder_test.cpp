// Which file of a folder is the model, as transformers, diffusers and PEFT choose it.
#include <doctest/doctest.h>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "snapshot/model_folder.hpp"
#include "support/temp_dir.hpp"

namespace model_folder_test {

namespace {

using namespace stele;
using stele_test::TempDir;

struct Model {
  std::vector<float> weight;
};

/// Saves a model of one number in the format of the name's extension.
void put(const TempDir& dir, const std::string& name, float number) {
  const std::string path = dir / name;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  if (name.ends_with(".json")) return stele_test::write_text(path, "{}");
  if (name.ends_with(".md")) return stele_test::write_text(path, "text");
  SaveOptions options;
  if (name.ends_with(".bin")) options.format = find_format("pytorch");
  const auto saved = save(Model{{number}}, path, options);
  REQUIRE_MESSAGE(saved, saved.error().to_string());
}

}  // namespace

TEST_CASE("model folder: the names that are chosen, and those that leave it open") {
  struct Row {
    std::vector<std::string> names;
    std::string weights;
    std::vector<std::string> others;
  };
  const std::string index = ".index.json", st = "model.safetensors", bin = "pytorch_model.bin";
  const Row rows[] = {
      {{}, "", {}},
      {{"config.json", "README.md"}, "", {}},
      // transformers (get_model_file_with_priority): safetensors before PyTorch, whole files before shards.
      {{"config.json", st, bin, "tf_model.h5", "flax_model.msgpack"}, st, {bin, "tf_model.h5", "flax_model.msgpack"}},
      {{"config.json", bin, "tf_model.h5"}, bin, {"tf_model.h5"}},
      {{bin}, bin, {}},
      {{st, st + index}, st, {st + index}},
      {{"config.json", st + index, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
       st + index,
       {}},
      {{"config.json", bin + index, "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"},
       bin + index,
       {}},
      {{"config.json", st, "model.fp32-00001-of-00002.safetensors", "model.fp32-00002-of-00002.safetensors",
        "model.safetensors.index.fp32.json"},
       st,
       {"model.safetensors.index.fp32.json"}},
      // Variants, if nothing else is there.
      {{"config.json", "model.fp16.safetensors"}, "model.fp16.safetensors", {}},
      {{"config.json", "model.fp16.safetensors", "pytorch_model.fp16.bin"},
       "model.fp16.safetensors",
       {"pytorch_model.fp16.bin"}},
      {{"config.json", "model.safetensors.index.fp16.json", "model.fp16-00001-of-00002.safetensors",
        "model.fp16-00002-of-00002.safetensors"},
       "model.safetensors.index.fp16.json",
       {}},
      {{"config.json", "pytorch_model.bin.index.fp16.json", "pytorch_model.fp16-00001-of-00001.bin"},
       "pytorch_model.bin.index.fp16.json",
       {}},
      {{"config.json", "model.bf16.safetensors", "model.fp16.safetensors"},
       "",
       {"model.bf16.safetensors", "model.fp16.safetensors"}},
      {{"model.safetensors.index.bf16.json", "model.safetensors.index.fp16.json"},
       "",
       {"model.safetensors.index.bf16.json", "model.safetensors.index.fp16.json"}},
      // diffusers
      {{"config.json", "diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.safetensors"},
       "diffusion_pytorch_model.safetensors",
       {"diffusion_pytorch_model.fp16.safetensors"}},
      {{"config.json", "diffusion_pytorch_model.bin", "diffusion_pytorch_model.fp16.bin"},
       "diffusion_pytorch_model.bin",
       {"diffusion_pytorch_model.fp16.bin"}},
      {{"config.json", "diffusion_pytorch_model.safetensors.index.json",
        "diffusion_pytorch_model-00001-of-00002.safetensors", "diffusion_pytorch_model-00002-of-00002.safetensors"},
       "diffusion_pytorch_model.safetensors.index.json",
       {}},
      {{"model_index.json", "unet/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors"},
       "",
       {}},
      // PEFT
      {{"adapter_config.json", "adapter_model.bin"}, "adapter_model.bin", {}},
      {{"adapter_config.json", "adapter_model.bin", "adapter_model.safetensors"},
       "adapter_model.safetensors",
       {"adapter_model.bin"}},
      // Mistral
      {{"consolidated.safetensors", "params.json", "tekken.json"}, "consolidated.safetensors", {}},
      {{"config.json", "consolidated.safetensors", "model-00001-of-00001.safetensors", st + index, "params.json"},
       st + index,
       {"consolidated.safetensors"}},
      // llama.cpp
      {{"README.md", "model-Q8_0.gguf"}, "model-Q8_0.gguf", {}},
      {{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}, "m-00001-of-00003.gguf", {}},
      {{"a-Q4_K.gguf", "a-Q8_0.gguf"}, "", {"a-Q4_K.gguf", "a-Q8_0.gguf"}},
      // A training run beside the model: transformers' Trainer, accelerate, Lightning.
      {{"config.json", "optimizer.pt", bin, "rng_state.pth", "rng_state_0.pth", "scheduler.pt", "training_args.bin"},
       bin,
       {}},
      {{"optimizer.bin", "pytorch_model.bin", "scheduler.bin"}, bin, {}},
      {{"epoch=3.ckpt", "hparams.yaml"}, "", {"epoch=3.ckpt"}},
      {{"epoch=3.ckpt", "last.ckpt"}, "", {"epoch=3.ckpt", "last.ckpt"}},
      // A count alone decides nothing.
      {{"mine.safetensors"}, "", {"mine.safetensors"}},
      {{"model.fp16.safetensors"}, "", {"model.fp16.safetensors"}},
      {{"config.json", "mine.safetensors"}, "mine.safetensors", {}},
      {{"a.safetensors", "b.pt"}, "", {"a.safetensors", "b.pt"}},
      {{"a.gguf", "a.onnx"}, "", {"a.gguf", "a.onnx"}},
      {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
       "",
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.names);
    const detail::ModelFolder found = detail::model_folder(row.names);
    CHECK(found.weights == row.weights);
    CHECK(found.others == row.others);
  }
}

TEST_CASE("model folder: the chosen file is opened, loaded and verified") {
  struct Row {
    std::vector<std::string> names;  // the first one is the model
    std::string format;
  };
  const Row rows[] = {
      {{"pytorch_model.bin", "config.json"}, "pytorch"},
      {{"pytorch_model.bin", "config.json", "optimizer.pt"}, "pytorch"},
      {{"adapter_model.bin", "adapter_config.json"}, "pytorch"},
      {{"consolidated.safetensors", "params.json"}, "hub"},
      {{"consolidated.safetensors"}, "safetensors-sharded"},
      {{"pytorch_model.fp16.bin", "config.json"}, "pytorch"},
      {{"model.fp16.safetensors", "config.json"}, "hub"},
      {{"diffusion_pytorch_model.safetensors", "config.json", "diffusion_pytorch_model.fp16.safetensors"}, "hub"},
      {{"model.safetensors", "config.json", "pytorch_model.bin"}, "hub"},
      {{"m-Q8_0.gguf", "README.md"}, "gguf"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.names);
    const TempDir dir;
    for (const std::string& name : row.names) put(dir, name, name == row.names.front() ? 1.0F : 2.0F);
    const auto source = open_folder(dir.path());
    REQUIRE(source);
    const auto format = format_of_content(**source);
    REQUIRE_MESSAGE(format, format.error().to_string());
    CHECK((*format)->name() == row.format);
    const auto loaded = load<Model>(dir.path());
    REQUIRE_MESSAGE(loaded, loaded.error().to_string());
    CHECK(loaded->weight == std::vector<float>{1});
    CHECK(verify(**format, dir.path()));
    // A copy as a folder has the files that are not weights.
    const auto opened = open(dir.path());
    REQUIRE(opened);
    if (row.format == "hub" || row.format == "pytorch") {
      const TempDir copies;
      REQUIRE(HubRecorder<>().save(*opened, copies / "copy"));
      for (const std::string& name : row.names) {
        if (name.ends_with(".json")) CHECK(std::filesystem::exists(copies / "copy/" + name));
      }
      CHECK(load<Model>(copies / "copy")->weight == std::vector<float>{1});
    }
  }
}

TEST_CASE("model folder: variants' shards") {
  const TempDir dir;
  put(dir, "config.json", 0);
  REQUIRE(SafetensorsRecorder<>().save(Model{{1}}, dir / "model.fp16-00001-of-00002.safetensors"));
  struct Other {
    std::vector<float> bias;
  };
  REQUIRE(SafetensorsRecorder<>().save(Other{{2}}, dir / "model.fp16-00002-of-00002.safetensors"));
  stele_test::write_text(dir / "model.safetensors.index.fp16.json",
                         R"({"weight_map":{"weight":"model.fp16-00001-of-00002.safetensors",)"
                         R"("bias":"model.fp16-00002-of-00002.safetensors"}})");
  for (const std::string& path : {std::string(dir.path()), dir / "model.safetensors.index.fp16.json"}) {
    const auto opened = open(path);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    CHECK(opened->leaf_count() == 2);
  }
}

TEST_CASE("model folder: what is left open is an error that lists the choices") {
  struct Row {
    std::vector<std::string> names;
    std::string found, hint;
  };
  const Row rows[] = {
      {{"a-Q4.gguf", "b-Q8.gguf"}, "a-Q4.gguf, b-Q8.gguf", "a-Q4.gguf"},
      {{"config.json", "model.bf16.safetensors", "model.fp16.safetensors"},
       "model.bf16.safetensors, model.fp16.safetensors",
       "model.bf16.safetensors"},
      {{"a.safetensors", "b.pt"}, "a.safetensors, b.pt", "a.safetensors"},
      {{"model_index.json", "unet/model.safetensors", "vae/model.safetensors"}, "unet, vae", "unet"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.names);
    const TempDir dir;
    for (const std::string& name : row.names) put(dir, name, 1);
    const auto opened = open(dir.path());
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Errc::invalid_argument);
    CHECK(opened.error().found() == row.found);
    CHECK(opened.error().hint() == "name one of them, such as " + (dir / row.hint));
    CHECK(open(dir / row.hint));  // what the hint says works
  }
}

TEST_CASE("model folder: a pointer of git-lfs in place of a file is named") {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n";
  const std::string index = R"({"weight_map":{"weight":"model-00001-of-00001.safetensors"}})";
  const std::vector<std::vector<std::pair<std::string, std::string>>> folders = {
      {{"model.safetensors", pointer}, {"config.json", "{}"}},
      {{"pytorch_model.bin", pointer}, {"config.json", "{}"}},
      {{"m.gguf", pointer}},
      {{"m.onnx", pointer}},
      {{"model.safetensors.index.json", index}, {"model-00001-of-00001.safetensors", pointer}},
      {{"pytorch_model.bin.index.json", R"({"weight_map":{"weight":"x-00001-of-00001.bin"}})"},
       {"x-00001-of-00001.bin", pointer}},
  };
  for (const auto& files : folders) {
    CAPTURE(files.front().first);
    const TempDir dir;
    for (const auto& [name, text] : files) stele_test::write_text(dir / name, text);
    const auto opened = open(dir.path());
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Errc::unsupported);
    CHECK_MESSAGE(opened.error().found() == "a git-lfs pointer: run git lfs pull", opened.error().to_string());
  }
}

}  // namespace model_folder_test
