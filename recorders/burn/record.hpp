// Reads and writes records in any encoding: their metadata, and their mapping to a Snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "stele/format.hpp"
#include "tokens.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::burn {

using Header = BurnHeader;
inline constexpr std::string_view header_names[] = {"float", "int", "format", "version", "settings"};
/// The key of stele's metadata, next to `item`. Burn ignores this key.
inline constexpr std::string_view own_key = "stele";
/// Returns string `i` of a Header, in the order of the file.
inline std::string* member(Header& header, std::size_t i) {
  std::string* const members[] = {&header.floats, &header.ints, &header.format, &header.version, &header.settings};
  return members[i];
}

/// Returns the Header for a record of this snapshot. Keeps the fields of an original Burn record that still apply.
Header header_for(const Snapshot& snapshot, BurnEncoding encoding, bool gzip, BurnEra era);
/// Returns the era of a version string. Errors: unsupported.
Result<BurnEra> era_of(std::string_view version);
inline constexpr std::string_view known_releases = "a release from 0.13 to 0.21";
/// Returns the error for a record of a release that is too old.
Error too_old_for(std::string_view version);
/// Returns `error`, or an error about the release of Burn if the record is too old.
Error with_age(Error error, const Header& header);
/// Checks a Header against the options. Errors: value_mismatch (settings other than requested, or float and int
/// types that the settings do not have), with the differences.
Status check(const Header& header, const BurnOptions& options);

/// Reads a record with field names; guesses its lists and tuples. `memory` bounds the allocations. `type` is the loaded
/// type, which resolves the types of numbers in old files, or null.
Result<Snapshot> read_named(TokenReader& tokens, std::uint64_t memory, const BurnOptions& options,
                            const TypeInfo* type);
Status write_named(const Snapshot& snapshot, Header header, BurnEra era, TokenWriter& out);

/// Reads a record in bincode, by the loaded type or options.schema. Errors: needs_layout.
Result<Snapshot> read_bincode(SourcePtr source, std::uint64_t memory, const BurnOptions& options,
                              const OpenContext& context);
/// Writes a record in bincode if `gather` is not null; sets `size` to its number of bytes. Errors: needs_layout (a
/// snapshot of unknown type), not_representable.
Status write_bincode(const Snapshot& snapshot, Header header, BurnEra era, const BurnOptions& options,
                     LeafGather* gather, ReadContext& context, std::uint64_t& size);
/// Returns the data that write_bincode() leaves out. Errors: those of write_bincode().
Result<std::vector<Loss>> bincode_losses(const Snapshot& snapshot, BurnEra era, const BurnOptions& options);

/// Sets the id of the last tensor added. Errors: malformed (not an id).
Status set_id(SnapshotBuilder& builder, const std::string& text, std::uint64_t offset);
/// Returns the id to write for a leaf.
std::string id_text_of(const LeafView& leaf, std::string_view path);

/// Returns true for a tensor without an id and `param`.
bool is_bare(const LeafView& leaf);

/// Stores a record's Header in the snapshot.
void keep(const Header& header, SnapshotBuilder& builder);

/// Counts memory against a bound.
class Budget {
 public:
  explicit Budget(std::uint64_t left) : left_(left) {}
  /// Counts one more node, with a name and a shape. Errors: limit.
  Status node(std::size_t name, std::size_t rank, std::uint64_t offset) {
    const std::uint64_t bytes = sizeof(Node) + 64 + 3 * name + 3 * sizeof(Extent) * rank;
    if (bytes > left_)
      return index_error("the record contains more parameters than a file of this size may have").offset(offset);
    left_ -= bytes;
    return {};
  }

 private:
  std::uint64_t left_;
};

}  // namespace stele::inline v0::detail::burn
