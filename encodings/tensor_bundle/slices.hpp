// Keys of the slices of partitioned variables: tensors whose elements are in several entries of a checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "leaves/boxes.hpp"

namespace stele::inline v0::detail::tensorflow {

/// Returns the key of the entry with the bytes of a slice of the variable `name`, in TensorFlow's ordered code: 0, the
/// name, the rank, and start and length for each axis.
std::string slice_key(std::string_view name, const Box& slice);

/// Returns the variable's name from a key of slice_key(), for messages.
std::string name_of_slice(std::string_view key);

}  // namespace stele::inline v0::detail::tensorflow
