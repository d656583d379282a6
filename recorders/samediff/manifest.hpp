// The manifest of an SDNB file: where its appended arrays lie, as Java's ObjectOutputStream writes a
// LinkedHashMap<String, Pair<Long, Long>>. A closed parser of that one shape: no class is ever looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stele/result.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {

struct ManifestEntry {
  std::string name;  // UTF-8
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

/// The entries in their order; no bytes are no entries. Read are a LinkedHashMap, HashMap or TreeMap of strings and
/// objects of any class named Pair with two fields, which are Longs; offsets and lengths are below 2^63, whether they
/// lie in the file is for the caller to see. `memory` bounds the heap that this takes. Errors: malformed, truncated,
/// unsupported (another class), duplicate (a name), limit; their offsets count from the first byte.
Result<std::vector<ManifestEntry>> parse_manifest(std::span<const std::byte> bytes, std::uint64_t memory);

/// What ObjectOutputStream writes for such a LinkedHashMap of org.nd4j.common.primitives.Pair, to the byte, with Longs
/// made by Long.valueOf (equal ones up to 127 are one object). For the caller: names that are UTF-8, each once; numbers
/// below 2^63, fewer than 2^29 entries.
std::string make_manifest(std::span<const ManifestEntry> entries);

}  // namespace samediff
}  // namespace detail
}  // namespace v0
}  // namespace stele
