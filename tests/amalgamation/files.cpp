// Writes files and says what files have; compiled with the two files (TWO_FILES) and with the library, for a
// comparison.
//
//   files write FOLDER   writes the same model in each format
//   files read FILE...   prints each file's tensors, values and metadata, or why it does not open
#ifdef TWO_FILES
#include "stele.hpp"
#else
#include <stele/quantize.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/stele.hpp>
#endif

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

struct Block {
  stele::Tensor<float, 2> weight;
  std::vector<stele::float16> half;
};
struct Model {
  std::map<std::string, Block> blocks;
  stele::Tensor<std::int64_t, 1> counts;
  std::string name;
  double rate = 0;
};

Model made() {
  Model model;
  for (const char* name : {"a", "b"}) {
    Block& block = model.blocks[name];
    block.weight = stele::Tensor<float, 2>::zeros({8, 256});
    for (std::size_t i = 0; i < 8 * 256; ++i)
      block.weight.data()[i] = static_cast<float>((i * 2654435761U) % 1001) / 500 - 1;
    block.half.assign(33, stele::float16(0.25F));
  }
  model.counts = stele::Tensor<std::int64_t, 1>::zeros({5});
  for (int i = 0; i < 5; ++i) model.counts.data()[i] = i * i - 3;
  model.name = "two files";
  model.rate = 0.1;
  return model;
}

int report(const stele::Error& error) {
  std::printf("  error %d: %.*s\n", static_cast<int>(error.code()), static_cast<int>(error.message().size()),
              error.message().data());
  return 1;
}

int write(const std::string& folder) {
  const Model model = made();
  int failures = 0;
  const auto save = [&](const char* name, const stele::SaveOptions& options = {}) {
    if (auto saved = stele::save(model, folder + "/" + name, options); !saved) failures += report(saved.error());
  };
  save("model.stele");
  save("model.json");
  stele::SaveOptions lossy;
  lossy.allow_loss = true;
  for (const char* name : {"model.safetensors", "model.npz", "model.gguf"}) save(name, lossy);
  for (const stele::DType dtype : {stele::DType::f16, stele::DType::bf16}) {
    lossy.precision = dtype;
    const std::string name(stele::name(dtype));
    save((name + ".safetensors").c_str(), lossy);
    save((name + ".npz").c_str(), lossy);
  }
  // Every encoder of blocks.
  for (const stele::DType dtype :
       {stele::DType::q4_0, stele::DType::q5_1, stele::DType::q8_0, stele::DType::q2_k, stele::DType::q3_k,
        stele::DType::q4_k, stele::DType::q5_k, stele::DType::q6_k, stele::DType::iq4_nl, stele::DType::tq1_0,
        stele::DType::tq2_0, stele::DType::mxfp4}) {
    const stele::BlockRule rules[] = {{"*", dtype}};
    lossy.precision = {};
    lossy.precision.block_rules = rules;
    save((std::string(stele::name(dtype)) + ".gguf").c_str(), lossy);
  }
  return failures;
}

std::uint64_t hash_of(const std::byte* bytes, std::size_t size, std::uint64_t hash) {
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ std::to_integer<std::uint64_t>(bytes[i])) * 0x100000001b3U;
  return hash;
}

void read(const std::string& path) {
  std::printf("== %s\n", path.c_str());
  auto opened = stele::open(path);
  if (!opened) {
    report(opened.error());
    return;
  }
  std::fputs(stele::summary(*opened).c_str(), stdout);
  stele::ReadContext context;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const stele::LeafView leaf = opened->leaf(i);
    stele::Bytes bytes(static_cast<std::size_t>(leaf.byte_size()));
    if (auto status = leaf.read(0, bytes.span(), context); !status) {
      report(status.error());
    } else {
      std::printf("  %zu: %016llx\n", i,
                  static_cast<unsigned long long>(hash_of(bytes.data(), bytes.size(), 0xcbf29ce484222325U)));
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  if (what == "write") return write(arguments[2]);
  if (what != "read") return 2;
  for (int i = 2; i < count; ++i) read(arguments[i]);
  return 0;
}
