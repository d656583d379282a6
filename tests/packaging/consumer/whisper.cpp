// One recorder alone: models of whisper.cpp, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string_view>

#include "opened.hpp"

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
  check(opened, "w", {2.0F});
  return 0;
}
