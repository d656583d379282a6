// Build-wide definitions: visibility and exceptions. Included by every public header.
#pragma once

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

/// stele: a model's own classes become records; recorders save and load them.
namespace stele {
inline namespace v0 {}
}  // namespace stele
