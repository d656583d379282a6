// save(), open(), load() and load_into() for every format: chosen by the path's extension on save and by content on
// load. The list of formats is generated from recorders/*/format.cpp.
#pragma once

#include <initializer_list>
#include <span>

#include "stele/recorder.hpp"

namespace stele::inline v0 {

struct Checkpoint;  // stele/checkpoint.hpp

/// Returns the formats of this build, grouped by the projects that define them.
STELE_EXPORT std::span<const FormatFamily> format_families();
/// Returns every format of this build.
STELE_EXPORT std::span<const Format* const> formats();
/// Adds formats to those of this build: all functions of this header then use them like the library's. The formats and
/// the texts of the family must exist as long as the program; earlier spans stay valid, and lack them. Thread-safe.
/// Errors, after which nothing is added: exists (a name or an extension that another format has), invalid_argument (no
/// format, no name, an extension without its dot).
STELE_EXPORT Status register_formats(const FormatFamily& family);
/// Returns the format with that name ("stele", "safetensors"); nullptr if the name is unknown.
STELE_EXPORT const Format* find_format(std::string_view name);
/// Returns the format for the path's extension, in upper or lower case. Errors: unsupported (lists the known
/// extensions).
STELE_EXPORT Result<const Format*> format_of_path(std::string_view path);
/// Detects the format from the content. Errors: bad_magic (with the first bytes); unsupported for content that is
/// no model (a git-lfs pointer, a web page, an error message, an empty file), or is one of a kind that is known but not
/// read (scikit-learn's, fastText's); malformed if several formats match, or a file is damaged.
STELE_EXPORT Result<const Format*> format_of_content(const Source& source);

namespace detail {
STELE_EXPORT Result<Report> save_object(const Object& object, const Output& to, const SaveOptions& options);
}  // namespace detail

/// Saves a module (or a Record, or a Snapshot) in SaveOptions::format, or in the format of the path's extension, at
/// SaveOptions::precision. Errors: unsupported (an unknown extension, a read-only format), invalid_argument (a null
/// format; a Sink without a format), those of Recorder::save.
template <class M>
Result<Report> save(const M& module, const Output& to, const SaveOptions& options = default_save_options()) {
  return detail::save_object(detail::object_of(module), to, options);
}
/// Saves a whole checkpoint with the same rules. Errors: unsupported (a format that cannot store checkpoints), …
STELE_EXPORT Result<Report> save(const Checkpoint& checkpoint, const Output& to,
                                 const SaveOptions& options = default_save_options());

/// Opens a file of any format as a lazy Snapshot.
inline Result<Snapshot> open(const Input& from, const LoadOptions& options = default_load_options()) {
  return detail::open({nullptr, format_of_content}, from, options);
}

/// Opens a model, in any format, and applies deltas to it, in their order (stele/delta.hpp). LoadOptions::part is the
/// part of the result. Errors: those of open() and apply_delta().
STELE_EXPORT Result<Snapshot> open_with_deltas(const Input& base, std::initializer_list<Input> deltas,
                                               const LoadOptions& options = default_load_options());
STELE_EXPORT Result<Snapshot> open_with_deltas(const Input& base, std::span<const std::string> paths,
                                               const LoadOptions& options = default_load_options());

/// Changes a file to the version that results from deltas, without a second file of its size: writes the changes to a
/// journal next to it, PATH.stele-journal, and then into the file. Returns false if the file is that version already. A
/// process that is killed before the journal is complete leaves the old version; after that, it may leave a mixture;
/// the next call, with the same deltas or an empty list, completes the new version. Until then, every other call that
/// opens the file fails; a save to its path replaces the file and removes the journal. A journal of another file is
/// never applied. For files that store tensors as they are, without checksums (safetensors, GGUF), and have one name;
/// names, dtypes, shapes, values and metadata must be the same. Errors: not_representable (another format, other
/// changes, hard links), checksum (the file is not the base of the deltas, or not the file of the journal; the file is
/// then unchanged), malformed, io.
STELE_EXPORT Result<bool> apply_in_place(const std::string& path, std::span<const std::string> deltas,
                                         const LoadOptions& options = default_load_options());

/// Loads a new module from a file of any format; the caller need not initialise an M. A Record<M> is lazy.
template <class M>
Result<M> load(const Input& from, const LoadOptions& options = default_load_options()) {
  return detail::load_new<M>({nullptr, format_of_content}, from, options);
}

/// Loads into an existing module. On error, the module is unchanged unless Error::partially_applied().
template <class M>
Status load_into(M& module, const Input& from, const LoadOptions& options = default_load_options()) {
  detail::check_writable<M>();
  return detail::load_in_place({nullptr, format_of_content}, from, *detail::module_info<M>(), &module, options);
}

}  // namespace stele::inline v0
