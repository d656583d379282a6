// Opens bytes as a model of ncnn, a .param file that ends at the first zero byte and a .bin file after it; reads
// everything, loads modules.
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view bin = input.substr(std::min(end + 1, input.size()));
  const auto files = files_of({{"x.param", input.substr(0, end)}, {"x.bin", bin}});
  const auto opened = stele::NcnnRecorder<>().open(*files->open("x.param"));
  if (!opened) return;
  load_all(*opened);
  read_leaves(*opened, 4 * bin.size());  // an index of a codebook is one byte, its element four
}
