// Values among the objects of a pickle: everything that is not an array.
#pragma once

#include <string>
#include <string_view>

#include "encodings/pickle/pickle.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::numpy_pickle {

/// Reads the values of one pickle, which read_in_place() has read.
class Values {
 public:
  Values(SourcePtr source, const pickle::Objects& objects, IndexBudget& memory)
      : source_(std::move(source)), objects_(objects), memory_(memory) {}

  /// Converts an object without arrays; `levels` containers are around it. Tuples and sets become lists. Errors:
  /// unsupported (an object of a class, a name), malformed, limit, io.
  Result<Value> value(pickle::Ref object, unsigned levels = 0);
  /// Returns the name that a key of a dict is. Errors: unsupported.
  Result<std::string> key(pickle::Ref key) const;

  /// Returns the error for an object that is neither an array nor a container nor a value, with the name of its class.
  static Error wrong(const pickle::Objects& objects, pickle::Ref object, std::string_view expected);
  static Error nested();
  static Error full();

 private:
  /// Reads the bytes, or the bytes of a string, that are in the source.
  Result<std::string> long_text(pickle::Ref object);

  SourcePtr source_;
  const pickle::Objects& objects_;
  IndexBudget& memory_;
};

}  // namespace stele::inline v0::detail::numpy_pickle
