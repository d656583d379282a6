// Rewrites an archive without one of its tags.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "encodings/zip/zip.hpp"
#include "file.hpp"
#include "pool.hpp"
#include "snapshot/leaf_gather.hpp"

namespace stele::inline v0::detail::archive {

/// Rewrites an archive without a tag, or with all of its tags.
class Rewriter {
 public:
  Rewriter(File& old, std::string dropped, LeafGather& out, zip::Writer& zip)
      : old_(old), dropped_(std::move(dropped)), out_(out), zip_(zip) {}

  /// Decides which entries stay, which move to another tag, and how the lines change.
  Status plan();
  /// Copies the entries that stay.
  Status copy();

 private:
  struct Move {
    std::string name;
    std::string head;  // the array's head, which names the entry of the content; set only if that is another entry
  };

  /// Updates a reference from a tag that stays, and moves its array if the array's tag is removed.
  Status keep(const std::string& tag, Kind kind, const Line& line, Reference& r, bool& changed);
  /// Returns a number that no array of the tag has.
  Result<std::uint32_t> next_number(const std::string& tag, Kind kind);
  bool goes(const zip::Entry& e) const;

  File& old_;
  std::string dropped_;
  LeafGather& out_;
  zip::Writer& zip_;
  std::map<const Stored*, Reference> homes_;
  std::map<const zip::Entry*, Move> moved_;
  std::map<std::string, std::uint32_t> next_;
  std::map<std::string, std::string> texts_;  // new contents of entries whose lines changed
};

/// Adds all arrays of the tags that stay to the pool, for deduplication.
Status fill_pool(File& file, const std::string& dropped, Pool& pool);

}  // namespace stele::inline v0::detail::archive
