// Errors of the machine and of the network, which do not show anything about a file.
#pragma once

#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Returns true if the machine, the network or the user has ended an operation: the kind of the file then remains
/// unknown.
inline bool is_of_machine(const Error& error) noexcept {
  const Errc code = error.code();
  return code == Errc::io || code == Errc::timed_out || code == Errc::out_of_memory || code == Errc::cancelled;
}

}  // namespace stele::inline v0::detail
