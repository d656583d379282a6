// One recorder alone: Darknet's files, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>

#include "model.hpp"

namespace {

// Version 0.2.0, no images, then 0 and 1.
constexpr std::string_view weights(
    "\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x80\x3f",
    28);

}  // namespace

int main() {
  const stele::DarknetRecorder<> recorder(
      stele::DarknetFormat({.cfg = "[net]\ninputs=1\n[connected]\noutput=1\nactivation=linear\n"}));
  const stele::Snapshot all = recorder.open(std::as_bytes(std::span(weights))).value();
  const auto w = all.find("0.connected.weights");
  float element = 0;
  if (!w || !w->read(0, std::as_writable_bytes(std::span(&element, 1)))) return EXIT_FAILURE;
  return element == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
