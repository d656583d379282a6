// For check_onnx.py.
//
//   copy IN OUT     the initializers of IN as a new model
//   into IN OUT     the initializers of IN into IN
//   train IN OUT    the golden mlp.onnx, with 1 added to each weight
#include <stele/recorders/any.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/stele.hpp>

#include <cstdio>
#include <map>
#include <string>

namespace {

struct Layer {
  stele::Tensor<float, 2> weight;
};
struct Network {
  std::map<std::string, Layer> net;
};

stele::Result<stele::Report> run(const std::string& command, const std::string& in, const std::string& out) {
  const stele::OnnxRecorder<> into(stele::OnnxFormat({.model = in}));
  if (command == "copy" || command == "into") {
    STELE_TRY_ASSIGN(const stele::Snapshot file, stele::open(in));
    return command == "copy" ? stele::save(file, out) : into.record(file, out);
  }
  stele::LoadOptions some;
  some.allow_unused = {"*"};
  STELE_TRY_ASSIGN(Network network, stele::load<Network>(in, some));
  for (auto& [name, layer] : network.net) {
    for (std::size_t i = 0; i < layer.weight.size(); ++i) layer.weight.data()[i] += 1;
  }
  return into.record(network, out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto done = run(argv[1], argv[2], argv[3]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
