// Loads to a device and saves from it, as parts of the speed at which the driver copies page-locked memory.
//
//   bench_devices KIND FOLDER [BYTES [ROUNDS [LIBRARY]]]
//
// KIND: cuda or hip. Writes models of BYTES (1 GB) with 300 and 20,000 tensors to FOLDER, and removes them. "cold": the
// file is not in the page cache. The figures are medians of ROUNDS (5), in GB/s.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models.hpp"
#include "stele/device.hpp"

namespace {

namespace device = stele::device;

struct List {
  std::vector<device::Tensor<float, 1>> tensors;
};

template <class T>
T need(stele::Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "bench_devices: %s\n", result.error().to_string().c_str());
  std::exit(1);
}
void need(const stele::Status& status) {
  if (status) return;
  std::fprintf(stderr, "bench_devices: %s\n", status.error().to_string().c_str());
  std::exit(1);
}

/// Takes a file out of the page cache.
void drop(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::fsync(file) != 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
  ::close(file);
}

class Benchmark {
 public:
  Benchmark(std::string folder, std::size_t bytes, int rounds, const device::Driver& driver)
      : folder_(std::move(folder)),
        bytes_(bytes),
        rounds_(rounds),
        driver_(driver),
        transfer_(need(make_transfer(driver_))) {}

  void run() {
    std::printf("%-34s %-14s %8s %10s\n", "operation", "tensors", "GB/s", "of limit");
    limit_ = measure(
        "copies of page-locked memory", 0, [] {}, [&] { copy(); });
    for (const std::size_t count : {std::size_t{300}, std::size_t{20'000}}) {
      workload::List host;
      for (std::size_t i = 0; i < count; ++i)
        host.tensors.push_back(workload::tensor<1>({bytes_ / count / sizeof(float)}));
      for (const std::string name : {"model.stele", "model.safetensors"}) {
        const std::string path = folder_ + "/" + name;
        need(stele::save(host, path));
        files(count, name, path);
        ::unlink(path.c_str());
      }
    }
  }

 private:
  /// Prints the median speed of `operation`, each time after `prepare`.
  double measure(const std::string& name, std::size_t count, const std::function<void()>& prepare,
                 const std::function<void()>& operation) {
    std::vector<double> speeds;
    for (int i = 0; i < rounds_; ++i) {
      prepare();
      const auto start = std::chrono::steady_clock::now();
      operation();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      speeds.push_back(static_cast<double>(bytes_) / took.count() / 1e9);
    }
    std::nth_element(speeds.begin(), speeds.begin() + rounds_ / 2, speeds.end());
    const double speed = speeds[static_cast<std::size_t>(rounds_ / 2)];
    std::printf("%-34s %-14zu %8.2f %10.2f\n", name.c_str(), count, speed, limit_ > 0 ? speed / limit_ : 1);
    std::fflush(stdout);
    return speed;
  }

  /// Copies the ring's buffers to the device, without filling them.
  void copy() {
    const std::size_t size = transfer_->buffer_size();
    const auto memory = need(driver_.allocate(0, size));
    need(transfer_->begin());
    for (std::size_t done = 0; done < bytes_; done += size) {
      std::byte* const buffer = need(transfer_->acquire(true));
      const stele::DeviceCopy one{buffer, memory.get(), std::min(size, bytes_ - done), {driver_.kind(), 0}};
      need(transfer_->to_device(buffer, {&one, 1}));
      transfer_->release(buffer);
    }
    need(transfer_->finish());
  }

  void files(std::size_t count, const std::string& name, const std::string& path) {
    const auto nothing = [] {};
    const auto cold = [&] { drop(path); };
    stele::LoadOptions options;
    options.transfer = transfer_.get();
    stele::LoadOptions cached = options;
    cached.bypass_cache = false;
    List model;
    const auto load = [&](const stele::LoadOptions& how) {
      return [&] { model = need(stele::load<List>(path, how)); };
    };
    measure(name + ": load, cold", count, cold, load(options));
    measure(name + ": load, cold, through the cache", count, cold, load(cached));
    measure(name + ": load", count, nothing, load(options));
    measure(name + ": load_into, verified first", count, nothing,
            [&] { need(stele::load_into(model, path, options)); });
    stele::SaveOptions saving;
    saving.transfer = transfer_.get();
    saving.file.durability = stele::Durability::process;
    measure(name + ": save", count, nothing, [&] { need(stele::save(model, path, saving)); });
  }

  std::string folder_;
  std::size_t bytes_;
  int rounds_;
  device::Driver driver_;
  std::unique_ptr<stele::Transfer> transfer_;
  double limit_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  if (argc < 3 || argc > 6 || (kind != "cuda" && kind != "hip")) {
    std::fprintf(stderr, "usage: bench_devices cuda|hip FOLDER [BYTES [ROUNDS [LIBRARY]]]\n");
    return 2;
  }
  const auto bytes = argc > 3 ? static_cast<std::size_t>(std::atoll(argv[3])) : std::size_t{1'000'000'000};
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  if (bytes < 20'000 * sizeof(float) || rounds < 1) {
    std::fprintf(stderr, "bench_devices: at least 80,000 bytes and one round\n");
    return 2;
  }
  const auto driver = need(
      device::Driver::open(kind == "cuda" ? stele::DeviceKind::cuda : stele::DeviceKind::hip, argc > 5 ? argv[5] : ""));
  std::printf("%s, %s\n", need(driver.name(0)).c_str(), argv[2]);
  Benchmark(argv[2], bytes, rounds, driver).run();
}
