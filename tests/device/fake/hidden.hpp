// Hides the engine's lock from ThreadSanitizer: it would order accesses that a driver does not order. The order that a
// driver promises is told to it instead, by order_before() and order_after().
#pragma once

#if defined(__SANITIZE_THREAD__)
#define STELE_FAKE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STELE_FAKE_TSAN 1
#endif
#endif

#if defined(STELE_FAKE_TSAN) && !defined(STELE_FAKE_SHOW_LOCK)  // the latter checks the engine itself
// Functions of ThreadSanitizer's runtime, which has no header for the first six.
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace stele_fake {

#if defined(STELE_FAKE_TSAN) && !defined(STELE_FAKE_SHOW_LOCK)
inline void hide() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
inline void show() {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
inline void acquire(const void* token) { __tsan_acquire(const_cast<void*>(token)); }
inline void release(const void* token) { __tsan_release(const_cast<void*>(token)); }
#else
inline void hide() {}
inline void show() {}
inline void acquire(const void*) {}
inline void release(const void*) {}
#endif

class Hidden {
 public:
  Hidden() { hide(); }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
  ~Hidden() { show(); }
};
/// Ends the effect of Hidden for a while.
class Shown {
 public:
  Shown() { show(); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  ~Shown() { hide(); }
};

/// The work of this thread precedes what follows order_after() of the same token. Both are called while hidden.
inline void order_before(const void* token) {
  const Shown shown;
  release(token);
}
inline void order_after(const void* token) {
  const Shown shown;
  acquire(token);
}

}  // namespace stele_fake
