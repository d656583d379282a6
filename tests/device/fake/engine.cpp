// Engine: its lock, calls of the driver's functions, misuses, devices and contexts.
#include <algorithm>

#include "parts.hpp"

namespace stele_fake {

namespace {

constexpr std::size_t max_misuses = 1000;

}  // namespace

constinit thread_local Thread thread{};

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

bool knows(const Clock& clock, const Op& op) {
  const auto last = clock.find(op.stream);
  return last != clock.end() && last->second >= op.ticket;
}

bool named(std::string_view function, std::string_view name) {
  return function == name ||
         (function.size() == name.size() + 3 && function.starts_with(name) && function.ends_with("_v2"));
}

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

}  // namespace stele_fake
