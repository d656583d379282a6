// Format: converts between a Snapshot and bytes. A format is compiled once and does not depend on user types.
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

class Bundle;            // stele/bundle.hpp
class CheckpointFormat;  // stele/checkpoint.hpp

/// The abilities of a format. A part of a record that it cannot store is an error on save, unless
/// SaveOptions::allow_loss is set.
struct Capabilities {
  bool nesting = false;      // containers; otherwise names are whole paths
  bool values = false;       // directly, or in the metadata string `stele`
  bool aliases = false;      // directly, or in the metadata; otherwise a tied tensor is written under each of its names
  bool ids = false;          // soft: a loss is only reported
  bool type_names = false;   // soft, and a loss is not reported
  bool annotations = false;  // a loss is only reported
  bool metadata = false;     // string -> string
  bool properties = false;   // typed; otherwise they are stored in the metadata
  bool composites = false;   // keeps the parts of quantized weights; otherwise the weights become f32
  bool checksums = false;    // detects damage to a tensor's bytes
  bool constants = false;    // files do not store numbers, enums and strings of plain aggregates (they are in code)
  std::uint32_t max_rank = 0xffff;
  bool (*holds)(DType dtype) = nullptr;
  // without `annotations`, selects the stored annotations; null: stores none
  bool (*keeps)(std::string_view annotation) = nullptr;
  /// Returns parts that a save of this snapshot leaves out without an error, for its Report; null: none.
  std::vector<std::string> (*leaves_out)(const Snapshot& snapshot) = nullptr;
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
  /// Returns the names of the file's tensors: from LoadOptions, else from the existing module, else from the type.
  /// Errors: needs_layout, which names the part that has no fixed layout.
  Result<Layout> layout() const;
  /// Returns the target of the load. Its type is null if unknown; its address is null if the object does not exist yet.
  const detail::Object& target() const noexcept { return target_; }

 private:
  const LoadOptions& options_;
  detail::Object target_;
};

/// A part of a snapshot that a format omits from a file.
struct Loss {
  std::uint32_t node = 0;  // 0: a loss that concerns the whole file
  std::string what{};
};

/// A way to write a Snapshot as bytes. Objects store only options; all members are thread-safe.
class STELE_EXPORT Format {
 public:
  virtual ~Format();
  /// Returns "stele", "safetensors", …
  virtual std::string_view name() const noexcept = 0;
  /// Returns the extension of files, with the dot. It is added to a path without an extension.
  virtual std::string_view extension() const noexcept = 0;
  virtual const Capabilities& capabilities() const noexcept = 0;
  /// Returns false if the library only reads this format; every save is then an error (unsupported).
  virtual bool writes() const noexcept { return true; }
  /// Returns true if a file of `size` bytes that starts with `head` (at most 1024 bytes) has this format. An empty file
  /// has it only if its name ends with an extension of the format, too.
  virtual bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept = 0;
  /// Returns true if a file has this format whose first bytes no format recognises, by what else is in it, such as the
  /// directory of a zip file. Errors: those of the machine; malformed for a damaged file that seems to have this
  /// format.
  virtual Result<bool> recognises_file(const Source& source) const;
  /// Returns true if files of this format are folders: write() then gets a sink, and open() a source, that has a
  /// bundle() and no bytes.
  virtual bool is_folder() const noexcept;
  /// Returns true if a save to `path` creates a folder: is_folder(), unless the path's extension decides otherwise.
  virtual bool makes_folder(std::string_view path) const noexcept;
  /// Returns true if open() accepts a folder (`folder`) or a file (not `folder`).
  virtual bool opens(bool folder) const noexcept { return folder == is_folder(); }
  /// Returns true if a folder is one model of this format, detected by format-specific files at its top level.
  virtual bool recognises_folder(const Bundle& folder) const;
  /// Checks that a folder is a complete model of this format and contains no other files, so that a save may replace
  /// the whole folder; its files are then lost. The default refuses every folder. Errors: exists.
  virtual Status may_replace(const Bundle& folder) const;
  /// Reads only headers and index; the leaves keep the source. The source's size bounds the memory (docs/faults.md),
  /// unless Limits::index_bytes is set.
  virtual Result<Snapshot> open(SourcePtr source, const OpenContext& context) const = 0;
  /// Reads every byte of a file and checks everything that can be checked. Adds a row Report::What::unchecked for each
  /// part of the file that no checksum covers; "contents" means the whole file. Errors: those of open() and of reading
  /// the leaves.
  virtual Result<Report> verify(SourcePtr source, const OpenContext& context) const;
  /// Returns the parts of this snapshot that write() omits from a file of that name, in addition to those implied by
  /// capabilities(). Each is an error on save, or with SaveOptions::allow_loss a row of the Report. Errors: those of
  /// write().
  virtual Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const;
  /// Writes everything except losses(), in one pass; does not commit the sink. The snapshot must fit capabilities();
  /// all options except `threads` have already been applied to it. The snapshot produces tensor bytes piece by piece.
  virtual Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const = 0;
  /// Returns this format if it stores whole checkpoints, else nullptr.
  virtual const CheckpointFormat* checkpoints() const noexcept { return nullptr; }
};

/// The formats of a project, listed by format.cpp in the project's folder of recorders/. Together with their Format,
/// this is all the information for stele::save and load, `stele formats` and the tables of the docs.
struct FormatFamily {
  struct Member {
    const Format* format = nullptr;
    std::array<std::string_view, 3> extensions{};  // a save to a path with this ending uses the format; "": none
    std::string_view weights{};  // extension of a second file with only weights, whose name begins like the model's
  };
  std::string_view title;      // "Paddle"
  std::string_view folder;     // in recorders/; the component is recorder_FOLDER, the page docs/formats/FOLDER.md
  std::string_view recorders;  // class names, separated by commas
  std::string_view header;     // in stele/
  std::string_view files;      // extensions and folders, in Markdown
  std::string_view holds;      // the stored data in addition to the names of tensors, in Markdown
  std::span<const Member> members{};
};

namespace detail {

/// Returns the Snapshot that a format will write to `file`: at the precision, with the options' metadata, and without
/// the parts that the format cannot store (they are in the report, or an error).
STELE_EXPORT Result<Snapshot> prepare(const Format& format, PrecisionSpec precision, const Object& object,
                                      std::string_view file, const SaveOptions& options, Report& report);

// The implementation of every recorder and of save() and load(). Compiled once, in src/recorder.cpp, so that a call
// adds almost nothing to the compile time of user code. On load, `sniff` detects a null format from the content.
STELE_EXPORT Result<Report> save_object(const Format& format, PrecisionSpec precision, const Object& object,
                                        const Output& to, const SaveOptions& options);
using Sniff = Result<const Format*> (*)(const Source& source);
/// The format of a load, or the function that detects it.
struct Reader {
  const Format* format = nullptr;
  Sniff sniff = nullptr;
};
/// Returns LoadOptions::part, if there is no target. `target`: the object that will be loaded with the same options; a
/// null address means that only its type is known.
STELE_EXPORT Result<Snapshot> open(Reader reader, const Input& from, const LoadOptions& options, Object target = {});
STELE_EXPORT Status load_in_place(Reader reader, const Input& from, const TypeInfo& type, void* object,
                                  const LoadOptions& options);
STELE_EXPORT Status load_fresh(Reader reader, const Input& from, const TypeInfo& type, void* object,
                               const LoadOptions& options);
/// Returns an error if the source is a folder and the format has files, or vice versa.
STELE_EXPORT Status check_kind(const Source& source, bool folders);
/// Returns `path`, with the extension added if it has none and does not exist.
STELE_EXPORT std::string with_extension(const std::string& path, std::string_view extension);

}  // namespace detail

/// Opens a file of this format as a lazy Snapshot. `format` must outlive it.
inline Result<Snapshot> open(const Format& format, const Input& from,
                             const LoadOptions& options = default_load_options()) {
  return detail::open({&format}, from, options);
}

/// Reads every byte of a file of this format and checks everything that can be checked. Rows of the report
/// (Report::What::unchecked) name the parts that no checksum covers, in which damage is not detected. Errors: those of
/// open() and load.
STELE_EXPORT Result<Report> verify(const Format& format, const Input& from,
                                   const LoadOptions& options = default_load_options());

}  // namespace stele::inline v0
