// Loads shared libraries.
#ifndef __wasi__
#include <dlfcn.h>
#endif

#include "io/os/os.hpp"

namespace stele::inline v0::detail::os {

#ifdef __wasi__
Result<void*> load_library(const std::string& name) {
  return Error(Errc::unsupported, "WebAssembly has no shared libraries").file(name);
}

void* symbol(void*, const char*) noexcept { return nullptr; }
#else
Result<void*> load_library(const std::string& name) {
  if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* const reason = ::dlerror();
  return Error(Errc::not_found, "the library cannot be loaded").file(name).found(reason != nullptr ? reason : "");
}

void* symbol(void* library, const char* name) noexcept { return ::dlsym(library, name); }
#endif

}  // namespace stele::inline v0::detail::os
