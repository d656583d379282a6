// Build-wide definitions: version, visibility, exceptions. Included by every public header.
#pragma once

#if __cplusplus < 202002L && (!defined(_MSVC_LANG) || _MSVC_LANG < 202002L)
#error "stele needs C++20: compile with -std=c++20 (CMake: target_compile_features(my_program PRIVATE cxx_std_20))"
#include "stele/needs_cxx_20"  // does not exist: compilers stop here, before hundreds of other errors
#endif

// The version, which CMakeLists.txt and the other files of the tree read here. STELE_VERSION is for comparisons: 0.2.0
// is 200.
#define STELE_VERSION_MAJOR 0
#define STELE_VERSION_MINOR 3
#define STELE_VERSION_PATCH 0
#define STELE_VERSION (STELE_VERSION_MAJOR * 10000 + STELE_VERSION_MINOR * 100 + STELE_VERSION_PATCH)
#define STELE_VERSION_STRING "0.3.0"

#if defined(__GNUC__) || defined(__clang__)
#define STELE_EXPORT __attribute__((visibility("default")))
#else
#define STELE_EXPORT
#endif

#if defined(__cpp_exceptions)
#define STELE_EXCEPTIONS 1
#else
#define STELE_EXCEPTIONS 0
#endif

// Throws; without exceptions, calls the handler of set_fatal_handler() (stele/result.hpp).
#if STELE_EXCEPTIONS
#define STELE_THROW(exception) throw exception
#else
#define STELE_THROW(exception) ::stele::detail::fatal((exception).what())
#endif

// STELE_HEAP=0, set for the whole program: the library allocates no memory, so the program does not link malloc. Only
// the `.stele` reader and the writer in stele_writer.hpp are then available (docs/guide/embedded.md).
#ifndef STELE_HEAP
#define STELE_HEAP __STDC_HOSTED__
#endif

/// stele: makes records of a model's own classes; recorders save and load them.
namespace stele {
inline namespace v0 {
namespace detail {
[[noreturn]] STELE_EXPORT void fatal(const char* message) noexcept;
}
}  // namespace v0
}  // namespace stele
