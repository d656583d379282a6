// The engine's objects, as its sources share them.
#pragma once

#include <deque>
#include <thread>

#include "engine.hpp"

namespace stele_fake {

inline constexpr std::size_t max_contexts = 32;  // in the stack of a thread
// The limit of the memory of each device, and of page-locked memory.
inline constexpr std::uint64_t default_limit = std::uint64_t{16} << 30;

// Handles begin here. On 64-bit machines no pointer has such a value, so that a program that follows one crashes.
inline constexpr std::uintptr_t first_handle =
    sizeof(void*) == 8 ? static_cast<std::uintptr_t>(0xFA1E'0000'0000'0000U) : std::uintptr_t{0x1000};

/// The state of a thread. It has no destructor, which would keep the library loaded.
struct Thread {
  std::unique_lock<std::mutex>* lock;  // of the engine, while it is held
  const char* function;                // of the driver, that the thread is in
  const Op* running;                   // the operation that this worker runs
  std::uint64_t generation;
  int ordinal;  // HIP's current device
  std::size_t contexts;
  int context[max_contexts];
};
extern constinit thread_local Thread thread;

/// Returns a number in hexadecimal digits.
std::string hex(std::uint64_t number);
/// Adds the operations of another clock.
void join(Clock& clock, const Clock& other);
/// True if what has this clock follows the operation.
bool knows(const Clock& clock, const Op& op);
/// True if a function of the driver has this name, with or without its version.
bool named(std::string_view function, std::string_view name);

/// An allocation of device or host memory. Operations keep its bytes, so that late ones damage nothing else.
struct Block {
  bool on_device = false;
  int ordinal = 0;            // the device, or the device whose context allocated host memory
  std::uint64_t address = 0;  // that the program sees
  std::size_t size = 0;
  std::byte* bytes = nullptr;
  void* reserved = nullptr;
  std::size_t reserved_bytes = 0;

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
  std::string text() const;
};

struct Device {
  int ordinal = 0;
  std::uint64_t limit = default_limit, bytes = 0;
  std::uint64_t retained = 0;
  Code failed = code::success;  // returned by every call that uses the device, once an operation has failed
  std::shared_ptr<Stream> null;
  Clock ended;  // operations of blocking streams that join_ended() has removed
};

struct Piece {
  std::size_t size;
  unsigned sleep_us;  // before the piece
};

struct Op {
  std::uint64_t stream = 0, ticket = 0;
  Clock clock;                             // operations that precede this one, itself included
  std::vector<std::shared_ptr<Op>> after;  // operations of other streams to wait for
  bool done = false;

  // A copy, a function or neither.
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::vector<Piece> pieces;
  std::shared_ptr<Block> device_block, host_block;
  Code fail = code::success;
  void (*function)(void*) = nullptr;
  void* context = nullptr;

  bool copies() const noexcept { return to != nullptr; }
  void run() const;
};

struct Event {
  Device* device = nullptr;
  std::shared_ptr<Op> op;  // the last record
};

struct Stream {
  void* handle = nullptr;
  std::uint64_t number = 0;
  Device* device = nullptr;
  bool blocking = false;  // ordered with the null stream
  bool held = false;
  bool ending = false;  // ends its thread when its queue is empty
  bool ended = false;
  std::deque<std::shared_ptr<Op>> queue;
  std::shared_ptr<Op> last;
  std::uint64_t tickets = 0;
  Clock clock;
  std::thread worker;
};

struct Engine::Use {
  std::shared_ptr<Block> block;
  std::uint64_t offset;
  std::uint64_t size;
  bool writes;
  std::shared_ptr<Op> op;

  bool conflicts(const Use& other) const {
    return block == other.block && (writes || other.writes) && offset < other.offset + other.size &&
           other.offset < offset + size;
  }
};

/// Leaves the lock of this thread, and what it hides, for a while.
class Engine::Unlock {
 public:
  Unlock() : lock_(*thread.lock) {
    lock_.unlock();
    show();
  }
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;
  ~Unlock() {
    hide();
    lock_.lock();
  }

 private:
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace stele_fake
