// Formats in a shared library of their own, which a program loads when it runs: a plug-in.
#pragma once

#include <cstdint>
#include <string>

#include "stele/format.hpp"

namespace stele::inline v0 {

/// Loads a shared library that STELE_PLUGIN marks, and adds its formats with register_formats(). The library stays
/// loaded; loading it again changes nothing. Windows wants an absolute path. Its code runs in the program: load only
/// files that you trust. Errors: not_found (the system cannot load the file; found() is its message), malformed (a
/// library without STELE_PLUGIN), unsupported (built for another version of stele), those of register_formats().
STELE_EXPORT Status load_plugin(const std::string& path);

namespace detail {

struct Plugin {
  std::uint32_t version;  // STELE_VERSION
  FormatFamily (*formats)();
};

}  // namespace detail
}  // namespace stele::inline v0

#ifdef _WIN32
#define STELE_PLUGIN_EXPORT __declspec(dllexport)
#else
#define STELE_PLUGIN_EXPORT STELE_EXPORT
#endif

/// Makes a shared library a plug-in, once, outside of every namespace. `family`: a function without arguments that
/// returns a FormatFamily. The plug-in and the program must have one version of stele, one compiler and one standard
/// library; the plug-in may link stele's static libraries or the shared one.
#define STELE_PLUGIN(family)                                             \
  extern "C" {                                                           \
  STELE_PLUGIN_EXPORT extern const ::stele::detail::Plugin stele_plugin; \
  }                                                                      \
  const ::stele::detail::Plugin stele_plugin { STELE_VERSION, family }
