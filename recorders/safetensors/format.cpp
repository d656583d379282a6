// The row of the format, and its capabilities.
#include "stele/recorders/safetensors.hpp"

#include "encodings/safetensors/file.hpp"

namespace stele::inline v0 {

const Capabilities& SafetensorsFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true, .aliases = true, .metadata = true, .composites = true, .holds = detail::safetensors::holds};
  return can;
}

const Capabilities& ShardedSafetensorsFormat::capabilities() const noexcept {
  return SafetensorsFormat().capabilities();
}

namespace detail {

FormatFamily safetensors_formats() {
  static const SafetensorsFormat file;
  static const ShardedSafetensorsFormat shards;
  static const HubFormat hub;  // before the shards: it recognises more of a folder
  static const FormatFamily::Member members[] = {
      {&file, {".safetensors"}}, {&hub, {}}, {&shards, {".safetensors.index.json"}}};
  return {.title = "safetensors",
          .folder = "safetensors",
          .recorders = "SafetensorsRecorder, ShardedSafetensorsRecorder, HubRecorder",
          .header = "recorders/safetensors.hpp",
          .files = "`.safetensors`; several files with `.safetensors.index.json`; folders of the Hugging Face hub",
          .holds = "parameters; values and ties as metadata; distributed checkpoints in a folder: only read",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
