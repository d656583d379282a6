// One recorder alone: TensorFlow's checkpoints, which it only reads.
#include <stele/bundle.hpp>
#include <stele/recorders/tensorflow.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>

#include "model.hpp"

namespace {

// Written by TensorFlow 2.21: tests/formats/tensorflow/data/one.*.
constexpr std::string_view index(
    "\x00\x00\x06\x08\x01\x1a\x02\x08\x01\x00\x01\x13\x77\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08"
    "\x03\x28\x18\x35\x3b\x28\xc2\x19\x00\x00\x00\x00\x01\x00\x00\x00\x00\x9b\x7a\xaf\x71\x00\x00\x00"
    "\x00\x01\x00\x00\x00\x00\xc0\xf2\xa1\xb0\x00\x01\x02\x78\x00\x28\x00\x00\x00\x00\x01\x00\x00\x00"
    "\x00\x94\x79\x82\x84\x2d\x08\x3a\x0e\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x57\xfb\x80"
    "\x8b\x24\x75\x47\xdb",
    125);
constexpr std::string_view data(
    "\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40\x00\x00\xc0\x40\x00\x00\xe0\x40", 24);

void put(stele::Bundle& files, std::string_view name, std::string_view content) {
  const auto file = files.create(name).value();
  file->write(std::as_bytes(std::span(content))).value();
  file->commit().value();
}

}  // namespace

int main() {
  const auto files = stele::memory_bundle();
  put(*files, "one.index", index);
  put(*files, "one.data-00000-of-00001", data);
  const stele::TensorBundleRecorder<> recorder;
  const stele::Checkpoint all = recorder.open_checkpoint(files->open("one.index").value()).value();
  const auto w = all.parameters.find("w");
  float elements[6]{};
  if (!w || !w->read(0, std::as_writable_bytes(std::span(elements)))) return EXIT_FAILURE;
  // Element k is k % 7 - 2 + 'w' % 5.
  for (int k = 0; k < 6; ++k) {
    if (elements[k] != static_cast<float>(k - 2 + 'w' % 5)) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
