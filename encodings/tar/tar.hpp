// Tar archives as Bundles, plain or compressed by gzip: a reader that trusts nothing, a writer of equal bytes for equal
// files.
//
//  1. for each file a header of 512 bytes: 0 name[100], 100 mode[8], 108 uid[8], 116 gid[8], 124 size[12], 136
//  mtime[12],
//     148 checksum[8], 156 type, 157 link[100], 257 magic[6], 263 version[2], 265 user[32], 297 group[32], 329
//     major[8], 337 minor[8], 345 prefix[155]; behind it the data, filled up to a multiple of 512 bytes
//  2. numbers are octal digits that a blank, a NUL or the field ends; or, the first byte being 0x80, 88 bits in base
//  256,
//     the most significant first (GNU). The checksum is the sum of the header's bytes, its own taken for blanks
//  3. magic and version: "ustar" NUL "00" (POSIX: the name is prefix "/" name), "ustar" and two blanks and NUL (GNU: no
//     prefix), anything else (v7: no prefix). A name is all of its field, or ends at a NUL
//  4. type: "0", NUL, "7" a file; "5", or a file's name that ends with a slash, a folder; "1" a hard and "2" a symbolic
//     link, "3", "4" and "6" devices and FIFOs, "S" a sparse file; others
//  5. type "x": data that say more of the next file, "LENGTH KEY=VALUE\n" each, LENGTH counting all of that; path and
//     size go before those of the header. Type "g": the same for all that follow
//  6. types "L" and "K": data that are the next file's name, or a link's target, and a NUL (GNU)
//  7. the end: two blocks of zeros, and zeros up to the size of a record (20 blocks, mostly)
// Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; the manual of GNU tar 1.34,
// "Basic Tar Format". Gzip: encodings/gzip/gzip.hpp.
//
// Own code: no library says where a file's bytes lie and reads a compressed archive at any place
// (docs/dependencies.md).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/bundle.hpp"
#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace tar {

/// The regular files of a tar archive, plain or in gzip (whatever begins with 1f 8b), as a Bundle that cannot be
/// written to (unsupported). A file's Source is a part of the archive's, with its view(); in gzip it is inflated as it
/// is read, from the last of some 256 kept states on. Opening reads the headers alone; of gzip everything, and keeps
/// nothing but these states. Memory is bounded as for every format (limit): docs/faults.md.
///
/// Names are those of Bundle; "./" in front is taken away. Refused: a name with an empty part, `.`, `..`, a backslash
/// or a NUL, with more than 64 parts, and an absolute one (malformed); two files of one name (duplicate), a file of the
/// name of another's folder (malformed); links, devices, sparse files and other types (unsupported), each with its
/// name; a header whose checksum, of bytes with or without a sign, is another (checksum; bad_magic where the first one
/// is no header at all); numbers that are none, folders with data, a name or size for all that follow, two sets of more
/// for one file, more without a file (malformed); a header's data of more than 1 MiB, more than 1,000,000 files and
/// folders (limit); an archive, or gzip, without its end (truncated); other than zeros, or more than 1 MiB of them,
/// behind it (malformed). Offsets in errors count the inflated bytes, where gzip itself is not what is damaged. Errors:
/// io, and the above.
Result<std::shared_ptr<const Bundle>> open(SourcePtr source, const Limits& limits = {});

/// Bytes that looks_like_tar() needs.
inline constexpr std::size_t head_size = 263;

/// Returns true if bytes that begin with `head` are a tar archive of POSIX or GNU; one of v7 cannot be told.
bool looks_like_tar(std::span<const std::byte> head) noexcept;

/// Writes a tar archive forward: files of mode 0644, no times, no users, no folders. The bytes follow from names, sizes
/// and content alone. Not shared between threads.
class Writer final : public Bundle, public std::enable_shared_from_this<Writer> {
 public:
  /// The sink outlives the writer and its files; who made it commits it behind finish(). Files know their bundle where
  /// a shared pointer has the writer. `gzip`: level 6, a header without name and time. Throws std::bad_alloc.
  explicit Writer(Sink& sink, bool gzip);
  ~Writer() override;

  /// Nothing can be read back: unsupported.
  Result<SourcePtr> open(std::string_view name) const override;
  /// A file, one at a time: reserve() comes before the first write and says exactly how many bytes there will be (an
  /// empty file needs none); commit() ends it. Without commit, once reserve() was called, the archive cannot be
  /// finished. Errors: invalid_argument (a name that the reader refuses, that of another file or a folder; another file
  /// that is not ended; after finish()), not_found (a file where a folder should be); of the sink: invalid_argument
  /// (fewer or more bytes than reserve() said, no or two calls of it), io and others of the sink below.
  Result<std::unique_ptr<Sink>> create(std::string_view name) override;
  /// Whether it has been created, or is the folder of what has.
  Result<bool> contains(std::string_view name) const override;
  /// Nothing: what is written stays.
  void remove(std::string_view name) noexcept override;
  Result<std::vector<std::string>> names() const override;

  /// The end of the archive, and of gzip. Errors: invalid_argument (a file that is not ended, a second call), those of
  /// the sink and of files that failed.
  Status finish();

 private:
  class State;
  class Folder;
  class File;
  std::shared_ptr<State> state_;
};

}  // namespace tar
}  // namespace detail
}  // namespace v0
}  // namespace stele
