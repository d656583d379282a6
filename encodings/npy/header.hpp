// The header of one NumPy array. docs/formats/numpy.md describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::numpy {

/// Maximum size of a header in bytes: the default of numpy.load's max_header_size.
inline constexpr std::uint64_t max_header = 10'000;
/// Maximum rank on save: NPY_MAXDIMS of NumPy 2.
inline constexpr std::uint32_t max_rank = 64;
/// The elements begin at a multiple of this number, as in files of NumPy 1.14 and later.
inline constexpr std::uint64_t alignment = 64;

/// The contents of a header.
struct Array {
  DType dtype = DType::none;  // none: untyped elements of element_size bytes
  unsigned element_size = 0;
  bool big_endian = false;
  bool fortran = false;
  std::vector<Extent> shape;
  std::uint64_t data = 0;   // offset of the elements
  std::uint64_t bytes = 0;  // size of the elements
};

/// Returns the bytes before the elements of an array that is stored in `size` bytes at `offset`. `known` are the
/// array's first bytes if the caller already has them; `buffer` receives the header if these are too few. Offsets in
/// errors count from `offset`. Errors: bad_magic, truncated, unsupported (the version), limit (max_header), io.
Result<std::span<const std::byte>> header_of(const Source& source, std::uint64_t offset, std::uint64_t size,
                                             std::span<const std::byte> known, Bytes& buffer);
/// Parses the result of header_of(), and compares the size of the elements with the rest of `size`. Errors: malformed,
/// truncated, unsupported (elements that are not numbers).
Result<Array> parse(std::span<const std::byte> header, std::uint64_t size);

/// Returns the dtype of a type name of NumPy without a byte order ("f4"), or DType::none.
DType dtype_of(std::string_view type) noexcept;
/// Returns the reason why an array of this kind ('O', 'U', …) is not a tensor.
const char* refused(char kind) noexcept;
/// Returns true if NumPy has this dtype.
bool has(DType dtype) noexcept;
/// Returns true if NumPy stores elements of this dtype as untyped bytes.
bool is_void(DType dtype) noexcept;
/// Returns the dtype with this name for which is_void() is true, or DType::none.
DType void_named(std::string_view name) noexcept;
/// Returns the header that NumPy writes before an array's elements, for dtypes of has() or is_void().
std::string header_text(DType dtype, std::span<const Extent> shape);

}  // namespace stele::inline v0::detail::numpy
