// Opens bytes as an exported program of PyTorch, or as the list of weights in one, and reads everything.
#include "fuzz/pytorch.hpp"
#include "support/pytorch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele_test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("PK")) {
    read_pytorch(input);
  } else {
    read_pytorch(pytorch_files::zipped(pytorch_files::program(std::string(input))));
  }
  return 0;
}
