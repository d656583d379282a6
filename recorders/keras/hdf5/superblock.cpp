// Reads the superblock.
#include <algorithm>
#include <string>

#include "file.hpp"
#include "hdf5.hpp"

namespace stele::inline v0::detail::hdf5 {

Result<std::uint64_t> read_superblock(File& file) {
  Bytes buffer;
  const std::uint64_t size = std::min<std::uint64_t>(file.size(), 104);
  STELE_TRY_ASSIGN(const View bytes, file.read(0, size, buffer));
  if (!is_hdf5(bytes)) return Error(Errc::bad_magic, "the file is not an HDF5 file").offset(0);
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
  if (offset_size != 8 || length_size != 8 || base != 0) {
    return Error(Errc::unsupported, "the file's addresses or lengths do not have 8 bytes, or do not begin at 0")
        .offset(8);
  }
  if (end > file.size()) {
    return Error(Errc::truncated, "the file is shorter than its superblock declares")
        .expected(std::to_string(end) + " bytes")
        .found(std::to_string(file.size()));
  }
  return root;
}

}  // namespace stele::inline v0::detail::hdf5
