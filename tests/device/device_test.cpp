// Tensors of devices: the contract of stele/device.hpp. Runs on fake drivers; with STELE_TEST_DRIVER=cuda (or hip) on
// the machine's device.
#include <stele/checkpoints/manager.hpp>
#include <stele/device.hpp>
#include <stele/quantized.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "device/devices.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using stele_test::Cuda;
using stele_test::Devices;
using stele_test::Hip;
using stele_test::TempDir;
namespace device = stele::device;

#define DEVICE_TEST(text) TEST_CASE_TEMPLATE("device: " text, Kind, Cuda, Hip)
#define NEEDS_DEVICE(devices) \
  if (!(devices)) return  // NOLINT

// The same models in main memory and on a device; files have the unqualified names of the classes.
namespace host {
struct Layer {
  Tensor<float, 2> weight;
  Param<Tensor<float, 1>> bias;
};
struct Net {
  std::vector<Layer> layers;
  Tensor<float> scale;
  Tensor<float, 1> on_host;
  std::int64_t steps = 0;
};
struct Many {
  std::vector<Param<Tensor<float, 1>>> all;
};
struct Kinds {
  Quantized<DType::q8_0> blocks;
  Tensor<bool, 1> flags;
  Tensor<float, 2> empty;
  Tensor<float> scalar;
};
}  // namespace host
namespace gpu {
struct Layer {
  device::Tensor<float, 2> weight;
  Param<device::Tensor<float, 1>> bias;
};
struct Net {
  std::vector<Layer> layers;
  device::Tensor<float> scale;
  Tensor<float, 1> on_host;
  std::int64_t steps = 0;
};
struct Many {
  std::vector<Param<device::Tensor<float, 1>>> all;
};
struct Kinds {
  device::BlockTensor blocks;
  device::Tensor<bool, 1> flags;
  device::Tensor<float, 2> empty;
  device::Tensor<float> scalar;
};
}  // namespace gpu

Tensor<float, 2> matrix(std::size_t rows, std::size_t columns, float first) {
  Tensor<float, 2> t({rows, columns});
  std::iota(t.begin(), t.end(), first);
  return t;
}
Tensor<float, 1> vector(std::size_t size, float first) {
  Tensor<float, 1> t({size});
  std::iota(t.begin(), t.end(), first);
  return t;
}

host::Net host_net(std::size_t layers = 3, std::size_t width = 40, float first = 1) {
  host::Net net;
  for (std::size_t i = 0; i < layers; ++i) {
    net.layers.emplace_back();
    net.layers.back().weight = matrix(width + i, width, first + static_cast<float>(i));
    *net.layers.back().bias = vector(width, first - static_cast<float>(i));
  }
  net.scale = Tensor<float>(Shape{2, 1, 3}, {first, 2, 3, 4, 5, 6});
  net.on_host = vector(7, first);
  net.steps = 12;
  return net;
}

template <class Kind>
gpu::Net device_net(const Devices<Kind>& devices, const host::Net& from) {
  gpu::Net net;
  for (const host::Layer& layer : from.layers) {
    net.layers.emplace_back();
    net.layers.back().weight = devices.make(layer.weight);
    *net.layers.back().bias = devices.make(*layer.bias);
  }
  net.scale = devices.make(from.scale);
  net.on_host = from.on_host;
  net.steps = from.steps;
  return net;
}

template <class T>
std::vector<std::remove_const_t<T>> elements(std::span<T> span) {
  return {span.begin(), span.end()};
}

/// Returns true if the elements are equal.
template <class Kind>
bool equal(const Devices<Kind>& devices, const gpu::Net& a, const host::Net& b) {
  bool same = a.layers.size() == b.layers.size() && a.steps == b.steps;
  same = same && elements(a.on_host.span()) == elements(b.on_host.span());
  same = same && a.scale.shape() == b.scale.shape() && devices.read(a.scale) == elements(b.scale.span());
  for (std::size_t i = 0; same && i < a.layers.size(); ++i) {
    same = devices.read(a.layers[i].weight) == elements(b.layers[i].weight.span());
    same = same && devices.read(*a.layers[i].bias) == elements(b.layers[i].bias->span());
  }
  return same;
}

std::string why(const Status& status) { return status ? "ok" : status.error().to_string(); }
template <class T>
std::string why(const Result<T>& result) {
  return result ? "ok" : result.error().to_string();
}

void flip_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

/// A stream that a program makes, which does not wait for the default stream.
template <class Kind>
class StreamOfProgram {
 public:
  explicit StreamOfProgram(stele_fake::Fake& fake) : fake_(fake) {
    if (Kind::kind == DeviceKind::cuda) {
      void* context = nullptr;
      call<int*, int>("cuDeviceGet", &gpu_, 0);
      call<void**, int>("cuDevicePrimaryCtxRetain", &context, gpu_);
      call<void*>("cuCtxPushCurrent_v2", context);
      call<void**, unsigned>("cuStreamCreate", &handle_, 1);
    } else {
      call<void**, unsigned>("hipStreamCreateWithFlags", &handle_, 1);
    }
  }
  StreamOfProgram(const StreamOfProgram&) = delete;
  StreamOfProgram& operator=(const StreamOfProgram&) = delete;
  ~StreamOfProgram() {
    if (Kind::kind == DeviceKind::cuda) {
      call<void*>("cuStreamSynchronize", handle_);
      call<void*>("cuStreamDestroy_v2", handle_);
      void* context = nullptr;
      call<void**>("cuCtxPopCurrent_v2", &context);
      call<int>("cuDevicePrimaryCtxRelease_v2", gpu_);
    } else {
      call<void*>("hipStreamSynchronize", handle_);
      call<void*>("hipStreamDestroy", handle_);
    }
  }
  void* handle() const noexcept { return handle_; }

 private:
  template <class... T>
  void call(const char* name, T... arguments) {
    CHECK(fake_.template function<int(T...)>(name)(arguments...) == 0);
  }
  stele_fake::Fake& fake_;
  int gpu_ = 0;
  void* handle_ = nullptr;
};

TEST_SUITE_BEGIN("concurrency");

DEVICE_TEST("files of every kind are loaded into new tensors, and saved from them") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const host::Net host = host_net();
  const auto transfer = devices.transfer();
  for (const char* name : {"a.stele", "a.safetensors", "a.json", "a.json.zst", "a.npz", "a.onnx", "a.bpk"}) {
    CAPTURE(name);
    const std::string path = dir / name, again = dir / ("again" + std::string(name));
    const SaveOptions lossy{.allow_loss = true};
    REQUIRE(save(host, path, lossy));
    LoadOptions options{.allow_missing = {"steps"}, .transfer = transfer.get()};
    auto net = load<gpu::Net>(path, options);
    REQUIRE_MESSAGE(net, why(net));
    net->steps = host.steps;
    CHECK(equal(devices, *net, host));
    CHECK(net->scale.location() == Location{Kind::kind, 0});
    SaveOptions saving{.allow_loss = true, .transfer = transfer.get()};
    auto saved = save(*net, again, saving);
    REQUIRE_MESSAGE(saved, why(saved));
    CHECK(stele_test::read_text(again) == stele_test::read_text(path));
  }
}

DEVICE_TEST("any size and number of buffers, and any number of threads") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const std::string path = dir / "a.stele";
  const host::Net host = host_net(6, 300);  // 360 KB each
  REQUIRE(save(host, path));
  for (const std::size_t size : {std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 20}) {
    for (const unsigned buffers : {1U, 2U, 5U}) {
      for (const unsigned threads : {1U, 4U}) {
        CAPTURE(size);
        CAPTURE(buffers);
        CAPTURE(threads);
        const auto transfer = devices.transfer({.buffer_size = size, .buffers = buffers});
        auto net = load<gpu::Net>(path, {.threads = threads, .transfer = transfer.get()});
        REQUIRE_MESSAGE(net, why(net));
        CHECK(equal(devices, *net, host));
        auto saved = save(*net, dir / "b.stele", {.threads = threads, .transfer = transfer.get()});
        REQUIRE_MESSAGE(saved, why(saved));
        CHECK(stele_test::read_text(dir / "b.stele") == stele_test::read_text(path));
      }
    }
  }
}

DEVICE_TEST("a load converts on the way, and reports it") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  struct From {
    Tensor<float, 1> w, big;
  };
  struct To {
    device::Tensor<float16, 1> w, big;
  };
  const TempDir dir;
  From from{vector(100'000, 0), vector(3, 0)};
  for (std::size_t i = 0; i < from.w.size(); ++i) from.w[i] = static_cast<float>(i % 1000) / 8;
  from.big[1] = 1e9F;
  REQUIRE(save(from, dir / "a.stele"));
  const auto transfer = devices.transfer({.buffer_size = 8192});
  auto refused = load<To>(dir / "a.stele", {.transfer = transfer.get()});
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::out_of_range);
  CHECK(refused.error().path() == "big");
  Report report;
  LoadOptions options{.transfer = transfer.get(), .report = &report};
  options.convert.allow_overflow = true;
  auto to = load<To>(dir / "a.stele", options);
  REQUIRE_MESSAGE(to, why(to));
  const auto w = devices.read(to->w);
  bool same = w.size() == from.w.size();
  for (std::size_t i = 0; same && i < w.size(); ++i) same = static_cast<float>(w[i]) == from.w[i];
  CHECK(same);
  CHECK(report.count(Report::What::converted) == 2);
  CHECK(report.count(Report::What::overflowed) == 1);
}

DEVICE_TEST("small tensors share blocks and copies") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  host::Many host;
  for (std::size_t i = 0; i < 5000; ++i) host.all.emplace_back(vector(i % 40, static_cast<float>(i)));
  const TempDir dir;
  REQUIRE(save(host, dir / "a.stele"));
  const auto transfer = devices.transfer();
  auto many = load<gpu::Many>(dir / "a.stele", {.threads = 1, .transfer = transfer.get()});
  REQUIRE_MESSAGE(many, why(many));
  bool same = many->all.size() == host.all.size();
  for (std::size_t i = 0; same && i < host.all.size(); i += 83) {
    same = devices.read(*many->all[i]) == elements(host.all[i]->span());
  }
  CHECK(same);
  if (devices.fake() != nullptr) {
    // 5,000 tensors of 256 bytes each, in blocks of 1 MiB and 2 MiB.
    CHECK(devices.fake()->counters().device_allocations == 2);
  }
  auto saved = save(*many, dir / "b.stele", {.transfer = transfer.get()});
  REQUIRE_MESSAGE(saved, why(saved));
  CHECK(stele_test::read_text(dir / "b.stele") == stele_test::read_text(dir / "a.stele"));
}

DEVICE_TEST("a load in place verifies everything before the first copy") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const std::string path = dir / "a.stele";
  const host::Net old = host_net(2, 50, 1), host = host_net(2, 50, 1000);
  REQUIRE(save(host, path));
  const auto transfer = devices.transfer();
  gpu::Net net = device_net(devices, old);
  const float* const before = net.layers[1].weight.data();
  REQUIRE(load_into(net, path, {.transfer = transfer.get()}));
  CHECK(equal(devices, net, host));
  CHECK(net.layers[1].weight.data() == before);  // the same memory

  gpu::Net other = device_net(devices, old);
  flip_byte(path, std::filesystem::file_size(path) / 2);
  auto failed = load_into(other, path, {.transfer = transfer.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::checksum);
  CHECK(!failed.error().partially_applied());
  CHECK(equal(devices, other, old));
  failed = load_into(other, path, {.trust_data = true, .transfer = transfer.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::checksum);
  CHECK(failed.error().partially_applied());
  CHECK(!load<gpu::Net>(path, {.transfer = transfer.get()}));
}

DEVICE_TEST("with new_memory, a load in place reads once and exchanges the memory at the end") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const std::string path = dir / "a.stele";
  const host::Net old = host_net(2, 50, 1), host = host_net(2, 50, 1000);
  REQUIRE(save(host, path));
  const auto transfer = devices.transfer();
  gpu::Net net = device_net(devices, old);
  std::uint64_t total = 0;
  LoadOptions options{.new_memory = true, .transfer = transfer.get()};
  options.progress = [&](const Progress& p) {
    total = p.total;
    return true;
  };
  REQUIRE(load_into(net, path, options));
  CHECK(equal(devices, net, host));
  CHECK(total < 2 * std::filesystem::file_size(path));
  CHECK(net.scale.location().ordinal == 0);

  gpu::Net other = device_net(devices, old);
  const float* const before = other.layers[1].weight.data();
  flip_byte(path, std::filesystem::file_size(path) / 2);
  auto failed = load_into(other, path, {.new_memory = true, .transfer = transfer.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::checksum);
  CHECK(!failed.error().partially_applied());
  CHECK(equal(devices, other, old));
  CHECK(other.layers[1].weight.data() == before);
  failed = load_into(other, path, {.rebuild = true, .new_memory = true, .transfer = transfer.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::invalid_argument);
}

TEST_CASE("new_memory: tensors in main memory, arrays, ids and errors") {
  struct Model {
    Param<Tensor<float, 1>> w;
    std::array<float, 3> fixed{};
    std::vector<float> list;
    std::int64_t n = 0;
  };
  const TempDir dir;
  Model from{vector(4, 5), {1, 2, 3}, {7, 8}, 9};
  from.w.id = ParamId::from_uuid(1, 2);
  REQUIRE(save(from, dir / "a.stele"));
  Model to{vector(4, 0), {}, {0, 0}, 0};
  REQUIRE(load_into(to, dir / "a.stele", {.new_memory = true}));
  CHECK(elements(to.w->span()) == elements(from.w->span()));
  CHECK(to.w.id == from.w.id);
  CHECK(to.fixed == from.fixed);
  CHECK(to.list == from.list);
  CHECK(to.n == 9);
  const auto size = std::filesystem::file_size(dir / "a.stele");
  int failures = 0;
  for (std::uint64_t at = 0; at < size; ++at) {
    flip_byte(dir / "a.stele", at);
    Model same{vector(4, 0), {}, {0, 0}, 0};
    auto loaded = load_into(same, dir / "a.stele", {.new_memory = true});
    if (!loaded) {
      ++failures;
      CHECK(elements(same.w->span()) == std::vector<float>{0, 1, 2, 3});
      CHECK(same.fixed == std::array<float, 3>{});
      CHECK(same.list == std::vector<float>{0, 0});
      CHECK(same.n == 0);
    }
    flip_byte(dir / "a.stele", at);
  }
  CHECK(failures > 0);
}

DEVICE_TEST("a stream of copies that could not be told to wait is not used") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  stele_fake::Fake& fake = *devices.fake();
  const StreamOfProgram<Kind> program(fake);
  const auto tensor = devices.make(vector(1000, 0));
  auto* const data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(tensor.data()));
  const auto transfer = devices.transfer({.stream = device::Stream::of(Kind::kind, program.handle())});
  const auto kernel = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  REQUIRE(fake->kernel(program.handle(), 0, std::bit_cast<std::uintptr_t>(data), 4000, true, kernel, nullptr) == 0);
  REQUIRE(transfer->begin());
  std::byte* const buffer = transfer->acquire(true).value();
  const DeviceCopy copy{buffer, data, 4000, {Kind::kind, 0}};
  fake->fail(Kind::kind == DeviceKind::cuda ? "cuStreamWaitEvent" : "hipStreamWaitEvent", 1, 999, 1);
  CHECK(stele_test::code_of(transfer->from_device(buffer, {&copy, 1})) == Errc::io);
  CHECK(transfer->from_device(buffer, {&copy, 1}));  // the fake driver reports copies that are not ordered
  CHECK(transfer->wait(buffer));
  transfer->release(buffer);
}

DEVICE_TEST("single copies wait for the default stream") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  stele_fake::Fake& fake = *devices.fake();
  auto tensor = devices.make(vector(1000, 0));
  struct Work {
    stele_fake::Fake& fake;
    std::uint64_t address;
    std::vector<float> numbers;
  } work{fake, std::bit_cast<std::uintptr_t>(tensor.data()), std::vector<float>(1000, 7)};
  const auto kernel = [](void* context) {
    auto& w = *static_cast<Work*>(context);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    w.fake->write(w.address, w.numbers.data(), w.numbers.size() * sizeof(float));
  };
  REQUIRE(fake->kernel(nullptr, 0, work.address, 4000, true, kernel, &work) == 0);
  CHECK(devices.read(tensor) == work.numbers);
  REQUIRE(fake->kernel(nullptr, 0, work.address, 4000, true, kernel, &work) == 0);
  const auto after = vector(1000, 3);
  devices.write(tensor, after.span());
  CHECK(devices.read(tensor) == elements(after.span()));
}

DEVICE_TEST("copies wait for the program's stream, and its later work for them") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;  // needs kernels
  stele_fake::Fake& fake = *devices.fake();
  const TempDir dir;
  const host::Net old = host_net(2, 50, 1), host = host_net(2, 50, 1000);
  REQUIRE(save(host, dir / "a.stele"));
  gpu::Net net = device_net(devices, old);
  const StreamOfProgram<Kind> program(fake);
  void* const handle = program.handle();
  const auto user = device::Stream::of(Kind::kind, handle);
  const auto kernel = [&](bool writes) {
    for (const gpu::Layer& layer : net.layers) {
      const auto address = std::bit_cast<std::uintptr_t>(layer.weight.data());
      CHECK(fake->kernel(
                handle, 0, address, layer.weight.size() * 4, writes, [](void*) {}, nullptr) == 0);
    }
  };
  {
    const auto transfer = devices.transfer({.stream = user, .wait = false});
    for (int round = 0; round < 20; ++round) {
      kernel(true);  // still runs when the load begins
      REQUIRE(load_into(net, dir / "a.stele", {.transfer = transfer.get()}));
      kernel(false);
    }
    // The load does not wait: the program's stream stands still, and no buffer is still used by an earlier load.
    REQUIRE(fake->idle() == 0);
    REQUIRE(fake->hold(handle, 0) == 0);
    kernel(false);
    REQUIRE(load_into(net, dir / "a.stele", {.transfer = transfer.get()}));
    REQUIRE(fake->release(handle, 0) == 0);
    // A save waits for the kernels before it.
    kernel(true);
    REQUIRE(save(net, dir / "b.stele", {.transfer = transfer.get()}));
  }
  REQUIRE(fake->idle() == 0);
  CHECK(equal(devices, net, host));
  CHECK(fake.misuses() == "");
  {
    // Without the stream, the order is wrong, and the fake driver sees it.
    const auto transfer = devices.transfer();
    REQUIRE(fake->hold(handle, 0) == 0);
    kernel(false);
    REQUIRE(load_into(net, dir / "a.stele", {.transfer = transfer.get()}));
    REQUIRE(fake->release(handle, 0) == 0);
    REQUIRE(fake->idle() == 0);
    CHECK(fake.misuses() != "");
    fake->clear_misuses();
  }
}

DEVICE_TEST("tensors go to the devices that the program names, and replicas to all of theirs from one read") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.driver().count() < 2) return;
  struct Split {
    device::Tensor<float, 1> a, b;
    device::Replicated<float, 1> both;
  };
  struct HostSplit {
    Tensor<float, 1> a, b, both;
  };
  const TempDir dir;
  const HostSplit host{vector(70'000, 1), vector(20, 2), vector(90'000, 3)};
  REQUIRE(save(host, dir / "a.safetensors"));
  const auto transfer =
      devices.transfer({.buffer_size = 65536, .placement = [](std::string_view path) { return path == "b" ? 1 : 0; }});
  Split split;
  split.both = device::Replicated<float, 1>({{Kind::kind, 0}, {Kind::kind, 1}});
  for (const bool again : {false, true}) {
    CAPTURE(again);
    LoadOptions options{.new_memory = again, .transfer = transfer.get()};
    auto loaded = load_into(split, dir / "a.safetensors", options);
    REQUIRE_MESSAGE(loaded, why(loaded));
    CHECK(split.a.location().ordinal == 0);
    CHECK(split.b.location().ordinal == 1);
    CHECK(devices.read(split.a) == elements(host.a.span()));
    CHECK(devices.read(split.b) == elements(host.b.span()));
    REQUIRE(split.both.replicas().size() == 2);
    for (int i = 0; i < 2; ++i) {
      const auto& replica = split.both.replicas()[static_cast<std::size_t>(i)];
      CHECK(replica.location() == Location{Kind::kind, i});
      CHECK(devices.read(replica) == elements(host.both.span()));
    }
  }
  auto saved = save(split, dir / "b.safetensors", {.transfer = transfer.get()});
  REQUIRE_MESSAGE(saved, why(saved));
  CHECK(stele_test::read_text(dir / "b.safetensors") == stele_test::read_text(dir / "a.safetensors"));
  const auto wrong = devices.transfer({.placement = [](std::string_view) { return 7; }});
  auto failed = load<Split>(dir / "a.safetensors", {.transfer = wrong.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::invalid_argument);
  CHECK(failed.error().path() == "a");
}

DEVICE_TEST("a background save holds the caller until the weights are in main memory") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const host::Net old = host_net(3, 200, 1), other = host_net(3, 200, 500);
  REQUIRE(save(old, dir / "old.stele"));
  REQUIRE(save(other, dir / "other.stele"));
  const auto transfer = devices.transfer({.buffer_size = 65536});
  ManagerOptions options;
  options.parts.transfer = transfer.get();
  options.parts.format = find_format("stele");
  options.parts.file.durability = Durability::process;
  auto manager = CheckpointManager::open(dir / "run", options);
  REQUIRE_MESSAGE(manager, why(manager));
  gpu::Net net = device_net(devices, old);
  for (std::int64_t step = 0; step < 6; ++step) {
    const auto checkpoint = checkpoint_of(net);
    REQUIRE_MESSAGE(checkpoint, why(checkpoint));
    auto saved = manager->save_async(step, *checkpoint);
    REQUIRE_MESSAGE(saved, why(saved));
    REQUIRE(load_into(net, dir / (step % 2 == 0 ? "other.stele" : "old.stele"), {.transfer = transfer.get()}));
  }
  auto ended = manager->wait();
  REQUIRE_MESSAGE(ended, why(ended));
  REQUIRE(ended->size() == 6);
  for (const auto& saved : *ended) {
    auto opened = manager->open_step(saved.info.step);
    REQUIRE_MESSAGE(opened, why(opened));
    auto loaded = load<host::Net>(opened->checkpoint.parameters);
    REQUIRE_MESSAGE(loaded, why(loaded));
    const host::Net& expected = saved.info.step % 2 == 0 ? old : other;
    CHECK(elements(loaded->layers[2].weight.span()) == elements(expected.layers[2].weight.span()));
    CHECK(elements(loaded->scale.span()) == elements(expected.scale.span()));
  }
}

DEVICE_TEST("steps of training are deltas, with optimizer state, and are resumed on the device") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const auto transfer = devices.transfer({.buffer_size = 65536});
  ManagerOptions options{.deltas = 3};
  options.parts.transfer = transfer.get();
  options.load.transfer = transfer.get();
  options.parts.file.durability = Durability::process;
  auto manager = CheckpointManager::open(dir / "run", CompressedRecorder<>(), options);
  REQUIRE_MESSAGE(manager, why(manager));
  for (std::int64_t step = 0; step < 5; ++step) {
    const host::Net now = host_net(2, 30, static_cast<float>(step)), moments = host_net(2, 30, 100);
    gpu::Net net = device_net(devices, now), state = device_net(devices, moments);
    const auto checkpoint = checkpoint_of(net, StateKind("M", state));
    REQUIRE_MESSAGE(checkpoint, why(checkpoint));
    if (step % 2 == 0) {
      auto saved = manager->save(step, *checkpoint);
      REQUIRE_MESSAGE(saved, why(saved));
    } else {
      auto saved = manager->save_async(step, *checkpoint);
      REQUIRE_MESSAGE(saved, why(saved));
      REQUIRE(manager->wait());
    }
    gpu::Net again = device_net(devices, host_net(2, 30, 7)), again_state = device_net(devices, host_net(2, 30, 8));
    auto resumed = manager->resume(again, StateKind("M", again_state));
    REQUIRE_MESSAGE(resumed, why(resumed));
    REQUIRE(*resumed);
    CHECK((*resumed)->info.step == step);
    CHECK(equal(devices, again, now));
    CHECK(equal(devices, again_state, moments));
  }
}

DEVICE_TEST("without a transfer, loads and saves name the tensor and what to set") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const host::Net host = host_net();
  REQUIRE(save(host, dir / "a.stele"));
  auto loaded = load<gpu::Net>(dir / "a.stele");
  REQUIRE(!loaded);
  CHECK(loaded.error().code() == Errc::invalid_argument);
  CHECK(loaded.error().path() == "layers.0.weight");
  CHECK(loaded.error().hint() == "set LoadOptions::transfer");
  gpu::Net net = device_net(devices, host);
  net.steps = 1;
  auto into = load_into(net, dir / "a.stele");
  REQUIRE(!into);
  CHECK(into.error().code() == Errc::invalid_argument);
  CHECK(!into.error().partially_applied());
  CHECK(net.steps == 1);
  const auto file = open(dir / "a.stele");
  REQUIRE(file);
  CHECK(dry_run<gpu::Net>(*file).error().hint() == "set LoadOptions::transfer");
  CHECK(dry_run(net, *file).error().path() == "layers.0.weight");
  const auto transfer = devices.transfer();
  CHECK(dry_run(net, *file, {.transfer = transfer.get()}));
  auto saved = save(net, dir / "b.stele");
  REQUIRE(!saved);
  CHECK(saved.error().code() == Errc::invalid_argument);
  CHECK(saved.error().path() == "layers.0.weight");
  CHECK(saved.error().hint() == "set SaveOptions::transfer");
  CHECK(saved.error().found() == to_string(Location{Kind::kind, 0}));
  CHECK(!std::filesystem::exists(dir / "b.stele"));
  // A snapshot of the module has the structure, and no bytes.
  auto snapshot = snapshot_of(net);
  REQUIRE(snapshot);
  CHECK(snapshot->leaf(0).view().empty());
  auto report = dry_run<host::Net>(*snapshot);
  CHECK(report);
  CHECK(!load<host::Net>(*snapshot));
}

DEVICE_TEST("blocks, bools, empty tensors, mapped files") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  host::Kinds from;
  const auto numbers = vector(64 * 32, -1000);
  from.blocks = BlockTensor::encode(DType::q8_0, Shape{64, 32}, numbers.span()).value();
  from.flags = Tensor<bool, 1>({3}, {true, false, true});
  from.empty = Tensor<float, 2>({0, 5});
  from.scalar = Tensor<float>(Shape{}, {2.5F});
  const TempDir dir;
  REQUIRE(save(from, dir / "a.stele"));
  const auto transfer = devices.transfer();
  Report report;
  auto to =
      load<gpu::Kinds>(dir / "a.stele", {.storage = Storage::mmap, .transfer = transfer.get(), .report = &report});
  REQUIRE_MESSAGE(to, why(to));
  CHECK(to->blocks.dtype() == DType::q8_0);
  CHECK(to->blocks.shape() == Shape{64, 32});
  std::vector<std::byte> blocks(from.blocks.blocks().size());
  REQUIRE(devices.driver().copy_from_device(0, blocks, to->blocks.data()));
  CHECK(std::equal(blocks.begin(), blocks.end(), from.blocks.blocks().begin()));
  CHECK(to->empty.is_set());
  CHECK(to->empty.shape() == Shape{0, 5});
  CHECK(devices.read(to->scalar) == std::vector<float>{2.5F});
  CHECK(report.count(Report::What::copied) == 4);
  auto saved = save(*to, dir / "b.stele", {.transfer = transfer.get()});
  REQUIRE_MESSAGE(saved, why(saved));
  CHECK(stele_test::read_text(dir / "b.stele") == stele_test::read_text(dir / "a.stele"));
  // Bools of a device are checked before they are saved.
  const std::byte two{2};
  REQUIRE(devices.driver().copy_to_device(0, reinterpret_cast<std::byte*>(to->flags.data()), {&two, 1}));
  saved = save(*to, dir / "c.stele", {.transfer = transfer.get()});
  REQUIRE(!saved);
  CHECK(saved.error().path() == "flags");
}

DEVICE_TEST("several loads and saves share a transfer") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  const host::Net host = host_net(4, 150);
  const std::string path = dir / "a.stele";
  REQUIRE(save(host, path));
  const auto transfer = devices.transfer({.buffer_size = 50'000, .buffers = 2});
  std::array<bool, 6> good{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] {
      bool all = true;
      for (int round = 0; round < 4; ++round) {
        auto net = load<gpu::Net>(path, {.threads = 2, .transfer = transfer.get()});
        all = all && net;
        if (!net) break;
        const std::string own = dir / (std::to_string(i) + ".stele");
        all = all && save(*net, own, {.transfer = transfer.get()});
        all = all && stele_test::read_text(own) == stele_test::read_text(path);
      }
      good[i] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::all_of(good.begin(), good.end(), [](bool all) { return all; }));
}

DEVICE_TEST("a load that is cancelled waits for its copies") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  const TempDir dir;
  REQUIRE(save(host_net(4, 300), dir / "a.stele"));
  const auto transfer = devices.transfer({.buffer_size = 65536});
  if (devices.fake() != nullptr) (*devices.fake())->set_delay(2, 3000);
  int calls = 0;
  LoadOptions options{.transfer = transfer.get()};
  options.progress = [&](const Progress&) { return ++calls < 6; };
  auto net = load<gpu::Net>(dir / "a.stele", options);
  REQUIRE(!net);
  CHECK(net.error().code() == Errc::cancelled);
}

// ---- faults of the driver

/// Loads and saves with a fault that `inject(n)` sets before; n = 1, 2, … until none happens.
template <class Kind, class Inject>
void with_each_fault(Devices<Kind>& devices, Inject inject) {
  stele_fake::Fake& fake = *devices.fake();
  fake->set_delay(1, 0);
  const TempDir dir;
  const host::Net old = host_net(2, 40, 1), host = host_net(2, 40, 1000);
  const std::string path = dir / "a.stele", out = dir / "b.stele";
  REQUIRE(save(host, path));
  for (std::uint64_t n = 1;; ++n) {
    REQUIRE(n < 5000);
    CAPTURE(n);
    fake->reset();
    fake->set_delay(1, 0);
    bool injected = false;
    {
      auto driver = device::Driver::open(Kind::kind, Kind::fake);
      REQUIRE(driver);
      auto transfer = device::make_transfer(*driver, {.buffer_size = 8192, .buffers = 2});
      REQUIRE(transfer);
      inject(n);
      // New tensors
      auto net = load<gpu::Net>(path, {.threads = 2, .transfer = transfer->get()});
      if (net) {
        injected = injected || fake->pending_faults() == 0;
        auto saved = save(*net, out, {.transfer = transfer->get()});
        CHECK((saved ? stele_test::read_text(out) == stele_test::read_text(path) : !std::filesystem::exists(out)));
        std::filesystem::remove(out);
        injected = injected || !saved;
      } else {
        CHECK((net.error().code() == Errc::io || net.error().code() == Errc::out_of_memory));
        CHECK(net.error().to_string().find("device") != std::string::npos);
        injected = true;
      }
      injected = injected || fake->pending_faults() == 0;
    }
    CHECK(fake.misuses() == "");
    CHECK(fake.live() == "");
    if (!injected) break;
  }
  fake->reset();
}

DEVICE_TEST("every call of the driver fails once, and nothing is lost or leaked") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  with_each_fault(devices, [&](std::uint64_t n) { (*devices.fake())->fail(nullptr, n, 1, 1); });
}

DEVICE_TEST("every copy fails once while it runs, and with it the device") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  with_each_fault(devices, [&](std::uint64_t n) { (*devices.fake())->fail_copy(n, 700); });
}

DEVICE_TEST("a device or main memory without room is an error before anything changes") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  const TempDir dir;
  const host::Net old = host_net(2, 400, 1), host = host_net(2, 400, 1000);
  REQUIRE(save(host, dir / "a.stele"));
  const auto transfer = devices.transfer();
  (*devices.fake())->set_device_limit(0, 1 << 20);
  auto net = load<gpu::Net>(dir / "a.stele", {.transfer = transfer.get()});
  REQUIRE(!net);
  CHECK(net.error().code() == Errc::out_of_memory);
  CHECK(net.error().path() == "layers.1.weight");
  (*devices.fake())->set_device_limit(0, 2 << 20);
  gpu::Net in_place = device_net(devices, old);
  auto failed = load_into(in_place, dir / "a.stele", {.new_memory = true, .transfer = transfer.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::out_of_memory);
  CHECK(!failed.error().partially_applied());
  CHECK(equal(devices, in_place, old));
  const auto no_host = devices.transfer();
  (*devices.fake())->set_host_limit(1);
  failed = load_into(in_place, dir / "a.stele", {.transfer = no_host.get()});
  REQUIRE(!failed);
  CHECK(failed.error().code() == Errc::out_of_memory);
  (*devices.fake())->set_host_limit(~std::uint64_t{0});
}

DEVICE_TEST("a lost device ends saves and loads with an error") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  if (devices.fake() == nullptr) return;
  const TempDir dir;
  REQUIRE(save(host_net(), dir / "a.stele"));
  {
    const auto transfer = devices.transfer();
    auto net = load<gpu::Net>(dir / "a.stele", {.transfer = transfer.get()});
    REQUIRE(net);
    (*devices.fake())->lose();
    auto saved = save(*net, dir / "b.stele", {.transfer = transfer.get()});
    REQUIRE(!saved);
    CHECK(saved.error().code() == Errc::io);
    auto failed = load_into(*net, dir / "a.stele", {.transfer = transfer.get()});
    REQUIRE(!failed);
    CHECK(failed.error().code() == Errc::io);
    CHECK(failed.error().partially_applied());
  }
  devices.give_up();
}

DEVICE_TEST("a driver that is missing, or has no device, is an error") {
  Devices<Kind> devices;
  NEEDS_DEVICE(devices);
  auto none = device::Driver::open(Kind::kind, "no such library.so");
  REQUIRE(!none);
  CHECK(none.error().code() == Errc::not_found);
  CHECK(device::Driver::open(DeviceKind::host).error().code() == Errc::unsupported);
  CHECK(devices.driver().count() >= 1);
  CHECK(devices.driver().kind() == Kind::kind);
  CHECK(devices.driver().name(0).value() != "");
  CHECK(devices.driver().name(99).error().code() == Errc::invalid_argument);
  CHECK(devices.driver().allocate(99, 1).error().code() == Errc::invalid_argument);
  CHECK(device::make_transfer(devices.driver(), {.buffers = 0}).error().code() == Errc::invalid_argument);
  CHECK(device::make_transfer(devices.driver(), {.wait = false}).error().code() == Errc::invalid_argument);
  CHECK(device::make_transfer(devices.driver(), {.ordinal = 99}).error().code() == Errc::invalid_argument);
  const auto other = Kind::kind == DeviceKind::cuda ? DeviceKind::hip : DeviceKind::cuda;
  int object = 0;
  CHECK(device::make_transfer(devices.driver(), {.stream = device::Stream::of(other, &object)}).error().code() ==
        Errc::invalid_argument);
  if (devices.fake() == nullptr) return;
  // The library of the other driver lacks the functions.
  const char* const wrong = Kind::kind == DeviceKind::cuda ? STELE_FAKE_HIP : STELE_FAKE_CUDA;
  auto lacking = device::Driver::open(Kind::kind, wrong);
  REQUIRE(!lacking);
  CHECK(lacking.error().code() == Errc::unsupported);
  (*devices.fake())->set_devices(0);
  auto empty = device::Driver::open(Kind::kind, Kind::fake);
  REQUIRE(!empty);
  CHECK(empty.error().code() == Errc::not_found);
}

TEST_SUITE_END();

// ---- tensors of the program's own

/// A tensor of an engine with its own memory, which only the engine's functions copy.
struct EngineTensor {
  std::vector<float> on_device;  // stands for memory that the library cannot reach
  Shape shape{0};
};

}  // namespace

template <>
struct stele::tensor_traits<EngineTensor> {
  using element = float;
  static constexpr int rank = stele::dynamic_rank;
  static stele::Shape shape(const EngineTensor& t) { return t.shape; }
  static float* data(EngineTensor&) { return nullptr; }
  static stele::Location location(const EngineTensor&) { return {stele::DeviceKind::other, 0}; }
  static void resize(EngineTensor& t, const stele::Shape& shape) {
    t.shape = shape;
    t.on_device.resize(static_cast<std::size_t>(shape.element_count().value()));
  }
  static void read(const EngineTensor& t, std::uint64_t first, std::span<float> out) {
    std::copy_n(t.on_device.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
  }
  static void write(EngineTensor& t, std::uint64_t first, std::span<const float> in) {
    std::copy(in.begin(), in.end(), t.on_device.begin() + static_cast<std::ptrdiff_t>(first));
  }
};

namespace {

TEST_CASE("device: a tensor with read() and write() needs no transfer") {
  struct Model {
    EngineTensor w;
  };
  struct InMemory {
    struct Model {
      Tensor<float, 1> w;
    };
  };
  const TempDir dir;
  const InMemory::Model host{vector(200'000, 1)};
  REQUIRE(save(host, dir / "a.stele"));
  auto model = load<Model>(dir / "a.stele");
  REQUIRE_MESSAGE(model, why(model));
  CHECK(model->w.on_device == elements(host.w.span()));
  REQUIRE(save(*model, dir / "b.stele"));
  CHECK(stele_test::read_text(dir / "b.stele") == stele_test::read_text(dir / "a.stele"));
  std::fill(model->w.on_device.begin(), model->w.on_device.end(), 0.F);
  for (const bool new_memory : {false, true}) {
    REQUIRE(load_into(*model, dir / "a.stele", {.new_memory = new_memory}));
    CHECK(model->w.on_device == elements(host.w.span()));
  }
}

}  // namespace
