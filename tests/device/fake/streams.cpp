// Engine: streams, the order of their operations, and events.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "parts.hpp"

namespace stele_fake {

namespace {

constexpr std::size_t max_ended_streams = 64;  // bounds the threads that have ended and are not joined

void sleep(unsigned us) {
  if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

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
  auto stream = std::make_shared<Stream>();
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

}  // namespace stele_fake
