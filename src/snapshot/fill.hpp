// Reads leaves into memory: combines adjacent reads, checks and converts, on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/meter.hpp"
#include "snapshot/stager.hpp"
#include "stele/format.hpp"

namespace stele::inline v0::detail {

/// One leaf to read.
struct Fill {
  /// Destination of its elements, at dtype `to`; null: they are only checked.
  std::byte* memory = nullptr;
  std::uint32_t leaf = 0;
  DType to = DType::none;
  /// The memory shares a block with its neighbours' memory: no other fill uses the bytes up to the next multiple of 64.
  bool in_block = false;
  /// Destinations on devices, instead of `memory`: `targets` of OnDevices::targets, from number `first_target` on.
  std::uint32_t first_target = 0, targets = 0;
};

/// The destinations of fills on devices.
struct OnDevices {
  Transfer& transfer;
  std::span<const DeviceTarget> targets;
  bool bypass_cache = true;  // LoadOptions::bypass_cache
};

struct Filled {
  std::vector<std::uint8_t> done;                                 // for each fill
  std::vector<std::pair<std::size_t, std::uint64_t>> overflowed;  // index of the fill, number of new infinities
  std::size_t failed = 0;                                         // index of the fill with the error
};

/// Reads the leaves, which should be in the order of the source. Stops at the first error in their order; later leaves
/// may already have been read. Only starts the copies to devices; `devices` may be null without any. Errors: io,
/// checksum, out_of_range, cancelled, …
Status fill(const Snapshot& snapshot, std::span<const Fill> fills, const ConvertRules& rules, Meter& meter,
            const Workers& workers, Filled& out, const OnDevices* devices = nullptr);

/// Reads and checks the leaves for which `which` returns true; all of them if it is empty. Applies
/// LoadOptions::dequantize like a load.
Status check_leaves(const Snapshot& snapshot, const LoadOptions& options, Meter& meter,
                    const std::function<bool(const LeafView&)>& which = nullptr);

/// Adds the report row for a file without checksums.
void add_unchecked_contents(Report& report);
/// Checks the leaves of an opened file. The report lists unreadable entries; the format adds rows for the parts that
/// its checksums do not cover.
Result<Report> verify_leaves(const Snapshot& snapshot, const LoadOptions& options);

}  // namespace stele::inline v0::detail
