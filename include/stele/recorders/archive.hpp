// The archive: one zip file with several tagged versions of a model, each with its parameters and, where there are, its
// graph, training configuration and optimizer state. DL4J's ADR-0001 "SameDiff file format", which no other program
// writes yet.
//
// 1. TAG/params/N.fb: an array: FlatBuffers table (dl4j/samediff.fbs), its bytes last, in the file 64-byte
//    aligned, little-endian; of 2 GiB and more in TAG/params/N.bin beside it
// 2. TAG/updater/N.fb: arrays of the optimizer's state, likewise
// 3. TAG/params.txt: a line for each parameter: name, blank, N or OTHERTAG/N; white space, control characters and % in
//    names as %XX, an empty name as %
// 4. TAG/updater.txt: likewise, with a number for each state array of the parameter
// 5. TAG/metadata.json: an object of texts; under the key "stele" what names cannot say (docs/formats/flat.md)
// 6. TAG/trainingConfig.fb and TAG/graph.fb: FlatBuffers (dl4j/archive.fbs)
// 7. tags.txt: a line for each tag, the newest last
// Entries of other kinds are kept. Byte by byte: docs/formats/archive.md.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/checkpoint.hpp"
#include "stele/recorder.hpp"

namespace stele {
inline namespace v0 {

struct ArchiveOptions {
  /// What is opened; without one the newest. What record() writes; without one "main". 1 to 128 of A-Z a-z 0-9 . _ -,
  /// not digits alone, no dot at the end, no name that Windows keeps for itself, not tags.txt. Upper and lower case are
  /// the same.
  std::string tag{};
  /// Arrays that the file has already are not written again but referred to (found by CRC-32, compared byte by byte).
  bool deduplicate = false;
  /// Graphs and texts are deflated. Arrays never: they can be mapped.
  bool deflate = false;
};

class STELE_EXPORT ArchiveFormat final : public Format {
 public:
  ArchiveFormat() = default;
  explicit ArchiveFormat(ArchiveOptions options) : options_(std::move(options)) {}
  const ArchiveOptions& options() const noexcept { return options_; }

  std::string_view name() const noexcept override { return "archive"; }
  std::string_view extension() const noexcept override { return ".zip"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  /// The parameters of a tag. Errors: not_found (no such tag), malformed, duplicate, checksum, unsupported, limit, ….
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// All tags, whatever the options say, with graph, training configuration and optimizer state; and entries that no
  /// tag refers to.
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  ArchiveOptions options_;
};

/// The tags of an archive, the newest last.
STELE_EXPORT Result<std::vector<std::string>> archive_tags(const Input& from);
/// Everything of a tag: the newest where it is empty. All arrays stay lazy.
STELE_EXPORT Result<Checkpoint> open_archive(const Input& from, std::string_view tag = {},
                                             const LoadOptions& options = default_load_options());
/// Takes a tag out of an archive. Arrays that other tags refer to stay, in the first of these; nothing is decoded, and
/// the file is replaced in one step. Errors: not_found; invalid_argument (the last tag; a file without any is none).
STELE_EXPORT Status remove_archive_tag(const std::string& path, std::string_view tag,
                                       const SaveOptions& options = default_save_options());

/// How a tag is put into an archive that is there.
enum class ArchiveEdit : std::uint8_t {
  append,   // a new tag, the newest; an error (exists) where it is there
  replace,  // a tag that is there (else not_found); it keeps its place among the tags
  touch,    // the same, and it becomes the newest
};

namespace detail {
STELE_EXPORT Result<Report> record_archive(const ArchiveFormat& format, PrecisionSpec precision,
                                           const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options);
STELE_EXPORT Result<Report> record_archive(const ArchiveFormat& format, PrecisionSpec precision,
                                           const Checkpoint& checkpoint, const std::string& path,
                                           const SaveOptions& options);
STELE_EXPORT Result<Report> edit_archive(const ArchiveFormat& format, PrecisionSpec precision,
                                         const Checkpoint& checkpoint, const std::string& path, std::string_view tag,
                                         ArchiveEdit edit, const SaveOptions& options);
}  // namespace detail

/// Archives, and everything else a recorder does with the one tag of its options. The precision is that of parameters;
/// optimizer state stays as it is.
template <PrecisionSettings Settings = NativePrecision>
class ArchiveRecorder : public Recorder<ArchiveFormat, Settings> {
  using Base = Recorder<ArchiveFormat, Settings>;

 public:
  using Base::Base;
  using Base::record;
  /// A new archive with one tag.
  Result<Report> record(const Checkpoint& checkpoint, const std::string& path,
                        const SaveOptions& options = default_save_options()) const {
    return detail::record_archive(Base::format(), precision_spec<Settings>(), checkpoint, path, options);
  }
  Result<Report> record(const Checkpoint& checkpoint, Sink& sink,
                        const SaveOptions& options = default_save_options()) const {
    return detail::record_archive(Base::format(), precision_spec<Settings>(), checkpoint, sink, options);
  }
  /// Puts a tag into an archive that is there. What it has is moved, not decoded; the file is replaced in one step.
  /// Arrays that were opened lazily from this very file are not written again but referred to.
  Result<Report> edit(const Checkpoint& checkpoint, const std::string& path, std::string_view tag,
                      ArchiveEdit edit = ArchiveEdit::append,
                      const SaveOptions& options = default_save_options()) const {
    return detail::edit_archive(Base::format(), precision_spec<Settings>(), checkpoint, path, tag, edit, options);
  }
  /// edit() of a module alone.
  template <class M>
  Result<Report> append(const M& module, const std::string& path, std::string_view tag,
                        const SaveOptions& options = default_save_options()) const {
    STELE_TRY_ASSIGN(Snapshot parameters, snapshot_of(module));
    return edit(Checkpoint{std::move(parameters)}, path, tag, ArchiveEdit::append, options);
  }
  /// Everything of the tag that the options name.
  Result<Checkpoint> open_checkpoint(const Input& from, const LoadOptions& options = default_load_options()) const {
    return open_archive(from, Base::format().options().tag, options);
  }
};

}  // namespace v0
}  // namespace stele
