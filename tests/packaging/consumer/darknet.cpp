// One recorder alone: Darknet's files, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string_view>

#include "opened.hpp"

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
  check(all, "0.connected.weights", {1.0F});
  return 0;
}
