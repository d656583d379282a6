// Reads large leaves of files past the cache of files.
#include "leaves/uncached_reads.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace stele::inline v0::detail {
namespace {

constexpr std::size_t block_alignment = os::uncached_alignment;
// Bytes of one read: large enough for the bandwidth of fast storage with a few threads, small enough that a hash finds
// them in the processor's cache.
constexpr std::size_t room = std::size_t{1} << 20;
// Memory of `room` bytes holds an aligned read that contains this many bytes, at any offset. A multiple of 64.
constexpr std::size_t max_part = room - 3 * block_alignment;

}  // namespace

void UncachedReads::open(const Source& source) {
  if (source_ == &source) return;
  source_ = &source;
  cached_from_ = cached_to_ = 0;
  const os::File* const file = source.file();
  file_ = file != nullptr ? os::open_uncached(*file) : os::File();
}

std::span<const std::byte> UncachedReads::read(const Source& source, std::uint64_t offset, std::uint64_t size,
                                               PieceSink& sink) {
  if (cached_from_ <= offset && offset < cached_to_ && source_ == &source) return {};
  open(source);
  if (!file_.is_open()) return {};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size, max_part));
  if (os::is_cached(file_, offset, n)) {
    cached_from_ = offset;
    cached_to_ = offset + n;
    return {};
  }
  std::span<std::byte> memory = sink.room(room);
  if (memory.empty()) {
    if (memory_.empty()) memory_ = Bytes(room);
    memory = memory_.span();
  }
  void* aligned = memory.data();
  std::size_t left = memory.size();
  if (std::align(block_alignment, room - block_alignment, aligned, left) == nullptr) return {};
  auto* const data = static_cast<std::byte*>(aligned);
  const auto before = static_cast<std::size_t>(offset % block_alignment);
  const std::size_t all = (before + n + block_alignment - 1) / block_alignment * block_alignment;
  if (os::read_uncached(file_, offset - before, {data, all}) < before + n) {
    file_ = os::File();  // the file has shrunk, the storage wants another alignment, or it failed
    return {};
  }
  return {data + before, n};
}

}  // namespace stele::inline v0::detail
