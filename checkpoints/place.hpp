// A Place contains the steps of a run: the folders in a folder, or the objects of a store below a URL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manifest.hpp"

namespace stele::inline v0::detail::steps {

/// The checks of a step's files in addition to their presence and size.
enum class Check : std::uint8_t {
  sizes,      // nothing else
  unchanged,  // the contents; in a store, only that the saved objects exist
  contents,   // the contents
};

/// The files that one of several processes writes to a step.
class Share {
 public:
  virtual ~Share() = default;
  virtual Bundle& files() = 0;
  /// Returns the path of the folder of the files, for MPI-IO; empty in a store.
  virtual std::string folder() const { return {}; }
  /// Completes the entry of a written file with data of the place, such as the object's version.
  virtual Status complete(ManifestFile& /*file*/) const { return {}; }
  /// Declares that the step may be visible, so that the destructor must not remove the files; or that it is not.
  virtual void keep(bool /*visible*/) noexcept {}
};

/// The files of a step are written into the bundle of a sink, and become visible with commit(). Only the const members
/// are thread-safe.
///
/// If several processes write a step, the first one calls create() and share(), and at the end commit(). Every process,
/// including the first, writes into the object that join() returns.
class Place {
 public:
  virtual ~Place() = default;
  /// Prepares the place, unless it is only looked at.
  virtual Status start(bool only_look) = 0;
  /// Returns true if the place was replaced since the last call, so that its steps may have changed.
  virtual Result<bool> replaced() = 0;
  /// Returns the numbers of all steps, sorted; some may be broken.
  virtual Result<std::vector<std::int64_t>> numbers() const = 0;
  /// Errors: not_found, limit, io, truncated, checksum, malformed, and those of parse_manifest().
  virtual Result<Manifest> manifest(std::int64_t step, Check check) const = 0;
  /// Checks that the step has the files that the manifest lists. Errors: not_found, truncated, checksum, malformed, io.
  virtual Status check(const Manifest& manifest, Check check) const = 0;
  /// Prepares a manifest that another process has read for check() and part().
  virtual Status adopt(Manifest& manifest) const = 0;
  /// Opens a file or folder of a step. The manifest must be from manifest() or adopt().
  virtual Result<SourcePtr> part(const Manifest& manifest, const std::string& name, bool mapped) const = 0;
  /// Errors: no_space (less than `bytes` and `spare`), io.
  virtual Status check_space(std::uint64_t bytes, std::uint64_t spare) const = 0;
  /// Moves the remains of a broken step with this number aside, and returns the sink of a new step.
  virtual Result<std::unique_ptr<Sink>> create(std::int64_t step, Durability durability) = 0;
  /// Lists the files written to a sink of create(), and makes the step visible with its manifest.
  virtual Status list(Sink& sink, Manifest& manifest) const = 0;
  virtual Status commit(Sink& sink, const Manifest& manifest) = 0;
  /// Returns the string that processes which write a new step pass to join(). Completes the manifest.
  virtual std::string share(Sink& sink, Manifest& manifest) const = 0;
  virtual std::unique_ptr<Share> join(std::int64_t step, const std::string& shared, Durability durability) const = 0;
  /// Checks that the step has no files that do not belong to it. Errors: exists, and those of manifest().
  virtual Status check_removable(std::int64_t step) const = 0;
  virtual Status remove(std::int64_t step) = 0;

  /// Returns the path of a step, for messages.
  virtual std::string path(std::int64_t step) const = 0;
};

/// `folder` without a slash at its end.
std::unique_ptr<Place> folder_place(std::string folder);
/// Errors: unsupported (the program opens no URLs, or nothing can be saved there).
Result<std::unique_ptr<Place>> store_place(const std::string& url);
/// Returns the place for a folder or a URL.
STELE_EXPORT Result<std::unique_ptr<Place>> place_at(const std::string& folder);
/// Returns the files of a folder that several processes write. It must exist.
std::unique_ptr<Share> folder_share(std::string folder, FileSinkOptions options);

}  // namespace stele::inline v0::detail::steps
