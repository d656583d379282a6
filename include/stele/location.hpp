// Location: the memory that has a tensor's elements, main memory or a device's.
#pragma once

#include <cstdint>

namespace stele::inline v0 {

enum class DeviceKind : std::uint8_t {
  host,   // main memory
  cuda,   // memory of a device of CUDA's driver
  hip,    // memory of a device of AMD's driver
  other,  // memory that the program's own Transfer reaches
};

/// The memory that has a tensor's elements.
struct Location {
  DeviceKind kind = DeviceKind::host;
  std::int32_t ordinal = 0;  // number of the device, as its driver counts them; -1: the Transfer chooses

  constexpr bool is_host() const noexcept { return kind == DeviceKind::host; }
  /// A location of unset tensors of devices: the device that Transfer::place() returns.
  static constexpr Location any_device() noexcept { return {DeviceKind::other, -1}; }
  friend constexpr bool operator==(const Location&, const Location&) = default;
};

}  // namespace stele::inline v0
