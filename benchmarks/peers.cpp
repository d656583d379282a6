// Saves and loads models with stele, with cereal, and with plain system calls, on commands from benchmarks/peers.py:
// bench_peers LIBRARY WORKLOAD. Each line of the input is `save PATH` or `load PATH`; each answer is `= MILLISECONDS`.
// With the LIBRARY "shapes", prints the names and shapes for the programs in other languages.
#include <algorithm>
#include <cereal/archives/binary.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "limits.hpp"
#include "models.hpp"
#include "timing.hpp"

namespace {

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> data;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, shape, data);
  }
};

std::vector<Tensor> tensors_of(const stele::Snapshot& snapshot) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const stele::LeafView leaf = snapshot.leaf(i);
    Tensor tensor{leaf.path(), {leaf.shape().begin(), leaf.shape().end()}, std::vector<float>(leaf.size())};
    leaf.read(0, std::as_writable_bytes(std::span(tensor.data))).value();
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

stele::SaveOptions options() {
  stele::SaveOptions made;
  made.file.durability = stele::Durability::process;
  return made;
}

template <class Save, class Load>
void obey(Save save, Load load) {
  for (std::string order, path; std::cin >> order >> path;) {
    const double time =
        order == "save" ? milliseconds([&] { return save(path), 0; }) : milliseconds([&] { return load(path); });
    std::cout << "= " << time << std::endl;
  }
}

template <class Recorder, class M>
void obey_recorder(const M& model) {
  obey([&](const std::string& path) { Recorder().save(model, path, options()).value(); },
       [](const std::string& path) { return Recorder().template load<M>(path).value(); });
}

template <class M>
int run(const std::string& library, const M& model) {
  if (library == "stele") {
    obey_recorder<stele::BinaryRecorder<>>(model);
  } else if (library == "stele-safetensors") {
    obey_recorder<stele::SafetensorsRecorder<>>(model);
  } else if (library == "stele-pytorch") {
    obey_recorder<stele::PytorchRecorder<>>(model);
  } else if (library == "stele-npz") {
    obey_recorder<stele::NpzRecorder<>>(model);
  } else if (library == "shapes") {
    const stele::Snapshot snapshot = stele::snapshot_of(model).value();
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      std::cout << snapshot.leaf(i).path();
      for (const stele::Extent extent : snapshot.leaf(i).shape()) std::cout << ' ' << extent;
      std::cout << '\n';
    }
  } else if (library == "cereal") {
    const std::vector<Tensor> tensors = tensors_of(stele::snapshot_of(model).value());
    obey(
        [&](const std::string& path) {
          std::ofstream file(path, std::ios::binary);
          cereal::BinaryOutputArchive archive(file);
          archive(tensors);
        },
        [](const std::string& path) {
          std::ifstream file(path, std::ios::binary);
          cereal::BinaryInputArchive archive(file);
          std::vector<Tensor> loaded;
          archive(loaded);
          return loaded;
        });
  } else if (library == "limits") {
    const limits::FreshMemory memory(stele::snapshot_of(model)->byte_size());
    std::fill(memory.span().begin(), memory.span().end(), std::byte{1});
    obey([&](const std::string& path) { limits::write(path, memory.span()); },
         [&](const std::string& path) { return limits::read(path, memory.span().size(), 1); });
  } else {
    std::cerr << "unknown library " << library << '\n';
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && argv[2] == std::string("W1")) return run(argv[1], workload::gpt2());
  if (argc == 3 && argv[2] == std::string("W2")) return run(argv[1], workload::many(20000));
  std::cerr << "usage: bench_peers LIBRARY W1|W2\n";
  return 2;
}
