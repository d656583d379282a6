// The header of one GGUF file, before its tensors become leaves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "base/name_pool.hpp"
#include "base/properties.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::gguf {

inline constexpr std::size_t max_rank = 4;

struct TensorEntry {
  std::string_view name;          // in File::names
  Extent extents[max_rank] = {};  // outermost first
  std::uint8_t rank = 0;
  DType dtype = DType::none;  // none: a tensor of an unknown type
  std::uint32_t type = 0;     // ggml's number
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the file
};

/// The position of a file in a split set.
struct Split {
  std::uint64_t count = 1;    // number of files
  std::uint64_t number = 0;   // from 0
  std::uint64_t tensors = 0;  // number of tensors in all files
};

struct File {
  SourcePtr source;
  Properties pairs;
  Split split;
  std::vector<TensorEntry> tensors;
  NamePool names;
};

/// Returns the reason why a tensor of an unknown type cannot be read.
inline std::string unknown_type(std::uint32_t type) { return "elements of ggml's type " + std::to_string(type); }

/// Reads and checks a file's header, up to the end of its data. Also takes the memory of a Snapshot of the tensors from
/// `memory`. Errors: bad_magic, unsupported (version, byte order, types of pairs), malformed, duplicate, truncated,
/// limit.
Result<File> read_file(const SourcePtr& source, IndexBudget& memory);

}  // namespace stele::inline v0::detail::gguf
