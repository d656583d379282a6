// Error codes. Freestanding: the heapless reader returns one of these codes and an offset, and nothing else.
#pragma once

#include <cstdint>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// Error codes. Numbered; a number is never reused.
enum class Errc : std::uint16_t {
  none = 0,
  io = 1,                  // the operating system failed to open, read, write, sync or rename
  not_found = 2,           // the file does not exist
  truncated = 3,           // the data ends before its declared end
  bad_magic = 4,           // the file has a different format
  unsupported = 5,         // a version, feature or dtype that this build does not support
  malformed = 6,           // the bytes violate a rule of the format
  checksum = 7,            // a stored checksum does not match
  limit = 8,               // a bound of Limits or a named constant was exceeded
  duplicate = 9,           // a name occurs twice
  missing = 10,            // the file lacks an entry that the module needs
  unused = 11,             // the file has an entry that the module does not use
  dtype_mismatch = 12,     // the dtypes differ, and converting them needs permission
  shape_mismatch = 13,     // the rank, an extent or the number of elements differs
  kind_mismatch = 14,      // the node kinds differ, for example a tensor instead of a list
  out_of_range = 15,       // a number does not fit the narrower type
  not_representable = 16,  // the format cannot store a part of the record
  cycle = 17,              // shared objects contain themselves
  needs_layout = 18,       // the format stores no names; set a Layout or pass a Schema
  no_space = 19,           // the caller's memory is too small; found() contains the size needed
  out_of_memory = 20,
  user_exception = 21,    // user code (a hook, traits, a callback) threw
  cancelled = 22,         // the progress callback asked to stop
  invalid_argument = 23,  // an invalid argument: an empty path, a bad pattern
  not_loadable = 24,      // the object cannot be written in place (a const member, a fixed size)
  value_mismatch = 25,    // the value and the field have different types
  exists = 26,            // a set of files already exists and cannot be replaced in one step
  timed_out = 27,         // another process did not respond in time
  nothing_applied = 28,   // the module uses no entry of the file
};

}  // namespace stele::inline v0
