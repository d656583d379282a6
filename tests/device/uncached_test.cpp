// Reads past the page cache, as loads to devices do them.
#include <stele/device.hpp>
#include <stele/stele.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "device/devices.hpp"
#include "io/os/os.hpp"
#include "leaves/uncached_reads.hpp"
#include "support/temp_dir.hpp"

namespace uncached_test {

namespace {

using namespace stele;
using stele_test::Cuda;
using stele_test::Devices;
using stele_test::TempDir;
namespace os = stele::detail::os;

constexpr std::size_t mib = std::size_t{1} << 20;

os::File opened(const std::string& path) {
  auto file = os::open_for_reading(path);
  REQUIRE(file);
  return *std::move(file);
}

/// Removes a file from the page cache. Returns false, with a message, if that or reading past the cache is not
/// possible, as on tmpfs.
bool drop(const std::string& path) {
  const os::File file = opened(path);
  REQUIRE(::fsync(file.handle()) == 0);
  REQUIRE(::posix_fadvise(file.handle(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  const bool possible = os::open_uncached(file).is_open() &&
                        !os::is_cached(file, 0, static_cast<std::size_t>(std::filesystem::file_size(path)));
  if (!possible) MESSAGE("skipped: the folder's file system has no reads past the page cache");
  return possible;
}

std::string random_text(std::size_t size) {
  std::string text(size, '\0');
  std::mt19937 random(7);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// Has no memory of its own, or `size` bytes.
class Room final : public PieceSink {
 public:
  explicit Room(std::size_t size) : memory_(size) {}
  std::span<std::byte> room(std::size_t size) override {
    return size <= memory_.size() ? std::span(memory_) : std::span<std::byte>();
  }
  Status piece(std::span<const std::byte>) override { return {}; }
  bool contains(std::span<const std::byte> bytes) const {
    return memory_.data() <= bytes.data() && bytes.data() < memory_.data() + memory_.size();
  }

 private:
  std::vector<std::byte> memory_;
};

TEST_CASE("reads past the page cache: any range, with and without the sink's memory") {
  const TempDir dir;
  const std::string path = dir / "a";
  const std::string text = random_text(3 * mib + 77);
  stele_test::write_text(path, text);
  const auto bytes = std::as_bytes(std::span(text));
  if (!drop(path)) return;
  auto source = open_file(path);
  REQUIRE(source);
  detail::UncachedReads reads;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::size_t offset = random() % bytes.size();
    const std::size_t size =
        i % 5 == 0 ? bytes.size() - offset : std::min<std::size_t>(random() % (mib / 2) + 1, bytes.size() - offset);
    CAPTURE(offset);
    CAPTURE(size);
    Room sink(i % 2 == 0 ? mib : 0);
    const auto got = reads.read(**source, offset, size, sink);
    REQUIRE(!got.empty());
    CHECK((got.size() == size || (got.size() < size && got.size() % 64 == 0)));
    CHECK(std::equal(got.begin(), got.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset)));
    CHECK(sink.contains(got) == (i % 2 == 0));
  }
  const os::File file = opened(path);
  CHECK(!os::is_cached(file, 0, bytes.size()));

  // The caller reads what is in the cache, and finds out that the file has shrunk.
  std::vector<std::byte> cached(mib);
  REQUIRE((*source)->read_at(mib, cached));
  CHECK(os::is_cached(file, mib, mib));
  Room none(0);
  CHECK(reads.read(**source, mib, mib, none).empty());
  CHECK(reads.read(**source, mib + 100, 1000, none).empty());
  std::filesystem::resize_file(path, 100'000);
  CHECK(reads.read(**source, 2 * mib + mib / 2, 1000, none).empty());
  CHECK(reads.read(*borrow_bytes(std::span(cached)), 0, mib, none).empty());
}

TEST_CASE("device: large tensors that are not in the page cache are read past it") {
  Devices<Cuda> devices;
  if (!devices) return;
  struct Host {
    Tensor<float, 1> small, large, odd;
  };
  struct Device {
    device::Tensor<float, 1> small, large, odd;
  };
  struct Half {
    device::Tensor<float16, 1> small, large, odd;
  };
  Host host{Tensor<float, 1>({10}), Tensor<float, 1>({2 * mib}), Tensor<float, 1>({100'003})};
  for (Tensor<float, 1>* t : {&host.small, &host.large, &host.odd}) {
    for (std::size_t i = 0; i < t->size(); ++i) (*t)[i] = static_cast<float>(i % 2039);
  }
  const auto same = [&](const auto& loaded) {
    const auto equals = [&](const auto& tensor, const Tensor<float, 1>& expected) {
      const auto elements = devices.read(tensor);
      return std::equal(elements.begin(), elements.end(), expected.begin(), expected.end(),
                        [](auto a, float b) { return static_cast<float>(a) == b; });
    };
    return equals(loaded.small, host.small) && equals(loaded.large, host.large) && equals(loaded.odd, host.odd);
  };
  const TempDir dir;
  for (const std::string name : {"a.stele", "a.safetensors"}) {
    const std::string path = dir / name;
    REQUIRE(save(host, path));
    const auto middle_is_cached = [&] { return os::is_cached(opened(path), 4 * mib, 2 * mib); };
    for (const std::size_t buffer : {std::size_t{65536}, 4 * mib}) {
      CAPTURE(name);
      CAPTURE(buffer);
      const auto transfer = devices.transfer({.buffer_size = buffer});
      if (!drop(path)) return;
      auto loaded = load<Device>(path, {.transfer = transfer.get()});
      REQUIRE(loaded);
      CHECK(same(*loaded));
      CHECK(!middle_is_cached());
      auto half = load<Half>(path, {.transfer = transfer.get()});
      REQUIRE(half);
      CHECK(same(*half));
      CHECK(!middle_is_cached());

      loaded = load<Device>(path, {.transfer = transfer.get(), .bypass_cache = false});
      REQUIRE(loaded);
      CHECK(same(*loaded));
      CHECK(middle_is_cached());
      loaded = load<Device>(path, {.transfer = transfer.get()});  // from the cache
      REQUIRE(loaded);
      CHECK(same(*loaded));
    }
  }

  // A wrong byte is found.
  const std::string path = dir / "a.stele";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5'000'000);
    file.put('\x7F');
  }
  if (!drop(path)) return;
  const auto transfer = devices.transfer();
  auto wrong = load<Device>(path, {.transfer = transfer.get()});
  REQUIRE(!wrong);
  CHECK(wrong.error().code() == Errc::checksum);
  CHECK(wrong.error().path() == "large");
}

}  // namespace

}  // namespace uncached_test
