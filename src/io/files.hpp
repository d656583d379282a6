// Files and folders that are looked up from an open folder, or from the working one. What is looked up from an open
// folder is found whatever becomes of its path, and never mixed with what takes its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/os/os.hpp"
#include "stele/bundle.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// A path from `root`; null: from the working folder.
struct Location {
  std::shared_ptr<const os::Folder> root;
  std::string path;
  std::string name;  // what messages call it
  // The folder whose place `root` will take: a file gets the permissions of the one of its path there.
  std::shared_ptr<const os::Folder> old{};

  os::Path os() const { return {root.get(), path, name}; }
  /// Of a folder: something in it.
  Location operator/(std::string_view leaf) const;
  /// The folder that it lies in.
  Location folder() const;
};
inline Location location_of(const std::string& path) { return {nullptr, path, path}; }

/// Returns the path with this extension, where its last part has none.
std::string with_extension(const std::string& path, std::string_view extension);

/// What lasts of a file that is committed.
enum class Names : std::uint8_t {
  as_data,  // its name, where its data do
  later,    // its name will be synced by somebody else
};

Result<SourcePtr> open_file(const Location& place, bool mapped);
/// A file, or a folder.
Result<SourcePtr> open_any(const Location& place, bool mapped);
Result<std::unique_ptr<Sink>> file_sink(const Location& place, FileSinkOptions options, Names names = Names::as_data);
std::shared_ptr<Bundle> folder_bundle(Location place, FileSinkOptions options, bool mapped,
                                      Names names = Names::as_data);

/// A source of an open folder, whose files are looked up from there.
SourcePtr folder_source(const std::shared_ptr<const os::Folder>& folder, bool mapped);
/// Returns true if another folder, or nothing, is now at the path that the folder was opened by. What was read from it
/// by names may be a part only, for the saver that replaced it removes its files.
Result<bool> replaced(const Source& folder);

/// The `number`-th file of a set that is open at once: behind the first few it is opened again for each read, for a
/// process may not have many open.
STELE_EXPORT Result<SourcePtr> open_of_set(const std::shared_ptr<const Bundle>& bundle, const std::string& name,
                                           std::size_t number);

/// What a sink of a folder says to bytes.
Status refuse_bytes(std::span<const std::span<const std::byte>> pieces, const std::string& name);

/// All that lies in a folder and the folders below it.
struct Listing {
  std::vector<std::string> names;  // of files, sorted
  std::string other;               // a link to no file, a device or another file system, which are no part of it
  bool empty = true;               // not even unfinished files
};
Result<Listing> list_all(const os::Folder& folder);

// ---- temporaries: .<name>.stele-<process>-<counter>.tmp

/// What the names of all temporaries for `leaf` begin with.
std::string temporary_prefix(const std::string& leaf, std::size_t longest_name);
/// Another name for a temporary of this process.
std::string temporary_name(const std::string& prefix);
bool is_temporary(std::string_view name) noexcept;
/// Removes what killed processes left of earlier saves to the same path.
void remove_leftovers(const os::Folder& folder, const std::string& folder_path, const std::string& prefix,
                      os::Kind kind);
/// Names tried before giving up; a taken one is left from a process with the same id.
inline constexpr int max_tries = 1000;

}  // namespace detail
}  // namespace v0
}  // namespace stele
