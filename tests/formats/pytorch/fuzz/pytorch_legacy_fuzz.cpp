// Opens bytes as PyTorch's stream, and reads everything. Bytes without its number get it in front.
#include "pytorch.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace std::string_literals;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  if (input.starts_with(magic)) {
    stele_test::read_pytorch(input);
  } else {
    stele_test::read_pytorch(magic + "\x80\x02M\xe9\x03.\x80\x02}."s + std::string(input));
  }
  return 0;
}
