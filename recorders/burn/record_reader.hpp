// The base of the readers of all encodings: the snapshot that they build, the current path, and the final checks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::burn {

class RecordReader {
 public:
  const Header& header() const noexcept { return header_; }

 protected:
  RecordReader(std::uint64_t memory, const BurnOptions& options) : options_(options), budget_(memory) {}

  /// Returns the path of the current node.
  std::string path() const;
  /// Adds the current path, and an offset, to an error.
  Status located(Status status) const;
  Status located(Status status, std::uint64_t offset) const;
  /// Adds a tensor that begins at the offset `begin`.
  Status add_tensor(NodeName name, Tensor tensor, bool conditional, std::uint64_t begin);
  Status add_id(const std::string& id, std::uint64_t offset) { return located(set_id(builder_, id, offset)); }
  void mark_bare() { builder_.annotate(std::string(bare_note), Value(true)); }
  /// Ends the snapshot, which keeps `keeper`. Errors: duplicate.
  Result<Snapshot> finish(std::shared_ptr<const void> keeper);

  const BurnOptions& options_;
  Budget budget_;
  SnapshotBuilder builder_;
  Header header_;
  std::vector<NodeName> path_;
};

}  // namespace stele::inline v0::detail::burn
