#include "io/os/windows/windows.hpp"

#include <aclapi.h>
#include <sddl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" NTSTATUS NTAPI NtSetInformationFile(HANDLE, PIO_STATUS_BLOCK, PVOID, ULONG, FILE_INFORMATION_CLASS);

namespace stele::inline v0::detail::os {

namespace {

// The header ntifs.h defines these values of FILE_INFORMATION_CLASS, some of which winternl.h lacks, and the flags of
// their structures.
constexpr int rename_information = 10;
constexpr int rename_information_ex = 65;
constexpr int disposition_information = 13;
constexpr int disposition_information_ex = 64;
constexpr ULONG replace_if_exists = 1;
constexpr ULONG posix_rename = 2;
constexpr ULONG delete_file = 1;
constexpr ULONG posix_delete = 2;
constexpr ULONG delete_read_only = 0x10;

/// Virus scanners and indexers hold new files for a moment. All pauses together take 0.6 seconds.
constexpr int max_attempts = 10;
constexpr DWORD first_pause = 1;  // milliseconds; doubled each time up to:
constexpr DWORD longest_pause = 100;

// The byte that open_locked() locks: the system's locks also stop reads and writes, and no file has this byte.
constexpr DWORD locked_high = 0x7fffffff;

struct LocalFreed {
  void operator()(void* memory) const noexcept { ::LocalFree(memory); }
};
using Descriptor = std::unique_ptr<void, LocalFreed>;

/// A descriptor that grants all access to this process's user, and none to other users. Null, with GetLastError(), on
/// an error.
Descriptor user_only() {
  HANDLE opened = nullptr;
  if (::OpenProcessToken(::GetCurrentProcess(), TOKEN_QUERY, &opened) == 0) return nullptr;
  const File token(opened, {});
  alignas(TOKEN_USER) std::array<std::byte, sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE> user = {};
  DWORD size = 0;
  if (::GetTokenInformation(opened, TokenUser, user.data(), sizeof user, &size) == 0) return nullptr;
  LPWSTR name = nullptr;
  if (::ConvertSidToStringSidW(reinterpret_cast<const TOKEN_USER*>(user.data())->User.Sid, &name) == 0) return nullptr;
  const Descriptor freed(name);
  PSECURITY_DESCRIPTOR made = nullptr;
  const std::wstring text = L"D:P(A;OICI;FA;;;" + std::wstring(name) + L")";
  ::ConvertStringSecurityDescriptorToSecurityDescriptorW(text.c_str(), SDDL_REVISION_1, &made, nullptr);
  return Descriptor(made);
}

bool is_taken(DWORD code) noexcept { return code == ERROR_FILE_EXISTS || code == ERROR_ALREADY_EXISTS; }

bool in_use(DWORD code) noexcept {
  return code == ERROR_ACCESS_DENIED || code == ERROR_SHARING_VIOLATION || code == ERROR_USER_MAPPED_FILE ||
         code == ERROR_LOCK_VIOLATION;
}

DWORD set(HANDLE file, int what, void* data, std::size_t size) noexcept {
  IO_STATUS_BLOCK status = {};
  const NTSTATUS result =
      ::NtSetInformationFile(file, &status, data, static_cast<ULONG>(size), static_cast<FILE_INFORMATION_CLASS>(what));
  return result >= 0 ? ERROR_SUCCESS : ::RtlNtStatusToDosError(result);
}

/// Renames within the folder. Returns an error code of Windows.
DWORD rename_once(const Folder& folder, const std::string& from, const std::wstring& to, bool replace) {
  DWORD code = 0;
  const File file(open_entry(folder.file, from, {.access = DELETE | lookup}, code), {});
  if (!file.is_open()) return code;
  const std::size_t bytes = to.size() * sizeof(wchar_t);
  const std::size_t size = sizeof(FILE_RENAME_INFO) + bytes;
  std::vector<std::max_align_t> memory(size / sizeof(std::max_align_t) + 1);
  auto* const wanted = reinterpret_cast<FILE_RENAME_INFO*>(memory.data());
  wanted->RootDirectory = folder.file.handle();
  wanted->FileNameLength = static_cast<DWORD>(bytes);
  std::memcpy(wanted->FileName, to.data(), bytes);
  if (replace) {
    // Also replaces a file that is open; its readers keep it.
    wanted->Flags = replace_if_exists | posix_rename;
    code = set(file.handle(), rename_information_ex, wanted, size);
    if (!lacks_call(code)) return code;
  }
  wanted->Flags = 0;
  wanted->ReplaceIfExists = replace ? 1 : 0;
  return set(file.handle(), rename_information, wanted, size);
}

DWORD rename_patiently(const Folder& folder, const std::string& from, const std::string& to, bool replace) {
  const auto name = wide(to, {});
  if (!name) return ERROR_INVALID_NAME;
  DWORD pause = first_pause;
  for (int i = 1;; ++i) {
    const DWORD code = rename_once(folder, from, *name, replace);
    if (!in_use(code) || i == max_attempts) return code;
    ::Sleep(pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

/// Deletes an open file or empty folder. Returns an error code of Windows.
DWORD delete_open(HANDLE file) noexcept {
  ULONG flags = delete_file | posix_delete | delete_read_only;
  const DWORD code = set(file, disposition_information_ex, &flags, sizeof flags);
  if (!lacks_call(code)) return code;
  BOOLEAN removed = TRUE;
  return set(file, disposition_information, &removed, sizeof removed);
}

/// Removes an entry that agrees with `options` (only_file, only_folder, or 0). Returns an error code of Windows.
DWORD remove_entry(const Folder& folder, const std::string& leaf, ULONG options) noexcept {
  DWORD code = 0;
  const auto done = guarded([&]() -> Status {
    const File file(open_entry(folder.file, leaf, {.access = DELETE | lookup, .options = options}, code), {});
    if (file.is_open()) code = delete_open(file.handle());
    return {};
  });
  return done ? code : static_cast<DWORD>(ERROR_NOT_ENOUGH_MEMORY);
}

bool is_folder(const Folder& folder, const std::string& leaf) {
  DWORD code = 0;
  const File file(open_entry(folder.file, leaf, {.access = lookup}, code), {});
  Attributes found;
  return file.is_open() && attributes_of(file.handle(), found) && found.info.kind == Kind::folder && !found.link;
}

Error cannot_replace(const std::string& name, DWORD code) {
  Error error = failed("cannot replace", name, code);
  return in_use(code) ? std::move(error).hint("a program, or a mapping of this one, may have the file open") : error;
}

/// Empties and removes a folder. Returns true if all of it is gone.
bool empty_and_remove(const Folder& above, const std::string& leaf, std::uint64_t system, int depth) {
  DWORD code = 0;
  const HANDLE found =
      open_entry(above.file, leaf,
                 {.access = FILE_LIST_DIRECTORY | FILE_TRAVERSE | DELETE | lookup, .options = only_folder}, code);
  if (found == nullptr) return is_missing(code);
  const Folder folder{File(found, {}), true};
  Attributes own;
  if (!attributes_of(found, own) || own.link || own.system != system) return false;
  const auto all = entries(folder, std::numeric_limits<std::size_t>::max());
  if (!all) return false;
  for (const Entry& entry : *all) {
    if (entry.kind == Kind::folder && !entry.link) {
      if (depth == 0 || !empty_and_remove(folder, entry.name, system, depth - 1)) return false;
    } else if (const DWORD left = remove_entry(folder, entry.name, 0); left != ERROR_SUCCESS && !is_missing(left)) {
      return false;
    }
  }
  return delete_open(found) == ERROR_SUCCESS;
}

/// Creates an entry. Write access to it is its lock: remove_abandoned() opens it without sharing writes. Returns a File
/// that is not open if the name is taken.
Result<File> create_entry(const Folder& folder, const std::string& leaf, How how, bool secret,
                          const std::string& name) {
  std::string file_name = name;
  const Descriptor security = secret ? user_only() : Descriptor();
  if (secret && security == nullptr) return failed("cannot create a temporary next to it", name);
  how.access |= READ_CONTROL | WRITE_DAC | lookup;
  how.disposition = create_new;
  how.security = security.get();
  DWORD code = 0;
  File made(open_entry(folder.file, leaf, how, code), std::move(file_name));
  if (made.is_open() || is_taken(code)) return made;
  return failed("cannot create a temporary next to it", name, code);
}

}  // namespace

Result<File> open_locked(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  DWORD code = 0;
  File file(open_path(path, {}, code), std::move(name));
  if (!file.is_open()) return cannot_open("cannot open", path, code);
  OVERLAPPED where = {};
  where.OffsetHigh = locked_high;
  if (::LockFileEx(file.handle(), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &where) != 0)
    return file;
  code = ::GetLastError();
  if (code == ERROR_LOCK_VIOLATION || code == ERROR_IO_PENDING) return File();
  if (lacks_call(code)) return file;
  return failed("cannot lock", path.name, code);
}

Result<File> create(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  return create_entry(folder, leaf, {.access = FILE_GENERIC_WRITE, .options = only_file}, secret, name);
}

Result<bool> make_folder(const Path& path) {
  STELE_TRY(check_path(path));
  DWORD code = 0;
  const File made(open_path(path, {.access = lookup, .disposition = create_new, .options = only_folder}, code), {});
  if (made.is_open()) return true;
  if (is_taken(code)) return false;
  return failed("cannot create the folder", path.name, code);
}

Result<Folder> create_folder(const Folder& folder, const std::string& leaf, bool secret, const std::string& name) {
  const How how{.access = FILE_LIST_DIRECTORY | FILE_TRAVERSE | FILE_ADD_FILE, .options = only_folder};
  STELE_TRY_ASSIGN(File made, create_entry(folder, leaf, how, secret, name));
  return made.is_open() ? Folder{std::move(made), true} : Folder();
}

Status keep_permissions(const Folder& folder, const std::string& leaf, const File& file) {
  DWORD code = 0;
  const File old(open_entry(folder.file, leaf, {.access = READ_CONTROL | lookup}, code), {});
  if (!old.is_open()) return is_missing(code) ? Status() : failed("cannot look up", file.name(), code);
  Attributes before;
  Attributes now;
  if (!attributes_of(old.handle(), before) || !attributes_of(file.handle(), now)) {
    return failed("cannot look up", file.name());
  }
  if (before.info.kind == Kind::other || before.link || before.info.kind != now.info.kind) return {};
  PACL list = nullptr;
  PSECURITY_DESCRIPTOR descriptor = nullptr;
  code = ::GetSecurityInfo(old.handle(), SE_FILE_OBJECT, DACL_SECURITY_INFORMATION, nullptr, nullptr, &list, nullptr,
                           &descriptor);
  const Descriptor freed(descriptor);
  if (lacks_call(code)) return {};  // a file system without permissions
  if (code != ERROR_SUCCESS) return failed("cannot set the permissions", file.name(), code);
  SECURITY_DESCRIPTOR_CONTROL control = 0;
  DWORD revision = 0;
  if (::GetSecurityDescriptorControl(descriptor, &control, &revision) == 0) {
    return failed("cannot set the permissions", file.name());
  }
  File again;  // the handle of a folder lacks the access that this needs
  if (now.info.kind == Kind::folder) {
    again = File(open_entry(file, {}, {.access = READ_CONTROL | WRITE_DAC, .options = only_folder}, code), {});
    if (!again.is_open()) return failed("cannot set the permissions", file.name(), code);
  }
  // An unprotected list inherits from its folder; entries that it inherited are not copied.
  const SECURITY_INFORMATION inherits =
      (control & SE_DACL_PROTECTED) != 0 ? PROTECTED_DACL_SECURITY_INFORMATION : UNPROTECTED_DACL_SECURITY_INFORMATION;
  code = ::SetSecurityInfo(again.is_open() ? again.handle() : file.handle(), SE_FILE_OBJECT,
                           DACL_SECURITY_INFORMATION | inherits, nullptr, nullptr, list, nullptr);
  return code == ERROR_SUCCESS ? Status() : failed("cannot set the permissions", file.name(), code);
}

Status rename(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  if (is_folder(folder, from)) {
    // A rename cannot replace a folder: removes it first, which succeeds only if it is empty. A file stays.
    const DWORD removed = remove_entry(folder, to, only_folder);
    if (removed == ERROR_DIR_NOT_EMPTY) return target_exists(name);
    if (removed != ERROR_SUCCESS && !is_missing(removed)) return cannot_replace(name, removed);
    return rename_new(folder, from, to, name);
  }
  const DWORD code = rename_patiently(folder, from, to, true);
  return code == ERROR_SUCCESS ? Status() : cannot_replace(name, code);
}

Status rename_new(const Folder& folder, const std::string& from, const std::string& to, const std::string& name) {
  const DWORD code = rename_patiently(folder, from, to, false);
  if (code == ERROR_SUCCESS) return {};
  if (is_taken(code)) return target_exists(name);
  return failed("cannot rename the temporary file", name, code);
}

Status sync_folder(const Folder& folder, const File& entry) {
  const DWORD code = flush_folder(folder.file);
  if (code == ERROR_SUCCESS || lacks_call(code)) return {};
  return failed("the file is saved, but its folder cannot be synced", entry.name(), code);
}

void remove(const Folder& folder, const std::string& path) noexcept {
  static_cast<void>(remove_entry(folder, path, only_file));
}

Status exchange(const Folder&, const std::string&, const std::string&, const std::string& name) {
  return not_in_one_step(name);  // Windows has no such call
}

void remove_abandoned(const Folder& folder, const std::string& leaf, Kind kind) noexcept {
  static_cast<void>(guarded([&]() -> Status {
    DWORD code = 0;
    const How alone{.access = DELETE | lookup,
                    .options = kind == Kind::folder ? only_folder : only_file,
                    .share = FILE_SHARE_READ | FILE_SHARE_DELETE};
    const File file(open_entry(folder.file, leaf, alone, code), {});
    Attributes found;
    if (!file.is_open() || !attributes_of(file.handle(), found) || found.link || found.info.kind != kind) return {};
    if (kind == Kind::regular) {
      delete_open(file.handle());
    } else {
      remove_tree(folder, leaf, max_depth + 1);
    }
    return {};
  }));
}

void remove_tree(const Folder& folder, const std::string& leaf, int depth) noexcept {
  Attributes own;
  if (!attributes_of(folder.file.handle(), own)) return;
  static_cast<void>(guarded([&]() -> Status {
    empty_and_remove(folder, leaf, own.system, depth);
    return {};
  }));
}

}  // namespace stele::inline v0::detail::os
