// One recorder alone: .stele, on the host and by the reader and writer that need no heap.
#include <cstddef>

#include <stele/recorders/binary.hpp>
#include <stele/recorders/stele_reader.hpp>
#include <stele/recorders/stele_writer.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  const stele::BytesRecorder<> recorder;
  const stele::Bytes bytes = recorder.save(model).value();
  check(recorder.load<Model>(bytes.span()).value(), "binary.hpp");
  stele::format::MemoryFile file;
  if (file.open(bytes.span()) || file.index().entries() != 2) return 1;
  std::size_t size = 0;
  if (stele::written_size(Linear(4, 3, 0.5F), size) || size == 0) return 1;
  stele::CompressedRecorder<>().save(model, "one.stele").value();
  check(stele::BinaryRecorder<>().load<Model>("one.stele").value(), "compressed");
  return 0;
}
