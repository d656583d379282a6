// Opens bytes as PyTorch's zip file, or as the pickle in one with three storages, and reads everything.
#include <span>

#include "pytorch.hpp"
#include "support/pytorch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele_test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("PK")) {
    read_pytorch(input);
  } else {
    namespace py = pytorch_files;
    read_pytorch(py::zipped(
        py::records(std::string(input), {{"data/0", py::eight}, {"data/1", std::string(96, '\1')}, {"data/2", ""}})));
  }
  return 0;
}
