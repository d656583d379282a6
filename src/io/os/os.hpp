// The only component that calls the operating system. Its thin functions retry interrupted calls, complete partial
// ones, and return errors with the file's name and the system's message. Sources: linux/, macos/ and portable/ (for all
// others), whose common code is in posix/, and windows/. docs/faults.md lists the guarantees that a system lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/result.hpp"

#ifndef STELE_MMAP
#define STELE_MMAP 1
#endif

namespace stele::inline v0::detail {

/// Calls guarded() and adds the name `file` to errors.
template <class Body>
auto guarded(std::string_view file, Body&& body) -> decltype(body()) {
  auto result = guarded(std::forward<Body>(body));
  if (result || !result.error().file().empty()) return result;
  std::string name;  // remains empty if memory runs out
  static_cast<void>(guarded([&]() -> Status {
    name = file;
    return {};
  }));
  return std::move(result).error().file(name);
}

inline Error target_exists(const std::string& name) {
  return Error(Errc::exists, "the target already exists").file(name);
}
inline Error not_in_one_step(const std::string& name) {
  return Error(Errc::exists, "the folder exists and cannot be replaced in one step")
      .file(name)
      .hint("save to another path, or set FileSinkOptions::allow_nonatomic");
}

namespace os {

/// An open file or folder; closed by the destructor.
class File {
 public:
#ifdef _WIN32
  using Handle = void*;
#else
  using Handle = int;
#endif

  File() noexcept = default;
  File(Handle handle, std::string name) noexcept : handle_(handle), name_(std::move(name)) {}
  File(File&& other) noexcept : handle_(std::exchange(other.handle_, closed)), name_(std::move(other.name_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~File() { close(); }

  bool is_open() const noexcept { return handle_ != closed; }
  Handle handle() const noexcept { return handle_; }
  /// Returns the name for messages: the path that the user gave.
  const std::string& name() const noexcept { return name_; }
  /// Hands the open handle over.
  Handle release() noexcept { return std::exchange(handle_, closed); }
  void close() noexcept;

 private:
#ifdef _WIN32
  static constexpr Handle closed = nullptr;
#else
  static constexpr Handle closed = -1;
#endif
  Handle handle_ = closed;
  std::string name_;
};

/// A folder from which names are looked up, at a path of any length and independently of the working folder.
struct Folder {
  File file;
  bool readable = false;  // true if it can be listed and synced; false for a folder that may only be written to
};

/// A path that is looked up from an open folder, which must outlive it, or from the working folder. Opening a file or
/// folder from an open folder never leaves that folder: a link that leads out of it is an error.
struct Path {
  Path(std::string path) : text(std::move(path)), name(text) {}  // NOLINT(google-explicit-constructor)
  Path(const Folder* folder, std::string path, std::string called)
      : from(folder), text(std::move(path)), name(std::move(called)) {}

  const Folder* from = nullptr;  // null: the working folder
  std::string text;
  std::string name;  // for messages
};

/// False if files are read instead of mapped.
inline constexpr bool maps_files = STELE_MMAP != 0;

/// Memory that maps a part of a file, read-only; unmapped by the destructor.
class Mapping {
 public:
  Mapping() noexcept = default;
  /// `data`: `lead` bytes before the part, and the part.
  Mapping(std::byte* data, std::size_t lead, std::size_t size) noexcept : data_(data), lead_(lead), size_(size) {}
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(lead_, other.lead_);
    std::swap(size_, other.size_);
    std::swap(writable_, other.writable_);
#ifdef _WIN32
    std::swap(section_, other.section_);
    std::swap(begin_, other.begin_);
    std::swap(copies_, other.copies_);
#endif
    return *this;
  }
  ~Mapping();

  std::span<const std::byte> bytes() const noexcept { return {data_ + lead_, size_}; }
  /// Returns the memory of a range of bytes() after it has become writable (on Windows: other memory with the same
  /// bytes); writes change no file. Returns nullptr if the system refuses. `size` is not 0. Not thread-safe.
  std::byte* writable(std::size_t offset, std::size_t size) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t lead_ = 0;
  std::size_t size_ = 0;
  std::pair<std::size_t, std::size_t> writable_{};  // begin and end of a part of `data_`
#ifdef _WIN32
  friend Result<Mapping> map(const File& file, std::uint64_t offset, std::size_t size);
  struct Copy {
    std::uint64_t begin = 0, end = 0;  // in the file
    std::byte* data = nullptr;
  };
  File section_;
  std::uint64_t begin_ = 0;  // of the part, in the file
  std::vector<Copy> copies_;
#endif
};

enum class Kind : std::uint8_t {
  missing,
  regular,
  folder,
  other,  // a FIFO, device or socket
};

struct Info {
  Kind kind = Kind::missing;
  std::uint64_t size = 0;
  std::pair<std::uint64_t, std::uint64_t> id{};  // equal for all names of a file
  std::uint64_t names = 1;                       // the number of names (hard links)
};

// ---- paths

#ifdef _WIN32
inline constexpr std::string_view separators = "/\\";
inline constexpr bool reserves_names = true;
#else
inline constexpr std::string_view separators = "/";
inline constexpr bool reserves_names = false;  // a name can be any bytes
#endif
/// Returns a path of the user with / between its parts.
inline std::string with_slashes(std::string path) {
  if constexpr (separators.size() > 1) {
    for (char& c : path) c = c == separators[1] ? '/' : c;
  }
  return path;
}
/// Returns the status of the target of `path`, after following links. A missing target is not an error (Kind::missing).
Result<Info> status(const Path& path);
Result<Info> status(const File& file);
/// Returns true if a file, folder or link has this name; false if there is none, if the name is too long, or if this
/// user may not look it up.
Result<bool> exists(const Path& path);
/// Returns the status of a path that starts from an open folder. A target outside that folder is Kind::other.
Result<Info> status_beneath(const Path& path);
/// Returns true if `path` leads, after following links, to exactly this file or folder.
Result<bool> leads_to(const Path& path, const File& file);
/// Returns true if both are the same file, under any names.
bool same_file(const File& a, const File& b) noexcept;
/// Returns true if both are in the same file system.
Result<bool> same_system(const File& a, const File& b);
/// Follows links in the last segment of `path`, even to a name that does not exist yet.
Result<std::string> resolve_links(const Path& path);
/// Returns an error if this process may not write to the existing file or folder `path`.
Status check_writable(const Path& path);

// ---- reading

/// Opens a file or folder without waiting: a FIFO opens immediately (and status() returns its kind).
Result<File> open_for_reading(const Path& path);
/// Duplicates a handle of the caller's. Errors: invalid_argument (not an open file).
Result<File> duplicate(File::Handle handle, std::string name);
/// Fills `out` from `offset` on. Returns the number of bytes read (fewer than requested only at the end). Thread-safe.
Result<std::size_t> read_at(const File& file, std::uint64_t offset, std::span<std::byte> out);
/// Opens a file again for read_uncached(). Returns a File that is not open if the system or the file system has no such
/// reads.
File open_uncached(const File& file) noexcept;
/// Offset, size and memory of read_uncached() are multiples of it.
inline constexpr std::size_t uncached_alignment = 4096;
/// Fills `out` from storage, past the system's cache of files, whose content stays unchanged. Returns the number of
/// bytes read: fewer than requested at the end of the file, 0 after an error.
std::size_t read_uncached(const File& file, std::uint64_t offset, std::span<std::byte> out) noexcept;
/// Returns true if at least half of a range, which is not empty, is in the system's cache of files, or if that is not
/// known.
bool is_cached(const File& file, std::uint64_t offset, std::size_t size) noexcept;
/// Maps `size` bytes from any `offset` on, if maps_files. The part is in the file; `size` is not 0.
Result<Mapping> map(const File& file, std::uint64_t offset, std::size_t size);

// ---- writing

/// The number of bytes written to a file, and the number of those that the system has already started to write out, so
/// that sync() need not start them.
struct Progress {
  std::uint64_t written = 0;
  std::uint64_t started = 0;
  bool write_behind = false;  // start to write out while writing
};

/// Opens an existing FIFO or device for writing; waits until a FIFO has a reader.
Result<File> open_for_writing(const Path& path);
/// Appends the pieces in order.
Status write(const File& file, std::span<const std::span<const std::byte>> pieces, Progress& progress);
/// Appends `size` bytes from `offset` of another file, copied or shared by the system. Returns the number of bytes
/// copied, which is smaller if the system cannot copy, or at the end of the file.
Result<std::uint64_t> copy(const File& from, std::uint64_t offset, const File& file, std::uint64_t size,
                           Progress& progress);
/// Overwrites existing bytes. Later writes still append after the last byte.
Status write_at(const File& file, std::uint64_t offset, std::span<const std::byte> bytes);
/// Preallocates `total` bytes in an empty file, so that a full disk is reported now and writing does not allocate page
/// by page. Does nothing if the file system cannot preallocate.
Status reserve(const File& file, std::uint64_t total);
/// Releases the preallocated bytes after the `size` bytes that were written.
Status release_above(const File& file, std::uint64_t size);
/// Makes the data survive a power loss. A file that cannot be synced (a FIFO, a terminal) counts as synced.
Status sync(const File& file);
/// Reports errors that some file systems (NFS, quotas) delay until a file is closed. The file remains open.
Status flush(const File& file);

// ---- replacing a file

/// Opens an existing file, and locks it against other calls of this function by any process or thread until it is
/// closed. Returns a File that is not open if the file is already locked. Does not lock on a file system without locks.
Result<File> open_locked(const Path& path);
Result<Folder> open_folder(const Path& path);
/// Returns the maximum length of a file name in the folder.
std::size_t longest_name(const Folder& folder) noexcept;
/// Creates `leaf`, which must not exist, locked until it is closed. `secret`: accessible only to this user until
/// keep_permissions() changes that; otherwise with the user's umask. Returns a File that is not open if the name is
/// taken.
Result<File> create(const Folder& folder, const std::string& leaf, bool secret, const std::string& name);
/// Gives `file` the permissions of the existing `leaf` (and its owner, group and access lists if this user may). Does
/// nothing if `leaf` is missing or of another kind. A permission that cannot be kept never widens read or write access.
Status keep_permissions(const Folder& folder, const std::string& leaf, const File& file);
/// Renames `from` to `to` in one step and replaces `to`; a folder can replace only an empty folder. Errors: exists (the
/// folder is not empty).
Status rename(const Folder& folder, const std::string& from, const std::string& to, const std::string& name);
/// Renames `from` to `to`, which must not exist. Errors: exists.
Status rename_new(const Folder& folder, const std::string& from, const std::string& to, const std::string& name);
/// Makes a rename survive a power loss. `entry` is a file in the folder.
Status sync_folder(const Folder& folder, const File& entry);
void remove(const Folder& folder, const std::string& path) noexcept;
/// Calls `visit` with every name in the folder. Returns the number of names; 0 if the folder cannot be listed.
std::size_t list(const Folder& folder, const std::function<void(std::string_view)>& visit);
/// Removes `leaf` if it is of this kind (a regular file or a folder) and no process holds the lock that create() or
/// create_folder() took. The lock also protects files of processes in other containers and on other hosts, whose
/// process ids have no meaning here.
void remove_abandoned(const Folder& folder, const std::string& leaf, Kind kind) noexcept;

// ---- folders

/// Returns the number of bytes that this user may still write to the folder's file system.
Result<std::uint64_t> free_bytes(const Folder& folder);
/// Creates a folder. Returns false if the name is taken.
Result<bool> make_folder(const Path& path);
/// Creates a folder, locked like a file of create(). Returns a Folder that is not open if the name is taken.
Result<Folder> create_folder(const Folder& folder, const std::string& leaf, bool secret, const std::string& name);
/// Opens `leaf` itself, without following a link, for listing.
Result<Folder> open_below(const Folder& folder, const std::string& leaf);
struct Entry {
  std::string name;
  Kind kind = Kind::missing;  // for a link, the kind of its target, or missing if it has no target
  bool link = false;
};
/// Returns all names except "." and "..". Errors: limit (more than `max_names`).
Result<std::vector<Entry>> entries(const Folder& folder, std::size_t max_names);
/// Swaps two names in one step. Errors: exists, if the file system cannot swap.
Status exchange(const Folder& folder, const std::string& a, const std::string& b, const std::string& name);
/// Removes a folder with its contents. Never follows a link or leaves the file system; at most `depth` levels.
void remove_tree(const Folder& folder, const std::string& leaf, int depth) noexcept;
/// Maximum nesting of folders in a listing.
inline constexpr int max_depth = 64;

// ---- processes, libraries, memory

/// Loads a shared library for the rest of the process, by its name or path. Errors: not_found, with the system's
/// message.
Result<void*> load_library(const std::string& name);
/// Returns the address of a function of a loaded library, or nullptr.
void* symbol(void* library, const char* name) noexcept;

std::uint64_t process_id() noexcept;
bool process_lives(std::uint64_t id) noexcept;
/// Starts to catch a signal: it is counted instead of ending the process. Calls nest.
Status catch_signal(int signal);
/// Reverts one catch_signal(); the last call restores the previous handling.
void release_signal(int signal) noexcept;
/// Returns the number of times that a caught signal has arrived.
std::uint64_t signal_count(int signal) noexcept;
/// Advises the system to use huge pages for the parts of this memory that fill whole huge pages.
void advise_huge_pages(void* memory, std::size_t size) noexcept;
/// Size and alignment of a huge page.
inline constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace os
}  // namespace stele::inline v0::detail
