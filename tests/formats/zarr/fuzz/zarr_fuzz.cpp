// Opens bytes as a folder of zarr in memory. Reads everything, saves again.
#include <stele/recorders/zarr.hpp>

#include "fuzz/target.hpp"

void stele_test::fuzz(std::string_view input) {
  const stele::ZarrRecorder<> recorder;
  const auto opened = recorder.open(stele::bundle_source(folder_of(input, [](std::string&) {})));
  // A few bytes may declare gigabytes of fill values.
  constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20;
  if (!opened || opened->byte_size() > max_bytes) return;
  read_leaves(*opened, max_bytes);
  const auto target = stele::memory_bundle();
  stele::SaveOptions options;
  options.allow_loss = true;
  if (!recorder.save(*opened, *stele::bundle_sink(target), options)) return;
  require(recorder.open(stele::bundle_source(target)).has_value());
}
