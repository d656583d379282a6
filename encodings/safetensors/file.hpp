// One safetensors file: u64 length, a JSON header, then the bytes of the tensors without gaps
// (docs/formats/safetensors.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "leaves/tensor_entry.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::safetensors {

/// Maximum size of a header in bytes, for reading and writing: the reference implementation's limit.
inline constexpr std::uint64_t max_header = 100'000'000;

/// Returns true if safetensors has the dtype.
bool holds(DType dtype) noexcept;

/// The parts of a header that are not tensors.
struct Contents {
  std::map<std::string, std::string> metadata{};
  Skipped skipped{};                     // unknown keys of tensors
  std::shared_ptr<const void> keeper{};  // owns the names and the data that the providers point to
};
/// Reads the header, and passes the tensors to `add` in the order of their bytes. Before that, calls `count` with the
/// number of tensors and of their extents. Also takes the memory of nodes and leaves from `memory`. Errors: truncated,
/// malformed, unsupported, duplicate, limit, io, those of `add`.
Result<Contents> read_file(SourcePtr source, IndexBudget& memory,
                           const std::function<void(std::size_t tensors, std::size_t extents)>& count,
                           const std::function<void(const TensorEntry&)>& add);

/// Checks that safetensors can store the names, tensors and metadata. Errors: not_representable.
STELE_EXPORT Status check(std::span<const TensorEntry> tensors, const std::map<std::string, std::string>& metadata);

/// The layout of a file.
struct FilePlan {
  std::string header;                // without the 8 bytes of its length
  std::vector<std::uint32_t> order;  // order of the tensors: their bytes follow each other after the header
  std::uint64_t bytes = 0;           // size of all tensors
};
/// Plans a file with these tensors, which must have passed check(). Errors: not_representable (the header is too
/// large).
STELE_EXPORT Result<FilePlan> plan_file(std::span<const TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata);

}  // namespace stele::inline v0::detail::safetensors
