// Reads bytes as the manifest of an SDNB file; what was read is written, and reads as the same.
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/require.hpp"
#include "recorders/samediff/manifest.hpp"

namespace {

using stele_test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele::detail::samediff;
  const auto entries = parse_manifest(std::as_bytes(std::span(data, size)), 64 * size);
  if (!entries) {
    const auto at = entries.error().offset();
    require(at.has_value() && *at <= size);
    return 0;
  }
  const std::string bytes = make_manifest(*entries);
  const auto again = parse_manifest(std::as_bytes(std::span(bytes)), UINT64_MAX);
  require(again.has_value() && *again == *entries);
  require(make_manifest(*again) == bytes);
  return 0;
}
