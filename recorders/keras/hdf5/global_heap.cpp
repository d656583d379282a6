// Reads strings in global heaps.
#include "global_heap.hpp"

#include <algorithm>

namespace stele::inline v0::detail::hdf5 {

Result<std::string> GlobalHeap::text(View reference) {
  In in(reference);
  const std::uint64_t size = in.u32(), collection = in.u64();
  const std::uint32_t index = in.u32();
  if (size == 0 || collection == 0) return std::string();
  STELE_TRY_ASSIGN(const auto* objects, this->collection(collection));
  const auto found = objects->find(index);
  if (found == objects->end() || size > found->second.size) return bad("a text is not in its collection", collection);
  STELE_TRY(file_.take(size));
  Bytes buffer;
  STELE_TRY_ASSIGN(const View bytes, file_.read(found->second.offset, size, buffer));
  std::string_view content = text_of(bytes);
  if (content.ends_with('\0')) content.remove_suffix(1);  // some writers store the end
  return std::string(content);
}

Result<const GlobalHeap::Collection*> GlobalHeap::collection(std::uint64_t address) {
  const auto [at, added] = collections_.try_emplace(address);
  if (!added) return &at->second;
  Bytes buffer;
  STELE_TRY_ASSIGN(In head, file_.structure(address, 16, "GCOL", buffer));
  head.take(4);
  const std::uint64_t size = head.u64();
  if (size < 16 || size > file_.size() || address > file_.size() - size) {
    return bad("a collection of texts exceeds the file", address);
  }
  for (std::uint64_t offset = 16; size - offset >= 16;) {
    STELE_TRY_ASSIGN(const View bytes, file_.read(address + offset, 16, buffer));
    In in(bytes);
    const std::uint16_t index = in.u16();
    in.take(6);
    const std::uint64_t length = in.u64();
    if (index == 0) break;  // free space
    offset += 16;
    if (length > size - offset) return bad("a text exceeds its collection", address + offset);
    STELE_TRY(file_.take(64));
    at->second.emplace(index, Range{address + offset, length});
    offset = std::min(size, offset + (length + 7) / 8 * 8);
  }
  return &at->second;
}

}  // namespace stele::inline v0::detail::hdf5
