// The manifest and the files of a step: docs/formats/steps.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/files.hpp"
#include "stele/bundle.hpp"
#include "stele/checkpoints/policies.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::steps {

inline constexpr std::string_view manifest_name = "manifest.json";
/// Maximum size of a manifest (64 MiB), for reading and writing: bounds the memory for its values. This is enough for
/// the states of ten thousand processes with a std::mt19937 each.
inline constexpr std::uint64_t max_manifest = std::uint64_t{64} << 20;
/// Maximum number of steps that are deltas of each other: bounds the time and memory of opening one.
inline constexpr std::size_t max_deltas = 100;

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;  // XXH3-64 of the file's bytes
  std::string version{};   // in a store: the version of the object; else empty
};

struct Manifest {
  StepInfo info;
  FilePlace folder{};                                            // set only for a step that was read
  std::string checkpoint{};                                      // the single file of a CheckpointFormat; else empty
  std::string parameters{};                                      // file or folder with the parameters; else empty
  std::vector<std::pair<std::string, std::string>> optimizer{};  // key and file of each kind of state
  std::string training{};                                        // JSON of the training configuration; else empty
  std::vector<Value> ranks{};                                    // the state of each process, for several processes
  // in a store: the subfolder of the step's folder that has the files
  std::string objects{};
  std::vector<ManifestFile> files{};  // all files except the manifest, sorted by name
};

/// Returns the manifest's entry for a file: its size and checksum.
Result<ManifestFile> hash_file(const Bundle& folder, const std::string& name);
/// Returns the manifest's bytes, which end with a checksum of the preceding bytes. Errors: limit, duplicate (in the
/// Values of the state).
Result<std::string> to_text(const Manifest& manifest);
/// Parses a manifest. Sets everything but StepInfo::folder. Errors: checksum, malformed, unsupported (a later version).
Result<Manifest> parse_manifest(std::string_view text);

/// Returns true for a file that begins like the manifest of a step.
bool is_manifest(const Source& source);

/// Returns the folder's name for a step: "step-00000100".
std::string folder_name(std::int64_t step);
/// Returns the step for a folder name, or nullopt if no step has this name.
std::optional<std::int64_t> step_of(std::string_view folder_name);

/// Returns true for errors of the machine (too many open files, no memory, a disk that does not respond), after which
/// the step may be intact. Returns false for errors in the step.
inline bool is_of_machine(const Error& error) {
  return error.code() == Errc::io || error.code() == Errc::out_of_memory;
}

/// Opens the folder of a step, which must not be a link. Its files are looked up relative to this folder: a link that
/// leads out of it is an error. Errors: not_found, io.
Result<FilePlace> open_folder(const std::string& path);
/// Reads a manifest. Errors: limit, malformed (a manifest of another step), io, and those of parse_manifest().
Result<Manifest> read_manifest_of(const Source& source, std::int64_t step);
/// Reads the manifest of a step's folder. Errors: not_found, limit, io, and those of parse_manifest().
Result<Manifest> read_manifest(const FilePlace& folder, std::int64_t step);
/// Lists the files of a step, except the manifest, with their checksums.
Result<std::vector<ManifestFile>> list_files(const Bundle& folder);
/// Errors: truncated.
Status check_size(const ManifestFile& file, std::uint64_t bytes, const std::string& path);
/// Reads a file and compares its checksum. `name`: its name in the bundle; `path`: for messages. Errors: checksum, io.
Status check_contents(const Bundle& bundle, const std::string& name, const ManifestFile& file, const std::string& path);
/// Checks that the step has the files of the manifest with their sizes, and, if `contents` is true, with their
/// checksums. Errors: not_found, truncated, checksum, malformed (not a regular file), io.
Status check_files(const FilePlace& folder, const Manifest& manifest, bool contents);

/// Checks that a step's folder contains only its manifest and the files that the manifest lists. Errors: exists, and
/// those of parse_manifest().
Status check_nothing_else(const Bundle& folder);

}  // namespace stele::inline v0::detail::steps
