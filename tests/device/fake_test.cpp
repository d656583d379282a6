// The fake drivers themselves: each check that tests of devices rely on finds what it is for.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/fake/control.hpp"
#include "support/child.hpp"

namespace fake_test {

namespace {

using stele_fake::Fake;

enum class Kind { cuda, hip };
constexpr Kind both[] = {Kind::cuda, Kind::hip};

// It reports what some cases do on purpose.
#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif
#else
constexpr bool thread_sanitizer = false;
#endif

/// A driver whose first device is current, and the functions that both have.
class Api {
 public:
  explicit Api(Kind kind, bool initialise = true)
      : fake(kind == Kind::cuda ? STELE_FAKE_CUDA : STELE_FAKE_HIP), cuda_(kind == Kind::cuda) {
    if (!initialise || !cuda_) return;
    REQUIRE(fake.function<int(unsigned)>("cuInit")(0) == 0);
    for (int ordinal = 0; ordinal < 2; ++ordinal) {
      REQUIRE(fake.function<int(int*, int)>("cuDeviceGet")(&devices_[ordinal], ordinal) == 0);
      REQUIRE(fake.function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&contexts_[ordinal], devices_[ordinal]) == 0);
    }
    use(0);
  }

  const char* name(const char* cuda, const char* hip) const { return cuda_ ? cuda : hip; }
  /// Calls a function with its own number and types of arguments.
  template <class... Args>
  int call(const char* cuda, const char* hip, Args... args) const {
    return fake.function<int(Args...)>(name(cuda, hip))(args...);
  }

  void use(int ordinal) {
    if (cuda_) {
      while (fake->stack_depth() > 0) pop();
      REQUIRE(call("cuCtxPushCurrent_v2", "", contexts_[ordinal]) == 0);
    } else {
      REQUIRE(call("", "hipSetDevice", ordinal) == 0);
    }
  }
  void pop() const {
    void* context = nullptr;
    call("cuCtxPopCurrent_v2", "", &context);
  }
  /// Releases both contexts; nothing is left then.
  void end() {
    if (!cuda_) return;
    while (fake->stack_depth() > 0) pop();
    for (const int device : devices_) call("cuDevicePrimaryCtxRelease_v2", "", device);
  }
  int release(int ordinal) const { return call("cuDevicePrimaryCtxRelease_v2", "", devices_[ordinal]); }
  void* context(int ordinal) const { return contexts_[ordinal]; }

  int allocate(std::uint64_t& out, std::size_t size) const { return call("cuMemAlloc_v2", "hipMalloc", &out, size); }
  int free(std::uint64_t address) const { return call("cuMemFree_v2", "hipFree", address); }
  int allocate_host(std::byte*& out, std::size_t size) const {
    return call("cuMemHostAlloc", "hipHostMalloc", &out, size, 1U);
  }
  int free_host(void* memory) const { return call("cuMemFreeHost", "hipHostFree", memory); }
  int to_device(std::uint64_t to, const void* from, std::size_t size, void* stream) const {
    return call("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", to, from, size, stream);
  }
  int from_device(void* to, std::uint64_t from, std::size_t size, void* stream) const {
    return call("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", to, from, size, stream);
  }
  int create_stream(void*& out, unsigned flags = 1) const {
    return call("cuStreamCreate", "hipStreamCreateWithFlags", &out, flags);
  }
  int destroy_stream(void* stream) const { return call("cuStreamDestroy_v2", "hipStreamDestroy", stream); }
  int synchronize_stream(void* stream) const { return call("cuStreamSynchronize", "hipStreamSynchronize", stream); }
  int wait_event(void* stream, void* event) const {
    return call("cuStreamWaitEvent", "hipStreamWaitEvent", stream, event, 0U);
  }
  int create_event(void*& out) const { return call("cuEventCreate", "hipEventCreateWithFlags", &out, 2U); }
  int destroy_event(void* event) const { return call("cuEventDestroy_v2", "hipEventDestroy", event); }
  int record(void* event, void* stream) const { return call("cuEventRecord", "hipEventRecord", event, stream); }
  int synchronize_event(void* event) const { return call("cuEventSynchronize", "hipEventSynchronize", event); }
  int query(void* event) const { return call("cuEventQuery", "hipEventQuery", event); }

  /// True if the event is pending, also after the time that its stream needs when nothing holds it.
  bool pending(void* event) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return query(event) == 600;
  }

  // Functions that must succeed.
  std::uint64_t device_memory(std::size_t size) const {
    std::uint64_t address = 0;
    REQUIRE(allocate(address, size) == 0);
    return address;
  }
  std::byte* host_memory(std::size_t size) const {
    std::byte* memory = nullptr;
    REQUIRE(allocate_host(memory, size) == 0);
    return memory;
  }
  void* stream(unsigned flags = 1) const {
    void* out = nullptr;
    REQUIRE(create_stream(out, flags) == 0);
    return out;
  }
  void* event() const {
    void* out = nullptr;
    REQUIRE(create_event(out) == 0);
    return out;
  }
  std::string contents(std::uint64_t address, std::size_t size) const {
    std::string text(size, '\0');
    REQUIRE(fake->read(address, text.data(), size) == 0);
    return text;
  }
  /// True if the only misuse since the last call is of this kind; "" for none.
  bool misused(std::string_view kind) const {
    const std::string text = fake.misuses();
    CAPTURE(text);
    fake->clear_misuses();
    const bool right =
        kind.empty() ? text.empty() : text.starts_with(std::string(kind) + ": ") && text.find('\n') == text.size() - 1;
    CHECK(right);
    return right;
  }

  Fake fake;

 private:
  bool cuda_;
  int devices_[2] = {};
  void* contexts_[2] = {};
};

void fill(std::byte* memory, std::size_t size, char value) { std::memset(memory, value, size); }

}  // namespace

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("fake: devices, names, versions and errors") {
  for (const Kind kind : both) {
    const Api api(kind);
    int count = 0, version = 0;
    CHECK(api.call("cuDeviceGetCount", "hipGetDeviceCount", &count) == 0);
    CHECK(count == 2);
    api.fake->set_version(123);
    CHECK(api.call("cuDriverGetVersion", "hipDriverGetVersion", &version) == 0);
    CHECK(version == 123);
    char name[8] = {};
    int device = 1;
    if (kind == Kind::cuda) CHECK(api.call("cuDeviceGet", "", &device, 1) == 0);
    CHECK(api.call("cuDeviceGetName", "hipDeviceGetName", static_cast<char*>(name), 8, device) == 0);
    CHECK(std::string_view(name) == (kind == Kind::cuda ? "Fake CU" : "Fake HI"));
    if (kind == Kind::cuda) {
      const char* text = nullptr;
      CHECK(api.call("cuGetErrorName", "", 2, &text) == 0);
      CHECK(std::string_view(text) == "CUDA_ERROR_OUT_OF_MEMORY");
      CHECK(api.call("cuGetErrorName", "", 123456, &text) == 1);
      CHECK(text == nullptr);
    } else {
      CHECK(std::string_view(api.fake.function<const char*(int)>("hipGetErrorName")(2)) == "hipErrorOutOfMemory");
    }
    CHECK(api.misused(""));
    CHECK(api.call("cuDeviceGetName", "hipDeviceGetName", static_cast<char*>(name), 8, 7) == 101);
    CHECK(api.misused("unknown_device"));
  }
  const Api none(Kind::cuda, false);
  none.fake->set_devices(0);
  CHECK(none.call("cuInit", "", 0U) == 100);
  const Api none_hip(Kind::hip);
  none_hip.fake->set_devices(0);
  int count = 7;
  CHECK(none_hip.call("", "hipGetDeviceCount", &count) == 100);
  CHECK(count == 0);
}

TEST_CASE("fake: contexts of CUDA") {
  Api api(Kind::cuda);
  const Fake& fake = api.fake;
  CHECK(fake->stack_depth() == 1);
  CHECK(fake->current_device() == 0);
  CHECK(api.call("cuCtxPushCurrent_v2", "", api.context(1)) == 0);
  CHECK(fake->current_device() == 1);
  void* popped = nullptr;
  CHECK(api.call("cuCtxPopCurrent_v2", "", &popped) == 0);
  CHECK(popped == api.context(1));
  // Another thread has a stack of its own.
  std::thread([&] { CHECK(fake->stack_depth() == 0); }).join();

  api.pop();
  std::uint64_t address = 0;
  CHECK(api.allocate(address, 64) == 201);
  CHECK(api.misused("no_context"));
  api.pop();
  CHECK(api.misused("no_context"));

  CHECK(fake.counters().contexts == 2);
  api.use(0);
  api.device_memory(100);
  CHECK(api.release(1) == 0);
  CHECK(api.release(1) == 201);
  CHECK(api.misused("over_released"));
  CHECK(api.call("cuCtxPushCurrent_v2", "", api.context(1)) == 201);
  CHECK(api.misused("destroyed_context"));
  CHECK(api.release(0) == 0);  // frees the allocation
  CHECK(api.misused("released_in_use"));
  CHECK(fake.live().empty());
  CHECK(api.allocate(address, 64) == 709);
  CHECK(api.misused("destroyed_context"));

  const Api before(Kind::cuda, false);
  CHECK(before.allocate(address, 64) == 3);
  CHECK(before.misused("not_initialized"));
}

TEST_CASE("fake: memory of devices, and its limits") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    const std::uint64_t a = api.device_memory(1000);
    CHECK(a % 256 == 0);
    bool odd = false;  // not always more aligned
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t address = api.device_memory(1);
      odd = odd || address % 512 != 0;
      CHECK(api.free(address) == 0);
    }
    CHECK(odd);
    CHECK(api.contents(a, 1000) == std::string(1000, '\xDB'));
    CHECK(fake->write(a + 999, "x", 1) == 0);
    CHECK(api.contents(a + 998, 2) == "\xDBx");
    CHECK(api.misused(""));
    char byte = 0;
    CHECK(fake->read(a + 1000, &byte, 1) == -1);
    CHECK(api.misused("unknown_address"));
    CHECK(fake->read(a + 999, &byte, 2) == -1);
    CHECK(api.misused("device_range"));

    api.use(1);
    const std::uint64_t b = api.device_memory(50);
    CHECK(fake.counters().device_bytes == 1050);
    fake->set_device_limit(1, 100);
    std::uint64_t more = 0;
    CHECK(api.allocate(more, 51) == 2);
    CHECK(api.allocate(more, 50) == 0);
    CHECK(api.allocate(more, std::size_t{1} << 60U) == 2);
    fake->set_host_limit(4096);
    std::byte* host = nullptr;
    CHECK(api.allocate_host(host, 4097) == 2);
    CHECK(api.allocate_host(host, 4096) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(host) % 4096 == 0);
    CHECK(fake.live() == (kind == Kind::cuda ? "3 device allocations, 1 host allocations, 2 contexts"
                                             : "3 device allocations, 1 host allocations"));
    for (const std::uint64_t address : {a, b, more}) CHECK(api.free(address) == 0);
    CHECK(api.misused(""));
    CHECK(api.free(a) == (kind == Kind::cuda ? 1 : 17));
    CHECK(api.misused("freed_twice"));
    CHECK(api.free(a + 1) == (kind == Kind::cuda ? 1 : 17));
    CHECK(api.misused("unknown_address"));
    CHECK(api.free_host(host + 1) == 1);
    CHECK(api.misused("unknown_address"));
    CHECK(api.free_host(host) == 0);
    CHECK(api.free_host(host) == 1);
    CHECK(api.misused("unknown_address"));
    CHECK(fake.counters().max_device_bytes == 1100);
    CHECK(fake.counters().max_host_bytes == 4096);
    // This copy has no bytes.
    std::uint64_t empty = 1;
    CHECK(api.allocate(empty, 0) == (kind == Kind::cuda ? 1 : 0));
    if (kind == Kind::hip) {
      CHECK(empty == 0);
      CHECK(api.free(0) == 0);
      CHECK(api.free_host(nullptr) == 0);
    }
    api.end();
    CHECK(fake.live().empty());
  }
}

TEST_CASE("fake: the processor cannot reach memory of devices") {
  const Api api(Kind::cuda);
  const std::uint64_t address = api.device_memory(300);
  for (const std::ptrdiff_t offset : {-1, 0, 299, 300, 65536}) {
    CAPTURE(offset);
    const std::string text = stele_test::in_child([&] {
      for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);
      return std::to_string(*reinterpret_cast<volatile char*>(static_cast<std::uintptr_t>(address) +
                                                              static_cast<std::uintptr_t>(offset)));
    });
    CHECK(text.starts_with(" (the child died"));
  }
}

TEST_CASE("fake: copies, and what they refuse") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->set_delay(1, 200);
    constexpr std::size_t size = 1000;
    const std::uint64_t device = api.device_memory(size);
    std::byte* const host = api.host_memory(2 * size);
    void* const stream = api.stream();
    fill(host, size, 'a');
    REQUIRE(api.to_device(device, host, size, stream) == 0);
    REQUIRE(api.from_device(host + size, device, size, stream) == 0);
    REQUIRE(api.synchronize_stream(stream) == 0);
    CHECK(std::memcmp(host, host + size, size) == 0);
    CHECK(api.contents(device, size) == std::string(size, 'a'));
    REQUIRE(api.to_device(device + 10, host, 20, nullptr) == 0);
    REQUIRE(api.synchronize_stream(nullptr) == 0);
    CHECK(api.to_device(device, host, 0, stream) == 0);
    CHECK(fake.counters().copies_to_device == 2);
    CHECK(fake.counters().bytes_to_device == 1020);
    CHECK(fake.counters().copies_from_device == 1);
    CHECK(fake.counters().largest_copy == size);
    CHECK(fake->calls(api.name("cuMemcpyHtoDAsync", "hipMemcpyHtoDAsync")) == 3);
    CHECK(api.misused(""));

    CHECK(api.to_device(device + 1, host, size, stream) == 1);
    CHECK(api.misused("device_range"));
    CHECK(api.to_device(device - 1, host, size, stream) == 1);
    CHECK(api.misused("unknown_address"));
    CHECK(api.to_device(device, host + size + 1, size, stream) == 1);
    CHECK(api.misused("host_range"));
    CHECK(api.to_device(device, host - 1, size, stream) == 1);
    CHECK(api.misused("host_range"));
    CHECK(api.to_device(device, nullptr, size, stream) == 1);
    CHECK(api.misused("unknown_address"));
    CHECK(api.to_device(reinterpret_cast<std::uintptr_t>(host), host, 1, stream) == 1);
    CHECK(api.misused("unknown_address"));
    std::vector<std::byte> other(size);
    CHECK(api.from_device(other.data(), device, size, stream) == 0);
    CHECK(api.misused("pageable"));
    CHECK(other[999] == std::byte{'a'});  // as it was synchronous
    int unknown = 0;
    CHECK(api.to_device(device, host, size, &unknown) == 400);
    CHECK(api.misused("unknown_stream"));

    api.use(1);
    const std::uint64_t second = api.device_memory(size);
    CHECK(api.to_device(second, host, size, stream) == 0);  // with a stream of the first
    CHECK(api.misused("wrong_device"));
    CHECK(api.to_device(device, host, size, stream) == 0);  // to the first, while the second is current
    CHECK(api.synchronize_stream(stream) == 0);
    CHECK(api.misused(""));
    CHECK(api.free(device) == 0);
    CHECK(api.to_device(device + 5, host, 5, stream) == 1);
    CHECK(api.misused("use_after_free"));
  }
}

TEST_CASE("fake: streams keep their order and run at the same time") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->set_delay(7, 300);
    std::atomic<int> step = 0;
    void* const a = api.stream();
    void* const b = api.stream();
    struct At {
      std::atomic<int>* step;
      int seen = -1;
    } first{&step}, second{&step}, third{&step};
    const auto note = [](void* at) { static_cast<At*>(at)->seen = static_cast<At*>(at)->step->fetch_add(1); };
    REQUIRE(fake->hold(a, 0) == 0);
    REQUIRE(fake->run(a, 0, note, &first) == 0);
    REQUIRE(fake->run(a, 0, note, &second) == 0);
    REQUIRE(fake->run(b, 0, note, &third) == 0);
    REQUIRE(api.synchronize_stream(b) == 0);
    CHECK(third.seen == 0);
    void* const event = api.event();
    REQUIRE(api.record(event, a) == 0);
    CHECK(api.pending(event));
    REQUIRE(fake->release(a, 0) == 0);
    REQUIRE(api.synchronize_event(event) == 0);
    CHECK(api.query(event) == 0);
    CHECK(first.seen == 1);
    CHECK(second.seen == 2);

    // A destroyed stream still does its work.
    std::byte* const host = api.host_memory(64);
    const std::uint64_t device = api.device_memory(64);
    fill(host, 64, 'q');
    REQUIRE(fake->hold(a, 0) == 0);
    REQUIRE(api.to_device(device, host, 64, a) == 0);
    REQUIRE(api.record(event, a) == 0);
    REQUIRE(api.destroy_stream(a) == 0);
    CHECK(api.pending(event));
    REQUIRE(fake->release(a, 0) == 0);
    REQUIRE(api.synchronize_event(event) == 0);
    CHECK(api.contents(device, 64) == std::string(64, 'q'));
    CHECK(api.misused(""));
    CHECK(api.destroy_stream(a) == 400);
    CHECK(api.misused("unknown_stream"));
  }
}

TEST_CASE("fake: events") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    void* const a = api.stream();
    void* const b = api.stream();
    void* const event = api.event();
    CHECK(api.query(event) == 0);  // never recorded
    CHECK(api.synchronize_event(event) == 0);
    CHECK(api.wait_event(b, event) == 0);

    // A wait is for the record at the time of the call, whatever is recorded later.
    std::atomic<int> done = 0;
    const auto add = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    REQUIRE(fake->hold(a, 0) == 0);
    REQUIRE(api.record(event, b) == 0);
    REQUIRE(api.wait_event(b, event) == 0);
    REQUIRE(api.record(event, a) == 0);
    REQUIRE(fake->run(b, 0, add, &done) == 0);
    REQUIRE(api.synchronize_stream(b) == 0);
    CHECK(done == 1);
    CHECK(api.pending(event));
    // This one waits.
    REQUIRE(api.wait_event(b, event) == 0);
    REQUIRE(fake->run(b, 0, add, &done) == 0);
    // Also after a record that replaces the one it waits for, and the event's end.
    REQUIRE(api.record(event, a) == 0);
    REQUIRE(api.destroy_event(event) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(done == 1);
    REQUIRE(fake->release(a, 0) == 0);
    REQUIRE(api.synchronize_stream(b) == 0);
    CHECK(done == 2);
    CHECK(api.misused(""));
    CHECK(api.destroy_event(event) == 400);
    CHECK(api.misused("unknown_event"));
    CHECK(api.query(event) == 400);
    CHECK(api.misused("unknown_event"));

    // An event belongs to its device, but other devices may wait for it.
    void* const own = api.event();
    api.use(1);
    void* const other = api.stream();
    CHECK(api.record(own, other) == 400);
    CHECK(api.misused("wrong_device"));
    CHECK(api.wait_event(other, own) == 0);
    CHECK(api.record(own, a) == 0);
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: the null stream waits for blocking streams, and they for it") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    void* const blocking = api.stream(0);
    void* const free = api.stream(1);
    void* const event = api.event();
    std::atomic<int> done = 0;
    const auto add = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    REQUIRE(fake->hold(blocking, 0) == 0);
    REQUIRE(fake->run(blocking, 0, add, &done) == 0);
    REQUIRE(api.record(event, nullptr) == 0);
    CHECK(api.pending(event));
    REQUIRE(fake->run(free, 0, add, &done) == 0);
    REQUIRE(api.synchronize_stream(free) == 0);
    CHECK(done == 1);
    REQUIRE(fake->release(blocking, 0) == 0);
    REQUIRE(api.synchronize_stream(nullptr) == 0);
    CHECK(done == 2);
    REQUIRE(fake->hold(nullptr, 0) == 0);
    REQUIRE(fake->run(nullptr, 0, add, &done) == 0);
    REQUIRE(api.record(event, blocking) == 0);
    CHECK(api.pending(event));
    REQUIRE(fake->release(nullptr, 0) == 0);
    REQUIRE(api.synchronize_event(event) == 0);
    CHECK(done == 3);
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: missing waits are found, whatever the time that copies take") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    constexpr std::size_t size = 4096;
    void* const a = api.stream();
    void* const b = api.stream();
    void* const event = api.event();
    const std::uint64_t device = api.device_memory(size);
    std::byte* const host = api.host_memory(size);
    std::byte* const other = api.host_memory(size);
    fill(host, size, 'x');

    // The copies are done in all cases, but the program cannot know it.
    if (!thread_sanitizer) {
      REQUIRE(api.to_device(device, host, size, a) == 0);
      REQUIRE(fake->idle() == 0);
      api.contents(device, size);
      CHECK(api.misused("access_in_use"));
      REQUIRE(api.from_device(other, device, size / 2, b) == 0);
      REQUIRE(fake->idle() == 0);
      CHECK(api.misused("unordered"));
    }
    // Other halves, or two reads, need no order.
    REQUIRE(api.synchronize_stream(a) == 0);
    REQUIRE(api.synchronize_stream(b) == 0);
    REQUIRE(api.to_device(device, host, size / 2, a) == 0);
    REQUIRE(api.to_device(device + size / 2, host, size / 2, b) == 0);
    REQUIRE(api.record(event, a) == 0);
    REQUIRE(api.wait_event(b, event) == 0);
    REQUIRE(api.from_device(other, device, size, b) == 0);  // ordered by the event
    CHECK(api.misused(""));
    // The second stream's end implies the first's.
    REQUIRE(api.synchronize_stream(b) == 0);
    CHECK(api.contents(device, size) == std::string(size, 'x'));
    CHECK(api.misused(""));

    REQUIRE(api.from_device(other, device, size, a) == 0);
    CHECK(api.free(device) == 0);
    CHECK(api.misused("freed_in_use"));
    CHECK(api.free_host(other) == 0);
    CHECK(api.misused("freed_in_use"));
    CHECK(api.free_host(host) == 0);
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: functions on streams stand for kernels") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->set_delay(3, 200);
    constexpr std::size_t size = 64;
    void* const user = api.stream();
    void* const copies = api.stream();
    void* const event = api.event();
    const std::uint64_t device = api.device_memory(size);
    std::byte* const host = api.host_memory(size);
    struct Kernel {
      const Fake* fake;
      std::uint64_t address;
      char seen[size];
      int status;
    } kernel{&fake, device, {}, -2};
    const auto run = [](void* at) {
      auto& own = *static_cast<Kernel*>(at);
      own.status = (*own.fake)->read(own.address, own.seen, size);
      const std::string more(size, 'k');
      (*own.fake)->write(own.address, more.data(), size);
    };
    fill(host, size, 'c');
    // The kernel waits for the copy, and a later copy for the kernel.
    REQUIRE(api.to_device(device, host, size, copies) == 0);
    REQUIRE(api.record(event, copies) == 0);
    REQUIRE(api.wait_event(user, event) == 0);
    REQUIRE(fake->kernel(user, 0, device, size, true, run, &kernel) == 0);
    REQUIRE(api.record(event, user) == 0);
    REQUIRE(api.wait_event(copies, event) == 0);
    REQUIRE(api.from_device(host, device, size, copies) == 0);
    REQUIRE(api.synchronize_stream(copies) == 0);
    CHECK(kernel.status == 0);
    CHECK(std::string_view(kernel.seen, size) == std::string(size, 'c'));
    CHECK(host[0] == std::byte{'k'});
    CHECK(api.misused(""));
    // Without the waits. The functions do nothing, so that nothing races.
    const auto nothing = [](void*) {};
    REQUIRE(api.to_device(device, host, size, copies) == 0);
    REQUIRE(fake->kernel(user, 0, device, size, false, nothing, nullptr) == 0);
    CHECK(api.misused("unordered"));
    REQUIRE(api.synchronize_stream(copies) == 0);
    REQUIRE(api.to_device(device, host, size, copies) == 0);
    CHECK(api.misused("unordered"));
    REQUIRE(api.synchronize_stream(user) == 0);
    REQUIRE(api.synchronize_stream(copies) == 0);
    // They must not call the driver.
    struct Call {
      const Api* api;
      int code;
    } call{&api, -1};
    const auto calls = [](void* at) {
      auto& own = *static_cast<Call*>(at);
      own.code = own.api->synchronize_stream(nullptr);
    };
    REQUIRE(fake->run(user, 0, calls, &call) == 0);
    REQUIRE(api.synchronize_stream(user) == 0);
    CHECK(call.code == 800);
    CHECK(api.misused("call_in_function"));
  }
}

TEST_CASE("fake: threads end with their streams") {
  for (const Kind kind : both) {
    const Api api(kind);
    for (int i = 0; i < 300; ++i) {
      void* const stream = api.stream(0);
      REQUIRE(api.fake->run(
                  stream, 0, [](void*) {}, nullptr) == 0);
      REQUIRE(api.synchronize_stream(stream) == 0);
      REQUIRE(api.destroy_stream(stream) == 0);
    }
    const std::filesystem::directory_iterator threads("/proc/self/task");
    CHECK(std::distance(begin(threads), end(threads)) < 100);
    REQUIRE(api.synchronize_stream(nullptr) == 0);
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: all copies are held") {
  for (const Kind kind : both) {
    const Api api(kind);
    const Fake& fake = api.fake;
    fake->hold_copies(true);
    void* const stream = api.stream();
    void* const event = api.event();
    const std::uint64_t device = api.device_memory(10);
    std::byte* const host = api.host_memory(10);
    fill(host, 10, 'h');
    std::atomic<int> done = 0;
    REQUIRE(fake->run(
                stream, 0, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &done) == 0);
    REQUIRE(api.record(event, stream) == 0);
    REQUIRE(api.to_device(device, host, 10, stream) == 0);
    REQUIRE(api.synchronize_event(event) == 0);
    CHECK(done == 1);
    REQUIRE(api.record(event, stream) == 0);
    CHECK(api.pending(event));
    fake->hold_copies(false);
    REQUIRE(api.synchronize_event(event) == 0);
    CHECK(api.contents(device, 10) == std::string(10, 'h'));
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: a call that cannot end returns") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->set_patience(20);
    void* const stream = api.stream();
    const std::uint64_t device = api.device_memory(10);
    std::byte* const host = api.host_memory(10);
    REQUIRE(fake->hold(stream, 0) == 0);
    REQUIRE(api.to_device(device, host, 10, stream) == 0);
    REQUIRE(api.to_device(device, host, 10, stream) == 0);
    CHECK(fake.counters().queued_copies == 1);
    CHECK(api.synchronize_stream(stream) == 702);
    CHECK(api.misused("stuck"));
    CHECK(api.free_host(host) == 702);  // the late copy still has its memory
    CHECK(fake.misuses().starts_with("freed_in_use: "));
    fake->clear_misuses();
    REQUIRE(fake->release(stream, 0) == 0);
    CHECK(api.synchronize_stream(stream) == 0);
    CHECK(fake.counters().host_allocations == 0);
  }
}

TEST_CASE("fake: injected errors") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->fail(api.name("cuMemAlloc", "hipMalloc"), 2, 719, 2);
    std::uint64_t address = 0;
    CHECK(api.allocate(address, 8) == 0);
    CHECK(fake->pending_faults() == 1);
    std::uint64_t failed = 0;
    CHECK(api.allocate(failed, 8) == 719);
    CHECK(api.allocate(failed, 8) == 719);
    CHECK(fake->pending_faults() == 0);
    CHECK(failed == 0);
    CHECK(fake.counters().device_allocations == 1);
    // Any function. The one that names errors is exempt.
    fake->fail(nullptr, 2, 999, 1);
    void* stream = nullptr;
    void* event = nullptr;
    CHECK(api.create_stream(stream) == 0);
    if (kind == Kind::cuda) {
      const char* name = nullptr;
      CHECK(api.call("cuGetErrorName", "", 1, &name) == 0);
    } else {
      api.fake.function<const char*(int)>("hipGetErrorName")(1);
    }
    CHECK(api.create_event(event) == 999);
    CHECK(api.create_event(event) == 0);
    // Functions that free, destroy or wait do so nevertheless.
    std::byte* const host = api.host_memory(8);
    REQUIRE(api.to_device(address, host, 8, stream) == 0);
    REQUIRE(api.record(event, stream) == 0);
    fake->fail(nullptr, 1, 719, 5);
    CHECK(api.synchronize_event(event) == 719);
    CHECK(api.free(address) == 719);
    CHECK(api.free_host(host) == 719);
    CHECK(api.destroy_event(event) == 719);
    CHECK(api.destroy_stream(stream) == 719);
    api.end();
    CHECK(fake.live().empty());
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: a copy that fails, and the device afterwards") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    constexpr std::size_t size = 400;
    void* const stream = api.stream();
    void* const event = api.event();
    const std::uint64_t device = api.device_memory(size);
    std::byte* const host = api.host_memory(size);
    fill(host, size, 'f');
    std::atomic<int> done = 0;
    const auto add = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    fake->fail_copy(2, 700);
    REQUIRE(fake->hold(stream, 0) == 0);
    REQUIRE(api.to_device(device, host, size / 2, stream) == 0);
    REQUIRE(api.to_device(device + size / 2, host, size / 2, stream) == 0);
    REQUIRE(fake->run(stream, 0, add, &done) == 0);
    REQUIRE(api.record(event, stream) == 0);
    REQUIRE(fake->release(stream, 0) == 0);
    CHECK(api.synchronize_event(event) == 700);
    CHECK(done == 0);
    CHECK(api.contents(device, size) == std::string(300, 'f') + std::string(100, '\xDB'));
    std::uint64_t more = 0;
    std::byte* other = nullptr;
    void* handle = nullptr;
    CHECK(api.query(event) == 700);
    CHECK(api.synchronize_stream(stream) == 700);
    CHECK(api.allocate(more, 1) == 700);
    CHECK(api.allocate_host(other, 1) == 700);
    CHECK(api.create_stream(handle) == 700);
    CHECK(api.create_event(handle) == 700);
    CHECK(api.to_device(device, host, 1, stream) == 700);
    CHECK(api.record(event, stream) == 700);
    CHECK(api.wait_event(stream, event) == 700);
    // The other device is as it was.
    api.use(1);
    const std::uint64_t second = api.device_memory(8);
    CHECK(api.free(second) == 0);
    api.use(0);
    CHECK(api.free(device) == 700);
    CHECK(api.free_host(host) == 700);
    CHECK(api.destroy_event(event) == 700);
    CHECK(api.destroy_stream(stream) == 700);
    api.end();
    CHECK(fake.live().empty());
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: lost devices") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    void* const stream = api.stream();
    void* const event = api.event();
    const std::uint64_t device = api.device_memory(8);
    std::byte* const host = api.host_memory(8);
    REQUIRE(fake->hold(stream, 0) == 0);
    REQUIRE(api.to_device(device, host, 8, stream) == 0);
    fake->lose();
    CHECK(api.synchronize_stream(stream) == 999);
    CHECK(api.record(event, stream) == 999);
    int count = 0;
    CHECK(api.call("cuDeviceGetCount", "hipGetDeviceCount", &count) == 999);
    if (kind == Kind::cuda) {
      CHECK(api.call("cuCtxPushCurrent_v2", "", api.context(1)) == 999);
      CHECK(fake->stack_depth() == 1);
      api.pop();  // what is freed without a context is freed
      CHECK(fake->stack_depth() == 0);
    }
    CHECK(api.free(device) == 999);
    CHECK(api.free_host(host) == 999);
    CHECK(api.destroy_event(event) == 999);
    CHECK(api.destroy_stream(stream) == 999);
    api.end();
    CHECK(fake.live().empty());
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: a ring of buffers, by several threads") {
  for (const Kind kind : both) {
    Api api(kind);
    const Fake& fake = api.fake;
    fake->set_delay(11, 300);
    constexpr std::size_t size = 2000, buffers = 3, rounds = 30;
    const std::uint64_t device = api.device_memory(2 * size * rounds);
    const auto load = [&](std::size_t part) {
      if (kind == Kind::cuda) REQUIRE(api.call("cuCtxPushCurrent_v2", "", api.context(0)) == 0);
      void* const stream = api.stream();
      std::array<std::byte*, buffers> ring{};
      std::array<void*, buffers> events{};
      for (std::size_t i = 0; i < buffers; ++i) {
        ring[i] = api.host_memory(size);
        events[i] = api.event();
      }
      for (std::size_t round = 0; round < rounds; ++round) {
        const std::size_t i = round % buffers;
        REQUIRE(api.synchronize_event(events[i]) == 0);
        fill(ring[i], size, static_cast<char>('A' + round));
        REQUIRE(api.to_device(device + (part * rounds + round) * size, ring[i], size, stream) == 0);
        REQUIRE(api.record(events[i], stream) == 0);
      }
      REQUIRE(api.synchronize_stream(stream) == 0);
      for (std::size_t i = 0; i < buffers; ++i) {
        REQUIRE(api.free_host(ring[i]) == 0);
        REQUIRE(api.destroy_event(events[i]) == 0);
      }
      REQUIRE(api.destroy_stream(stream) == 0);
      if (kind == Kind::cuda) api.pop();
    };
    std::thread other(load, 1);
    load(0);
    other.join();
    std::string expected;
    for (std::size_t round = 0; round < rounds; ++round) expected.append(size, static_cast<char>('A' + round));
    CHECK(api.contents(device, 2 * size * rounds) == expected + expected);
    REQUIRE(api.free(device) == 0);
    api.end();
    CHECK(fake.live().empty());
    CHECK(api.misused(""));
  }
}

TEST_CASE("fake: reuse of a buffer before its copy is done damages data") {
  for (const Kind kind : both) {
    if (thread_sanitizer) continue;
    const Api api(kind);
    const Fake& fake = api.fake;
    constexpr std::size_t size = 4000;
    const std::uint64_t device = api.device_memory(size);
    std::byte* const host = api.host_memory(size);
    void* const stream = api.stream();
    fill(host, size, 'a');
    REQUIRE(fake->hold(stream, 0) == 0);
    REQUIRE(api.to_device(device, host, size, stream) == 0);
    fill(host, size, 'b');
    REQUIRE(fake->release(stream, 0) == 0);
    REQUIRE(api.synchronize_stream(stream) == 0);
    CHECK(api.contents(device, size) == std::string(size, 'b'));
  }
}

// Run by the next case, in a process of its own.
TEST_CASE("fake: a race" * doctest::skip()) {
  const Api api(std::getenv("STELE_FAKE_RACE_HIP") != nullptr ? Kind::hip : Kind::cuda);
  const bool waits = std::getenv("STELE_FAKE_RACE_WAITS") != nullptr;
  constexpr std::size_t size = 4000;
  const std::uint64_t device = api.device_memory(size);
  std::byte* const host = api.host_memory(size);
  void* const stream = api.stream();
  void* const event = api.event();
  fill(host, size, 'a');
  REQUIRE(api.to_device(device, host, size, stream) == 0);
  REQUIRE(api.record(event, stream) == 0);
  if (waits) {
    REQUIRE(api.synchronize_event(event) == 0);
  } else {
    REQUIRE(api.fake->idle() == 0);  // the copy is done, which only a wait makes known
  }
  fill(host, size, 'b');
  REQUIRE(api.synchronize_stream(stream) == 0);
}

TEST_CASE("fake: ThreadSanitizer sees reuse of a buffer for whose copy nothing has waited") {
  if (!thread_sanitizer) return;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const Kind kind : both) {
    for (const bool waits : {false, true}) {
      const std::string command = std::string(kind == Kind::hip ? "STELE_FAKE_RACE_HIP=1 " : "") +
                                  (waits ? "STELE_FAKE_RACE_WAITS=1 " : "") + "'" + program +
                                  "' --no-skip --test-case='fake: a race' 2>&1";
      std::FILE* const pipe = ::popen(command.c_str(), "r");
      REQUIRE(pipe != nullptr);
      std::string text;
      char buffer[4096];
      for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
      const int status = ::pclose(pipe);
      CAPTURE(text);
      CHECK((text.find("data race") != std::string::npos) == !waits);
      CHECK((status == 0) == waits);
    }
  }
}

TEST_SUITE_END();

}  // namespace fake_test
