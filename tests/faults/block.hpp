// The data that the injecting library and the tests exchange. Child processes share its memory, so that the calls of a
// killed one are still known.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stele_faults {

enum class Fault : std::uint8_t {
  none,
  fail,         // the call does nothing and fails with `code`
  fail_on,      // and so does every later one, as after the loss of a disk
  shorten,      // it reads or writes half of what it was asked for
  kill_before,  // the process ends by SIGKILL
  kill_after,
  kill_half,  // after half of what was to be written
};

struct Call {
  char name[20];
  char subject[76];  // the file's path below the watched folder, cut
  bool data;         // it reads or writes bytes, so it can do so in part
  bool creates;
};

struct Block {
  static constexpr std::size_t most_calls = 4096;

  /// Calls about files below this folder are counted; empty: none are.
  char folder[256];
  /// The number of the call that goes wrong, from 1; 0: none does.
  std::uint32_t at;
  Fault fault;
  int code;
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> fired;
  /// The number of threads that may still be started; below 0: any number.
  std::atomic<int> threads;
  std::atomic<std::uint32_t> threads_started;
  /// The size of a page, a multiple of the system's; 0: the system's.
  std::atomic<long> page_bytes;
  /// The system has no openat2().
  std::atomic<bool> no_openat2;
  Call calls[most_calls];
};

}  // namespace stele_faults

/// Returns the block.
extern "C" stele_faults::Block* stele_faults_block();
