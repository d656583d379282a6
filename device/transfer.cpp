// The ring of page-locked buffers, and the streams that copy from and into it.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "api.hpp"
#include "stele/device.hpp"

namespace stele::inline v0::device {
namespace {

using detail::device::Api;
using detail::device::Handle;

/// A device, once it is used.
struct Copies {
  int ordinal = 0;
  Handle stream = nullptr;
  Handle done = nullptr;  // event after the copies of a load
};

/// A buffer of the ring. The events, one for each device at most, follow its copies.
struct Buffer {
  std::byte* memory = nullptr;
  struct Event {
    int ordinal = 0;
    Handle event = nullptr;
    bool pending = false;
  };
  std::vector<Event> events;
  bool held = false;
  std::uint64_t turn = 0;  // number of its last use

  bool pending() const noexcept {
    return std::any_of(events.begin(), events.end(), [](const Event& e) { return e.pending; });
  }
};

class Ring final : public Transfer {
 public:
  Ring(const Driver& driver, TransferOptions options)
      : driver_(driver), api_(driver.api()), options_(std::move(options)) {
    options_.buffer_size = std::max<std::size_t>(options_.buffer_size, 1);
    options_.buffer_size = (options_.buffer_size + granularity - 1) / granularity * granularity;
    // Neither may move: calls use them without the lock.
    ring_.reserve(options_.buffers);
    devices_.reserve(static_cast<std::size_t>(api_->count()));
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() override {
    cancel();
    for (Buffer& buffer : ring_) {
      for (const Buffer::Event& e : buffer.events) api_->destroy_event(e.ordinal, e.event);
      api_->free_host(options_.ordinal, buffer.memory);
    }
    for (const Copies& device : devices_) {
      if (device.done != nullptr) api_->destroy_event(device.ordinal, device.done);
      if (device.stream != nullptr) api_->destroy_stream(device.ordinal, device.stream);
    }
    if (before_ != nullptr) api_->destroy_event(options_.ordinal, before_);
  }

  std::size_t buffer_size() const noexcept override { return options_.buffer_size; }
  unsigned buffers() const noexcept override { return options_.buffers; }

  Status begin() override {
    if (options_.stream.handle() == nullptr) return {};
    const std::lock_guard lock(mutex_);
    if (before_ == nullptr) {
      STELE_TRY_ASSIGN(before_, api_->create_event(options_.ordinal));
    }
    STELE_TRY(api_->record(options_.ordinal, before_, options_.stream.handle()));
    for (const Copies& device : devices_) STELE_TRY(api_->wait(device.ordinal, device.stream, before_));
    return {};
  }

  Result<std::byte*> acquire(bool wait) override {
    return detail::guarded([&]() -> Result<std::byte*> {
      std::unique_lock lock(mutex_);
      for (;;) {
        Buffer* oldest = nullptr;
        for (Buffer& buffer : ring_) {
          if (buffer.held) continue;
          STELE_TRY_ASSIGN(const bool ready, is_ready(buffer));
          if (ready) return take(buffer);
          if (oldest == nullptr || buffer.turn < oldest->turn) oldest = &buffer;
        }
        if (ring_.size() < options_.buffers) {
          STELE_TRY_ASSIGN(std::byte* const memory, api_->allocate_host(options_.ordinal, options_.buffer_size));
          return take(ring_.emplace_back(Buffer{memory, {}, false, 0}));
        }
        if (!wait) return nullptr;
        if (oldest != nullptr) {
          std::byte* const memory = take(*oldest);
          lock.unlock();
          auto ended = this->wait(memory);
          if (ended) return memory;
          release(memory);
          return std::move(ended).error();
        }
        freed_.wait(lock);
      }
    });
  }

  Status to_device(std::byte* buffer, std::span<const DeviceCopy> copies) override {
    return start(buffer, copies, [&](const Copies& device, const DeviceCopy& copy) {
      return api_->copy_to_device(device.ordinal, copy.device, copy.host, copy.size, device.stream);
    });
  }
  Status from_device(std::byte* buffer, std::span<const DeviceCopy> copies) override {
    return start(buffer, copies, [&](const Copies& device, const DeviceCopy& copy) {
      return api_->copy_from_device(device.ordinal, copy.host, copy.device, copy.size, device.stream);
    });
  }

  Status wait(std::byte* memory) override {
    for (Buffer::Event& e : of(memory).events) {
      if (!e.pending) continue;
      STELE_TRY(api_->synchronize_event(e.ordinal, e.event));
      e.pending = false;
    }
    return {};
  }

  void release(std::byte* memory) noexcept override {
    Buffer& buffer = of(memory);
    {
      const std::lock_guard lock(mutex_);
      buffer.held = false;
      buffer.turn = ++turns_;
    }
    freed_.notify_one();
  }

  Status finish() override {
    if (options_.wait) return synchronize();
    const std::lock_guard lock(mutex_);
    for (Copies& device : devices_) {
      if (device.done == nullptr) {
        STELE_TRY_ASSIGN(device.done, api_->create_event(device.ordinal));
      }
      STELE_TRY(api_->record(device.ordinal, device.done, device.stream));
      STELE_TRY(api_->wait(options_.ordinal, options_.stream.handle(), device.done));
    }
    return {};
  }

  void cancel() noexcept override { static_cast<void>(synchronize()); }

  Location place(std::string_view path) override {
    return {api_->kind(), options_.placement ? options_.placement(path) : options_.ordinal};
  }
  Result<std::shared_ptr<std::byte>> allocate(Location where, std::size_t size) override {
    STELE_TRY(api_->check(where));
    return driver_.allocate(where.ordinal, size);
  }
  Result<std::shared_ptr<std::byte>> allocate_host(std::size_t size) override {
    return detail::guarded([&]() -> Result<std::shared_ptr<std::byte>> {
      STELE_TRY_ASSIGN(std::byte* const data, api_->allocate_host(options_.ordinal, std::max<std::size_t>(size, 1)));
      return std::shared_ptr<std::byte>(
          data, [api = api_, ordinal = options_.ordinal](std::byte* p) { api->free_host(ordinal, p); });
    });
  }
  Status copy_from_devices(std::span<const DeviceCopy> copies) override {
    return detail::guarded([&]() -> Status {
      Status status;
      for (std::size_t i = 0; status && i < copies.size(); ++i) {
        const DeviceCopy& copy = copies[i];
        auto device = device_of(copy.where);
        status = device
                     ? api_->copy_from_device(copy.where.ordinal, copy.host, copy.device, copy.size, (*device)->stream)
                     : Status(std::move(device).error());
      }
      auto ended = synchronize();  // even after an error, because the caller frees the memory
      return status ? std::move(ended) : std::move(status);
    });
  }

 private:
  static constexpr std::size_t granularity = 4096;

  /// Returns a held buffer.
  Buffer& of(const std::byte* memory) noexcept {
    const std::lock_guard lock(mutex_);
    return *std::find_if(ring_.begin(), ring_.end(), [&](const Buffer& b) { return b.memory == memory; });
  }
  /// Waits until no copy runs, without the lock, so that other saves and loads continue.
  Status synchronize() noexcept {
    Status status;
    for (std::size_t i = 0;; ++i) {
      Copies device;
      {
        const std::lock_guard lock(mutex_);
        if (i >= devices_.size()) return status;
        device = devices_[i];
      }
      auto ended = detail::guarded([&] { return api_->synchronize(device.ordinal, device.stream); });
      if (status) status = std::move(ended);
    }
  }
  std::byte* take(Buffer& buffer) noexcept {
    buffer.held = true;
    return buffer.memory;
  }
  Result<bool> is_ready(Buffer& buffer) {
    for (Buffer::Event& e : buffer.events) {
      if (!e.pending) continue;
      STELE_TRY_ASSIGN(const bool happened, api_->query(e.ordinal, e.event));
      e.pending = !happened;
    }
    return !buffer.pending();
  }

  /// Returns the stream of a device; makes it for the first copy.
  Result<Copies*> device_of(Location where) {
    STELE_TRY(api_->check(where));
    const std::lock_guard lock(mutex_);
    for (Copies& device : devices_) {
      if (device.ordinal == where.ordinal) return &device;
    }
    Copies made{where.ordinal};
    STELE_TRY_ASSIGN(made.stream, api_->create_stream(where.ordinal));
    // A stream that does not wait for the program's must not serve the next copy.
    auto waits = before_ != nullptr ? api_->wait(where.ordinal, made.stream, before_) : Status();
    if (!waits) {
      api_->destroy_stream(where.ordinal, made.stream);
      return std::move(waits).error();
    }
    devices_.push_back(made);
    return &devices_.back();
  }

  /// Starts copies of the caller's buffer, and records the events after them.
  template <class Copy>
  Status start(std::byte* memory, std::span<const DeviceCopy> copies, Copy copy) {
    return detail::guarded([&]() -> Status {
      Buffer& buffer = of(memory);
      std::vector<Copies*> used;
      used.reserve(static_cast<std::size_t>(api_->count()));  // nothing may throw between a copy and its event
      Status status;
      for (std::size_t i = 0; status && i < copies.size(); ++i) {
        auto device = device_of(copies[i].where);
        if (!device) {
          status = std::move(device).error();
          break;
        }
        if (std::find(used.begin(), used.end(), *device) == used.end()) used.push_back(*device);
        status = copy(**device, copies[i]);
      }
      // After an error too, because the copies before it use the buffer.
      for (const Copies* device : used) {
        auto recorded = record(buffer, *device);
        // Otherwise, the end of the buffer's use would remain unknown.
        if (!recorded) static_cast<void>(api_->synchronize(device->ordinal, device->stream));
        if (status) status = std::move(recorded);
      }
      return status;
    });
  }

  Status record(Buffer& buffer, const Copies& device) {
    auto found = std::find_if(buffer.events.begin(), buffer.events.end(),
                              [&](const Buffer::Event& e) { return e.ordinal == device.ordinal; });
    if (found == buffer.events.end()) {
      STELE_TRY_ASSIGN(const Handle event, api_->create_event(device.ordinal));
      found = buffer.events.insert(found, {device.ordinal, event, false});
    }
    STELE_TRY(api_->record(device.ordinal, found->event, device.stream));
    found->pending = true;
    return {};
  }

  Driver driver_;
  std::shared_ptr<Api> api_;
  TransferOptions options_;
  std::mutex mutex_;  // guards all members below, except the events of a held buffer, which belong to its holder
  std::condition_variable freed_;
  std::vector<Buffer> ring_;
  std::uint64_t turns_ = 0;
  std::vector<Copies> devices_;
  Handle before_ = nullptr;  // event of the program's stream, which the copies wait for
};

}  // namespace

Result<std::unique_ptr<Transfer>> make_transfer(const Driver& driver, TransferOptions options) {
  return detail::guarded([&]() -> Result<std::unique_ptr<Transfer>> {
    const auto invalid = [](const char* text) { return Error(Errc::invalid_argument, text); };
    STELE_TRY(driver.api()->check({driver.kind(), options.ordinal}));
    if (options.buffers == 0) return invalid("a Transfer needs a buffer").expected("at least 1").found("0");
    if (options.stream.handle() != nullptr && options.stream.kind() != driver.kind()) {
      return invalid("the stream belongs to another driver");
    }
    if (!options.wait && options.stream.handle() == nullptr) {
      return invalid("a load that does not wait needs a stream").hint("set TransferOptions::stream");
    }
    return std::unique_ptr<Transfer>(std::make_unique<Ring>(driver, std::move(options)));
  });
}

}  // namespace stele::inline v0::device
