// Opens bytes as an HDF5 file and as a model of Keras, reads everything, saves again.
#include <stele/recorders/keras.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

using namespace stele;
using namespace stele_test;

namespace {

template <class R>
void run(const R& recorder, std::string_view file) {
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  const LoadOptions options = lenient();
  static_cast<void>(load<std::map<std::string, Tensor<float>>>(*opened, options));
  static_cast<void>(load<Branch>(*opened, options));
  // Elements that are not stored, and deflated ones.
  read_leaves(*opened, (std::uint64_t{16} << 20) + 1100 * file.size());
  const auto again = saved(recorder, *opened);
  if (!again) return;  // unreadable entries
  // Members that the first file had in another order are sorted in the second.
  const auto back = recorder.open(*again);
  require(back.has_value());
  const auto twice = saved(recorder, *back);
  require(twice.has_value());
  const auto sorted = recorder.open(*twice);
  require(sorted.has_value());
  const auto thrice = saved(recorder, *sorted);
  require(thrice && text_of(thrice->span()) == text_of(twice->span()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  run(Hdf5Recorder<>(), file);
  run(KerasRecorder<>(), file);
  return 0;
}
