// A record, whatever encodes it: its metadata, and what stands for what in a Snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "named.hpp"
#include "stele/format.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

using Heading = BurnHeading;
inline constexpr std::string_view heading_names[] = {"float", "int", "format", "version", "settings"};
/// The key of metadata that are not Burn's, beside `item`: Burn passes over it.
inline constexpr std::string_view own_key = "stele";
/// Its texts, in that order.
inline std::string* member(Heading& heading, std::size_t i) {
  std::string* const members[] = {&heading.floats, &heading.ints, &heading.format, &heading.version, &heading.settings};
  return members[i];
}

/// What a record of this snapshot has; where it comes from one of Burn's, as much of that as is still true.
Heading heading_for(const Snapshot& snapshot, BurnEncoding encoding, bool gzip, BurnEra era);
/// Of a version's text. Errors: unsupported.
Result<BurnEra> era_of(std::string_view version);
inline constexpr std::string_view known_releases = "a record of Burn 0.13 to 0.21";
/// The error for a record of that release.
Error too_old_for(std::string_view version);
/// The error of a record that could not be read, or that it is too old.
Error with_age(Error error, const Heading& heading);
/// Errors: value_mismatch (other settings than asked for; float and int that its settings do not have), with what
/// differs.
Status check(const Heading& heading, const BurnOptions& options);

/// A record that says all names: a guess at what is a list and what a tuple. `memory` bounds what is allocated. `type`,
/// of what will be loaded or null, tells numbers of old files apart.
Result<Snapshot> read_named(Tokens& tokens, std::uint64_t memory, const BurnOptions& options, const TypeInfo* type);
Status write_named(const Snapshot& snapshot, Heading heading, BurnEra era, Out& out);

/// A record in bincode: of the type that is loaded, or of options.schema. Errors: needs_layout.
Result<Snapshot> read_bincode(SourcePtr source, std::uint64_t memory, const BurnOptions& options,
                              const OpenContext& context);
/// With `gather` it is written; `size` counts. Errors: needs_layout (a snapshot of no known type), not_representable.
Status write_bincode(const Snapshot& snapshot, Heading heading, BurnEra era, const BurnOptions& options,
                     LeafGather* gather, ReadContext& context, std::uint64_t& size);
/// What write_bincode() leaves out. Errors: those of write_bincode().
Result<std::vector<Loss>> bincode_losses(const Snapshot& snapshot, BurnEra era, const BurnOptions& options);

/// Of the tensor added last. Errors: malformed (no id).
Status set_id(SnapshotBuilder& builder, const std::string& text, std::uint64_t offset);
/// What is written for it.
std::string id_text_of(const LeafView& leaf, std::string_view path);

/// Without id and `param`.
bool is_bare(const LeafView& leaf);

/// Notes the heading of a record that was read.
void keep(const Heading& heading, SnapshotBuilder& builder);

/// Counts memory against a bound.
class Budget {
 public:
  explicit Budget(std::uint64_t left) : left_(left) {}
  /// Of one more node, with a name and a shape. Errors: limit.
  Status node(std::size_t name, std::size_t rank, std::uint64_t offset) {
    const std::uint64_t bytes = sizeof(Node) + 64 + 3 * name + 3 * sizeof(Extent) * rank;
    if (bytes > left_) return index_error("more parameters than a file of this size may have").offset(offset);
    left_ -= bytes;
    return {};
  }

 private:
  std::uint64_t left_;
};

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
