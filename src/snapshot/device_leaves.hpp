// Tensors of devices: where they are, and leaves that a Transfer reads.
#pragma once

#include <optional>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"
#include "stele/transfer.hpp"

namespace stele::inline v0::detail {

/// Calls visit(Location, std::byte*) for each memory that has all elements of a tensor with TensorOps::locations.
template <class Visit>
void each_location(const TensorOps& ops, const void* object, Visit visit) {
  ops.locations(object, &visit,
                [](void* context, Location where, std::byte* data) { (*static_cast<Visit*>(context))(where, data); });
}

/// A tensor in the memory of a device. Null data: it has no memory yet.
struct OnDevice {
  Location where{};
  std::byte* data = nullptr;
};
/// Returns the first device of a tensor, or nullopt for a tensor in main memory.
std::optional<OnDevice> device_of(const TensorOps& ops, const void* object);

/// The error of a tensor of a device that nothing copies.
Error unreachable_device(Location where, bool saving);

/// Returns a snapshot of the same module whose leaves on devices are read through `transfer`: large leaves with several
/// copies in flight, small leaves many at a time. Without such leaves, returns `snapshot`. Errors: invalid_argument
/// (`transfer` is null, and the tensor's type has no read()), those of Transfer::begin().
STELE_EXPORT Result<Snapshot> read_through(const Snapshot& snapshot, Transfer* transfer);

}  // namespace stele::inline v0::detail
