// One recorder alone: Orbax's checkpoints, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string_view>

#include "opened.hpp"

int main() {
  const auto files = stele::memory_bundle();
  put(*files, "_METADATA",
      R"json({"tree_metadata":{"('w',)":{"key_metadata":[{"key":"w","key_type":2}],)json"
      R"json("value_metadata":{"value_type":"np.ndarray","skip_deserialize":false}}}})json");
  put(*files, "w/.zarray",
      R"({"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|u1","order":"C","fill_value":null,)"
      R"("filters":null,"compressor":null})");
  put(*files, "w/0", "ab");
  const stele::OrbaxRecorder<> recorder;
  check(recorder.open(stele::bundle_source(files)).value(), "w", {'a', 'b'});
  return 0;
}
