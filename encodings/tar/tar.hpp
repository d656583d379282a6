// Tar archives as Bundles, plain or compressed by gzip: a reader for untrusted input, and a writer that writes equal
// bytes for equal files.
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
// Own code: no library returns the position of a file's bytes and can read a compressed archive at any position
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

/// Opens the regular files of a tar archive, plain or gzip (if it begins with 1f 8b), as a read-only Bundle (writing is
/// unsupported). A file's Source is a part of the archive's Source, with its view(). A gzip archive is inflated as it
/// is read, from the nearest earlier one of about 256 kept states. Opening reads only the headers; for gzip, it reads
/// the whole archive and keeps only these states. Memory is bounded as for every format (limit): docs/faults.md.
///
/// Names follow the rules of Bundle, without a leading "./". Errors for the files:
/// - malformed: a name with an empty part, `.`, `..`, a backslash or a NUL, with more than 64 parts, or an absolute
/// path; a file with the name of another file's folder
/// - duplicate: two files with the same name
/// - unsupported: links, devices, sparse files and other types; the error has the file's name
/// Errors for the headers:
/// - checksum: the checksum, of signed or unsigned bytes, differs; bad_magic if the first header is invalid
/// - malformed: invalid numbers, folders with data, a name or size for all following files, two extended headers for
/// one file, an extended header without a file
/// - limit: an extended header with more than 1 MiB of data, more than 1,000,000 files and folders
/// Errors for the end:
/// - truncated: an archive or gzip data without its end
/// - malformed: bytes other than zeros, or more than 1 MiB of zeros, after the end
/// Other errors: io. Offsets in errors count the inflated bytes, unless gzip itself is damaged.
Result<std::shared_ptr<const Bundle>> open(SourcePtr source, const Limits& limits = {});

/// Number of bytes that looks_like_tar() needs.
inline constexpr std::size_t head_size = 263;

/// Returns true if `head` is the beginning of a POSIX or GNU tar archive. Does not recognise v7 archives.
bool looks_like_tar(std::span<const std::byte> head) noexcept;

/// Writes a tar archive forward: files of mode 0644, without times, users and folders. The bytes depend only on names,
/// sizes and contents. Not thread-safe.
class Writer final : public Bundle, public std::enable_shared_from_this<Writer> {
 public:
  /// The sink must outlive the writer and its files. The caller commits the sink after finish(). Files know their
  /// bundle if a shared pointer owns the writer. `gzip`: level 6, a header without name and time. Throws
  /// std::bad_alloc.
  explicit Writer(Sink& sink, bool gzip);
  ~Writer() override;

  /// Returns unsupported, because the archive cannot be read back.
  Result<SourcePtr> open(std::string_view name) const override;
  /// Creates a file, one at a time. The caller calls reserve() before the first write with exactly the number of bytes
  /// (an empty file needs no call); commit() ends the file. If reserve() is not followed by commit(), the archive
  /// cannot be finished. Errors: invalid_argument (a name that the reader refuses, or that is already a file or a
  /// folder; another file is still open; after finish()), not_found (a file is in place of a folder). Errors of the
  /// file's sink: invalid_argument (fewer or more bytes than reserve() announced, no call of reserve() or two), io and
  /// other errors of the sink below.
  Result<std::unique_ptr<Sink>> create(std::string_view name) override;
  /// Returns true if the name has been created, or is the folder of a created file.
  Result<bool> contains(std::string_view name) const override;
  /// Does nothing, because written bytes cannot be removed.
  void remove(std::string_view name) noexcept override;
  Result<std::vector<std::string>> names() const override;

  /// Writes the end of the archive, and of gzip. Errors: invalid_argument (a file is still open, a second call), those
  /// of the sink and of failed files.
  Status finish();

 private:
  class State;
  class Folder;
  class File;
  std::shared_ptr<State> state_;
};

}  // namespace stele::inline v0::detail::tar
