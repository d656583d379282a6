// The component of devices alone. It runs on machines without one.
#include <iostream>

#include <stele/device.hpp>
#include <stele/location.hpp>
#include <stele/transfer.hpp>

int main() {
  static_assert(stele::tensor_traits<stele::device::Tensor<float, 2>>::rank == 2);
  const stele::device::Tensor<float, 2> unset;
  const auto none = stele::device::Driver::open(stele::DeviceKind::cuda, "no such library");
  bool good = !none && none.error().code() == stele::Errc::not_found && !unset.is_set();
  good = good && stele::to_string(stele::Location{stele::DeviceKind::hip, 1}) == "hip:1";
  if (const auto driver = stele::device::Driver::find()) {
    const auto transfer = stele::device::make_transfer(*driver);
    good = good && transfer && (*transfer)->buffers() != 0;
  }
  std::cout << (good ? "devices: ok\n" : "devices: wrong\n");
  return good ? 0 : 1;
}
