// Reads bytes as the manifest of a step, without its checksum; checks that it is the same after writing and reading.
#include <cstdint>
#include <string>

#include "checkpoints/manifest.hpp"
#include "fuzz/require.hpp"
#include "json/sealed.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stele::detail::steps;
  using stele_test::require;
  std::string text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_manifest(text));
  stele::detail::json::seal(text);
  const auto manifest = parse_manifest(text);
  if (!manifest) return 0;
  const auto again = to_text(*manifest);
  if (!again) return 0;  // values nested too deeply, or two equal keys
  const auto back = parse_manifest(*again);
  require(back.has_value() && back->files.size() == manifest->files.size());
  require(to_text(*back).value() == *again);
  return 0;
}
