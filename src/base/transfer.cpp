#include "stele/transfer.hpp"

namespace stele::inline v0 {

Transfer::~Transfer() = default;

std::string to_string(Location where) {
  switch (where.kind) {
    case DeviceKind::host:
      return "host";
    case DeviceKind::cuda:
      return "cuda:" + std::to_string(where.ordinal);
    case DeviceKind::hip:
      return "hip:" + std::to_string(where.ordinal);
    case DeviceKind::other:
      break;
  }
  return where.ordinal < 0 ? "a device" : "device:" + std::to_string(where.ordinal);
}

}  // namespace stele::inline v0
