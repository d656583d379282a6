// How tests control a fake driver: each of the two libraries exports stele_fake_control(), which returns a table of
// functions. The class Fake wraps the table.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stele_fake {

/// Objects that exist, and work since the last reset.
struct Counters {
  std::uint64_t device_allocations, device_bytes, max_device_bytes;
  std::uint64_t host_allocations, host_bytes, max_host_bytes;
  std::uint64_t streams, events;  // without the null streams
  std::uint64_t contexts;         // retains without a release; 0 with HIP
  std::uint64_t calls;
  std::uint64_t copies_to_device, copies_from_device, bytes_to_device, bytes_from_device;
  std::uint64_t largest_copy;
  std::uint64_t queued_copies;  // enqueued while an earlier copy of the same stream was pending
  std::uint64_t misuses;
};

// Kinds of misuse. Each line of the list is "kind: function: text".
//
//   not_initialized, no_context, unknown_context, destroyed_context, context_stack, unknown_device
//   over_released      a context is released more often than retained
//   released_in_use    the last release of a context frees objects that still exist
//   unknown_address    a range, or memory to free, that is no allocation
//   device_range, host_range   a copy exceeds the allocation that it begins or ends in
//   use_after_free, freed_twice   memory of a device
//   pageable           the host memory of a copy is not page-locked
//   wrong_device       the stream of a copy or of a record belongs to another device than the memory or the event
//   freed_in_use       memory is freed for whose copies the program has not waited
//   unordered          operations of two streams use the same bytes, one writes, and no event orders them
//   access_in_use      read() or write() of bytes for whose copies the caller has not waited
//   unknown_stream, unknown_event   also after their end
//   call_in_function   a function on a stream calls the driver
//   stuck              a call has waited longer than the patience

/// A stream is a handle of the driver, or null for the null stream of `device`. Functions that return int return 0 on
/// success, -1 for an unknown stream or a range outside every allocation.
struct Control {
  /// Ends all work, frees all objects, and restores the defaults: two devices, no delays, no limits, no faults. No
  /// other thread may be in a call of the driver.
  void (*reset)();
  void (*set_devices)(int count);
  void (*set_version)(int version);
  /// Each copy sleeps a random time of at most `max_us` microseconds, spread over its pieces.
  void (*set_delay)(std::uint64_t seed, unsigned max_us);
  void (*set_device_limit)(int device, std::uint64_t bytes);
  void (*set_host_limit)(std::uint64_t bytes);
  /// Maximum time that a call waits for pending work (60 s); it then returns 702 (launch timeout).
  void (*set_patience)(unsigned ms);

  /// The calls number n to n + times - 1 from now of `function` (null: of any function) return `code`. The name may
  /// omit "_v2". Functions that wait, free, destroy, release or pop do their work nevertheless. The function that names
  /// errors only fails when named.
  void (*fail)(const char* function, std::uint64_t n, int code, std::uint64_t times);
  /// The n-th copy from now fails when it runs, after half of its bytes. Its device then drops all pending work, and
  /// every call that uses the device returns `code`.
  void (*fail_copy)(std::uint64_t n, int code);
  /// Pending work of all devices is dropped, and every call returns 999.
  void (*lose)();
  /// Returns the number of injected faults that are still to come.
  std::uint64_t (*pending_faults)();

  void (*counters)(Counters* out);
  std::uint64_t (*calls)(const char* function);
  /// Writes the list of misuses, one a line, and a final null; returns its size without the null.
  std::size_t (*misuses)(char* out, std::size_t size);
  /// Forgets the list, after a test of a misuse.
  void (*clear_misuses)();

  /// Copies the contents of device memory, without synchronisation. It is a misuse unless the caller is ordered after
  /// the pending copies to this range: the host by events or synchronisation, a function on a stream by its stream.
  int (*read)(std::uint64_t address, void* out, std::size_t size);
  int (*write)(std::uint64_t address, const void* from, std::size_t size);
  /// Enqueues a host function, as a kernel of the user would be. It must not call the driver.
  int (*run)(void* stream, int device, void (*function)(void*), void* context);
  /// Also declares that the function reads or writes this range of device memory, so that the order of copies enqueued
  /// later is checked against it.
  int (*kernel)(void* stream, int device, std::uint64_t address, std::size_t size, bool writes, void (*function)(void*),
                void* context);
  /// Holds the queue of a stream, until release(): work that has not begun does not begin.
  int (*hold)(void* stream, int device);
  int (*release)(void* stream, int device);
  /// Holds all copies of all streams that have not begun, also of streams created later, until called with false.
  void (*hold_copies)(bool held);
  /// Waits until all streams have done their work. The driver's user has not waited for it.
  int (*idle)();

  /// Returns the size of this thread's stack of contexts; 0 with HIP.
  int (*stack_depth)();
  /// Returns the ordinal of this thread's device, or -1.
  int (*current_device)();
};

/// A fake driver, loaded and reset. The destructor resets it again. The library stays loaded, so that reports of
/// sanitizers have its names.
class Fake {
 public:
  explicit Fake(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    control_ = function<const Control*()>("stele_fake_control")();
    control_->reset();
  }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
  ~Fake() {
    control_->reset();
    ::dlclose(library_);
  }
  const Control* operator->() const noexcept { return control_; }

  /// Returns a function of the driver.
  template <class F>
  F* function(const char* name) const {
    void* const symbol = ::dlsym(library_, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("no function ") + name);
    return reinterpret_cast<F*>(symbol);
  }
  Counters counters() const {
    Counters all{};
    control_->counters(&all);
    return all;
  }
  std::string misuses() const {
    std::string text(control_->misuses(nullptr, 0), '\0');
    text.resize(std::min(text.size(), control_->misuses(text.data(), text.size() + 1)));
    return text;
  }
  /// Returns the objects that exist, such as "2 events", or an empty string.
  std::string live() const {
    const Counters all = counters();
    std::string text;
    const auto add = [&](std::uint64_t count, std::string_view name) {
      if (count == 0) return;
      text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ';
      text += name;
    };
    add(all.device_allocations, "device allocations");
    add(all.host_allocations, "host allocations");
    add(all.streams, "streams");
    add(all.events, "events");
    add(all.contexts, "contexts");
    return text;
  }

 private:
  void* library_;
  const Control* control_;
};

}  // namespace stele_fake
