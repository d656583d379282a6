// Engine: the functions of Control, by which tests drive it.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "parts.hpp"

namespace stele_fake {

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
