// Format: Snapshot <-> bytes. A format is compiled once and knows no user type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/input.hpp"
#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {

class Bundle;  // stele/bundle.hpp

/// What a format can hold. What it cannot is an error on save, unless SaveOptions::allow_loss.
struct Capabilities {
  bool nesting = false;      // containers; else names are whole paths
  bool values = false;       // directly, or as the string `stele` among the metadata
  bool aliases = false;      // likewise; else a tied tensor is written under each of its names
  bool ids = false;          // soft: their loss is only reported
  bool type_names = false;   // soft, and not reported
  bool annotations = false;  // soft
  bool metadata = false;     // string -> string
  bool checksums = false;    // damage to a tensor's bytes is found
  std::uint32_t max_rank = 0xffff;
  bool (*holds)(DType dtype) = nullptr;
  bool (*keeps)(std::string_view annotation) = nullptr;  // where not all
};

namespace detail {

struct TypeInfo;

/// A module, a record or a Snapshot; borrowed.
struct Object {
  const TypeInfo* type = nullptr;  // null: a Snapshot
  const void* address = nullptr;
};

}  // namespace detail

class Schema;  // stele/schema.hpp

/// What is known of a file before it is opened.
class STELE_EXPORT OpenContext {
 public:
  OpenContext(const LoadOptions& options, detail::Object target) noexcept : options_(options), target_(target) {}
  const LoadOptions& options() const noexcept { return options_; }
  /// The type that the file will be loaded into, where that is known.
  std::optional<Schema> schema() const noexcept;
  /// The names of the file's tensors: those of LoadOptions, else of the live module, else of the type. Errors:
  /// needs_layout, with what leaves it open.
  Result<Layout> layout() const;
  /// What will be loaded; without a type where that is not known, without an address where it is not made yet.
  const detail::Object& target() const noexcept { return target_; }

 private:
  const LoadOptions& options_;
  detail::Object target_;
};

/// A part of a snapshot that a format leaves out of a file.
struct Loss {
  std::uint32_t node = 0;  // 0: a loss of the whole file
  std::string what{};
};

/// One way to write a Snapshot as bytes. Objects hold options only; all members are safe from several threads.
class STELE_EXPORT Format {
 public:
  virtual ~Format();
  /// "stele", "safetensors", …
  virtual std::string_view name() const noexcept = 0;
  /// Of files, with the dot; added to a path that has none.
  virtual std::string_view extension() const noexcept = 0;
  virtual const Capabilities& capabilities() const noexcept = 0;
  /// Whether bytes that begin with `head` (up to 1024 of `size` in all) are of this format.
  virtual bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept = 0;
  /// Its files are folders: write() gets a sink, open() a source, that has a bundle() and no bytes.
  virtual bool is_folder() const noexcept;
  /// Returns true if a save to `path` makes a folder: is_folder(), except where the path's extension decides it.
  virtual bool makes_folder(std::string_view path) const noexcept;
  /// Whether open() takes a folder, or a file.
  virtual bool opens(bool folder) const noexcept { return folder == is_folder(); }
  /// Whether a folder is of this format, as far as the names of its files, and a look into a small one, say.
  virtual bool recognises_folder(const Bundle& folder) const;
  /// Whether a folder holds nothing but what this format writes, and so may be replaced whole. Errors: exists.
  virtual Status may_replace(const Bundle& folder) const;
  /// Reads headers and index only; the leaves keep the source. Memory is bounded by
  /// what the source holds (docs/faults.md), or by Limits::index_bytes.
  virtual Result<Snapshot> open(SourcePtr source, const OpenContext& context) const = 0;
  /// Reads every byte of a file, and checks all that can be checked. Adds a row Report::What::unchecked for each part
  /// of the file that no checksum covers; "contents" stands for all of it. Errors: as open() and reading the leaves.
  virtual Result<Report> verify(SourcePtr source, const OpenContext& context) const;
  /// Returns what write() leaves out of this snapshot in a file of that name, beyond what capabilities() says: each is
  /// an error on save, or with SaveOptions::allow_loss a row of the Report. Errors: those of write().
  virtual Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const;
  /// Writes everything but losses(), in one pass; the sink is not committed. The snapshot fits capabilities() and is
  /// what the options make of it, except for `threads`. Tensor bytes of the snapshot are produced piece by piece.
  virtual Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const = 0;
};

namespace detail {

/// What a format will write to `file`: at the precision, with the options' metadata, without what it cannot hold (which
/// is in the report, or an error).
STELE_EXPORT Result<Snapshot> prepare(const Format& format, PrecisionSpec precision, const Object& object,
                                      std::string_view file, const SaveOptions& options, Report& report);

// What stands behind every recorder and the front door; compiled once, in src/recorder.cpp, so that a call costs the
// user's code next to nothing to compile. A null format of a load: by content (`sniff`).
STELE_EXPORT Result<Report> record(const Format& format, PrecisionSpec precision, const Object& object, Sink& sink,
                                   const SaveOptions& options);
STELE_EXPORT Result<Report> record_file(const Format& format, PrecisionSpec precision, const Object& object,
                                        const std::string& path, const SaveOptions& options);
using Sniff = Result<const Format*> (*)(const Source& source);
/// The format of a load, or how it is found.
struct Reader {
  const Format* format = nullptr;
  Sniff sniff = nullptr;
};
/// `target` is what will be loaded, where that is known; without an address, its type only.
STELE_EXPORT Result<Snapshot> open(Reader reader, const Input& from, const LoadOptions& options, Object target = {});
STELE_EXPORT Result<Report> load_in_place(Reader reader, const Input& from, const TypeInfo& type, void* object,
                                          const LoadOptions& options);
STELE_EXPORT Status load_fresh(Reader reader, const Input& from, const TypeInfo& type, void* object,
                               const LoadOptions& options, Report* report);
/// An error where it is a folder and the format has files, or the other way round.
STELE_EXPORT Status check_kind(const Source& source, bool folders);
/// `path`, with the extension where it has none and names no existing thing.
STELE_EXPORT std::string with_extension(const std::string& path, std::string_view extension);

}  // namespace detail

/// Reads every byte of a file of this format and checks all that can be checked; rows of the report name what no
/// checksum covers, so that damage there is not found (Report::What::unchecked). Errors: as open() and load.
STELE_EXPORT Result<Report> verify(const Format& format, const Input& from,
                                   const LoadOptions& options = default_load_options());

}  // namespace v0
}  // namespace stele
