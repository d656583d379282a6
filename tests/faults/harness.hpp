// Makes one call after the other fail and checks the result.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "block.hpp"
#include "support/temp_dir.hpp"

namespace stele_faults {

/// The totals of all tests of the program.
struct Totals {
  std::size_t calls = 0;     // of runs without a fault
  std::size_t failures = 0;  // injected errors and interruptions
  std::size_t partial = 0;   // reads and writes cut short
  std::size_t kills = 0;
  std::size_t lost = 0;  // neither the old nor the new file
};
inline Totals totals;

/// Returns true if all kills are asked for, by STELE_TEST_FULL=1.
inline bool full() { return std::getenv("STELE_TEST_FULL") != nullptr; }

/// A fault to inject.
struct Spoiled {
  std::uint32_t at = 0;
  Fault fault = Fault::none;
  int code = 0;

  bool kills() const { return fault == Fault::kill_before || fault == Fault::kill_after || fault == Fault::kill_half; }
  /// Returns true if the library tries the call again, so that its caller does not notice.
  bool hidden() const { return fault == Fault::shorten || (fault == Fault::fail && code == EINTR); }
  std::string text() const {
    static constexpr const char* names[] = {"none",        "fail",       "fail from here on", "shorten",
                                            "kill before", "kill after", "kill half way"};
    return "call " + std::to_string(at) + ": " + names[static_cast<int>(fault)] +
           (fault == Fault::fail || fault == Fault::fail_on ? std::string(" ") + std::strerror(code) : "");
  }
};

/// The calls of a run.
using Calls = std::vector<Call>;
inline std::string text_of(const Call& call) { return std::string(call.name) + " " + call.subject; }

/// Watches the folder as long as it lives; a fault that was asked for must have happened by then.
class Watch {
 public:
  explicit Watch(const std::string& folder, Spoiled spoiled = {}) : spoiled_(spoiled) {
    Block& block = *stele_faults_block();
    REQUIRE(folder.size() < sizeof block.folder);
    block.at = spoiled.at;
    block.fault = spoiled.fault;
    block.code = spoiled.code;
    block.count = 0;
    block.fired = 0;
    std::memcpy(block.folder, folder.c_str(), folder.size() + 1);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    Block& block = *stele_faults_block();
    block.folder[0] = '\0';
    CHECK((block.fired != 0) == (spoiled_.at != 0));
  }
  static Calls calls() {
    const Block& block = *stele_faults_block();
    REQUIRE(block.count <= Block::most_calls);
    return {block.calls, block.calls + block.count};
  }

 private:
  Spoiled spoiled_;
};

/// All that can go wrong with the calls of a run, one at a time.
template <class Visit>
void each_fault(const Calls& calls, bool kill, Visit&& visit) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const std::string_view name(call.name);
    const auto at = static_cast<std::uint32_t>(i + 1);
    visit(Spoiled{at, Fault::fail, EIO}, call);
    visit(Spoiled{at, Fault::fail, ENOSPC}, call);
    visit(Spoiled{at, Fault::fail_on, EIO}, call);
    // Neither waits for anything.
    if (name != "mmap" && name != "fcntl") visit(Spoiled{at, Fault::fail, EINTR}, call);
    if (call.data) visit(Spoiled{at, Fault::shorten, 0}, call);
    if (!kill) continue;
    visit(Spoiled{at, Fault::kill_before, 0}, call);
    if (call.data) visit(Spoiled{at, Fault::kill_half, 0}, call);
    if (name.starts_with("rename")) visit(Spoiled{at, Fault::kill_after, 0}, call);
  }
}

/// The files of a folder, with their bytes; of folders in it, "m/a.dat". A folder itself, "m/", has none.
using Files = std::map<std::string, std::string>;
inline Files files_in(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    std::string& bytes = files[path.substr(folder.size() + 1) + (entry.is_directory() ? "/" : "")];
    if (entry.is_directory()) continue;
    bytes.resize(entry.file_size());
    std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  return files;
}

/// Runs `f` in a child process that is killed on the way.
template <class F>
void in_killed_child(F&& f) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    f();
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

}  // namespace stele_faults
