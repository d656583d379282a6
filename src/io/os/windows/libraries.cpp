#include "io/os/windows/windows.hpp"

namespace stele::inline v0::detail::os {

Result<void*> load_library(const std::string& name) {
  STELE_TRY_ASSIGN(const std::wstring file, wide(name, name));
  // Never from the current folder.
  if (const HMODULE library = ::LoadLibraryExW(file.c_str(), nullptr, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS)) return library;
  return Error(Errc::not_found, "the library cannot be loaded")
      .file(name)
      .found("error " + std::to_string(::GetLastError()) + " of Windows");
}

void* symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(::GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace stele::inline v0::detail::os
