// Reads the superblock.
#include <algorithm>
#include <string>

#include "file.hpp"
#include "hdf5.hpp"

namespace stele::inline v0::detail::hdf5 {

Result<std::optional<std::uint64_t>> user_block(const Source& source) {
  std::byte bytes[signature.size()];
  for (std::uint64_t at = 0; at + sizeof bytes <= source.size(); at = at == 0 ? 512 : 2 * at) {
    STELE_TRY(source.read_at(at, bytes));
    if (is_hdf5(bytes)) return std::optional(at);
  }
  return std::optional<std::uint64_t>();
}

Result<std::uint64_t> read_superblock(File& file) {
  Bytes buffer;
  const std::uint64_t size = std::min<std::uint64_t>(file.size(), 104);
  STELE_TRY_ASSIGN(const View bytes, file.read(0, size, buffer));
  In in(bytes.subspan(signature.size()));
  const unsigned version = in.u8();
  unsigned offset_size = 0, length_size = 0;
  std::uint64_t base = 0, end = 0, root = 0;
  if (version <= 1) {
    in.take(4);
    offset_size = in.u8();
    length_size = in.u8();
    in.take(version == 0 ? 9 : 13);
    base = in.u64();
    in.u64();
    end = in.u64();
    in.take(16);
    root = in.u64();
  } else if (version <= 3) {
    offset_size = in.u8();
    length_size = in.u8();
    in.u8();
    base = in.u64();
    in.u64();
    end = in.u64();
    root = in.u64();
  } else {
    return Error(Errc::unsupported, "the superblock has an unknown version").found(std::to_string(version)).offset(8);
  }
  if (!in.ok()) return Error(Errc::truncated, "the superblock is incomplete").offset(bytes.size());
  if (offset_size != 8 || length_size != 8) {
    return Error(Errc::unsupported, "the file's addresses or lengths do not have 8 bytes").offset(8);
  }
  // Addresses count from the superblock. The end does not: it includes the user block that the file had when written.
  if (base > end) return bad("the file ends before its superblock", 8);
  end -= base;
  if (end > file.size()) {
    return Error(Errc::truncated, "the file is shorter than its superblock declares")
        .expected(std::to_string(end) + " bytes")
        .found(std::to_string(file.size()));
  }
  return root;
}

}  // namespace stele::inline v0::detail::hdf5
