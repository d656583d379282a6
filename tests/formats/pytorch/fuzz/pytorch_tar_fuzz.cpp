// Opens bytes as PyTorch's tar file, or as the members of one, and reads everything. The first four bytes are the
// lengths of the members "storages" and "tensors".
#include <algorithm>

#include "pytorch.hpp"
#include "stele/detail/little_endian.hpp"
#include "support/pytorch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele_test;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.size() > 512 && input.substr(257, 5) == "ustar") {
    read_pytorch(input);
    return 0;
  }
  if (input.size() < 4) return 0;
  const auto* const lengths = reinterpret_cast<const std::byte*>(data);
  const std::size_t first = stele::detail::load_le<std::uint16_t>(lengths);
  const std::size_t second = stele::detail::load_le<std::uint16_t>(lengths + 2);
  input.remove_prefix(4);
  const auto next = [&](std::size_t length) {
    const std::string part(input.substr(0, length));
    input.remove_prefix(std::min(length, input.size()));
    return part;
  };
  const std::string storages = next(first), tensors = next(second);
  read_pytorch(pytorch_files::TarFile::packed(
      {{"sys_info", ""}, {"storages", storages}, {"tensors", tensors}, {"pickle", std::string(input)}}));
  return 0;
}
