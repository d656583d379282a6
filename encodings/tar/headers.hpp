// Reads the headers of an archive in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::tar {

/// The bytes of the archive in order, inflated if it is compressed.
class Input {
 public:
  virtual ~Input() = default;
  /// Reads the next bytes. Returns fewer only at the end.
  virtual Result<std::size_t> next(std::span<std::byte> out) = 0;
  /// Skips `count` bytes, or fewer at the end. Returns their number.
  virtual Result<std::uint64_t> skip(std::uint64_t count) = 0;
};

/// A regular file of the archive.
struct Entry {
  std::string name;
  std::uint64_t offset, size;
};

/// Reads the headers of the files up to the end of the archive, and returns the files sorted by name. `source` is the
/// archive (used for its name). Takes the memory for the entries from `budget`. Errors: those of tar::open for headers,
/// files and the end.
Result<std::vector<Entry>> read_headers(const Source& source, Input& input, const IndexBudget& budget);

}  // namespace stele::inline v0::detail::tar
