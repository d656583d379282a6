// Tar archives as Bundles, plain or compressed by gzip: a reader that trusts no input, a writer of equal bytes for
// equal files.
//
//  1. for each file a header of 512 bytes: 0 name[100], 100 mode[8], 108 uid[8], 116 gid[8], 124 size[12],
//     136 mtime[12], 148 checksum[8], 156 type, 157 link[100], 257 magic[6], 263 version[2], 265 user[32],
//     297 group[32], 329 major[8], 337 minor[8], 345 prefix[155]; after it the data, filled up to a multiple of 512
//     bytes
//  2. numbers are octal digits up to a blank, a NUL or the end of the field; or, if the first byte is 0x80, 88 bits in
//     base 256, the most significant first (GNU). The checksum is the sum of the header's bytes, with its own bytes
//     counted as blanks
//  3. magic and version: "ustar" NUL "00" (POSIX: the name is prefix "/" name), "ustar" and two blanks and NUL (GNU: no
//     prefix), other bytes (v7: no prefix). A name fills its field, or ends at a NUL
//  4. type: "0", NUL, "7" a file; "5", or a file's name that ends with a slash, a folder; "1" a hard and "2" a symbolic
//     link, "3", "4" and "6" devices and FIFOs, "S" a sparse file; others
//  5. type "x": data with properties of the next file, "LENGTH KEY=VALUE\n" each; LENGTH counts the whole record. path
//     and size override those of the header. Type "g": properties of all following files
//  6. types "L" and "K": data with the next file's name, or a link's target, and a NUL (GNU)
//  7. the end: two blocks of zeros, and zeros up to the size of a record (mostly 20 blocks)
// Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; the manual of GNU tar 1.34,
// "Basic Tar Format". Gzip: encodings/gzip/gzip.hpp.
//
// Own code: no library gives the position of a file's bytes and reads a compressed archive at any position
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

namespace stele::inline v0::detail::tar {

/// Opens the regular files of a tar archive, plain or in gzip (if it begins with 1f 8b), as a Bundle that cannot be
/// written to (unsupported). A file's Source is a part of the archive's, with its view(). In gzip it is inflated as it
/// is read, from the nearest earlier one of some 256 kept states. Opening reads only the headers; of gzip it reads
/// everything, and keeps only these states. Memory is bounded as for every format (limit): docs/faults.md.
///
/// Names are those of Bundle, without a leading "./". Errors for the files:
/// - malformed: a name with an empty part, `.`, `..`, a backslash or a NUL, with more than 64 parts, or an absolute
/// one;
///   a file with the name of another's folder
/// - duplicate: two files of one name
/// - unsupported: links, devices, sparse files and other types, each with its name
/// Errors for the headers:
/// - checksum: the checksum, of signed or unsigned bytes, differs; bad_magic if the first header is invalid
/// - malformed: invalid numbers, folders with data, a name or size for all following files, two headers with properties
///   of one file, properties without a file
/// - limit: data of more than 1 MiB in a header, more than 1,000,000 files and folders
/// Errors for the end:
/// - truncated: an archive, or gzip, without its end
/// - malformed: bytes other than zeros, or more than 1 MiB of zeros, after the end
/// Other errors: io. Offsets in errors count the inflated bytes, unless gzip itself is damaged.
Result<std::shared_ptr<const Bundle>> open(SourcePtr source, const Limits& limits = {});

/// Number of bytes that looks_like_tar() needs.
inline constexpr std::size_t head_size = 263;

/// Returns true if bytes that begin with `head` are a tar archive of POSIX or GNU. Does not recognise v7 archives.
bool looks_like_tar(std::span<const std::byte> head) noexcept;

/// Writes a tar archive forward: files of mode 0644, no times, no users, no folders. The bytes depend only on names,
/// sizes and content. Not shared between threads.
class Writer final : public Bundle, public std::enable_shared_from_this<Writer> {
 public:
  /// The sink must outlive the writer and its files. The caller commits it after finish(). Files know their bundle if a
  /// shared pointer owns the writer. `gzip`: level 6, a header without name and time. Throws std::bad_alloc.
  explicit Writer(Sink& sink, bool gzip);
  ~Writer() override;

  /// Returns unsupported: the archive cannot be read back.
  Result<SourcePtr> open(std::string_view name) const override;
  /// Creates a file, one at a time. Call reserve() before the first write, with exactly the number of bytes (an empty
  /// file needs no call); commit() ends the file. After reserve() without commit(), the archive cannot be finished.
  /// Errors: invalid_argument (a name that the reader refuses, that of another file or a folder; another file that is
  /// not ended; after finish()), not_found (a file where a folder should be). Errors of the file's sink:
  /// invalid_argument (fewer or more bytes than reserve() announced, no or two calls of it), io and others of the sink
  /// below.
  Result<std::unique_ptr<Sink>> create(std::string_view name) override;
  /// Returns true if the name has been created, or is the folder of a created file.
  Result<bool> contains(std::string_view name) const override;
  /// Does nothing: written bytes stay.
  void remove(std::string_view name) noexcept override;
  Result<std::vector<std::string>> names() const override;

  /// Writes the end of the archive, and of gzip. Errors: invalid_argument (a file that is not ended, a second call),
  /// those of the sink and of files that failed.
  Status finish();

 private:
  class State;
  class Folder;
  class File;
  std::shared_ptr<State> state_;
};

}  // namespace stele::inline v0::detail::tar
