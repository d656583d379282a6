// Opens bytes as an HDF5 file and as a model of Keras, reads everything, saves again.
#include <stele/recorders/keras.hpp>

#include "fuzz/target.hpp"

namespace {

using namespace stele_test;

template <class R>
void run(const R& recorder, std::string_view file) {
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return;
  load_all(*opened);
  // Elements that are not stored, and deflated ones.
  read_leaves(*opened, (std::uint64_t{16} << 20) + 1100 * file.size());
  const auto again = saved(recorder, *opened);
  if (!again) return;  // unreadable entries
  // Members that the first file had in another order are sorted in the second.
  const auto back = recorder.open(*again);
  require(back && saved(recorder, *back));
  save_again(recorder, *recorder.open(*saved(recorder, *back)), false);
}

}  // namespace

void stele_test::fuzz(std::string_view file) {
  run(stele::Hdf5Recorder<>(), file);
  run(stele::KerasRecorder<>(), file);
}
