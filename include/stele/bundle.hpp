// Bundle: a named set of sources and sinks, for models of several files. A folder, or memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {

/// Names are relative paths ("a/b.dat") of at most 64 parts, each plain: not empty, no backslash or NUL, not one or two
/// dots; else: invalid_argument. What is opened or created knows its bundle (that of the folder it lies in), so a
/// format finds the other files of a set from one of them.
class STELE_EXPORT Bundle {
 public:
  virtual ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  /// Errors: not_found, io.
  virtual Result<SourcePtr> open(std::string_view name) const = 0;
  /// A sink whose commit() puts the file there, in place of one of the same name; folders in between are made. Errors:
  /// io, not_found (a file where a folder should be), invalid_argument (a folder is there).
  virtual Result<std::unique_ptr<Sink>> create(std::string_view name) = 0;
  /// Whether there is a file or a folder of this name.
  virtual Result<bool> contains(std::string_view name) const = 0;
  /// The files, in folders below too, sorted. Links count as the files that they lead to; links to folders are not
  /// followed, and unfinished files of file_sink left out. Errors: limit (more than 1,000,000 names, or 64 levels),
  /// not_found, io.
  virtual Result<std::vector<std::string>> names() const = 0;
  /// Takes away what a failed save has finished, where it can.
  virtual void remove(std::string_view name) noexcept = 0;

 protected:
  Bundle() = default;
};

/// The files of a folder; "" is the working folder. `mapped`: sources are mapped, else read.
STELE_EXPORT std::shared_ptr<Bundle> folder_bundle(std::string path, FileSinkOptions options = {}, bool mapped = false);

/// Files in memory. Not shared between threads while something is created.
STELE_EXPORT std::shared_ptr<Bundle> memory_bundle();

/// A Source without bytes for what lies in `bundle` (null: loads from it are an invalid_argument). Throws
/// std::bad_alloc.
STELE_EXPORT SourcePtr bundle_source(std::shared_ptr<const Bundle> bundle, std::string name = "bundle");

/// A Sink that takes no bytes (unsupported), only files in `bundle` (null: saves to it are an invalid_argument). Throws
/// std::bad_alloc.
STELE_EXPORT std::unique_ptr<Sink> bundle_sink(std::shared_ptr<Bundle> bundle, std::string name = "bundle");

/// Whether a folder may be replaced whole by another: whether all in it is known. Errors: exists.
using FolderCheck = std::function<Status(const Bundle& folder)>;

/// A folder replaced in one step: a temporary one beside it, named and cleared away as those of file_sink, that takes
/// its place by commit(). A folder in which something lies is replaced only where `may_replace` agrees, now and at
/// commit(), and where it holds nothing but files and folders; without `may_replace`, never. Its permissions are kept,
/// and those of files and folders of the same name in it; a symbolic link keeps pointing and the folder that it leads
/// to is replaced. With FileSinkOptions::allow_nonatomic the files are put into an existing folder one by one, nobody
/// is asked, and others in it stay. Errors: as file_sink (invalid_argument for a file), what `may_replace` says, exists
/// (a folder that cannot be replaced in one step: a mount point, or a file system that cannot exchange names).
STELE_EXPORT Result<std::unique_ptr<Sink>> folder_sink(const std::string& path, FileSinkOptions options = {},
                                                       FolderCheck may_replace = nullptr);

/// The last part of a path.
STELE_EXPORT std::string_view file_name(std::string_view path) noexcept;

}  // namespace v0
}  // namespace stele
