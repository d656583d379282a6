// The archive: one zip file with several tagged versions of a model, each with its parameters and, if present, its
// graph, training configuration and optimizer state. The format is DL4J's ADR-0001 "SameDiff file format", which so far
// no other program writes.
//
// 1. TAG/params/N.fb: an array: a FlatBuffers table (dl4j/samediff.fbs) that ends with the array's bytes, 64-byte
// aligned in the file, little-endian; bytes of 2 GiB and more are in TAG/params/N.bin
// 2. TAG/updater/N.fb: the arrays of the optimizer's state, in the format of params/N.fb
// 3. TAG/params.txt: a line for each parameter: name, blank, N or OTHERTAG/N; white space, control characters and % in
// names are %XX, an empty name is %
// 4. TAG/updater.txt: a line for each parameter, with a number for each of its state arrays; names as in params.txt
// 5. TAG/metadata.json: an object of strings; the key "stele" contains the data that names cannot express
// (docs/formats/flat.md)
// 6. TAG/trainingConfig.fb and TAG/graph.fb: FlatBuffers (dl4j/archive.fbs)
// 7. tags.txt: a line for each tag, the newest last
// Other entries are kept. docs/formats/archive.md specifies every byte.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct ArchiveOptions {
  /// On load, the tag to open; if empty, the newest, and saving the result adds a row for the other tags. On save, the
  /// tag to write; if empty, "main". A tag has 1 to 128 characters of A-Z a-z 0-9 . _ -. It must not consist of
  /// digits only, end in a dot, or be tags.txt or a name that Windows reserves. Upper and lower case are equivalent.
  std::string tag{};
  /// Refers to arrays that the file already contains instead of writing them again (found by CRC-32, then compared byte
  /// by byte).
  bool deduplicate = false;
  /// Deflates graphs and strings. Arrays are never deflated, so that they can be mapped.
  bool deflate = false;
};

class STELE_EXPORT ArchiveFormat final : public CheckpointFormat {
 public:
  ArchiveFormat() = default;
  explicit ArchiveFormat(ArchiveOptions options) : options_(std::move(options)) {}
  const ArchiveOptions& options() const noexcept { return options_; }

  std::string_view name() const noexcept override { return "archive"; }
  std::string_view extension() const noexcept override { return ".zip"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<bool> recognises_file(const Source& source) const override;
  /// Opens the parameters of a tag. Errors: not_found (the tag does not exist), malformed, duplicate, checksum,
  /// unsupported, limit, ….
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Checks all tags, independent of the options, with their graphs, training configurations and optimizer states, and
  /// the entries that no tag refers to.
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Result<Checkpoint> open_checkpoint(SourcePtr source, const OpenContext& context) const override;
  Status write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const override;

 private:
  ArchiveOptions options_;
};

/// Returns the tags of an archive, the newest last.
STELE_EXPORT Result<std::vector<std::string>> archive_tags(const Input& from);
/// Opens all parts of a tag; of the newest if `tag` is empty. All arrays are lazy.
STELE_EXPORT Result<Checkpoint> open_archive(const Input& from, std::string_view tag = {},
                                             const LoadOptions& options = default_load_options());
/// Removes a tag from an archive. Arrays that other tags refer to move to the first of these tags; nothing is decoded,
/// and the file is replaced in one step. Errors: not_found; invalid_argument (the only tag, because an archive needs
/// one).
STELE_EXPORT Status remove_archive_tag(const std::string& path, std::string_view tag,
                                       const SaveOptions& options = default_save_options());

/// How a tag is put into an existing archive.
enum class ArchiveEdit : std::uint8_t {
  append,   // adds a new tag, the newest; an error (exists) if the tag exists
  replace,  // replaces an existing tag (else not_found), which keeps its position among the tags
  touch,    // replaces an existing tag (else not_found), which becomes the newest
};

namespace detail {
STELE_EXPORT Result<Report> edit_archive(const ArchiveFormat& format, PrecisionSpec precision,
                                         const Checkpoint& checkpoint, const std::string& path, std::string_view tag,
                                         ArchiveEdit edit, const SaveOptions& options);
}  // namespace detail

/// Saves and loads archives; a recorder saves the tag of its options. The precision applies to parameters; optimizer
/// state is unchanged.
template <PrecisionSettings Settings = NativePrecision>
class ArchiveRecorder : public CheckpointRecorder<ArchiveFormat, Settings> {
  using Base = CheckpointRecorder<ArchiveFormat, Settings>;

 public:
  using Base::Base;
  /// Puts a tag into an existing archive. The other content is moved without decoding it, and the file is replaced in
  /// one step. Waits for other edits of the file; the progress callback can cancel the wait too. Arrays that were
  /// opened lazily from this file are not written again but referred to.
  Result<Report> edit(const Checkpoint& checkpoint, const std::string& path, std::string_view tag,
                      ArchiveEdit edit = ArchiveEdit::append,
                      const SaveOptions& options = default_save_options()) const {
    return detail::edit_archive(Base::format(), precision_spec<Settings>(), checkpoint, path, tag, edit, options);
  }
  /// Puts a tag with only a module's parameters into an existing archive, like edit().
  template <class M>
  Result<Report> append(const M& module, const std::string& path, std::string_view tag,
                        const SaveOptions& options = default_save_options()) const {
    STELE_TRY_ASSIGN(Snapshot parameters, snapshot_of(module));
    return edit(Checkpoint{std::move(parameters)}, path, tag, ArchiveEdit::append, options);
  }
};

}  // namespace stele::inline v0
