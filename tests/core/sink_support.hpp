// Helpers of the tests of sinks.
#pragma once

#include "stele/sink.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "stele/source.hpp"

namespace stele_test::sinks {

using namespace stele;
inline constexpr FileSinkOptions quick{Durability::process};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline Status write_file(const std::string& path, std::string_view text, FileSinkOptions options = quick) {
  STELE_TRY_ASSIGN(const std::unique_ptr<Sink> sink, file_sink(path, options));
  STELE_TRY(sink->reserve(text.size()));
  STELE_TRY(sink->write(bytes_of(text)));
  return sink->commit();
}

inline Errc save_error(const std::string& path) {
  const Status status = write_file(path, "new");
  return status ? Errc::none : status.error().code();
}

inline mode_t mode_of(const std::string& path) {
  struct stat status = {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

/// `count` pieces of 0 to 4 bytes, and their text.
struct ManyPieces {
  explicit ManyPieces(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i % 26);
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t size = std::min(i % 5, text.size() - at);
      pieces.push_back(size == 0 ? std::span<const std::byte>() : bytes_of(text).subspan(at, size));
      at += size;
    }
    text.resize(at);
  }
  std::string text;
  std::vector<std::span<const std::byte>> pieces;
};

/// A process id that no process has: one that was waited for.
inline pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return child;
}

inline std::string temporary_name(const std::string& name, pid_t process, int counter) {
  return "." + name + ".stele-" + std::to_string(process) + "-" + std::to_string(counter) + ".tmp";
}

/// Runs the rest of the scope as a user without rights, where the test runs as root.
class AsNobody {
 public:
  AsNobody() : root_(::geteuid() == 0) {
    if (root_) REQUIRE((::setegid(65534) == 0 && ::seteuid(65534) == 0));
  }
  ~AsNobody() {
    if (root_ && (::seteuid(0) != 0 || ::setegid(0) != 0)) std::abort();
  }

 private:
  bool root_;
};

/// Gives the folder to the user of AsNobody.
inline void give_to_nobody(const std::string& path) {
  if (::geteuid() == 0) REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
}

}  // namespace stele_test::sinks
