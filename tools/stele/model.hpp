// The files that commands read and write: opening in any format, names, loops over tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <stele/checkpoint.hpp>
#include <stele/format.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/sink.hpp>
#include <stele/snapshot.hpp>

#include "facts/names.hpp"
#include "terminal.hpp"

namespace stele::command {

using facts::Named;
using facts::names_of;
using facts::segments;
using facts::with_numbers;

/// The choice of the part of a file to open.
struct Opening {
  std::string names{};  // names for a positional format: a text of layout_of(), a Paddle program, or a model
  std::string tag{};    // tag of an archive; empty: the newest
  std::string part{};   // a path in the file; empty: all
  std::string limit{};  // a size: the maximum of all tensors; empty: by the file's size
  // Of PyTorch's files: PytorchOptions.
  std::string optimizer{};
  std::string parameters{};  // a file of names
  std::vector<std::string> buffers{};
  bool ignore_checksums = false;
  // The dtypes of elements without a type, V1 and V2, in NumPy's files.
  std::string void1{};
  std::string void2{};
  bool parts = false;  // the parts of quantized weights, instead of these
  bool raw = false;    // codes that are not decoded are numbers
};

/// An open file.
struct Model {
  std::string path;
  std::shared_ptr<const Format> format;
  Snapshot snapshot;
};

/// Returns the path with this name in UTF-8. On Windows, the path's own constructor expects another encoding.
std::filesystem::path path_of(std::string_view name);
/// Returns the options for a PyTorch file. Errors: those of reading the names.
Result<PytorchOptions> pytorch_options(const Opening& opening);
/// Returns a format of NumPy with the dtypes of `opening`, another one as it is. Errors: invalid_argument.
Result<std::shared_ptr<const Format>> with_void_dtypes(std::shared_ptr<const Format> format, const Opening& opening);
/// Opens a file or folder; "-" is standard input, which is read once and kept. Errors: those of Input::open() and
/// spool().
Result<SourcePtr> open_input(const std::string& path, const LoadOptions& options = {});
/// Returns the input of an open model.
Input input_of(const std::string& path);
/// The message of the error (unsupported) for a file that has no format.
inline constexpr std::string_view not_a_model_text = "not a model file";
/// Returns the format of a file or folder, with the settings of `opening`. Errors: unsupported (not_a_model_text),
/// those of format_of_content() and of open_input().
Result<std::shared_ptr<const Format>> input_format(const std::string& path, const Opening& opening,
                                                   const LoadOptions& options);
/// Opens a file or folder of any format, and remembers its files: no output may replace them. Errors: unsupported
/// (not_a_model_text), those of format_of_content() and of opening.
Result<Model> open_model(const std::string& path, const Opening& opening = {}, unsigned threads = 0);
/// Returns a path for people: the query of a URL may have a signature.
std::string shown_path(const std::string& path);
/// Ends requests of URLs when the user interrupts the command, or `also` returns true.
void watch_interrupts(const std::function<bool()>& also = {});
/// Forgets them, for another command in this process.
void forget_models();
/// Remembers the files of a model that is opened otherwise. `format` may be null.
void note_input(const std::string& path, const Format* format, const Snapshot& snapshot);
/// Returns the load options for `opening`: the layout of its names. Errors: those of reading them.
Result<LoadOptions> load_options(const Opening& opening, unsigned threads);
/// Returns the format of `name`, or of the extension of `path` if `name` is empty. Errors: unsupported.
Result<std::shared_ptr<const Format>> target_format(const std::string& name, const std::string& path);

/// The parts of the opened models that an output would replace.
enum class Overlap : std::uint8_t {
  none,
  whole,  // the path of a model
  part,   // one of several files of a model, a file with names from an option, or a folder with other files
};
Overlap overlap_of(const std::string& out);
/// Returns the format that reads or writes a tag of an archive.
std::shared_ptr<const Format> archive_format(std::string tag, bool deflate = false);
/// Returns the tags of an archive, the newest last. Errors: unsupported (the command has no archives), those of
/// archive_tags().
Result<std::vector<std::string>> tags_of(const Input& archive);
/// Returns the path of the file that a save to `out` writes: with the format's extension, if it has none. Errors:
/// invalid_argument ("-").
Result<std::string> output_path(const Format& format, const std::string& out);
/// Checks a path to write before it is opened: every output of the command passes here. Errors: invalid_argument (it
/// would replace a file that was read, or is "-").
Status check_output(const std::string& out);
/// Returns true if something has this name. For outputs that the user did not name, which replace no file of the user.
Result<bool> is_taken(const std::string& out);
/// Checks a path and opens it. Errors: those of check_output() and file_sink().
Result<std::unique_ptr<Sink>> open_output(const std::string& out);

/// Returns the checkpoint of a file with parts that have no names in its snapshot: graph, training, optimizer. nullopt:
/// the file has no such parts, or they are not chosen. Errors: those of open_checkpoint().
Result<std::optional<Checkpoint>> checkpoint_of(const Model& model, const Opening& opening, unsigned threads);

/// Returns the names that match any of the patterns (stele/pattern.hpp); all without patterns.
Result<std::vector<Named>> names_of(const Snapshot& snapshot, const std::vector<std::string>& patterns);
/// Returns "did you mean X?", where X matches a tensor, for a name or pattern that matches none; "" if none is similar.
std::string similar_pattern(const Snapshot& snapshot, std::string_view pattern);
/// Returns an error (not_found) of a name or pattern, its path, with a similar one as its hint.
Error with_similar(Error error, const Snapshot& snapshot);
/// Returns a note for each pattern of an option that matches nothing.
Result<std::vector<std::string>> idle_patterns(const Snapshot& snapshot, const std::string& option,
                                               const std::vector<std::string>& patterns);

/// Calls work(i, context) for each i below `count`, from several threads, or from one in order if the leaves are to be
/// read in order. Returns the error with the smallest i.
Status for_each_leaf(const Snapshot& snapshot, std::size_t count, unsigned threads,
                     const std::function<Status(std::size_t, ReadContext&)>& work);

/// Returns for_each_leaf() with the terminal's number of threads, or one thread. `snapshot` must outlive it.
facts::Loop loop_over(const Snapshot& snapshot, const Terminal& terminal, bool one_thread = false);

/// Returns a size such as "512", "64k", "5G" or "1.5GiB" (powers of 1024; "GB" is 10^9). Errors: invalid_argument.
Result<std::uint64_t> parse_size(const std::string& text);

}  // namespace stele::command
