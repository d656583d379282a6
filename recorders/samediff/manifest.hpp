// The manifest of an SDNB file: the locations of its appended arrays, in the form in which Java's ObjectOutputStream
// writes a LinkedHashMap<String, Pair<Long, Long>>. The parser accepts only this structure and never looks up a class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::samediff {

struct ManifestEntry {
  std::string name;  // UTF-8
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

/// Reads the entries in order. Returns no entries if `bytes` is empty. Accepts a LinkedHashMap, HashMap or TreeMap from
/// strings to objects of any class named Pair with two fields that are Longs. Offsets and lengths are below 2^63; the
/// caller must check that they are within the file. `memory` bounds the heap use. Errors, with offsets from the first
/// byte: malformed, truncated, unsupported (another class), duplicate (a name), limit.
Result<std::vector<ManifestEntry>> parse_manifest(std::span<const std::byte> bytes, std::uint64_t memory);

/// Writes a LinkedHashMap of org.nd4j.common.primitives.Pair, byte for byte like ObjectOutputStream, with Longs made by
/// Long.valueOf (equal ones up to 127 are one object). The caller must pass distinct UTF-8 names, numbers below 2^63,
/// and fewer than 2^29 entries.
std::string make_manifest(std::span<const ManifestEntry> entries);

}  // namespace stele::inline v0::detail::samediff
