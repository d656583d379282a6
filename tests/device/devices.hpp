// The drivers of the tests: fake ones, or the machine's own if STELE_TEST_DRIVER is "cuda" or "hip".
#pragma once

#include <stele/device.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/fake/control.hpp"

namespace stele_test {

struct Cuda {
  static constexpr stele::DeviceKind kind = stele::DeviceKind::cuda;
  static constexpr const char* name = "cuda";
  static constexpr const char* fake = STELE_FAKE_CUDA;
};
struct Hip {
  static constexpr stele::DeviceKind kind = stele::DeviceKind::hip;
  static constexpr const char* name = "hip";
  static constexpr const char* fake = STELE_FAKE_HIP;
};

/// The driver that a test uses. At the end of the test, the fake driver must have no objects and no misuse.
template <class Kind>
class Devices {
 public:
  Devices() {
    if (const char* real = std::getenv("STELE_TEST_DRIVER"); real != nullptr && *real != '\0') {
      if (std::string_view(real) != Kind::name) return;
    } else {
      fake_.emplace(Kind::fake);
      (*fake_)->set_delay(1, 50);
    }
    auto driver = stele::device::Driver::open(Kind::kind, fake_ ? Kind::fake : "");
    REQUIRE_MESSAGE(driver, driver.error().to_string());
    driver_ = *std::move(driver);
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  ~Devices() {
    driver_.reset();
    if (!fake_) return;
    CHECK(fake_->misuses() == "");
    CHECK(fake_->live() == "");
  }

  /// Returns false if the tests run on a real driver of the other kind.
  explicit operator bool() const noexcept { return driver_.has_value(); }
  const stele::device::Driver& driver() const { return *driver_; }
  /// Closes the driver of a lost device, which cannot free anything.
  void give_up() {
    driver_.reset();
    (*fake_)->reset();
    (*fake_)->clear_misuses();
  }
  /// Null on a real device.
  stele_fake::Fake* fake() noexcept { return fake_ ? &*fake_ : nullptr; }

  std::unique_ptr<stele::Transfer> transfer(stele::device::TransferOptions options = {}) const {
    auto made = stele::device::make_transfer(*driver_, std::move(options));
    REQUIRE_MESSAGE(made, made.error().to_string());
    return *std::move(made);
  }
  /// Returns the elements of a tensor.
  template <class T, int Rank>
  std::vector<T> read(const stele::device::Tensor<T, Rank>& tensor) const {
    std::vector<T> all(tensor.size());
    auto bytes = std::as_writable_bytes(std::span(all));
    auto copied =
        driver_->copy_from_device(tensor.location().ordinal, bytes, reinterpret_cast<const std::byte*>(tensor.data()));
    REQUIRE_MESSAGE(copied, copied.error().to_string());
    return all;
  }
  /// Returns a tensor with these elements.
  template <class T, int Rank>
  stele::device::Tensor<T, Rank> make(const stele::Tensor<T, Rank>& from, int ordinal = 0) const {
    auto made = stele::device::Tensor<T, Rank>::allocate(*driver_, ordinal, stele::Shape(from.shape()));
    REQUIRE_MESSAGE(made, made.error().to_string());
    write(*made, from.span());
    return *std::move(made);
  }
  template <class T, int Rank>
  void write(stele::device::Tensor<T, Rank>& to, std::span<const T> from) const {
    auto copied =
        driver_->copy_to_device(to.location().ordinal, reinterpret_cast<std::byte*>(to.data()), std::as_bytes(from));
    REQUIRE_MESSAGE(copied, copied.error().to_string());
  }

 private:
  std::optional<stele_fake::Fake> fake_;
  std::optional<stele::device::Driver> driver_;
};

}  // namespace stele_test
