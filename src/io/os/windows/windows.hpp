// Helpers for the Windows sources.
//
// All files are opened with NtCreateFile, which looks up a name from an open folder. Names of the library are UTF-8
// with / between parts; names of the system are UTF-16. Every file is opened with all share modes, so that other
// processes can read, replace and delete it.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#if !defined(_WIN32_WINNT) || _WIN32_WINNT < 0x0A00
#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00
#endif
#include <windows.h>
// After windows.h.
#include <winternl.h>

#include <string>
#include <string_view>

#include "io/os/os.hpp"

namespace stele::inline v0::detail::os {

/// Returns the error of a call that failed with this code of GetLastError().
Error failed(const char* what, const std::string& name, DWORD code = ::GetLastError());
/// Refuses paths that are not UTF-8, that have a zero byte, or that name a stream of a file.
Status check_path(const Path& path);
/// Converts from UTF-8. Errors: invalid_argument (not UTF-8, a zero byte).
Result<std::wstring> wide(std::string_view text, const std::string& name);
/// Converts to UTF-8. Returns false for a name with an unpaired surrogate.
bool narrow(std::wstring_view text, std::string& out);

/// The arguments of NtCreateFile that depend on the purpose.
struct How {
  ACCESS_MASK access = FILE_GENERIC_READ;
  ULONG disposition = 1;  // FILE_OPEN
  ULONG options = 0;
  bool follow = true;  // follow a link in the last part of a path that does not start from an open folder
  ULONG share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  void* security = nullptr;  // a descriptor for a new file
};
// The header ntifs.h of the driver kit defines these options of NtCreateFile.
inline constexpr ULONG create_new = 2;          // FILE_CREATE
inline constexpr ULONG only_folder = 1;         // FILE_DIRECTORY_FILE
inline constexpr ULONG only_file = 0x40;        // FILE_NON_DIRECTORY_FILE
inline constexpr ULONG link_itself = 0x200000;  // FILE_OPEN_REPARSE_POINT
inline constexpr ULONG for_backup = 0x4000;     // FILE_OPEN_FOR_BACKUP_INTENT
inline constexpr ULONG synchronous = 0x20;      // FILE_SYNCHRONOUS_IO_NONALERT
inline constexpr DWORD stopped_on_link = 681;   // ERROR_STOPPED_ON_SYMLINK of winerror.h, which MinGW 10 lacks
inline constexpr ACCESS_MASK lookup = FILE_READ_ATTRIBUTES | SYNCHRONIZE;

/// Opens a path. On an error returns nullptr and sets `code` (of GetLastError()); a link below an open folder is
/// stopped_on_link.
HANDLE open_path(const Path& path, const How& how, DWORD& code);
/// Opens an entry of a folder, never through a link: a link is opened itself. An empty `leaf` opens the folder again.
HANDLE open_entry(const File& folder, const std::string& leaf, How how, DWORD& code);
/// Writes a folder's names to the disk. Returns an error code of Windows.
DWORD flush_folder(const File& folder) noexcept;
/// Returns true if this error may mean that the file system or the system lacks this kind of call.
bool lacks_call(DWORD code) noexcept;
/// Returns the error of an open_path() that failed.
Error cannot_open(const char* what, const Path& path, DWORD code);
/// ERROR_DIRECTORY: a part of the path is a file.
inline bool is_missing(DWORD code) noexcept {
  return code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND || code == ERROR_DIRECTORY;
}

struct Attributes {
  Info info;
  std::uint64_t system = 0;  // the volume
  bool link = false;
};
/// Returns false, with GetLastError(), on an error.
bool attributes_of(HANDLE file, Attributes& out) noexcept;

}  // namespace stele::inline v0::detail::os
