// Opens bytes as an exported program of PyTorch, or as the list of weights in one that has two floats (weight_0) and a
// file of torch.save (weight_1), and reads everything.
#include "pytorch.hpp"
#include "support/pytorch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele_test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("PK")) {
    read_pytorch(input);
  } else {
    namespace py = pytorch_files;
    static const std::string saved = py::zip_file(py::floats());
    read_pytorch(py::zipped(py::program(std::string(input), {{"data/weights/weight_0", py::eight},  //
                                                             {"data/weights/weight_1", saved}})));
  }
  return 0;
}
