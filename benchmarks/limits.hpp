// The limits of the machine: the simplest system calls and loops that move a model's bytes. They do not use the
// library, so that a ratio to a limit shows the cost that the library adds.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include "stele/precision/convert.hpp"
#endif

namespace limits {

using In = std::span<const std::byte>;
using Out = std::span<std::byte>;

/// Ends the program on failure, because a benchmark without enough disk space or memory gives no valid results.
inline void check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

/// Memory without any resident page, advised for huge pages.
class FreshMemory {
 public:
  explicit FreshMemory(std::size_t size) : size_(size), mapped_(size + huge) {
    base_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(base_ != MAP_FAILED, "mmap");
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    at_ = static_cast<std::byte*>(base_) + (huge - address % huge) % huge;
    ::madvise(at_, size_, MADV_HUGEPAGE);
  }
  FreshMemory(FreshMemory&& other) noexcept { swap(other); }
  FreshMemory& operator=(FreshMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FreshMemory() {
    if (base_) ::munmap(base_, mapped_);
  }
  Out span() const noexcept { return {at_, size_}; }

 private:
  void swap(FreshMemory& other) noexcept {
    std::swap(base_, other.base_), std::swap(at_, other.at_);
    std::swap(size_, other.size_), std::swap(mapped_, other.mapped_);
  }
  static constexpr std::size_t huge = std::size_t{2} << 20;
  void* base_ = nullptr;
  std::byte* at_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

class File {
 public:
  File(const std::string& path, int flags) : handle_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    check(handle_ >= 0, path.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(handle_); }

  void write(In bytes) const {
    while (!bytes.empty()) bytes = bytes.subspan(count(::write(handle_, bytes.data(), bytes.size()), "write"));
  }
  void read(std::uint64_t offset, Out bytes) const {
    while (!bytes.empty()) {
      const auto n = count(::pread(handle_, bytes.data(), bytes.size(), static_cast<off_t>(offset)), "read");
      bytes = bytes.subspan(n);
      offset += n;
    }
  }
  int handle() const noexcept { return handle_; }

 private:
  static std::size_t count(ssize_t n, const char* what) {
    check(n > 0, what);
    return static_cast<std::size_t>(n);
  }
  int handle_;
};

inline constexpr std::size_t chunk = std::size_t{1} << 20;
inline constexpr std::size_t cache_piece = std::size_t{256} << 10;  // fits the second-level cache

/// Calls `f` with each part of `bytes`; parts have at most `size` bytes.
template <class Bytes, class F>
void for_each_chunk(Bytes bytes, std::size_t size, F&& f) {
  for (std::size_t at = 0; at < bytes.size(); at += size) f(at, bytes.subspan(at, std::min(size, bytes.size() - at)));
}

/// Writes a new file next to `path` by calling `fill`, and renames it to `path`.
template <class Fill>
void replace_file(const std::string& path, Fill&& fill) {
  const std::string fresh = path + ".fresh";
  {
    const File file(fresh, O_WRONLY | O_CREAT | O_EXCL);
    fill(file);
  }
  check(std::rename(fresh.c_str(), path.c_str()) == 0, "rename");
}

inline void write(const std::string& path, In bytes) {
  replace_file(path, [&](const File& file) { for_each_chunk(bytes, chunk, [&](auto, In part) { file.write(part); }); });
}

inline void write_synced(const std::string& path, In bytes) {
  replace_file(path, [&](const File& file) {
    for_each_chunk(bytes, chunk, [&](auto, In part) { file.write(part); });
    check(::fsync(file.handle()) == 0, "fsync");
  });
}

/// Writes directly from the tensors, 1024 of them per call.
inline void write_gathered(const std::string& path, const std::vector<In>& pieces) {
  replace_file(path, [&](const File& file) {
    std::vector<iovec> left;
    for (const In piece : pieces) left.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    for (std::size_t at = 0; at < left.size();) {
      const auto n =
          ::writev(file.handle(), &left[at], static_cast<int>(std::min<std::size_t>(1024, left.size() - at)));
      check(n >= 0, "writev");
      auto done = static_cast<std::size_t>(n);
      for (; at < left.size() && done >= left[at].iov_len; ++at) done -= left[at].iov_len;
      if (done == 0) continue;
      left[at].iov_base = static_cast<std::byte*>(left[at].iov_base) + done;
      left[at].iov_len -= done;
    }
  });
}

inline FreshMemory read(const std::string& path, std::size_t size, unsigned threads) {
  const File file(path, O_RDONLY);
  FreshMemory memory(size);
  const Out all = memory.span();
  const std::size_t share = (size / threads + 4095) / 4096 * 4096;
  std::vector<std::thread> others;
  for (std::size_t at = share; at < size; at += share) {
    others.emplace_back([&file, all, at, share] { file.read(at, all.subspan(at, std::min(share, all.size() - at))); });
  }
  file.read(0, all.first(std::min(share, size)));
  for (std::thread& other : others) other.join();
  return memory;
}

/// Reads every tensor to a separate block, as in a module: malloc, and 1024 tensors per call.
inline std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> read_blocks(const std::string& path,
                                                                                 const std::vector<In>& pieces) {
  const File file(path, O_RDONLY);
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> blocks;
  std::vector<iovec> parts;
  blocks.reserve(pieces.size());
  for (const In piece : pieces) {
    blocks.emplace_back(static_cast<std::byte*>(std::malloc(piece.size())), &std::free);
    parts.push_back({blocks.back().get(), piece.size()});
  }
  off_t offset = 0;
  for (std::size_t at = 0; at < parts.size(); at += 1024) {
    const auto count = static_cast<int>(std::min<std::size_t>(1024, parts.size() - at));
    const ssize_t n = ::preadv(file.handle(), &parts[at], count, offset);
    check(n > 0, "preadv");
    offset += n;
  }
  return blocks;
}

inline FreshMemory copy(In bytes) {
  FreshMemory memory(bytes.size());
  std::memcpy(memory.span().data(), bytes.data(), bytes.size());
  return memory;
}

/// Maps a file and reads its first byte.
inline int map_and_touch(const std::string& path) {
  const File file(path, O_RDONLY);
  struct stat about {};
  check(::fstat(file.handle(), &about) == 0, "fstat");
  const auto size = static_cast<std::size_t>(about.st_size);
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.handle(), 0);
  check(at != MAP_FAILED, "mmap");
  const int first = *static_cast<const volatile unsigned char*>(at);
  ::munmap(at, size);
  return first;
}

// Converts f32 <-> f16 with the processor's instruction. `count` is a multiple of 16 for all tensors here.
#if defined(__x86_64__)
[[gnu::target("avx,f16c")]] inline void to_half(const float* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
  }
}
[[gnu::target("avx,f16c")]] inline void from_half(const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
}
#else
inline void to_half(const float* from, std::uint16_t* to, std::size_t count) {
  stele::convert(stele::DType::f32, reinterpret_cast<const std::byte*>(from), stele::DType::f16,
                 reinterpret_cast<std::byte*>(to), count);
}
inline void from_half(const std::uint16_t* from, float* to, std::size_t count) {
  stele::convert(stele::DType::f16, reinterpret_cast<const std::byte*>(from), stele::DType::f32,
                 reinterpret_cast<std::byte*>(to), count);
}
#endif

/// Converts f32 to f16 in a piece that stays in the cache, and writes the piece.
inline void convert_and_write(const std::string& path, In bytes) {
  std::vector<std::uint16_t> half(cache_piece / 2);
  replace_file(path, [&](const File& file) {
    for_each_chunk(bytes, 2 * cache_piece, [&](auto, In part) {
      to_half(reinterpret_cast<const float*>(part.data()), half.data(), part.size() / 4);
      file.write(std::as_bytes(std::span(half).first(part.size() / 4)));
    });
  });
}

/// Reads f16 into a piece that stays in the cache, and converts it to f32 in fresh memory.
inline FreshMemory read_and_convert(const std::string& path, std::size_t f32_size) {
  const File file(path, O_RDONLY);
  FreshMemory memory(f32_size);
  std::vector<std::uint16_t> half(cache_piece / 2);
  for_each_chunk(memory.span(), 2 * cache_piece, [&](std::size_t at, Out part) {
    file.read(at / 2, std::as_writable_bytes(std::span(half).first(part.size() / 4)));
    from_half(half.data(), reinterpret_cast<float*>(part.data()), part.size() / 4);
  });
  return memory;
}

}  // namespace limits
