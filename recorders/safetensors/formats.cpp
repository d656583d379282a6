#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::detail {

FormatFamily safetensors_formats() {
  static const SafetensorsFormat file;
  static const ShardedSafetensorsFormat shards;
  static const FormatFamily::Member members[] = {{&file, {".safetensors"}}, {&shards, {".safetensors.index.json"}}};
  return {.title = "safetensors",
          .folder = "safetensors",
          .recorders = "SafetensorsRecorder, ShardedSafetensorsRecorder",
          .header = "recorders/safetensors.hpp",
          .files = "`.safetensors`; several files with `.safetensors.index.json`",
          .holds = "parameters; values and ties as metadata; distributed checkpoints in a folder: only read",
          .members = members};
}

}  // namespace stele::inline v0::detail
