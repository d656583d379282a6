// The engine of both fake drivers: devices, memory, streams and events, with checks of how they are used.
//
// Two ways find a missing wait. Copies run late and in pieces on the thread of their stream, so that reuse of memory
// before its copy is done damages data; ThreadSanitizer sees these accesses, ordered only by what the driver's
// functions promise. Besides, each operation has a vector clock, by which the engine reports conflicting operations
// that are not ordered, whatever the timing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "control.hpp"
#include "hidden.hpp"

#define STELE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace stele_fake {

using Code = int;
/// CUresult and hipError_t have the same numbers.
namespace code {
inline constexpr Code success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3,
                      invalid_device_pointer = 17,  // HIP alone
    no_device = 100, invalid_device = 101, invalid_context = 201, invalid_handle = 400, not_ready = 600,
                      illegal_address = 700, launch_timeout = 702, context_is_destroyed = 709, launch_failed = 719,
                      not_permitted = 800, not_supported = 801, unknown = 999;
}  // namespace code

/// The API that a library exports.
struct Flavour {
  bool contexts;  // a thread has a stack of contexts; else a current device, and contexts exist always
  int version;
  const char* device_name;
  const char* name_of_error;  // this function only fails when a fault names it
};
extern const Flavour flavour;

struct Block;
struct Device;
struct Event;
struct Op;
struct Stream;
using Clock = std::map<std::uint64_t, std::uint64_t>;  // the last operation of each stream, by number

/// A function of the driver.
struct Function {
  const char* name;
  bool early = false;   // works before the driver is initialised
  bool always = false;  // does its work even if it returns an injected error
};

class Engine {
 public:
  static Engine& get();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Counts a call of a function, and does its work under the engine's lock.
  template <class F>
  Code enter(Function function, F work) {
    const Lock lock(*this, function.name);
    const Code injected = begin(function);
    if (injected == code::not_permitted || (injected != code::success && !function.always)) return injected;
    const Code result = work();
    return injected != code::success ? injected : result;
  }
  /// Runs a function of Control.
  template <class F>
  auto control(F work) {
    const Lock lock(*this, "control");
    return work();
  }

  // Functions of the driver, called by `work`.
  Code initialize();
  int devices() const;
  int version() const { return version_; }
  Code device(int ordinal, Device*& out);
  Code current(Device*& out, bool always = false);
  Code retain(int ordinal, void*& context);
  Code release(int ordinal);
  Code push(void* context);
  Code pop(void*& context);
  Code set_device(int ordinal);
  Code allocate_device(std::size_t size, std::uint64_t& address);
  Code free_device(std::uint64_t address);
  Code allocate_host(std::size_t size, void*& out);
  Code free_host(void* memory);
  Code copy_to_device(std::uint64_t to, const void* from, std::size_t size, void* stream);
  Code copy_from_device(void* to, std::uint64_t from, std::size_t size, void* stream);
  Code create_stream(bool blocking, void*& out);
  Code destroy_stream(void* stream);
  Code synchronize_stream(void* stream);
  Code wait_event(void* stream, void* event);
  Code create_event(void*& out);
  Code destroy_event(void* event);
  Code record_event(void* event, void* stream);
  Code synchronize_event(void* event);
  Code query_event(void* event);

  // Functions of Control.
  void reset();
  void set_devices(int count);
  void set_version(int version) { version_ = version; }
  void set_delay(std::uint64_t seed, unsigned max_us);
  void set_device_limit(int device, std::uint64_t bytes);
  void set_host_limit(std::uint64_t bytes) { host_limit_ = bytes; }
  void set_patience(unsigned ms) { patience_ms_ = ms; }
  void fail(const char* function, std::uint64_t n, Code code, std::uint64_t times);
  void fail_copy(std::uint64_t n, Code code);
  void lose();
  std::uint64_t pending_faults() const;
  Counters counters() const;
  std::uint64_t calls(std::string_view function) const;
  std::string misuses() const;
  void clear_misuses();
  int access(std::uint64_t address, void* out, const void* from, std::size_t size);
  int run(void* stream, int device, std::uint64_t address, std::size_t size, bool writes, void (*function)(void*),
          void* context);
  int hold(void* stream, int device, bool held);
  void hold_copies(bool held);
  int idle();
  int stack_depth() const;
  int current_device() const;

 private:
  /// The engine's lock. ThreadSanitizer sees neither it nor what happens under it.
  class Lock {
   public:
    Lock(Engine& engine, const char* function);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();

   private:
    Hidden hidden_;
    std::unique_lock<std::mutex> lock_;
    std::unique_lock<std::mutex>* outer_;  // a function on a stream calls Control
    const char* outer_function_;
  };
  class Unlock;

  struct Fault {
    std::string function;  // empty: any
    std::uint64_t skip, times;
    Code code;
  };
  struct Use;
  using Blocks = std::map<std::uint64_t, std::shared_ptr<Block>>;

  Engine();
  Code begin(const Function& function);
  void misuse(std::string_view kind, const std::string& text);
  std::shared_ptr<Stream> make_stream(Device& device, bool blocking);
  Code find_stream(void* handle, Stream*& out);
  Stream* control_stream(void* handle, int device);
  Stream& null_stream(Device& device);
  std::shared_ptr<Event> find_event(void* handle);
  static std::shared_ptr<Block> find(const Blocks& blocks, std::uint64_t address);
  std::shared_ptr<Block> device_range(std::uint64_t address, std::size_t size);
  Code copy(bool to_device, std::uint64_t address, std::byte* host, std::size_t size, void* stream);
  std::shared_ptr<Op> make_op() const;
  void enqueue(Stream& stream, const std::shared_ptr<Op>& op, std::vector<Use> uses);
  void check_order(const Use& use, const Clock& clock);
  Code wait(const std::shared_ptr<Op>& op);
  void observe(const Op& op);
  Code finish(const std::shared_ptr<Op>& op, const Device& device);
  Code release_block(const std::shared_ptr<Block>& block, bool silent);
  void reset_context(Device& device);
  void work(Stream& stream);
  void join_ended();
  void end_streams();
  void set_defaults();

  mutable std::mutex mutex_;
  std::condition_variable changed_;

  bool initialized_ = false;
  bool lost_ = false;
  bool copies_held_ = false;
  int version_ = 0;
  std::uint64_t generation_ = 0;  // the number of resets, so that the stacks of threads become empty
  std::vector<std::unique_ptr<Device>> devices_;
  Blocks device_blocks_;
  Blocks freed_blocks_;  // keep their addresses until the reset
  Blocks host_blocks_;
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Stream>> ended_streams_;  // destroyed, and null streams; their threads are joined later
  std::map<void*, std::shared_ptr<Event>> events_;
  std::uint64_t handles_ = 0;
  std::uint64_t stream_numbers_ = 0;
  std::vector<Use> uses_;  // by operations for which the host has not waited
  Clock observed_;         // operations for which the host has waited

  std::uint64_t host_limit_ = 0, host_bytes_ = 0;
  unsigned patience_ms_ = 0;
  std::mt19937_64 random_;
  unsigned max_delay_us_ = 0;
  std::vector<Fault> faults_, copy_faults_;
  Counters counters_{};
  std::map<std::string, std::uint64_t, std::less<>> calls_;
  std::vector<std::string> misuses_;
};

/// Returns the table for stele_fake_control().
const Control* control_table();

}  // namespace stele_fake
