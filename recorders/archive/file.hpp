// An open archive: its directory, tags, text files, and the arrays that were requested.
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

namespace stele::inline v0::detail::archive {

/// The two folders of a tag that contain arrays.
enum class Kind : std::uint8_t { params, updater };
constexpr std::string_view folder_of(Kind kind) noexcept { return kind == Kind::params ? "params" : "updater"; }

/// First words of the parts in SnapshotData::left_out that name other tags, and entries that this library does not
/// know.
inline constexpr std::string_view other_tags_part = "other tags of the archive";
inline constexpr std::string_view other_entries_part = "other entries of the archive";

/// Maximum number of kinds of optimizer state in a tag.
inline constexpr std::size_t max_state_kinds = 64;

/// An array of the archive.
struct Stored {
  samediff::ArrayFacts facts;
  SourcePtr source;          // the archive, or a deflated entry of it
  std::uint64_t offset = 0;  // offset of the content in the source
  std::uint32_t crc = 0;     // CRC-32 of the content, if `checked`
  bool checked = false;
  std::uint64_t content = 0;             // offset of the content in its entry
  const zip::Entry* entry = nullptr;     // the .fb file
  const zip::Entry* external = nullptr;  // the .bin file, if there is one
};

/// Operations of leaves that are Stored arrays.
extern const LeafOps stored_ops;

class File : public std::enable_shared_from_this<File> {
 public:
  static Result<std::shared_ptr<File>> open(SourcePtr source, const Limits& limits);

  const zip::Directory& directory() const noexcept { return *directory_; }
  const std::vector<std::string>& tags() const noexcept { return tags_; }
  /// Returns a tag in the spelling of tags.txt. Errors: not_found.
  Result<std::string> find_tag(std::string_view tag) const;
  /// Returns the name of a tag's entry in the archive's spelling: "<tag>/<rest>".
  std::string entry_name(std::string_view tag, std::string_view rest) const;
  /// Reads params.txt or updater.txt; returns no lines if the file is optional and missing.
  Result<std::vector<Line>> lines(std::string_view tag, Kind kind);
  /// Returns the array that a line of `tag` refers to. The pointer is valid as long as the File.
  Result<const Stored*> array(std::string_view tag, Kind kind, const Reference& reference);
  /// Reads a whole entry, or returns nullopt if the tag lacks it.
  Result<std::optional<Bytes>> read(std::string_view tag, std::string_view rest);

  /// Returns the memory that opening may still use. A caller may restore the budget after it has freed memory.
  const IndexBudget& memory() const noexcept { return memory_; }
  void set_memory(const IndexBudget& memory) noexcept { memory_ = memory; }

  /// Parts of the file that are missing from the snapshot of a tag's parameters, as in SnapshotData::left_out.
  using Parts = std::vector<std::string>;
  /// Returns the other parts of a tag: graph, training configuration, optimizer state.
  Parts parts_beside_parameters(std::string_view tag) const;
  /// Returns a part that names all tags except the newest, if there are any.
  Parts older_tags() const;
  /// Returns a part that names the entries in the tag's folder that this library does not know, if there are any.
  /// `around`: also entries in folders of no tag.
  Parts other_entries(std::string_view tag, bool around) const;
  /// Returns true for an entry that this part names.
  bool is_other(std::string_view tag, std::string_view entry, bool around) const;
  /// Opens a tag's parameters. `left_out`: the parts to list in the snapshot, in addition to lines of a later version.
  Result<Snapshot> parameters(std::string_view tag, Parts left_out);
  Result<Checkpoint> checkpoint(std::string_view tag, Parts left_out);
  /// Opens all contents of all tags, and reads and checks their arrays.
  Status check_tags(const LoadOptions& options, Meter& meter);
  /// Returns true if check_tags() compared all bytes of an entry with its CRC-32.
  bool has_checked(const zip::Entry& entry) const { return checked_.contains(&entry); }

 private:
  bool spend(std::uint64_t bytes) noexcept { return memory_.take(bytes); }
  Result<Stored> open_array(const zip::Entry& entry);
  /// Sets the location of an array's content to another entry of its folder.
  Status open_external(const std::string& external, Stored& out);
  /// Adds an array to a snapshot.
  Status add(samediff::Arrays& to, const std::string& name, const Stored& array);
  /// Opens the optimizer state of a tag. `state_keys`: the kinds of state for lines without keys.
  Result<OptimizerState> states(std::string_view tag, const std::vector<Line>& lines, const Checkpoint& model,
                                std::vector<std::string> state_keys);
  Result<std::uint64_t> place(const zip::Entry& entry);

  std::shared_ptr<const zip::Directory> directory_;
  std::vector<std::string> tags_;
  struct Folder {
    std::string tag;     // spelled as in tags.txt
    std::string name;    // spelled as in the entries
    bool exact = false;  // true if a folder has the tag's spelling
  };
  std::unordered_map<std::string, Folder> folders_;  // by folded tag
  std::unordered_map<const zip::Entry*, std::uint32_t> known_;
  std::deque<Stored> arrays_;
  std::unordered_set<const zip::Entry*> checked_;
  IndexBudget memory_;
  std::optional<zip::HeadReader> heads_;
};

}  // namespace stele::inline v0::detail::archive
