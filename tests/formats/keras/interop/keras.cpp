// Converts the layers of a Keras file to PyTorch's, and the reverse, for `make interop-keras`.
//
//     interop_keras to FILE.keras OUT.safetensors
//     interop_keras from STATE.safetensors FILE.keras OUT.keras
#include <stele/stele.hpp>
#include <stele/transforms/keras.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

stele::Result<stele::Report> run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "to") {
    STELE_TRY_ASSIGN(const stele::Snapshot file, stele::open(arguments[1]));
    STELE_TRY_ASSIGN(const stele::Snapshot state, stele::keras::to_pytorch(file));
    return stele::save(state, arguments[2]);
  }
  if (arguments.size() == 4 && arguments[0] == "from") {
    STELE_TRY_ASSIGN(const stele::Snapshot state, stele::open(arguments[1]));
    STELE_TRY_ASSIGN(const stele::Snapshot file, stele::open(arguments[2]));
    STELE_TRY_ASSIGN(const stele::Snapshot model, stele::keras::from_pytorch(state, file));
    return stele::save(model, arguments[3]);
  }
  return stele::Error(stele::Errc::invalid_argument, "wrong arguments");
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run({argv + 1, argv + argc});
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return 1;
}
