// Builds a flat Snapshot of arrays in any byte order and axis order.
#include "arrays.hpp"

#include <string>

namespace stele::inline v0::detail::numpy {

Status set_dtype(Array& array, DType own, const NpyOptions& options) {
  const bool one = array.element_size == 1;
  if (own != DType::none) {
    if (array.dtype != DType::none || !is_void(own) || element_size(own) != array.element_size) {
      return Error(Errc::malformed, "the dtype in __stele__ does not fit the array")
          .expected(array.dtype != DType::none ? "none"
                    : one                      ? "a dtype of 1 byte"
                                               : "a dtype of 2 bytes")
          .found(stele::name(own));
    }
    array.dtype = own;
  }
  if (array.dtype != DType::none) return {};
  const DType given = one ? options.void1 : options.void2;
  const char* const option = one ? "NpyOptions::void1" : "NpyOptions::void2";
  if (given == DType::none) {
    return Error(Errc::unsupported,
                 "the array's elements have no type, which is how NumPy stores bfloat16 and 8-bit floats")
        .found(one ? "V1" : "V2")
        .hint(std::string("set ") + option + " to their dtype, for example to " +
              (one ? "DType::f8_e4m3fn" : "DType::bf16"));
  }
  if (element_size(given) != array.element_size || given == DType::boolean) {
    return Error(Errc::invalid_argument, std::string(option) + " does not fit the array")
        .expected(one ? "a dtype of 1 byte" : "a dtype of 2 bytes")
        .found(stele::name(given));
  }
  array.dtype = given;
  return {};
}

}  // namespace stele::inline v0::detail::numpy
