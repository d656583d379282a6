// Detects sanitizers, which use more memory and address space than the library.
#pragma once

namespace stele_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitizers = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
inline constexpr bool sanitizers = true;
#else
inline constexpr bool sanitizers = false;
#endif
#else
inline constexpr bool sanitizers = false;
#endif

}  // namespace stele_test
