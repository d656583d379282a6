// Files of MXNet (NDArray::Save): a list of arrays, then a list of their names (docs/formats/mxnet.md). The size of an
// array is not stored, so that an array of an unknown dtype ends the reading of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::mxnet {

/// The first 8 bytes of a file, a little-endian number. 8 bytes of zeros follow.
inline constexpr std::uint64_t magic = 0x112;
/// Size in bytes of a file's header: the two numbers above, and the number of arrays.
inline constexpr std::uint64_t header_bytes = 24;
/// Maximum rank of an array: NumPy's maximum.
inline constexpr std::size_t max_rank = 32;

/// The layout of an array.
enum class Version : std::uint32_t {
  v1 = 0xf993fac8,  // 64-bit extents
  v2 = 0xf993fac9,  // with a storage type
  v3 = 0xf993faca,  // like v2; arrays may have no axes and no elements
};

/// Returns the number of a dtype in mshadow::TypeFlag, or -1.
int code_of(DType dtype) noexcept;

struct Array {
  DType dtype = DType::none;  // none: an array that is not dense
  std::uint32_t rank = 0;
  std::size_t extents = 0;   // index of its first extent in Contents::extents
  std::uint64_t offset = 0;  // offset of the elements
  std::uint64_t bytes = 0;   // size of the elements
  const char* reason = "";   // the reason why an array is not dense
};

struct Contents {
  std::vector<Array> arrays;
  std::vector<Extent> extents;
  std::vector<std::string> names;  // by array; empty for a list without names
  bool v3 = false;                 // an array has version 3
  std::span<const Extent> shape(const Array& array) const { return {extents.data() + array.extents, array.rank}; }
};

/// Reads a file up to its end, without the elements. Takes the memory of the result from `memory`. Errors: bad_magic,
/// truncated, malformed, unsupported (unknown dtype or storage type), limit, io.
Result<Contents> read_file(const SourcePtr& source, IndexBudget& memory);

/// Returns the bytes before the elements of an array, in version 3 or 2.
std::vector<std::byte> head_of(DType dtype, std::span<const Extent> shape, bool v3);

}  // namespace stele::inline v0::detail::mxnet
