// Opens bytes as a .stele file, as they are and with all hashes made right; reads everything, loads modules, saves
// again.
#include <cstdint>
#include <string>

#include "base/hash.hpp"
#include "fuzz/records.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "support/stele_file.hpp"

namespace {

using namespace stele;
using namespace stele_test;

std::uint64_t hash(const void* data, std::size_t size) { return detail::hash64(data, size); }

/// Corrects every hash of the file, and those of the tensors that can be found.
void fix(std::string& file) {
  fix_hashes(file);
  format::MemoryFile memory;
  if (memory.open(bytes_of(file))) return;
  const format::Index index = memory.index();
  format::TensorBytes tensor;
  for (std::uint32_t i = 0; i < index.entries(); ++i) {
    if (memory.tensor(i, tensor)) continue;
    put_at(file, static_cast<std::size_t>(index.entry_offset(i)) + 24, hash(tensor.bytes.data(), tensor.bytes.size()));
  }
  fix_hashes(file);
  // The elements of compressed tensors are known only when the rest is right.
  const std::string before = file;
  const auto opened = BinaryRecorder<>().open(bytes_of(before));
  if (!opened) return;
  for (std::uint32_t i = 0; i < index.entries(); ++i) {
    if (memory.tensor(i, tensor).code != Errc::unsupported) continue;
    const auto leaf = opened->find(tensor.entry.name);
    std::string plain(leaf ? static_cast<std::size_t>(std::min<std::uint64_t>(leaf->byte_size(), 1 << 22)) : 0, '\0');
    if (!leaf || !leaf->read(0, std::as_writable_bytes(std::span(plain)))) continue;
    const auto at = static_cast<std::size_t>(index.entry_offset(i));
    put_at(file, at + 24, hash(plain.data(), plain.size()));
    const auto block = bytes_of(before).subspan(static_cast<std::size_t>(tensor.entry.offset),
                                                static_cast<std::size_t>(tensor.entry.stored));
    put_at(file, static_cast<std::size_t>(index.stored_offset(i)) + 8, hash(block.data(), block.size()));
  }
  fix_hashes(file);
}

void check(std::string_view file) {
  const BinaryRecorder<> recorder;
  format::MemoryFile memory;
  const bool good = !memory.open(bytes_of(file), hash);
  format::TensorBytes tensor;
  for (std::uint32_t i = 0; good && i < memory.index().entries(); ++i)
    static_cast<void>(memory.tensor(i, tensor, hash));

  auto opened = recorder.open(bytes_of(file));
  if (!opened || opened->metadata().contains("stele.delta")) return;  // a delta: delta_fuzz
  require(good);
  const bool agree = composites_agree(*opened);
  opened = split_composites(*opened);
  load_leniently(*opened);

  bool whole = true;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    whole = whole && all && means_something(leaf.dtype(), *all);
    if (all && !leaf.view().empty()) require(text_of(leaf.view()) == *all);
    const format::Fault fault = memory.tensor(leaf.path(), tensor);
    require(!fault || (fault.code == Errc::unsupported && tensor.entry.stored != 0));
    if (all && !fault) require(text_of(tensor.bytes) == *all);
    std::string read(static_cast<std::size_t>(std::min<std::uint64_t>(leaf.byte_size(), 1 << 22)), '\0');
    const Status part = leaf.read(0, std::as_writable_bytes(std::span(read)));
    if (all) require(part && all->starts_with(read));
  }
  require(recorder.verify(bytes_of(file)).has_value() == (whole && agree));
  if (!whole) return;
  const auto again = saved(recorder, *opened);
  require(again.has_value());
  auto back = recorder.open(*again);
  require(back.has_value());
  back = split_composites(*back);
  require(back && back->leaf_count() == opened->leaf_count() && back->nodes().size() == opened->nodes().size());
  const auto twice = saved(recorder, *back);
  require(twice && text_of(twice->span()) == text_of(again->span()));
  static_cast<void>(saved(SafetensorsRecorder<>(), *opened));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  fix(file);
  check(file);
  return 0;
}
