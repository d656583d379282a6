// Opens bytes as a model with a file of weights, and reads everything. The first four bytes are the size of the model;
// the weights follow it.
#include <stele/detail/little_endian.hpp>
#include <stele/recorders/read_only.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view input) {
  if (input.size() < 4) return;
  const std::string_view all = input.substr(4);
  const auto size = stele::detail::load_le<std::uint32_t>(bytes_of(input).data());
  const std::size_t split = std::min<std::size_t>(size, all.size());
  const auto files = files_of({{"m.mlmodel", all.substr(0, split)}, {"weights/weight.bin", all.substr(split)}});
  for (const char* const name : {"m.mlmodel", "weights/weight.bin"}) {
    read_small(stele::CoremlRecorder<>().open(files->open(name).value()));
  }
}
