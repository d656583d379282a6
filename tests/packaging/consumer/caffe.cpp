// One recorder alone: Caffe's files, which it only reads.
#include <stele/read_only.hpp>
#include <stele/recorders/read_only.hpp>

#include <concepts>
#include <span>
#include <string_view>

#include "opened.hpp"

namespace {

// A network with one layer `a` of the type Bias, whose blob has the element 1.
constexpr std::string_view network(
    "\xa2\x06\x16\x0a\x01"
    "a\x12\x04"
    "Bias\x3a\x0b\x2a\x04\x00\x00\x80\x3f\x3a\x03\x0a\x01\x01",
    25);

static_assert(std::derived_from<stele::CaffeFormat, stele::ReadOnlyFormat>);

}  // namespace

int main() {
  const stele::CaffeRecorder<> recorder;
  const stele::Snapshot all = recorder.open(std::as_bytes(std::span(network))).value();
  check(all, "a.0", {1.0F});
  return 0;
}
