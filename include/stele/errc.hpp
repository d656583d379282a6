// Error codes. Freestanding: the heapless reader returns nothing more than one of these and an offset.
#pragma once

#include <cstdint>

#include "stele/config.hpp"

namespace stele {
inline namespace v0 {

/// Error codes. Numbered; a number is never reused.
enum class Errc : std::uint16_t {
  none = 0,
  io = 1,                  // the operating system refused: open, read, write, sync, rename
  not_found = 2,           // no such file
  truncated = 3,           // the bytes end before what they announce
  bad_magic = 4,           // not this format at all
  unsupported = 5,         // a version, feature or dtype this build does not know
  malformed = 6,           // bytes that break a rule of the format
  checksum = 7,            // a stored checksum does not match
  limit = 8,               // a bound of Limits or a named constant was exceeded
  duplicate = 9,           // the same name twice
  missing = 10,            // the module wants an entry that the file does not have
  unused = 11,             // the file has an entry that the module does not want
  dtype_mismatch = 12,     // dtypes that convert only when asked
  shape_mismatch = 13,     // another rank, extent or number of elements
  kind_mismatch = 14,      // a tensor where a list was expected, and the like
  out_of_range = 15,       // a number does not fit the narrower type
  not_representable = 16,  // the format cannot hold what the record has
  cycle = 17,              // shared objects that contain themselves
  needs_layout = 18,       // the format does not say names; a Layout or Schema must
  no_space = 19,           // the caller's memory is too small; found() says how much is needed
  out_of_memory = 20,
  user_exception = 21,    // code of the user (a hook, traits, a callback) threw
  cancelled = 22,         // the progress callback asked to stop
  invalid_argument = 23,  // a call that makes no sense: an empty path, a bad pattern
  not_loadable = 24,      // the object cannot be written in place (a const member, a fixed size)
  value_mismatch = 25,    // a value of another type than the field
  exists = 26,            // a set of files is there already, and cannot be replaced in one step
};

}  // namespace v0
}  // namespace stele
