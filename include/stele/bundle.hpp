// Bundle: a named set of sources and sinks, for models that have several files. Either a folder or memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {

/// Names are relative paths ("a/b.dat") of at most 64 parts. A part is not empty, contains no backslash and no NUL, and
/// is not "." or ".."; other names are an error (invalid_argument). An opened or created file refers to its folder's
/// bundle, so a format can find the other files of a set from one of them.
class STELE_EXPORT Bundle {
 public:
  virtual ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  /// Opens a file. Errors: not_found, io.
  virtual Result<SourcePtr> open(std::string_view name) const = 0;
  /// Returns the bundle for opening the files that a model names. The model may be untrusted: in that bundle, a link
  /// that leads out of the folder is an error (io). nullptr: this bundle. Errors: not_found, io.
  virtual Result<std::shared_ptr<const Bundle>> beneath() const { return std::shared_ptr<const Bundle>(); }
  /// Creates a sink whose commit() puts the file into the bundle and replaces a file of that name. Creates missing
  /// folders on its path. Errors: io, not_found (a file is in place of a folder), invalid_argument (a folder has this
  /// name).
  virtual Result<std::unique_ptr<Sink>> create(std::string_view name) = 0;
  /// Returns true if a file or folder has this name.
  virtual Result<bool> contains(std::string_view name) const = 0;
  /// Returns the sorted names of the files, including those in subfolders. Links to files count as files; links to
  /// folders are not followed, and unfinished files of file_sink are omitted. Errors: limit (more than 1,000,000 names
  /// or 64 levels), not_found, io.
  virtual Result<std::vector<std::string>> names() const = 0;
  /// Removes a file that a failed save has already committed, if possible.
  virtual void remove(std::string_view name) noexcept = 0;

 protected:
  Bundle() = default;
};

/// Returns the files of a folder as a bundle; "" is the working folder. `mapped`: files are mapped, otherwise read.
STELE_EXPORT std::shared_ptr<Bundle> folder_bundle(std::string path, FileSinkOptions options = {}, bool mapped = false);

/// Returns an empty bundle in memory. Not thread-safe while a file is being created.
STELE_EXPORT std::shared_ptr<Bundle> memory_bundle();

/// Returns a Source without bytes, whose files are in `bundle` (if null, loads from it are an invalid_argument). Throws
/// std::bad_alloc.
STELE_EXPORT SourcePtr bundle_source(std::shared_ptr<const Bundle> bundle, std::string name = "bundle");

/// Returns a Sink that accepts no bytes (unsupported), only files in `bundle` (if null, saves to it are an
/// invalid_argument). Throws std::bad_alloc.
STELE_EXPORT std::unique_ptr<Sink> bundle_sink(std::shared_ptr<Bundle> bundle, std::string name = "bundle");

/// Checks that another folder may replace this one as a whole, because its entire content is known. Errors: exists.
using FolderCheck = std::function<Status(const Bundle& folder)>;

/// Replaces a folder in one step: writes a temporary folder next to it, named and cleaned up like the temporaries of
/// file_sink; commit() moves it into place. A folder that is not empty is replaced only if it contains only files and
/// folders and `may_replace` succeeds, both now and in commit(); without `may_replace`, never. Keeps the folder's
/// permissions, and those of files and folders in it that have the same names. A symbolic link is kept, and the folder
/// that it points to is replaced. With FileSinkOptions::allow_nonatomic, the files are put into an existing folder one
/// by one, `may_replace` is not called, and other files in the folder remain. Errors: those of file_sink
/// (invalid_argument for a file) and of `may_replace`, exists (a folder that cannot be replaced in one step: a mount
/// point, or a file system that cannot exchange names).
STELE_EXPORT Result<std::unique_ptr<Sink>> folder_sink(const std::string& path, FileSinkOptions options = {},
                                                       FolderCheck may_replace = nullptr);

/// Returns the last segment of a path.
STELE_EXPORT std::string_view file_name(std::string_view path) noexcept;

}  // namespace stele::inline v0
