#include "engine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

namespace stele_fake {

namespace {

constexpr std::uint64_t guard_bytes = 64 << 10;  // on both sides of an address range
constexpr std::uint64_t page_bytes = 64 << 10;   // the largest pages that Linux has
constexpr unsigned alignment = 256;              // that drivers promise
constexpr std::size_t host_alignment = 4096;
constexpr int device_byte = 0xDB;  // contents of new device memory
constexpr int host_byte = 0xDA;    // and of new host memory
constexpr int freed_byte = 0xDD;
constexpr std::size_t max_misuses = 1000;
constexpr std::size_t max_ended_streams = 64;  // bounds the threads that have ended and are not joined
constexpr std::size_t max_contexts = 32;       // in the stack of a thread
constexpr std::uint64_t default_limit = std::uint64_t{16} << 30;  // of each device, and of page-locked memory

// Handles begin here. On 64-bit machines no pointer has such a value, so that a program that follows one crashes.
constexpr std::uintptr_t first_handle =
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
thread_local Thread thread{};

std::string hex(std::uint64_t number) {
  std::string text;
  do text += "0123456789abcdef"[number & 15U];
  while ((number >>= 4U) != 0);
  return "0x" + std::string(text.rbegin(), text.rend());
}

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, ticket] : other) {
    std::uint64_t& own = clock[stream];
    own = std::max(own, ticket);
  }
}

/// True if what has this clock follows the operation.
bool knows(const Clock& clock, const Op& op);

bool named(std::string_view function, std::string_view name) {
  return function == name ||
         (function.size() == name.size() + 3 && function.starts_with(name) && function.ends_with("_v2"));
}

void sleep(unsigned us) {
  if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

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
  ~Block() {
    std::free(bytes);
    if (reserved != nullptr) ::munmap(reserved, reserved_bytes);
  }
  std::string text() const {
    return std::to_string(size) + " bytes at " + hex(address) +
           (on_device ? " of device " + std::to_string(ordinal) : std::string(" of page-locked memory"));
  }
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

// ThreadSanitizer sees these accesses.
void Op::run() const {
  std::byte* out = to;
  const std::byte* in = from;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sleep(pieces[i].sleep_us);
    if (fail != code::success && i >= pieces.size() / 2) break;
    std::memcpy(out, in, pieces[i].size);
    out += pieces[i].size;
    in += pieces[i].size;
  }
  if (function != nullptr) function(context);
}

namespace {
bool knows(const Clock& clock, const Op& op) {
  const auto last = clock.find(op.stream);
  return last != clock.end() && last->second >= op.ticket;
}
}  // namespace

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

Engine::Lock::Lock(Engine& engine, const char* function)
    : lock_(engine.mutex_), outer_(thread.lock), outer_function_(thread.function) {
  thread.lock = &lock_;
  thread.function = function;
  if (thread.generation != engine.generation_) {
    thread.generation = engine.generation_;
    thread.ordinal = 0;
    thread.contexts = 0;
  }
}

Engine::Lock::~Lock() {
  thread.lock = outer_;
  thread.function = outer_function_;
}

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

Engine& Engine::get() {
  static Engine engine;
  return engine;
}

Engine::Engine() { set_defaults(); }

Engine::~Engine() { reset(); }

Code Engine::begin(const Function& function) {
  ++counters_.calls;
  ++calls_[function.name];
  Code injected = code::success;
  for (Fault& fault : faults_) {
    if (fault.times == 0) continue;
    if (fault.function.empty() ? std::string_view(function.name) == flavour.name_of_error
                               : !named(function.name, fault.function)) {
      continue;
    }
    if (fault.skip != 0) {
      --fault.skip;
    } else {
      --fault.times;
      injected = fault.code;
    }
  }
  if (thread.running != nullptr) {
    misuse("call_in_function", "a function on a stream calls the driver");
    return code::not_permitted;
  }
  if (lost_ && std::string_view(function.name) != flavour.name_of_error) return code::unknown;
  if (injected != code::success) return injected;
  if (!initialized_) {
    if (flavour.contexts && !function.early) {
      misuse("not_initialized", "the driver is not initialised");
      return code::not_initialized;
    }
    if (!flavour.contexts) initialized_ = true;
  }
  return code::success;
}

void Engine::misuse(std::string_view kind, const std::string& text) {
  ++counters_.misuses;
  if (misuses_.size() == max_misuses) return;
  misuses_.push_back(std::string(kind) + ": " + (thread.function != nullptr ? thread.function : "") + ": " + text);
}

// Devices and contexts.

Code Engine::initialize() {
  if (devices_.empty()) return code::no_device;
  initialized_ = true;
  return code::success;
}

int Engine::devices() const { return static_cast<int>(devices_.size()); }

Code Engine::device(int ordinal, Device*& out) {
  if (ordinal < 0 || ordinal >= devices()) {
    misuse("unknown_device", "device " + std::to_string(ordinal));
    return code::invalid_device;
  }
  out = devices_[static_cast<std::size_t>(ordinal)].get();
  return code::success;
}

/// Returns the device of this thread's context. `always`: for functions that release or wait, which need none after the
/// loss of the devices.
Code Engine::current(Device*& out, bool always) {
  if (!flavour.contexts) {
    if (devices_.empty()) return code::no_device;
    return device(thread.ordinal, out);
  }
  if (thread.contexts == 0) {
    if (lost_ && always && !devices_.empty()) {
      out = devices_.front().get();
      return code::success;
    }
    misuse("no_context", "this thread has no current context");
    return code::invalid_context;
  }
  out = devices_[static_cast<std::size_t>(thread.context[thread.contexts - 1])].get();
  if (out->retained == 0) {
    misuse("destroyed_context", "the context of device " + std::to_string(out->ordinal) + " has been released");
    return code::context_is_destroyed;
  }
  return code::success;
}

Code Engine::retain(int ordinal, void*& context) {
  Device* found = nullptr;
  if (const Code failed = device(ordinal, found); failed != code::success) return failed;
  if (found->failed != code::success) return found->failed;
  ++found->retained;
  context = found;
  return code::success;
}

Code Engine::release(int ordinal) {
  Device* found = nullptr;
  if (const Code failed = device(ordinal, found); failed != code::success) return failed;
  if (found->retained == 0) {
    misuse("over_released",
           "the context of device " + std::to_string(ordinal) + " is released more often than retained");
    return code::invalid_context;
  }
  if (--found->retained == 0) reset_context(*found);
  return found->failed;
}

/// Frees what belongs to a context, as the driver does after the last release.
void Engine::reset_context(Device& device) {
  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<void*> events;
  for (const Blocks* const all : {&device_blocks_, &host_blocks_}) {
    for (const auto& [address, block] : *all) {
      if (block->ordinal == device.ordinal) blocks.push_back(block);
    }
  }
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == &device) streams.push_back(stream);
  }
  for (const auto& [handle, event] : events_) {
    if (event->device == &device) events.push_back(handle);
  }
  if (!blocks.empty() || !streams.empty() || !events.empty()) {
    misuse("released_in_use", "the context of device " + std::to_string(device.ordinal) + " still has " +
                                  std::to_string(blocks.size()) + " allocations, " + std::to_string(streams.size()) +
                                  " streams, " + std::to_string(events.size()) + " events");
  }
  for (const auto& block : blocks) release_block(block, true);
  for (const auto& stream : streams) {
    streams_.erase(stream->handle);
    stream->ending = true;
    ended_streams_.push_back(stream);
    if (stream->last) wait(stream->last);
  }
  for (void* const handle : events) events_.erase(handle);
  changed_.notify_all();
}

Code Engine::push(void* context) {
  for (const auto& device : devices_) {
    if (device.get() != context) continue;
    if (device->retained == 0) {
      misuse("destroyed_context", "the context of device " + std::to_string(device->ordinal) + " has been released");
      return code::invalid_context;
    }
    if (thread.contexts == max_contexts) {
      misuse("context_stack", "the stack of contexts only grows");
      return code::invalid_value;
    }
    thread.context[thread.contexts++] = device->ordinal;
    return code::success;
  }
  misuse("unknown_context", "an unknown context");
  return code::invalid_context;
}

Code Engine::pop(void*& context) {
  if (thread.contexts == 0) {
    if (!lost_) misuse("no_context", "the stack of contexts is empty");
    return code::invalid_context;
  }
  context = devices_[static_cast<std::size_t>(thread.context[--thread.contexts])].get();
  return code::success;
}

Code Engine::set_device(int ordinal) {
  Device* found = nullptr;
  if (const Code failed = device(ordinal, found); failed != code::success) return failed;
  thread.ordinal = ordinal;
  return code::success;
}

// Memory.

Code Engine::allocate_device(std::size_t size, std::uint64_t& address) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  if (size > device->limit - std::min(device->limit, device->bytes)) return code::out_of_memory;
  const auto block = std::make_shared<Block>();
  block->on_device = true;
  block->ordinal = device->ordinal;
  block->size = size;
  // The address differs from a multiple of the page by a random multiple of the alignment, and of no more.
  const std::uint64_t shift = random_() % (page_bytes / alignment) * alignment;
  if (size > std::numeric_limits<std::size_t>::max() / 2) return code::out_of_memory;
  block->reserved_bytes =
      static_cast<std::size_t>(guard_bytes + (shift + size + page_bytes - 1) / page_bytes * page_bytes + guard_bytes);
  void* const reserved =
      ::mmap(nullptr, block->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return code::out_of_memory;
  block->reserved = reserved;
  block->address = reinterpret_cast<std::uintptr_t>(reserved) + guard_bytes + shift;
  block->bytes = static_cast<std::byte*>(std::malloc(size));
  if (block->bytes == nullptr) return code::out_of_memory;
  std::memset(block->bytes, device_byte, size);
  device->bytes += size;
  ++counters_.device_allocations;
  counters_.device_bytes += size;
  counters_.max_device_bytes = std::max(counters_.max_device_bytes, counters_.device_bytes);
  address = block->address;
  device_blocks_[address] = block;
  return code::success;
}

Code Engine::allocate_host(std::size_t size, void*& out) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  if (size > host_limit_ - std::min(host_limit_, host_bytes_)) return code::out_of_memory;
  const auto block = std::make_shared<Block>();
  block->ordinal = device->ordinal;
  block->size = size;
  void* memory = nullptr;
  if (::posix_memalign(&memory, host_alignment, size) != 0) return code::out_of_memory;
  block->bytes = static_cast<std::byte*>(memory);
  block->address = reinterpret_cast<std::uintptr_t>(memory);
  std::memset(memory, host_byte, size);
  host_bytes_ += size;
  ++counters_.host_allocations;
  counters_.host_bytes += size;
  counters_.max_host_bytes = std::max(counters_.max_host_bytes, counters_.host_bytes);
  host_blocks_[block->address] = block;
  out = memory;
  return code::success;
}

/// Returns the block that contains the address.
std::shared_ptr<Block> Engine::find(const Blocks& blocks, std::uint64_t address) {
  const auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return nullptr;
  const auto& block = std::prev(next)->second;
  return address - block->address < block->size ? block : nullptr;
}

/// Frees a block, after the operations that use it, as drivers do. `silent`: it is no misuse to leave the wait to that.
Code Engine::release_block(const std::shared_ptr<Block>& block, bool silent) {
  Device& device = *devices_[static_cast<std::size_t>(block->ordinal)];
  if (block->on_device) {
    device.bytes -= block->size;
    --counters_.device_allocations;
    counters_.device_bytes -= block->size;
    device_blocks_.erase(block->address);
    freed_blocks_[block->address] = block;
  } else {
    host_bytes_ -= block->size;
    --counters_.host_allocations;
    counters_.host_bytes -= block->size;
    host_blocks_.erase(block->address);
  }
  std::vector<std::shared_ptr<Op>> pending;
  for (const Use& use : uses_) {
    if (use.block == block) pending.push_back(use.op);
  }
  std::erase_if(uses_, [&](const Use& use) { return use.block == block; });
  if (!pending.empty() && !silent && !lost_ && device.failed == code::success) {
    misuse("freed_in_use", block->text() + ", for whose copies the program has not waited");
  }
  Code result = code::success;
  for (const auto& op : pending) {
    if (const Code failed = wait(op); failed != code::success) result = failed;
  }
  if (result == code::success) {  // else a late operation still uses the bytes
    {
      const Shown shown;  // ThreadSanitizer compares this access with others
      std::memset(block->bytes, freed_byte, block->size);
    }
    std::free(std::exchange(block->bytes, nullptr));
  }
  return device.failed != code::success ? device.failed : result;
}

Code Engine::free_device(std::uint64_t address) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto found = device_blocks_.find(address);
  if (found != device_blocks_.end()) {
    const auto block = found->second;
    return release_block(block, false);
  }
  misuse(freed_blocks_.count(address) != 0 ? "freed_twice" : "unknown_address", hex(address));
  return flavour.contexts ? code::invalid_value : code::invalid_device_pointer;
}

Code Engine::free_host(void* memory) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto found = host_blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found != host_blocks_.end()) {
    const auto block = found->second;
    return release_block(block, false);
  }
  misuse("unknown_address", "no page-locked memory begins at " + hex(reinterpret_cast<std::uintptr_t>(memory)));
  return code::invalid_value;
}

/// Returns the block of a range of device memory, or null after reporting a misuse.
std::shared_ptr<Block> Engine::device_range(std::uint64_t address, std::size_t size) {
  const auto block = find(device_blocks_, address);
  if (!block) {
    const auto freed = find(freed_blocks_, address);
    misuse(freed ? "use_after_free" : "unknown_address",
           hex(address) + " is in no allocation of a device" + (freed ? ", but in freed " + freed->text() : ""));
    return nullptr;
  }
  if (size > block->size - (address - block->address)) {
    misuse("device_range", std::to_string(size) + " bytes at " + hex(address) + " exceed " + block->text());
    return nullptr;
  }
  return block;
}

Code Engine::copy_to_device(std::uint64_t to, const void* from, std::size_t size, void* stream) {
  return copy(true, to, static_cast<std::byte*>(const_cast<void*>(from)), size, stream);
}

Code Engine::copy_from_device(void* to, std::uint64_t from, std::size_t size, void* stream) {
  return copy(false, from, static_cast<std::byte*>(to), size, stream);
}

Code Engine::copy(bool to_device, std::uint64_t address, std::byte* host, std::size_t size, void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  Stream* stream = nullptr;
  if (const Code failed = find_stream(handle, stream); failed != code::success) return failed;
  if (stream->device->failed != code::success) return stream->device->failed;
  if (size == 0) return code::success;
  const auto block = device_range(address, size);
  if (!block) return code::invalid_value;
  const std::uint64_t offset = address - block->address;
  if (block->ordinal != stream->device->ordinal) {
    misuse("wrong_device", block->text() + ", and the stream is of device " + std::to_string(stream->device->ordinal));
  }
  const std::uint64_t host_address = reinterpret_cast<std::uintptr_t>(host);
  const auto host_block = find(host_blocks_, host_address);
  auto partly = host_block;  // the block of some bytes only
  if (host_block) {
    if (size <= host_block->size - (host_address - host_block->address)) partly = nullptr;
  } else if (const auto next = host_blocks_.lower_bound(host_address);
             next != host_blocks_.end() && next->first - host_address < size) {
    partly = next->second;
  }
  if (partly) {
    misuse("host_range",
           std::to_string(size) + " bytes at " + hex(host_address) + " are only partly in " + partly->text());
    return code::invalid_value;
  }
  if (!host_block) {
    if (find(device_blocks_, host_address) || find(freed_blocks_, host_address) || host == nullptr) {
      misuse("unknown_address", hex(host_address) + " is no host memory");
      return code::invalid_value;
    }
    misuse("pageable", hex(host_address) + " is not page-locked, so the copy is not asynchronous");
  }

  const auto op = make_op();
  std::byte* const contents = block->bytes + offset;
  op->to = to_device ? contents : host;
  op->from = to_device ? host : contents;
  op->device_block = block;
  op->host_block = host_block;
  const std::size_t piece = std::max<std::size_t>(1, (size + 3) / 4);
  unsigned sleep_us = max_delay_us_ == 0 ? 0 : static_cast<unsigned>(random_() % (std::uint64_t{max_delay_us_} + 1));
  for (std::size_t done = 0; done < size; done += piece) {
    const unsigned part = sleep_us == 0 ? 0 : static_cast<unsigned>(random_() % (std::uint64_t{sleep_us} + 1));
    op->pieces.push_back({std::min(piece, size - done), part});
    sleep_us -= part;
  }
  for (Fault& fault : copy_faults_) {
    if (fault.skip != 0) {
      --fault.skip;
    } else if (fault.times != 0) {
      --fault.times;
      op->fail = fault.code;
    }
  }
  ++(to_device ? counters_.copies_to_device : counters_.copies_from_device);
  (to_device ? counters_.bytes_to_device : counters_.bytes_from_device) += size;
  counters_.largest_copy = std::max<std::uint64_t>(counters_.largest_copy, size);
  if (std::any_of(stream->queue.begin(), stream->queue.end(), [](const auto& other) { return other->copies(); })) {
    ++counters_.queued_copies;
  }
  std::vector<Use> uses;
  uses.push_back({block, offset, size, to_device, op});
  if (host_block) uses.push_back({host_block, host_address - host_block->address, size, !to_device, op});
  enqueue(*stream, op, std::move(uses));
  if (host_block) return code::success;
  return finish(op, *stream->device);
}

// Streams.

Code Engine::find_stream(void* handle, Stream*& out) {
  if (handle == nullptr || handle == reinterpret_cast<void*>(std::uintptr_t{1})) {  // CU_STREAM_LEGACY
    Device* device = nullptr;
    if (const Code failed = current(device); failed != code::success) return failed;
    out = &null_stream(*device);
    return code::success;
  }
  const auto found = streams_.find(handle);
  if (found == streams_.end()) {
    misuse("unknown_stream", hex(reinterpret_cast<std::uintptr_t>(handle)));
    return code::invalid_handle;
  }
  out = found->second.get();
  return code::success;
}

std::shared_ptr<Stream> Engine::make_stream(Device& device, bool blocking) {
  const auto stream = std::make_shared<Stream>();
  stream->handle = reinterpret_cast<void*>(first_handle + 16 * handles_++);
  stream->number = ++stream_numbers_;
  stream->device = &device;
  stream->blocking = blocking;
  stream->worker = std::thread([this, kept = stream.get()] { work(*kept); });
  return stream;
}

Stream& Engine::null_stream(Device& device) {
  if (!device.null) device.null = make_stream(device, false);
  return *device.null;
}

Code Engine::create_stream(bool blocking, void*& out) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  if (ended_streams_.size() >= max_ended_streams) join_ended();
  const auto stream = make_stream(*device, blocking);
  streams_[stream->handle] = stream;
  out = stream->handle;
  return code::success;
}

void Engine::join_ended() {
  std::erase_if(ended_streams_, [](const std::shared_ptr<Stream>& stream) {
    if (!stream->ended) return false;
    stream->worker.join();  // the thread has left the lock, and takes it no more
    if (stream->blocking) join(stream->device->ended, stream->clock);
    return true;
  });
}

Code Engine::destroy_stream(void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto found = streams_.find(handle);
  if (found == streams_.end()) {
    misuse("unknown_stream", hex(reinterpret_cast<std::uintptr_t>(handle)));
    return code::invalid_handle;
  }
  const auto stream = found->second;
  streams_.erase(found);
  stream->ending = true;  // pending work is still done
  ended_streams_.push_back(stream);
  changed_.notify_all();
  return stream->device->failed;
}

std::shared_ptr<Op> Engine::make_op() const { return std::make_shared<Op>(); }

/// Reports a use that is ordered neither after nor before one that conflicts with it.
void Engine::check_order(const Use& use, const Clock& clock) {
  const Op* const own = thread.running;  // an access by a function on a stream
  for (const Use& other : uses_) {
    if (!use.conflicts(other) || knows(clock, *other.op)) continue;
    if (own != nullptr && knows(other.op->clock, *own)) continue;
    misuse(use.op ? "unordered" : "access_in_use",
           std::string(use.writes ? "a write to " : "a read from ") + std::to_string(use.size) + " bytes at offset " +
               std::to_string(use.offset) + " of " + use.block->text() + " is not ordered after a " +
               (other.writes ? "write" : "read") + " of stream " + std::to_string(other.op->stream));
    return;
  }
}

void Engine::enqueue(Stream& stream, const std::shared_ptr<Op>& op, std::vector<Use> uses) {
  op->stream = stream.number;
  op->ticket = ++stream.tickets;
  join(op->clock, stream.clock);
  join(op->clock, observed_);
  const auto add = [&](const std::shared_ptr<Op>& before) {
    if (!before) return;
    join(op->clock, before->clock);
    op->after.push_back(before);
  };
  // The null stream and blocking streams wait for one another.
  if (&stream == stream.device->null.get()) {
    join(op->clock, stream.device->ended);
    for (const auto& [handle, other] : streams_) {
      if (other->blocking && other->device == stream.device) add(other->last);
    }
    for (const auto& other : ended_streams_) {
      if (other->blocking && other->device == stream.device) add(other->last);
    }
  } else if (stream.blocking && stream.device->null) {
    add(stream.device->null->last);
  }
  for (const auto& before : op->after) join(op->clock, before->clock);
  for (const Use& use : uses) check_order(use, op->clock);
  op->clock[stream.number] = op->ticket;
  stream.clock = op->clock;
  std::move(uses.begin(), uses.end(), std::back_inserter(uses_));
  order_before(op.get());
  stream.last = op;
  stream.queue.push_back(op);
  changed_.notify_all();
}

/// The thread of a stream.
void Engine::work(Stream& stream) {
  const Lock lock(*this, "a stream");
  for (;;) {
    changed_.wait(*thread.lock, [&] {
      if (stream.queue.empty()) return stream.ending;
      if (lost_ || stream.device->failed != code::success) return true;
      const Op& next = *stream.queue.front();
      if (stream.held || (copies_held_ && next.copies())) return false;
      return std::all_of(next.after.begin(), next.after.end(), [](const auto& op) { return op->done; });
    });
    if (stream.queue.empty()) {
      stream.ended = true;
      return;
    }
    const auto op = stream.queue.front();
    order_after(op.get());
    for (const auto& before : op->after) {
      if (before->done) order_after(before.get());
    }
    if (!lost_ && stream.device->failed == code::success) {
      thread.running = op.get();
      {
        const Unlock unlock;
        op->run();
      }
      thread.running = nullptr;
      if (op->fail != code::success) stream.device->failed = op->fail;  // wakes its other streams, below
    }
    order_before(op.get());
    op->after.clear();
    op->device_block.reset();
    op->host_block.reset();
    op->done = true;
    stream.queue.pop_front();
    changed_.notify_all();
  }
}

/// Waits until an operation is done. Errors: launch_timeout (patience).
Code Engine::wait(const std::shared_ptr<Op>& op) {
  if (!changed_.wait_for(*thread.lock, std::chrono::milliseconds(patience_ms_), [&] { return op->done; })) {
    misuse("stuck",
           "stream " + std::to_string(op->stream) + " is not done after " + std::to_string(patience_ms_) + " ms");
    return code::launch_timeout;
  }
  order_after(op.get());
  return code::success;
}

/// The program knows that an operation is done.
void Engine::observe(const Op& op) {
  join(observed_, op.clock);
  std::erase_if(uses_, [&](const Use& use) { return use.op->done && knows(observed_, *use.op); });
}

/// Waits for an operation on behalf of the program.
Code Engine::finish(const std::shared_ptr<Op>& op, const Device& device) {
  if (op) {
    if (const Code failed = wait(op); failed != code::success) return failed;
    observe(*op);
  }
  return device.failed;
}

Code Engine::synchronize_stream(void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  Stream* stream = nullptr;
  if (const Code failed = find_stream(handle, stream); failed != code::success) return failed;
  Device& owner = *stream->device;
  if (stream == owner.null.get()) enqueue(*stream, make_op(), {});  // for the blocking streams
  const auto last = stream->last;
  return finish(last, owner);
}

// Events.

std::shared_ptr<Event> Engine::find_event(void* handle) {
  const auto found = events_.find(handle);
  if (found != events_.end()) return found->second;
  misuse("unknown_event", hex(reinterpret_cast<std::uintptr_t>(handle)));
  return nullptr;
}

Code Engine::create_event(void*& out) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  out = reinterpret_cast<void*>(first_handle + 16 * handles_++);
  const auto event = std::make_shared<Event>();
  event->device = device;
  events_[out] = event;
  return code::success;
}

Code Engine::destroy_event(void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto event = find_event(handle);
  if (!event) return code::invalid_handle;
  events_.erase(handle);
  return event->device->failed;
}

Code Engine::record_event(void* handle, void* stream_handle) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  const auto event = find_event(handle);
  if (!event) return code::invalid_handle;
  Stream* stream = nullptr;
  if (const Code failed = find_stream(stream_handle, stream); failed != code::success) return failed;
  if (event->device != stream->device) {
    misuse("wrong_device", "the event is of device " + std::to_string(event->device->ordinal) +
                               ", the stream of device " + std::to_string(stream->device->ordinal));
    return code::invalid_handle;
  }
  if (event->device->failed != code::success) return event->device->failed;
  const auto op = make_op();
  enqueue(*stream, op, {});
  event->op = op;
  return code::success;
}

Code Engine::wait_event(void* stream_handle, void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  Stream* stream = nullptr;
  if (const Code failed = find_stream(stream_handle, stream); failed != code::success) return failed;
  const auto event = find_event(handle);
  if (!event) return code::invalid_handle;
  for (const Device* const owner : {stream->device, event->device}) {
    if (owner->failed != code::success) return owner->failed;
  }
  if (!event->op) return code::success;
  const auto op = make_op();
  op->after.push_back(event->op);
  enqueue(*stream, op, {});
  return code::success;
}

Code Engine::synchronize_event(void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto event = find_event(handle);
  if (!event) return code::invalid_handle;
  const auto op = event->op;
  return finish(op, *event->device);
}

Code Engine::query_event(void* handle) {
  const auto event = find_event(handle);
  if (!event) return code::invalid_handle;
  if (event->device->failed != code::success) return event->device->failed;
  if (!event->op) return code::success;
  if (!event->op->done) return code::not_ready;
  return finish(event->op, *event->device);
}

// Control.

void Engine::set_defaults() {
  initialized_ = false;
  lost_ = false;
  copies_held_ = false;
  version_ = flavour.version;
  devices_.clear();
  set_devices(2);
  host_limit_ = default_limit;
  patience_ms_ = 60'000;
  random_.seed(1);
  max_delay_us_ = 0;
  faults_.clear();
  copy_faults_.clear();
  counters_ = {};
  calls_.clear();
  misuses_.clear();
}

/// Ends the threads of all streams, after their work.
void Engine::end_streams() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const Lock lock(*this, "control");
    all.swap(ended_streams_);
    for (const auto& [handle, stream] : streams_) all.push_back(stream);
    for (const auto& device : devices_) {
      if (device->null) all.push_back(device->null);
    }
    for (const auto& stream : all) {
      stream->held = false;
      stream->ending = true;
    }
    changed_.notify_all();
  }
  for (const auto& stream : all) stream->worker.join();
  const Hidden hidden;
  all.clear();
}

void Engine::reset() {
  {
    const Lock lock(*this, "control");
    lost_ = true;  // drops pending work
  }
  end_streams();
  const Lock lock(*this, "control");
  streams_.clear();
  events_.clear();
  uses_.clear();
  observed_.clear();
  device_blocks_.clear();
  freed_blocks_.clear();
  host_blocks_.clear();
  host_bytes_ = 0;
  ++generation_;
  set_defaults();
}

void Engine::set_devices(int count) {
  while (devices() > std::max(count, 0)) devices_.pop_back();
  while (devices() < count) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->ordinal = devices() - 1;
  }
}

void Engine::set_delay(std::uint64_t seed, unsigned max_us) {
  random_.seed(seed);
  max_delay_us_ = max_us;
}

void Engine::set_device_limit(int ordinal, std::uint64_t bytes) {
  Device* found = nullptr;
  if (device(ordinal, found) == code::success) found->limit = bytes;
}

void Engine::fail(const char* function, std::uint64_t n, Code code, std::uint64_t times) {
  faults_.push_back({function != nullptr ? function : "", n - 1, times, code});
}

void Engine::fail_copy(std::uint64_t n, Code code) { copy_faults_.push_back({"", n - 1, 1, code}); }

void Engine::lose() {
  lost_ = true;
  changed_.notify_all();
}

std::uint64_t Engine::pending_faults() const {
  std::uint64_t count = 0;
  for (const auto* const list : {&faults_, &copy_faults_}) {
    for (const Fault& fault : *list) count += fault.times != 0 ? 1U : 0U;
  }
  return count;
}

Counters Engine::counters() const {
  Counters all = counters_;
  all.streams = streams_.size();
  all.events = events_.size();
  all.contexts = 0;
  for (const auto& device : devices_) all.contexts += device->retained;
  return all;
}

std::uint64_t Engine::calls(std::string_view function) const {
  std::uint64_t count = 0;
  for (const auto& [name, calls] : calls_) count += named(name, function) ? calls : 0;
  return count;
}

std::string Engine::misuses() const {
  std::string text;
  for (const std::string& line : misuses_) text += line + '\n';
  return text;
}

void Engine::clear_misuses() {
  misuses_.clear();
  counters_.misuses = 0;
}

int Engine::access(std::uint64_t address, void* out, const void* from, std::size_t size) {
  const auto block = device_range(address, size);
  if (!block) return -1;
  const std::uint64_t offset = address - block->address;
  if (!(lost_ || devices_[static_cast<std::size_t>(block->ordinal)]->failed != code::success)) {
    check_order({block, offset, size, from != nullptr, nullptr},
                thread.running != nullptr ? thread.running->clock : observed_);
  }
  std::byte* const contents = block->bytes + offset;
  const Unlock unlock;
  if (from != nullptr) {
    std::memcpy(contents, from, size);
  } else {
    std::memcpy(out, contents, size);
  }
  return 0;
}

Stream* Engine::control_stream(void* handle, int ordinal) {
  if (handle == nullptr) {
    return ordinal < 0 || ordinal >= devices() ? nullptr : &null_stream(*devices_[static_cast<std::size_t>(ordinal)]);
  }
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second.get();
  for (const auto& stream : ended_streams_) {
    if (stream->handle == handle) return stream.get();
  }
  return nullptr;
}

int Engine::run(void* handle, int ordinal, std::uint64_t address, std::size_t size, bool writes,
                void (*function)(void*), void* context) {
  Stream* const stream = control_stream(handle, ordinal);
  if (stream == nullptr || stream->ending) return -1;
  const auto op = make_op();
  op->function = function;
  op->context = context;
  std::vector<Use> uses;
  if (size != 0) {
    const auto block = device_range(address, size);
    if (!block) return -1;
    op->device_block = block;
    uses.push_back({block, address - block->address, size, writes, op});
  }
  enqueue(*stream, op, std::move(uses));
  return 0;
}

int Engine::hold(void* handle, int ordinal, bool held) {
  Stream* const stream = control_stream(handle, ordinal);
  if (stream == nullptr) return -1;
  stream->held = held;
  changed_.notify_all();
  return 0;
}

void Engine::hold_copies(bool held) {
  copies_held_ = held;
  changed_.notify_all();
}

int Engine::idle() {
  std::vector<std::shared_ptr<Op>> last;
  const auto add = [&](const std::shared_ptr<Stream>& stream) {
    if (stream && stream->last) last.push_back(stream->last);
  };
  for (const auto& [handle, stream] : streams_) add(stream);
  for (const auto& stream : ended_streams_) add(stream);
  for (const auto& device : devices_) add(device->null);
  int result = 0;
  for (const auto& op : last) {
    if (!changed_.wait_for(*thread.lock, std::chrono::milliseconds(patience_ms_), [&] { return op->done; }))
      result = -1;
  }
  return result;
}

int Engine::stack_depth() const { return static_cast<int>(thread.contexts); }

int Engine::current_device() const {
  if (!flavour.contexts) return thread.ordinal;
  return thread.contexts == 0 ? -1 : thread.context[thread.contexts - 1];
}

const Control* control_table() {
  static constexpr auto with = [](auto work) {
    Engine& engine = Engine::get();
    return engine.control([&] { return work(engine); });
  };
  static constexpr Control table = {
      .reset = [] { Engine::get().reset(); },
      .set_devices = [](int count) { with([&](Engine& e) { e.set_devices(count); }); },
      .set_version = [](int version) { with([&](Engine& e) { e.set_version(version); }); },
      .set_delay = [](std::uint64_t seed, unsigned us) { with([&](Engine& e) { e.set_delay(seed, us); }); },
      .set_device_limit = [](int device,
                             std::uint64_t bytes) { with([&](Engine& e) { e.set_device_limit(device, bytes); }); },
      .set_host_limit = [](std::uint64_t bytes) { with([&](Engine& e) { e.set_host_limit(bytes); }); },
      .set_patience = [](unsigned ms) { with([&](Engine& e) { e.set_patience(ms); }); },
      .fail = [](const char* function, std::uint64_t n, Code code,
                 std::uint64_t times) { with([&](Engine& e) { e.fail(function, n, code, times); }); },
      .fail_copy = [](std::uint64_t n, Code code) { with([&](Engine& e) { e.fail_copy(n, code); }); },
      .lose = [] { with([](Engine& e) { e.lose(); }); },
      .pending_faults = [] { return with([](Engine& e) { return e.pending_faults(); }); },
      .counters = [](Counters* out) { with([&](Engine& e) { *out = e.counters(); }); },
      .calls = [](const char* function) { return with([&](Engine& e) { return e.calls(function); }); },
      .misuses =
          [](char* out, std::size_t size) {
            return with([&](Engine& e) {
              const std::string text = e.misuses();
              if (size != 0) {
                const std::size_t part = std::min(size - 1, text.size());
                std::copy_n(text.data(), part, out);
                out[part] = '\0';
              }
              return text.size();
            });
          },
      .clear_misuses = [] { with([](Engine& e) { e.clear_misuses(); }); },
      .read = [](std::uint64_t address, void* out,
                 std::size_t size) { return with([&](Engine& e) { return e.access(address, out, nullptr, size); }); },
      .write = [](std::uint64_t address, const void* from,
                  std::size_t size) { return with([&](Engine& e) { return e.access(address, nullptr, from, size); }); },
      .run =
          [](void* stream, int device, void (*function)(void*), void* context) {
            return with([&](Engine& e) { return e.run(stream, device, 0, 0, false, function, context); });
          },
      .kernel =
          [](void* stream, int device, std::uint64_t address, std::size_t size, bool writes, void (*function)(void*),
             void* context) {
            return with([&](Engine& e) { return e.run(stream, device, address, size, writes, function, context); });
          },
      .hold = [](void* stream, int device) { return with([&](Engine& e) { return e.hold(stream, device, true); }); },
      .release = [](void* stream,
                    int device) { return with([&](Engine& e) { return e.hold(stream, device, false); }); },
      .hold_copies = [](bool held) { with([&](Engine& e) { e.hold_copies(held); }); },
      .idle = [] { return with([](Engine& e) { return e.idle(); }); },
      .stack_depth = [] { return with([](Engine& e) { return e.stack_depth(); }); },
      .current_device = [] { return with([](Engine& e) { return e.current_device(); }); },
  };
  return &table;
}

}  // namespace stele_fake

STELE_FAKE_EXPORT const stele_fake::Control* stele_fake_control() { return stele_fake::control_table(); }
