#include "io/os/windows/windows.hpp"

#include <array>
#include <memory>

namespace stele::inline v0::detail::os {

namespace {

/// Calls `visit` with each entry; stops when it returns false. Returns false, with `code`, on an error.
bool each_entry(const Folder& folder, DWORD& code, const std::function<bool(const FILE_ID_BOTH_DIR_INFO&)>& visit) {
  // Opened again, because a handle has one position of listing.
  const File again(
      open_entry(folder.file, {}, {.access = FILE_LIST_DIRECTORY | SYNCHRONIZE, .options = only_folder}, code), {});
  if (!again.is_open()) return false;
  struct alignas(FILE_ID_BOTH_DIR_INFO) Buffer {
    std::array<std::byte, std::size_t{64} << 10> bytes;
  };
  const auto buffer = std::make_unique<Buffer>();
  for (auto what = FileIdBothDirectoryRestartInfo;; what = FileIdBothDirectoryInfo) {
    if (::GetFileInformationByHandleEx(again.handle(), what, buffer->bytes.data(), sizeof buffer->bytes) == 0) {
      code = ::GetLastError();
      return code == ERROR_NO_MORE_FILES || code == ERROR_FILE_NOT_FOUND;
    }
    for (const std::byte* at = buffer->bytes.data();;) {
      const auto& entry = *reinterpret_cast<const FILE_ID_BOTH_DIR_INFO*>(at);
      if (!visit(entry)) return true;
      if (entry.NextEntryOffset == 0) break;
      at += entry.NextEntryOffset;
    }
  }
}

bool name_of(const FILE_ID_BOTH_DIR_INFO& entry, std::string& out) {
  return narrow({entry.FileName, entry.FileNameLength / sizeof(wchar_t)}, out);
}

}  // namespace

std::size_t list(const Folder& folder, const std::function<void(std::string_view)>& visit) {
  if (!folder.readable) return 0;
  std::size_t count = 0;
  DWORD code = 0;
  std::string name;
  each_entry(folder, code, [&](const FILE_ID_BOTH_DIR_INFO& entry) {
    if (name_of(entry, name)) visit(name);
    ++count;
    return true;
  });
  return count;
}

Result<std::vector<Entry>> entries(const Folder& folder, std::size_t max_names) {
  std::vector<Entry> found;
  Status status;
  DWORD code = 0;
  std::string name;
  const bool done = each_entry(folder, code, [&](const FILE_ID_BOTH_DIR_INFO& entry) {
    if (!name_of(entry, name)) {
      status = Error(Errc::io, "the folder has a name that is not valid Unicode").file(folder.file.name());
      return false;
    }
    if (name == "." || name == "..") return true;
    if (found.size() == max_names) {
      status = Error(Errc::limit, "the folder has too many names").file(folder.file.name());
      return false;
    }
    const bool is_folder = (entry.FileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    found.push_back({name, is_folder ? Kind::folder : Kind::regular, false});
    if ((entry.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) == 0) return true;
    DWORD ignored = 0;
    const File opened(open_entry(folder.file, name, {.access = lookup}, ignored), {});
    Attributes own;
    found.back().link = opened.is_open() && attributes_of(opened.handle(), own) && own.link;
    return true;
  });
  if (!done) return failed("cannot list the folder", folder.file.name(), code);
  STELE_TRY(status);
  return found;
}

Result<Folder> open_below(const Folder& folder, const std::string& leaf) {
  std::string name = folder.file.name() + '/' + leaf;
  DWORD code = 0;
  const HANDLE found = open_entry(
      folder.file, leaf, {.access = FILE_LIST_DIRECTORY | FILE_TRAVERSE | lookup, .options = only_folder}, code);
  if (found == nullptr) return failed("cannot open the folder", name, code);
  Folder below{File(found, std::move(name)), true};
  Attributes own;
  if (!attributes_of(found, own)) return failed("cannot open the folder", below.file.name());
  if (own.link) return failed("cannot open the folder", below.file.name(), stopped_on_link);
  return below;
}

Result<std::uint64_t> free_bytes(const Folder& folder) {
  std::wstring path(32768, L'\0');
  const DWORD length = ::GetFinalPathNameByHandleW(folder.file.handle(), path.data(), static_cast<DWORD>(path.size()),
                                                   FILE_NAME_NORMALIZED | VOLUME_NAME_DOS);
  ULARGE_INTEGER available = {};
  if (length == 0 || length >= path.size() || ::GetDiskFreeSpaceExW(path.c_str(), &available, nullptr, nullptr) == 0) {
    return failed("cannot determine the free space", folder.file.name());
  }
  return available.QuadPart;
}

}  // namespace stele::inline v0::detail::os
