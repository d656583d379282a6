// Files and folders that are looked up from an open folder, or from the working folder. A lookup from an open folder
// finds the folder's files even after its path has changed, and never returns files of another folder at that path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/os/os.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::detail {

/// A path relative to `root`, or to the working folder if `root` is null.
struct FilePlace {
  std::shared_ptr<const os::Folder> root;
  std::string path;
  std::string name;  // for messages
  // The folder that `root` will replace: a new file gets the permissions of the file at its path there.
  std::shared_ptr<const os::Folder> old{};

  os::Path os() const { return {root.get(), path, name}; }
  /// Returns the location of an entry of this folder.
  FilePlace operator/(std::string_view leaf) const;
  /// Returns the location of the parent folder.
  FilePlace folder() const;
};
inline FilePlace file_place(std::string path) {
  std::string text = os::with_slashes(std::move(path));
  return {nullptr, text, std::move(text)};
}

/// A path, divided at its last slash. The folder ends with the slash; it is "." if the path is only a name.
struct FolderAndName {
  std::string folder, name;
};
FolderAndName split_path(const std::string& path);

/// The ending of a journal's name: apply_in_place() writes it next to the file that it changes.
inline constexpr std::string_view journal_ending = ".stele-journal";
/// Returns an error if the file has a journal; the file may then be a mixture of two versions.
Status check_no_journal(const FilePlace& place);

/// Returns the path with this extension added if its last segment has none.
STELE_EXPORT std::string with_extension(const std::string& path, std::string_view extension);

/// When the name of a committed file becomes durable.
enum class Names : std::uint8_t {
  as_data,  // the name is as durable as the data
  later,    // the caller syncs the name later
};

/// Checks the name of a file in a bundle. Errors: invalid_argument.
STELE_EXPORT Status check_name(std::string_view name);

Result<SourcePtr> open_file(const FilePlace& place, bool mapped);
/// Opens a file or a folder.
Result<SourcePtr> open_any(const FilePlace& place, bool mapped);
/// `like`: the name of a file in the same folder, whose permissions a new file gets.
Result<std::unique_ptr<Sink>> file_sink(const FilePlace& place, FileSinkOptions options, Names names = Names::as_data,
                                        const std::string& like = {});
std::shared_ptr<Bundle> folder_bundle(FilePlace place, FileSinkOptions options, bool mapped,
                                      Names names = Names::as_data);
/// Returns the files of a folder for reading.
std::shared_ptr<const Bundle> folder_reader(FilePlace place, bool mapped);

/// Returns a source of an open folder, from which its files are looked up.
SourcePtr folder_source(const std::shared_ptr<const os::Folder>& folder, bool mapped);
/// Returns true if the path by which the folder was opened now leads to another folder or to nothing. The files read
/// from it by name may then be incomplete, because the save that replaced the folder removes its files.
Result<bool> replaced(const Source& folder);

/// Opens the `number`-th file of a set whose files are open at the same time. Files after the first few are opened
/// again for each read, because a process has a limited number of open files.
STELE_EXPORT Result<SourcePtr> open_of_set(const std::shared_ptr<const Bundle>& bundle, const std::string& name,
                                           std::size_t number);

/// Returns the path of the temporary folder into which a sink of folder_sink() writes; empty for other sinks.
STELE_EXPORT std::string temporary_path(const Sink& sink);

/// Returns the error that a folder's sink reports if bytes are written to it.
Status refuse_bytes(std::span<const std::span<const std::byte>> pieces, const std::string& name);

/// The contents of a folder and the folders below it.
struct Listing {
  std::vector<std::string> names;  // names of files, sorted
  std::string other;               // a broken link, a device or another file system, which do not belong to it
  bool empty = true;               // false even if it contains only unfinished files
};
Result<Listing> list_all(const os::Folder& folder);

// ---- temporaries: .<name>.stele-<process>-<counter>.tmp

/// Returns the common prefix of the names of all temporaries for `leaf`.
std::string temporary_prefix(const std::string& leaf, std::size_t longest_name);
/// Returns a new name for a temporary of this process.
std::string temporary_name(const std::string& prefix);
bool is_temporary(std::string_view name) noexcept;
/// Removes the temporary folders that killed processes left in a folder, for any target.
STELE_EXPORT void remove_leftover_folders(const os::Folder& folder);
/// Removes temporaries of killed processes that saved to this path.
void remove_leftovers(const os::Folder& folder, const std::string& folder_path, const std::string& prefix,
                      os::Kind kind);
/// Maximum number of names tried. A name is taken if an earlier process with the same id left it.
inline constexpr int max_tries = 1000;

}  // namespace stele::inline v0::detail
