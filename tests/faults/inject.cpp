// Replaces functions of the C library, linked or preloaded before it: counts the calls about files below one folder
// and makes one of them fail. Calls about anything else pass.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "block.hpp"

// If off_t has 64 bits, the calls with "64" in their names are the same functions.
static_assert(sizeof(off_t) == 8);

// Defines the function that the program calls `name`. It has another name here, since the headers declare `name` with
// more than a definition may repeat.
#define STELE_FAULTS_WRAP(result, name, ...)                                                                \
  extern "C" __attribute__((visibility("default"))) result stele_faults_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result stele_faults_##name(__VA_ARGS__)
#define STELE_FAULTS_WRAP_64(result, name, ...)                   \
  extern "C" __attribute__((visibility("default"), alias(#name))) \
  result stele_faults_##name##64(__VA_ARGS__) __asm__(#name "64")
/// The function of the C library that the wrapper replaces.
#define STELE_FAULTS_REAL(name) real<decltype(stele_faults_##name)>(#name)

using stele_faults::Block;
using stele_faults::Call;
using stele_faults::Fault;

extern "C" __attribute__((visibility("default"))) Block* stele_faults_block() {
  static Block* const block = [] {
    void* const memory = ::mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return static_cast<Block*>(nullptr);
    auto* const made = static_cast<Block*>(memory);
    made->threads = -1;
    return made;
  }();
  return block;
}

namespace {

Block* block = nullptr;  // none until the program is loaded

__attribute__((constructor)) void begin() { block = stele_faults_block(); }

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

ssize_t real_readlinkat(int folder, const char* path, char* to, std::size_t size) {
  static auto* const call = real<ssize_t(int, const char*, char*, std::size_t)>("readlinkat");
  return call(folder, path, to, size);
}

bool watching() { return block != nullptr && block->folder[0] != '\0'; }

/// A file that a call is about: whether it is watched, and its path below the folder.
class Subject {
 public:
  explicit Subject(const char* path) {
    // As the access list of a file in an open folder is asked for.
    int folder = -1;
    int size = 0;
    if (watching() && std::sscanf(path, "/proc/self/fd/%d/%n", &folder, &size) == 1 && size != 0) {
      look(folder, path + size);
    } else {
      look(path, "");
    }
  }
  explicit Subject(int file) {
    char path[PATH_MAX];
    if (watching() && path_of(file, path)) look(path, "");
  }
  Subject(int folder, const char* path) {
    if (path != nullptr && path[0] == '/') {
      look(path, "");
    } else {
      look(folder, path);
    }
  }
  bool watched() const { return watched_; }
  const char* path() const { return path_; }

 private:
  static bool path_of(int file, char (&path)[PATH_MAX]) {
    const int before = errno;
    char link[40];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t size = real_readlinkat(AT_FDCWD, link, path, sizeof path - 1);
    path[std::max<ssize_t>(size, 0)] = '\0';
    errno = before;
    return size > 0;
  }
  void look(int folder, const char* path) {
    char start[PATH_MAX];
    if (watching() && folder != AT_FDCWD && path_of(folder, start)) look(start, path);
  }
  void look(const char* path, const char* more) {
    if (!watching() || path == nullptr) return;
    const std::size_t size = std::strlen(block->folder);
    if (std::strncmp(path, block->folder, size) != 0 || (path[size] != '/' && path[size] != '\0')) return;
    watched_ = true;
    std::snprintf(path_, sizeof path_, "%.*s%s%.*s", 120, path + size, more[0] != '\0' ? "/" : "", 120, more);
  }
  bool watched_ = false;
  char path_[256] = {};
};

struct Kind {
  bool data = false;
  bool creates = false;
  bool always_done = false;  // also when it fails, as close() is
};

[[noreturn]] void end() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// Counts the call, and spoils it when it is its turn. `call(half)` makes it.
template <class Make>
auto turn(const char* name, const Subject& subject, Kind kind, Make&& call) -> decltype(call(false)) {
  using Result = decltype(call(false));
  if (!subject.watched()) return call(false);
  const std::uint32_t number = ++block->count;
  if (number <= Block::most_calls) {
    Call& entry = block->calls[number - 1];
    std::snprintf(entry.name, sizeof entry.name, "%s", name);
    std::snprintf(entry.subject, sizeof entry.subject, "%.75s", subject.path());
    entry.data = kind.data;
    entry.creates = kind.creates;
  }
  const bool later = number > block->at && block->at != 0 && block->fault == Fault::fail_on;
  if (number != block->at && !later) return call(false);
  ++block->fired;
  switch (block->fault) {
    case Fault::none:
      break;
    case Fault::fail:
    case Fault::fail_on:
      if (kind.always_done) static_cast<void>(call(false));
      errno = block->code;
      if constexpr (std::is_pointer_v<Result>) {
        return MAP_FAILED;
      } else {
        return -1;
      }
    case Fault::shorten:
      return call(kind.data);
    case Fault::kill_before:
      end();
    case Fault::kill_after:
    case Fault::kill_half:
      static_cast<void>(call(block->fault == Fault::kill_half));
      end();
  }
  return call(false);
}

std::size_t part_of(std::size_t size, bool half) { return half ? std::max<std::size_t>(size / 2, 1) : size; }

}  // namespace

// ---- opening, closing

STELE_FAULTS_WRAP(int, open, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return turn("open", Subject(path), {.creates = (flags & O_CREAT) != 0},
              [&](bool) { return STELE_FAULTS_REAL(open)(path, flags, mode); });
}
STELE_FAULTS_WRAP_64(int, open, const char* path, int flags, ...);

STELE_FAULTS_WRAP(int, openat, int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return turn("openat", Subject(folder, path), {.creates = (flags & O_CREAT) != 0},
              [&](bool) { return STELE_FAULTS_REAL(openat)(folder, path, flags, mode); });
}
STELE_FAULTS_WRAP_64(int, openat, int folder, const char* path, int flags, ...);

// openat2() has no name in the C library.
STELE_FAULTS_WRAP(long, syscall, long number, ...) {
  va_list rest;
  va_start(rest, number);
  long of[6];
  for (long& argument : of) argument = va_arg(rest, long);
  va_end(rest);
  const auto call = [&](bool) { return STELE_FAULTS_REAL(syscall)(number, of[0], of[1], of[2], of[3], of[4], of[5]); };
  if (number != SYS_openat2) return call(false);
  if (block != nullptr && block->no_openat2) {
    errno = ENOSYS;
    return -1;
  }
  return turn("openat2", Subject(static_cast<int>(of[0]), reinterpret_cast<const char*>(of[1])), {}, call);
}

STELE_FAULTS_WRAP(int, creat, const char* path, mode_t mode) {
  return turn("creat", Subject(path), {.creates = true}, [&](bool) { return STELE_FAULTS_REAL(creat)(path, mode); });
}
STELE_FAULTS_WRAP_64(int, creat, const char* path, mode_t mode);

STELE_FAULTS_WRAP(int, close, int file) {
  return turn("close", Subject(file), {.always_done = true}, [&](bool) { return STELE_FAULTS_REAL(close)(file); });
}

// ---- reading, writing

STELE_FAULTS_WRAP(ssize_t, read, int file, void* to, std::size_t size) {
  return turn("read", Subject(file), {.data = true},
              [&](bool half) { return STELE_FAULTS_REAL(read)(file, to, part_of(size, half)); });
}

STELE_FAULTS_WRAP(ssize_t, pread, int file, void* to, std::size_t size, off_t offset) {
  return turn("pread", Subject(file), {.data = true},
              [&](bool half) { return STELE_FAULTS_REAL(pread)(file, to, part_of(size, half), offset); });
}
STELE_FAULTS_WRAP_64(ssize_t, pread, int file, void* to, std::size_t size, off_t offset);

STELE_FAULTS_WRAP(ssize_t, write, int file, const void* from, std::size_t size) {
  return turn("write", Subject(file), {.data = true},
              [&](bool half) { return STELE_FAULTS_REAL(write)(file, from, part_of(size, half)); });
}

STELE_FAULTS_WRAP(ssize_t, pwrite, int file, const void* from, std::size_t size, off_t offset) {
  return turn("pwrite", Subject(file), {.data = true},
              [&](bool half) { return STELE_FAULTS_REAL(pwrite)(file, from, part_of(size, half), offset); });
}
STELE_FAULTS_WRAP_64(ssize_t, pwrite, int file, const void* from, std::size_t size, off_t offset);

STELE_FAULTS_WRAP(ssize_t, writev, int file, const iovec* pieces, int count) {
  return turn("writev", Subject(file), {.data = true}, [&](bool half) {
    // In part: half of the first piece, or all but the last.
    if (half && count == 1) return STELE_FAULTS_REAL(write)(file, pieces->iov_base, part_of(pieces->iov_len, true));
    return STELE_FAULTS_REAL(writev)(file, pieces, half ? count - 1 : count);
  });
}

STELE_FAULTS_WRAP(ssize_t, pwritev, int file, const iovec* pieces, int count, off_t offset) {
  return turn("pwritev", Subject(file), {.data = true}, [&](bool half) {
    if (half && count == 1) {
      return STELE_FAULTS_REAL(pwrite)(file, pieces->iov_base, part_of(pieces->iov_len, true), offset);
    }
    return STELE_FAULTS_REAL(pwritev)(file, pieces, half ? count - 1 : count, offset);
  });
}
STELE_FAULTS_WRAP_64(ssize_t, pwritev, int file, const iovec* pieces, int count, off_t offset);

STELE_FAULTS_WRAP(ssize_t, copy_file_range, int from, off64_t* from_at, int file, off64_t* at, std::size_t size,
                  unsigned flags) {
  return turn("copy_file_range", Subject(file), {.data = true}, [&](bool half) {
    return STELE_FAULTS_REAL(copy_file_range)(from, from_at, file, at, part_of(size, half), flags);
  });
}

STELE_FAULTS_WRAP(long, sysconf, int name) {
  const long page = name == _SC_PAGESIZE && block != nullptr ? block->page_bytes.load() : 0;
  return page != 0 ? page : STELE_FAULTS_REAL(sysconf)(name);
}

STELE_FAULTS_WRAP(void*, mmap, void* at, std::size_t size, int rights, int flags, int file, off_t offset) {
  const long page = block != nullptr && file >= 0 ? block->page_bytes.load() : 0;
  if (page != 0 && offset % page != 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  return turn("mmap", Subject(file), {},
              [&](bool) { return STELE_FAULTS_REAL(mmap)(at, size, rights, flags, file, offset); });
}
STELE_FAULTS_WRAP_64(void*, mmap, void* at, std::size_t size, int rights, int flags, int file, off_t offset);

// ---- room, syncing. Nobody cuts the power here, so the disk is not waited for.

STELE_FAULTS_WRAP(int, fallocate, int file, int mode, off_t offset, off_t size) {
  return turn("fallocate", Subject(file), {},
              [&](bool) { return STELE_FAULTS_REAL(fallocate)(file, mode, offset, size); });
}
STELE_FAULTS_WRAP_64(int, fallocate, int file, int mode, off_t offset, off_t size);

STELE_FAULTS_WRAP(int, ftruncate, int file, off_t size) {
  return turn("ftruncate", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(ftruncate)(file, size); });
}
STELE_FAULTS_WRAP_64(int, ftruncate, int file, off_t size);

STELE_FAULTS_WRAP(int, fsync, int file) {
  const Subject subject(file);
  return turn("fsync", subject, {}, [&](bool) { return subject.watched() ? 0 : STELE_FAULTS_REAL(fsync)(file); });
}

STELE_FAULTS_WRAP(int, fdatasync, int file) {
  const Subject subject(file);
  return turn("fdatasync", subject, {},
              [&](bool) { return subject.watched() ? 0 : STELE_FAULTS_REAL(fdatasync)(file); });
}

STELE_FAULTS_WRAP(int, syncfs, int file) {
  const Subject subject(file);
  return turn("syncfs", subject, {}, [&](bool) { return subject.watched() ? 0 : STELE_FAULTS_REAL(syncfs)(file); });
}

STELE_FAULTS_WRAP(int, sync_file_range, int file, off_t offset, off_t size, unsigned flags) {
  const Subject subject(file);
  return turn("sync_file_range", subject, {}, [&](bool) {
    return subject.watched() ? 0 : STELE_FAULTS_REAL(sync_file_range)(file, offset, size, flags);
  });
}

// ---- names

STELE_FAULTS_WRAP(int, rename, const char* from, const char* to) {
  return turn("rename", Subject(to), {}, [&](bool) { return STELE_FAULTS_REAL(rename)(from, to); });
}

STELE_FAULTS_WRAP(int, renameat, int from_folder, const char* from, int to_folder, const char* to) {
  return turn("renameat", Subject(to_folder, to), {},
              [&](bool) { return STELE_FAULTS_REAL(renameat)(from_folder, from, to_folder, to); });
}

STELE_FAULTS_WRAP(int, renameat2, int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return turn("renameat2", Subject(to_folder, to), {},
              [&](bool) { return STELE_FAULTS_REAL(renameat2)(from_folder, from, to_folder, to, flags); });
}

STELE_FAULTS_WRAP(int, linkat, int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return turn("linkat", Subject(to_folder, to), {},
              [&](bool) { return STELE_FAULTS_REAL(linkat)(from_folder, from, to_folder, to, flags); });
}

STELE_FAULTS_WRAP(int, mkdirat, int folder, const char* path, mode_t mode) {
  return turn("mkdirat", Subject(folder, path), {.creates = true},
              [&](bool) { return STELE_FAULTS_REAL(mkdirat)(folder, path, mode); });
}

STELE_FAULTS_WRAP(int, unlink, const char* path) {
  return turn("unlink", Subject(path), {}, [&](bool) { return STELE_FAULTS_REAL(unlink)(path); });
}

STELE_FAULTS_WRAP(int, unlinkat, int folder, const char* path, int flags) {
  return turn("unlinkat", Subject(folder, path), {},
              [&](bool) { return STELE_FAULTS_REAL(unlinkat)(folder, path, flags); });
}

STELE_FAULTS_WRAP(ssize_t, readlink, const char* path, char* to, std::size_t size) {
  return turn("readlink", Subject(path), {}, [&](bool) { return STELE_FAULTS_REAL(readlink)(path, to, size); });
}

STELE_FAULTS_WRAP(ssize_t, readlinkat, int folder, const char* path, char* to, std::size_t size) {
  return turn("readlinkat", Subject(folder, path), {},
              [&](bool) { return STELE_FAULTS_REAL(readlinkat)(folder, path, to, size); });
}

// ---- what is known of a file, rights, locks

STELE_FAULTS_WRAP(int, stat, const char* path, struct stat* to) {
  return turn("stat", Subject(path), {}, [&](bool) { return STELE_FAULTS_REAL(stat)(path, to); });
}
STELE_FAULTS_WRAP_64(int, stat, const char* path, struct stat* to);

STELE_FAULTS_WRAP(int, lstat, const char* path, struct stat* to) {
  return turn("lstat", Subject(path), {}, [&](bool) { return STELE_FAULTS_REAL(lstat)(path, to); });
}
STELE_FAULTS_WRAP_64(int, lstat, const char* path, struct stat* to);

STELE_FAULTS_WRAP(int, fstat, int file, struct stat* to) {
  return turn("fstat", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(fstat)(file, to); });
}
STELE_FAULTS_WRAP_64(int, fstat, int file, struct stat* to);

STELE_FAULTS_WRAP(int, fstatat, int folder, const char* path, struct stat* to, int flags) {
  return turn("fstatat", Subject(folder, path), {},
              [&](bool) { return STELE_FAULTS_REAL(fstatat)(folder, path, to, flags); });
}
STELE_FAULTS_WRAP_64(int, fstatat, int folder, const char* path, struct stat* to, int flags);

STELE_FAULTS_WRAP(int, faccessat, int folder, const char* path, int mode, int flags) {
  return turn("faccessat", Subject(folder, path), {},
              [&](bool) { return STELE_FAULTS_REAL(faccessat)(folder, path, mode, flags); });
}

STELE_FAULTS_WRAP(int, fchmod, int file, mode_t mode) {
  return turn("fchmod", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(fchmod)(file, mode); });
}

STELE_FAULTS_WRAP(int, fchown, int file, uid_t owner, gid_t group) {
  return turn("fchown", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(fchown)(file, owner, group); });
}

STELE_FAULTS_WRAP(ssize_t, getxattr, const char* path, const char* name, void* to, std::size_t size) {
  return turn("getxattr", Subject(path), {}, [&](bool) { return STELE_FAULTS_REAL(getxattr)(path, name, to, size); });
}

STELE_FAULTS_WRAP(int, fsetxattr, int file, const char* name, const void* from, std::size_t size, int flags) {
  return turn("fsetxattr", Subject(file), {},
              [&](bool) { return STELE_FAULTS_REAL(fsetxattr)(file, name, from, size, flags); });
}

STELE_FAULTS_WRAP(int, fremovexattr, int file, const char* name) {
  return turn("fremovexattr", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(fremovexattr)(file, name); });
}

STELE_FAULTS_WRAP(int, flock, int file, int operation) {
  return turn("flock", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(flock)(file, operation); });
}

STELE_FAULTS_WRAP(int, fcntl, int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);  // a number or a pointer: passed on as it came
  va_end(rest);
  return turn("fcntl", Subject(file), {}, [&](bool) { return STELE_FAULTS_REAL(fcntl)(file, command, argument); });
}
STELE_FAULTS_WRAP_64(int, fcntl, int file, int command, ...);

// ---- threads

STELE_FAULTS_WRAP(int, pthread_create, pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*), void* of) {
  if (block != nullptr && block->threads >= 0 && block->threads-- <= 0) {
    block->threads = 0;
    return EAGAIN;
  }
  if (block != nullptr) ++block->threads_started;
  return STELE_FAULTS_REAL(pthread_create)(thread, how, work, of);
}
