// One recorder alone: Orbax's checkpoints, which it only reads.
#include <stele/bundle.hpp>
#include <stele/recorders/read_only.hpp>

#include <cstdlib>
#include <span>
#include <string_view>

namespace {

void put(stele::Bundle& files, std::string_view name, std::string_view content) {
  const auto file = files.create(name).value();
  file->write(std::as_bytes(std::span(content))).value();
  file->commit().value();
}

}  // namespace

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
  const auto opened = recorder.open(stele::bundle_source(files)).value();
  const auto w = opened.find("w");
  char elements[2]{};
  if (!w || !w->read(0, std::as_writable_bytes(std::span(elements)))) return EXIT_FAILURE;
  return elements[1] == 'b' ? EXIT_SUCCESS : EXIT_FAILURE;
}
