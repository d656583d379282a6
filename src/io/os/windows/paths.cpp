#include "io/os/windows/windows.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/reserved_names.hpp"

namespace stele::inline v0::detail::os {

namespace {

/// Maximum number of characters of a path (Maximum Path Length Limitation, Microsoft Learn).
constexpr std::size_t max_path = 32767;

std::string message_of(DWORD code) {
  switch (code) {  // the words of other systems
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
      return std::generic_category().message(ENOENT);
    case ERROR_DIRECTORY:
      return std::generic_category().message(ENOTDIR);
    case ERROR_ACCESS_DENIED:
      return std::generic_category().message(EACCES);
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
      return std::generic_category().message(ENOSPC);
    default:
      break;
  }
  std::wstring text(512, L'\0');
  const DWORD length = ::FormatMessageW(
      FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK, nullptr, code,
      MAKELANGID(LANG_ENGLISH, SUBLANG_ENGLISH_US), text.data(), static_cast<DWORD>(text.size()), nullptr);
  text.resize(length);
  text.erase(text.find_last_not_of(L" .\r\n") + 1);
  std::string out;
  if (text.empty() || !narrow(text, out)) out = "error " + std::to_string(code) + " of Windows";
  return out;
}

/// Returns a full path in the syntax of NtCreateFile. Refuses paths with a reserved part: a save to NUL.safetensors
/// would succeed and keep nothing, and one to "model." have another name.
Result<std::wstring> full_path(const std::string& path, const std::string& name) {
  if (const std::string_view part = reserved_part(path); !part.empty()) {
    return Error(Errc::invalid_argument, "Windows reserves a name in the path for a device, or changes its end")
        .file(name)
        .found(std::string(part))
        .hint(R"(choose another name; in a whole path with the prefix \\?\, Windows takes every name as it is)");
  }
  STELE_TRY_ASSIGN(std::wstring full, wide(path, name));
  // GetFullPathNameW would also remove the ends of names after this prefix.
  if (!full.starts_with(LR"(\\?\)")) {
    const std::wstring given = std::move(full);
    full.assign(given.size() + MAX_PATH, L'\0');
    DWORD length = 0;
    // The result is longer than the buffer if the buffer is too small.
    while ((length = ::GetFullPathNameW(given.c_str(), static_cast<DWORD>(full.size()), full.data(), nullptr)) >
           full.size()) {
      if (length > max_path) return failed("cannot look up", name, ERROR_FILENAME_EXCED_RANGE);
      full.resize(length);
    }
    if (length == 0) return failed("cannot look up", name);
    full.resize(length);
  }
  const std::wstring_view text(full);
  if (text.find(L':', text.starts_with(LR"(\\?\)") ? 6 : 2) != text.npos) {
    return Error(Errc::invalid_argument, "a part of the path has a colon").file(name);  // a stream of a file
  }
  if (text.starts_with(LR"(\\?\)") || text.starts_with(LR"(\\.\)")) return LR"(\??\)" + full.substr(4);
  if (text.starts_with(LR"(\\)")) return LR"(\??\UNC)" + full.substr(1);
  return LR"(\??\)" + full;
}

HANDLE open_nt(HANDLE root, std::wstring name, const How& how, bool follow, DWORD& code) noexcept {
  UNICODE_STRING text = {};
  const std::size_t bytes = name.size() * sizeof(wchar_t);
  if (bytes > std::numeric_limits<USHORT>::max() - 2) {
    code = ERROR_FILENAME_EXCED_RANGE;
    return nullptr;
  }
  text.Buffer = name.data();
  text.Length = static_cast<USHORT>(bytes);
  text.MaximumLength = text.Length;
  OBJECT_ATTRIBUTES object = {};
  object.Length = sizeof object;
  object.RootDirectory = root;
  object.ObjectName = &text;
  object.Attributes = OBJ_CASE_INSENSITIVE;
  object.SecurityDescriptor = how.security;
  IO_STATUS_BLOCK status = {};
  HANDLE handle = nullptr;
  const ULONG options = how.options | synchronous | for_backup | (follow ? 0 : link_itself);
  const NTSTATUS result = ::NtCreateFile(&handle, how.access | SYNCHRONIZE, &object, &status, nullptr,
                                         FILE_ATTRIBUTE_NORMAL, how.share, how.disposition, options, nullptr, 0);
  if (result >= 0) return handle;
  code = ::RtlNtStatusToDosError(result);
  return nullptr;
}

bool is_link(HANDLE file) noexcept {
  FILE_ATTRIBUTE_TAG_INFO tag = {};
  return ::GetFileInformationByHandleEx(file, FileAttributeTagInfo, &tag, sizeof tag) != 0 &&
         (tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
         (tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT);
}

/// Opens each part of a path below a folder, without following links.
HANDLE open_beneath(HANDLE root, std::string_view path, const How& how, const std::string& name, DWORD& code) {
  File above;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (;;) {
    const std::size_t slash = path.find('/');
    const bool last = slash == path.npos;
    const auto part = wide(path.substr(0, slash), name);
    if (!part || *part == L"..") {
      code = ERROR_INVALID_NAME;
      return nullptr;
    }
    const HANDLE found =
        open_nt(root, *part == L"." ? std::wstring() : *part,
                last ? how : How{.access = lookup | FILE_TRAVERSE, .options = only_folder}, false, code);
    if (found == nullptr) return nullptr;
    File opened(found, {});
    if (is_link(found)) {
      code = stopped_on_link;
      return nullptr;
    }
    std::swap(above, opened);
    if (last) return above.release();
    root = found;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

Error failed(const char* what, const std::string& name, DWORD code) {
  const Errc errc = is_missing(code)                                                    ? Errc::not_found
                    : code == ERROR_NOT_ENOUGH_MEMORY || code == ERROR_COMMITMENT_LIMIT ? Errc::out_of_memory
                                                                                        : Errc::io;
  return Error(errc, std::string(what) + ": " + message_of(code)).file(name);
}

Status check_path(const Path& path) {
  if (path.from == nullptr) {
    STELE_TRY(full_path(path.text, path.name));
  } else {
    STELE_TRY(wide(path.text, path.name));
  }
  return {};
}

bool lacks_call(DWORD code) noexcept {
  return code == ERROR_INVALID_PARAMETER || code == ERROR_NOT_SUPPORTED || code == ERROR_INVALID_FUNCTION ||
         code == ERROR_CALL_NOT_IMPLEMENTED || code == ERROR_INVALID_LEVEL;
}

Result<std::wstring> wide(std::string_view text, const std::string& name) {
  if (text.find('\0') != text.npos) {
    return Error(Errc::invalid_argument, "the path contains a zero byte").file(name);
  }
  if (text.empty()) return std::wstring();
  if (text.size() > 4 * max_path) return failed("cannot look up", name, ERROR_FILENAME_EXCED_RANGE);
  std::wstring out(text.size(), L'\0');
  const int length = ::MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text.data(), static_cast<int>(text.size()),
                                           out.data(), static_cast<int>(out.size()));
  if (length == 0) return Error(Errc::invalid_argument, "the path is not valid UTF-8").file(name);
  out.resize(static_cast<std::size_t>(length));
  std::replace(out.begin(), out.end(), L'/', L'\\');
  return out;
}

bool narrow(std::wstring_view text, std::string& out) {
  out.assign(3 * text.size(), '\0');
  if (text.empty()) return true;
  const int length = ::WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, text.data(), static_cast<int>(text.size()),
                                           out.data(), static_cast<int>(out.size()), nullptr, nullptr);
  out.resize(static_cast<std::size_t>(std::max(length, 0)));
  std::replace(out.begin(), out.end(), '\\', '/');
  return length > 0;
}

HANDLE open_path(const Path& path, const How& how, DWORD& code) {
  if (path.from != nullptr) return open_beneath(path.from->file.handle(), path.text, how, path.name, code);
  auto full = full_path(path.text, path.name);
  if (!full) {
    code = ERROR_INVALID_NAME;
    return nullptr;
  }
  constexpr std::size_t root = 7;  // \??\C:\ itself ends so
  if ((how.options & only_folder) != 0 && full->size() > root && full->ends_with(L'\\')) full->pop_back();
  return open_nt(nullptr, std::move(*full), how, how.follow, code);
}

HANDLE open_entry(const File& folder, const std::string& leaf, How how, DWORD& code) {
  auto name = wide(leaf, folder.name());
  if (!name) {
    code = ERROR_INVALID_NAME;
    return nullptr;
  }
  return open_nt(folder.handle(), std::move(*name), how, false, code);
}

Error cannot_open(const char* what, const Path& path, DWORD code) {
  if (code != stopped_on_link || path.from == nullptr) return failed(what, path.name, code);
  return Error(Errc::io, std::string(what) + ": a link in the folder is not followed").file(path.name);
}

bool attributes_of(HANDLE file, Attributes& out) noexcept {
  if (::GetFileType(file) != FILE_TYPE_DISK) {
    out.info.kind = Kind::other;
    return true;
  }
  BY_HANDLE_FILE_INFORMATION found = {};
  if (::GetFileInformationByHandle(file, &found) == 0) return false;
  const auto joined = [](DWORD high, DWORD low) { return std::uint64_t{high} << 32 | low; };
  out.info.kind = (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? Kind::folder : Kind::regular;
  out.info.size = joined(found.nFileSizeHigh, found.nFileSizeLow);
  out.info.names = found.nNumberOfLinks;
  out.system = found.dwVolumeSerialNumber;
  out.info.id = {out.system, joined(found.nFileIndexHigh, found.nFileIndexLow)};
  FILE_ID_INFO id = {};  // ReFS has 128 bits, and cuts the index above
  if (::GetFileInformationByHandleEx(file, FileIdInfo, &id, sizeof id) != 0) {
    std::uint64_t parts[2] = {};
    static_assert(sizeof parts == sizeof id.FileId);
    std::copy_n(reinterpret_cast<const unsigned char*>(&id.FileId), sizeof parts,
                reinterpret_cast<unsigned char*>(parts));
    if (parts[1] != 0) out.info.id.second = parts[0] ^ (parts[1] << 1 | parts[1] >> 63);
  }
  out.link = (found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 && is_link(file);
  return true;
}

// ---- the interface

Result<Info> status(const Path& path) {
  STELE_TRY(check_path(path));
  DWORD code = 0;
  const HANDLE found = open_path(path, {.access = lookup}, code);
  if (found == nullptr) {
    if (is_missing(code)) return Info{};
    if (code == stopped_on_link) return Info{Kind::other};
    return failed("cannot look up", path.name, code);
  }
  return status(File(found, path.name));
}

Result<Info> status(const File& file) {
  Attributes found;
  if (!attributes_of(file.handle(), found)) return failed("cannot look up", file.name());
  return found.info;
}

Result<bool> exists(const Path& path) {
  STELE_TRY(check_path(path));
  DWORD code = 0;
  const File found(open_path(path, {.access = lookup, .follow = false}, code), path.name);
  return found.is_open() || code == stopped_on_link;
}

Result<Info> status_beneath(const Path& path) { return status(path); }

Result<bool> leads_to(const Path& path, const File& file) {
  STELE_TRY_ASSIGN(const Info own, status(file));
  STELE_TRY_ASSIGN(const Info found, status(path));
  return found.kind != Kind::missing && found.id == own.id;
}

bool same_file(const File& a, const File& b) noexcept {
  Attributes x;
  Attributes y;
  return attributes_of(a.handle(), x) && attributes_of(b.handle(), y) && x.info.id == y.info.id;
}

Result<bool> same_system(const File& a, const File& b) {
  Attributes x;
  Attributes y;
  for (const auto& [file, out] : {std::pair(&a, &x), std::pair(&b, &y)}) {
    if (!attributes_of(file->handle(), *out)) return failed("cannot look up", file->name());
  }
  return x.system == y.system;
}

Result<std::string> resolve_links(const Path& path) {
  if (path.from != nullptr) {
    DWORD code = 0;
    const HANDLE found = open_path(path, {.access = lookup}, code);
    const File closing(found, {});
    if (found == nullptr && !is_missing(code)) return cannot_open("cannot follow", path, code);
    return path.text;
  }
  STELE_TRY_ASSIGN(const std::wstring full, full_path(path.text, path.name));
  std::wstring target = full;
  DWORD code = 0;
  const File itself(open_path(path, {.access = lookup, .follow = false}, code), path.name);
  if (itself.is_open() && is_link(itself.handle())) {
    const File file(open_path(path, {.access = lookup}, code), path.name);
    if (!file.is_open()) return failed("cannot follow", path.name, code);
    target.assign(max_path + 1, L'\0');
    const DWORD length = ::GetFinalPathNameByHandleW(file.handle(), target.data(), static_cast<DWORD>(target.size()),
                                                     FILE_NAME_NORMALIZED | VOLUME_NAME_DOS);
    if (length == 0 || length > max_path) return failed("cannot follow", path.name);
    target.resize(length);
  } else if (!itself.is_open() && !is_missing(code)) {
    return failed("cannot follow", path.name, code);
  }
  // \??\C:\folder and \\?\C:\folder to C:\folder; \??\UNC\server to \\server.
  std::wstring plain = target.substr(4);
  if (plain.starts_with(LR"(UNC\)")) plain.replace(0, 3, LR"(\)");
  std::string out;
  if (!narrow(plain, out)) return failed("cannot follow", path.name, ERROR_NO_UNICODE_TRANSLATION);
  // The path of the user, or of the link, has the prefix: with it, the name is a file's.
  if (!reserved_part(out).empty() && narrow(LR"(\\?\)" + target.substr(4), out)) return out;
  // A trailing slash names a folder; GetFullPathNameW keeps it.
  return out;
}

Status check_writable(const Path& path) {
  STELE_TRY_ASSIGN(const Info info, status(path));
  DWORD code = 0;
  const ACCESS_MASK access = info.kind == Kind::folder ? FILE_ADD_FILE : FILE_WRITE_DATA;
  const File found(open_path(path, {.access = access}, code), path.name);
  return found.is_open() ? Status() : failed("cannot write", path.name, code);
}

Result<Folder> open_folder(const Path& path) {
  STELE_TRY(check_path(path));
  std::string name = path.name;
  DWORD code = 0;
  const auto open = [&](ACCESS_MASK access) {
    return open_path(path, {.access = access, .options = only_folder}, code);
  };
  HANDLE found = open(FILE_LIST_DIRECTORY | FILE_TRAVERSE | lookup);
  if (found != nullptr) return Folder{File(found, std::move(name)), true};
  // Permission to add files suffices to replace a file in it.
  if (code == ERROR_ACCESS_DENIED) found = open(FILE_TRAVERSE | lookup);
  if (found == nullptr) return cannot_open("cannot open the folder", path, code);
  return Folder{File(found, std::move(name)), false};
}

std::size_t longest_name(const Folder& folder) noexcept {
  DWORD longest = 0;
  const BOOL known =
      ::GetVolumeInformationByHandleW(folder.file.handle(), nullptr, 0, nullptr, &longest, nullptr, nullptr, 0);
  return known != 0 && longest > 0 ? longest : 255;
}

}  // namespace stele::inline v0::detail::os
