// An archive that is open: its directory, tags, texts, and arrays as far as they were asked for.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/limits.hpp"
#include "base/meter.hpp"
#include "dl4j/arrays.hpp"
#include "encodings/zip/zip.hpp"
#include "lines.hpp"
#include "stele/checkpoint.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace archive {

/// The two folders of a tag that hold arrays.
enum class Kind : std::uint8_t { params, updater };
constexpr std::string_view folder_of(Kind kind) noexcept { return kind == Kind::params ? "params" : "updater"; }

/// Kinds of optimizer state in a tag.
inline constexpr std::size_t most_kinds = 64;

/// An array of the archive.
struct Stored {
  samediff::ArrayFacts facts;
  SourcePtr source;          // the archive, or what is deflated in it
  std::uint64_t offset = 0;  // of its content there
  std::uint32_t crc = 0;     // of its content, where `checked`
  bool checked = false;
  std::uint64_t content = 0;             // where in its entry its content begins
  const zip::Entry* entry = nullptr;     // the .fb
  const zip::Entry* external = nullptr;  // the .bin, where it has one
};

/// Leaves that are Stored arrays.
extern const LeafOps stored_ops;

class File : public std::enable_shared_from_this<File> {
 public:
  static Result<std::shared_ptr<File>> open(SourcePtr source, const Limits& limits);

  const zip::Directory& directory() const noexcept { return *directory_; }
  const std::vector<std::string>& tags() const noexcept { return tags_; }
  /// As tags.txt spells it. Errors: not_found.
  Result<std::string> find_tag(std::string_view tag) const;
  /// The name of a tag's entry as the archive spells it: "<tag>/<rest>".
  std::string entry_name(std::string_view tag, std::string_view rest) const;
  /// params.txt or updater.txt; no lines where it is not there and need not be.
  Result<std::vector<Line>> lines(std::string_view tag, Kind kind);
  /// The array that a line of `tag` refers to; it lives as long as the File.
  Result<const Stored*> array(std::string_view tag, Kind kind, const Reference& reference);
  /// An entry whole, or nothing where it is not there.
  Result<std::optional<Bytes>> read(std::string_view tag, std::string_view rest);

  /// Memory that opening may still take; what is gone again can be given back.
  const IndexBudget& memory() const noexcept { return memory_; }
  void set_memory(const IndexBudget& memory) noexcept { memory_ = memory; }

  Result<Snapshot> parameters(std::string_view tag);
  Result<Checkpoint> checkpoint(std::string_view tag);
  /// Opens all tags with all that they have, and reads and checks their arrays.
  Status check_tags(const LoadOptions& options, Meter& meter);
  /// Whether check_tags() has compared all bytes of an entry with its CRC-32.
  bool has_checked(const zip::Entry& entry) const { return checked_.contains(&entry); }

 private:
  bool spend(std::uint64_t bytes) noexcept { return memory_.take(bytes); }
  Result<Stored> open_array(const zip::Entry& entry);
  Result<std::span<const std::byte>> window(const zip::Entry& entry);
  Result<std::uint64_t> place(const zip::Entry& entry);

  std::shared_ptr<const zip::Directory> directory_;
  std::vector<std::string> tags_;
  struct Folder {
    std::string tag;     // as tags.txt spells it
    std::string name;    // as the entries spell it
    bool exact = false;  // there is one of the tag's spelling
  };
  std::unordered_map<std::string, Folder> folders_;  // of tags, folded
  std::unordered_map<const zip::Entry*, std::uint32_t> known_;
  std::deque<Stored> arrays_;
  std::unordered_set<const zip::Entry*> checked_;
  IndexBudget memory_;
  Bytes window_;  // bytes of the file, for headers that lie close to each other
  std::uint64_t window_begin_ = 0;
};

}  // namespace archive
}  // namespace detail
}  // namespace v0
}  // namespace stele
