// Format: Snapshot <-> bytes. A format is compiled once and knows no user type.
#pragma once

#include <array>
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
#include "stele/output.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {

class Bundle;  // stele/bundle.hpp

/// The abilities of a format. A part of a record that it cannot store is an error on save, unless
/// SaveOptions::allow_loss.
struct Capabilities {
  bool nesting = false;      // containers; else names are whole paths
  bool values = false;       // directly, or in the metadata string `stele`
  bool aliases = false;      // directly, or in the metadata; else a tied tensor is written under each of its names
  bool ids = false;          // soft: a loss is only reported
  bool type_names = false;   // soft, and a loss is not reported
  bool annotations = false;  // soft
  bool metadata = false;     // string -> string
  bool properties = false;   // typed; else they are kept in the metadata
  bool checksums = false;    // detects damage to a tensor's bytes
  bool constants = false;    // numbers, enums and strings of plain aggregates are in code, not in files
  std::uint32_t max_rank = 0xffff;
  bool (*holds)(DType dtype) = nullptr;
  bool (*keeps)(std::string_view annotation) = nullptr;  // without `annotations`, selects those kept; null: none
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

/// Context available to Format::open before the file is parsed.
class STELE_EXPORT OpenContext {
 public:
  OpenContext(const LoadOptions& options, detail::Object target) noexcept : options_(options), target_(target) {}
  const LoadOptions& options() const noexcept { return options_; }
  /// Returns the type that the file will be loaded into, if known.
  std::optional<Schema> schema() const noexcept;
  /// Returns the names of the file's tensors: those of LoadOptions, else of the existing module, else of the type.
  /// Errors: needs_layout, which names the part that has no fixed layout.
  Result<Layout> layout() const;
  /// Returns the target of the load. Its type is null if unknown; its address is null if there is no object yet.
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

/// A way to write a Snapshot as bytes. Objects store options only; all members are safe to call from several threads.
class STELE_EXPORT Format {
 public:
  virtual ~Format();
  /// Returns "stele", "safetensors", …
  virtual std::string_view name() const noexcept = 0;
  /// Returns the extension of files, with the dot; it is added to a path that has none.
  virtual std::string_view extension() const noexcept = 0;
  virtual const Capabilities& capabilities() const noexcept = 0;
  /// Returns false if the library only reads this format: every save is an error (unsupported) then.
  virtual bool writes() const noexcept { return true; }
  /// Returns true if a file of `size` bytes that starts with `head` (at most 1024 bytes) has this format.
  virtual bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept = 0;
  /// Returns true if files of this format are folders: write() gets a sink, and open() a source, with a bundle() and no
  /// bytes.
  virtual bool is_folder() const noexcept;
  /// Returns true if a save to `path` makes a folder: is_folder(), unless the path's extension decides.
  virtual bool makes_folder(std::string_view path) const noexcept;
  /// Returns true if open() accepts a folder (`folder`) or a file (not `folder`).
  virtual bool opens(bool folder) const noexcept { return folder == is_folder(); }
  /// Returns true if a folder is one model of this format, by the format's own marks at its top.
  virtual bool recognises_folder(const Bundle& folder) const;
  /// Checks that a folder is a complete model of this format and contains nothing else, so that a save may replace it
  /// whole: its files are lost then. The default refuses every folder. Errors: exists.
  virtual Status may_replace(const Bundle& folder) const;
  /// Reads headers and index only; the leaves keep the source. Memory is bounded by the source's size (docs/faults.md),
  /// or by Limits::index_bytes.
  virtual Result<Snapshot> open(SourcePtr source, const OpenContext& context) const = 0;
  /// Reads every byte of a file and checks everything that can be checked. Adds a row Report::What::unchecked for each
  /// part of the file that no checksum covers; "contents" means the whole file. Errors: those of open() and of reading
  /// the leaves.
  virtual Result<Report> verify(SourcePtr source, const OpenContext& context) const;
  /// Returns the parts of this snapshot that write() leaves out of a file of that name, in addition to those implied by
  /// capabilities(). Each is an error on save, or with SaveOptions::allow_loss a row of the Report. Errors: those of
  /// write().
  virtual Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const;
  /// Writes everything except losses(), in one pass; does not commit the sink. The snapshot fits capabilities(), and
  /// all options except `threads` are already applied to it. Tensor bytes of the snapshot are produced piece by piece.
  virtual Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const = 0;
};

/// The formats of a project, as formats.cpp in their folder of recorders/ lists them: all that the front door, `stele
/// formats` and the tables of the docs know of them beside their Format.
struct FormatFamily {
  struct Member {
    const Format* format = nullptr;
    std::array<std::string_view, 3> extensions{};  // a path that ends so is saved in this format; "": none
  };
  std::string_view title;      // "Paddle"
  std::string_view folder;     // of recorders/; the component is recorder_<folder>, the page docs/formats/<folder>.md
  std::string_view recorders;  // their classes, separated by commas
  std::string_view header;     // of stele/
  std::string_view files;      // extensions and folders, in Markdown
  std::string_view holds;      // besides the names of tensors, in Markdown
  std::span<const Member> members{};
};

namespace detail {

/// Returns the Snapshot that a format will write to `file`: at the precision, with the options' metadata, and without
/// the parts that the format cannot store (they are in the report, or an error).
STELE_EXPORT Result<Snapshot> prepare(const Format& format, PrecisionSpec precision, const Object& object,
                                      std::string_view file, const SaveOptions& options, Report& report);

// The implementation of every recorder and of save() and load(). Compiled once, in src/recorder.cpp, so that a call
// adds almost nothing to the compile time of user code. On load, a null format is found from the content (`sniff`).
STELE_EXPORT Result<Report> save_object(const Format& format, PrecisionSpec precision, const Object& object,
                                        const Output& to, const SaveOptions& options);
using Sniff = Result<const Format*> (*)(const Source& source);
/// The format of a load, or the function that finds it.
struct Reader {
  const Format* format = nullptr;
  Sniff sniff = nullptr;
};
/// Without a target, returns LoadOptions::part. `target`: the object that will be loaded with the same options; a null
/// address means that only its type is known.
STELE_EXPORT Result<Snapshot> open(Reader reader, const Input& from, const LoadOptions& options, Object target = {});
STELE_EXPORT Status load_in_place(Reader reader, const Input& from, const TypeInfo& type, void* object,
                                  const LoadOptions& options);
STELE_EXPORT Status load_fresh(Reader reader, const Input& from, const TypeInfo& type, void* object,
                               const LoadOptions& options);
/// Returns an error if the source is a folder and the format has files, or the reverse.
STELE_EXPORT Status check_kind(const Source& source, bool folders);
/// Returns `path`, with the extension added if it has none and does not exist.
STELE_EXPORT std::string with_extension(const std::string& path, std::string_view extension);

}  // namespace detail

/// Opens a file of this format as a lazy Snapshot. `format` must outlive it.
inline Result<Snapshot> open(const Format& format, const Input& from,
                             const LoadOptions& options = default_load_options()) {
  return detail::open({&format}, from, options);
}

/// Reads every byte of a file of this format and checks everything that can be checked. Rows of the report name the
/// parts that no checksum covers, where damage is not detected (Report::What::unchecked). Errors: those of open() and
/// load.
STELE_EXPORT Result<Report> verify(const Format& format, const Input& from,
                                   const LoadOptions& options = default_load_options());

}  // namespace stele::inline v0
