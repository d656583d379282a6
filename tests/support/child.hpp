// Runs tests that need a separate process, for limits and memory peaks.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

namespace stele_test {

/// Returns the size of this process's address space in bytes.
inline std::uint64_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Runs `f` in a child process and returns its result.
template <class F>
std::string in_child(F f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  CAPTURE(std::string(std::strerror(errno)));
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string text;
    try {
      text = f();
    } catch (const std::exception& e) {
      text = std::string("threw ") + e.what();
    }
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " (the child died: " + std::to_string(status) + ")";
  return text;
}

}  // namespace stele_test
