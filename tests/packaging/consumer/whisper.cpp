// One recorder alone: models of whisper.cpp, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>

#include "model.hpp"

namespace {

// A header with two mel bands and no tokens, and the tensor "w" of one f32.
constexpr std::string_view file(
    "lmgg\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0"
    "\x02\0\0\0\0\0\0\0\0\0\0\0"
    "\x01\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0w\0\0\0\x40",
    81);

}  // namespace

int main() {
  const stele::WhisperRecorder<> recorder;
  const stele::Snapshot opened = recorder.open(std::as_bytes(std::span(file))).value();
  const auto w = opened.find("w");
  float element[1]{};
  if (!w || !w->read(0, std::as_writable_bytes(std::span(element)))) return EXIT_FAILURE;
  return element[0] == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
