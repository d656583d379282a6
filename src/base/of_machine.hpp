// Errors of the machine and of the network, which do not show anything about a file.
#pragma once

#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Returns true if the machine, the network or the user has ended an operation: the kind of the file then remains
/// unknown.
inline bool is_of_machine(const Error& error) noexcept {
  const Errc code = error.code();
  return code == Errc::io || code == Errc::timed_out || code == Errc::out_of_memory || code == Errc::cancelled;
}

/// Messages of errors (io) of servers that refuse a request without a login, or with one.
inline constexpr std::string_view wants_login = "the server wants a login";
inline constexpr std::string_view refuses_access = "the server refuses access";

/// Returns true if a server has refused access. Servers that hide their lists of files answer so for files that do not
/// exist, too.
inline bool is_refusal(const Error& error) noexcept {
  return error.code() == Errc::io && (error.message() == wants_login || error.message() == refuses_access);
}

}  // namespace stele::inline v0::detail
