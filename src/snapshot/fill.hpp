// Leaves on their way into memory: read together where they lie together, checked, converted, on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/meter.hpp"
#include "stele/format.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// One leaf to be read.
struct Fill {
  /// Where its elements go, at dtype `to`; null: they are only checked.
  std::byte* memory = nullptr;
  std::uint32_t leaf = 0;
  DType to = DType::none;
  /// `memory` lies in a block with that of its neighbours: up to the next multiple of 64 bytes nobody else uses it.
  bool in_block = false;
};

struct Filled {
  std::vector<std::uint8_t> done;                                 // of each
  std::vector<std::pair<std::size_t, std::uint64_t>> overflowed;  // number of the fill, numbers that became infinite
  std::size_t failed = 0;                                         // the one with the error
};

/// Reads the leaves, which should stand in the order of the source. The first error by their order ends it; it may be
/// that later ones are done, too. Errors: io, checksum, out_of_range, cancelled, …
Status fill(const Snapshot& snapshot, std::span<const Fill> fills, const ConvertRules& rules, Meter& meter,
            const Workers& workers, Filled& out);

/// Reads and checks the leaves that `which` takes; all of them without it. With LoadOptions::dequantize as a load
/// would.
Status check_leaves(const Snapshot& snapshot, const LoadOptions& options, Meter& meter,
                    const std::function<bool(const LeafView&)>& which = nullptr);

/// The row of a verification for a file without checksums.
void add_unchecked_contents(Report& report);
/// Checks the leaves of an opened file that may be compressed, and has no checksums but those of gzip or zstd.
Result<Report> verify_packed(const Snapshot& snapshot, const Source& source, const LoadOptions& options);

}  // namespace detail
}  // namespace v0
}  // namespace stele
