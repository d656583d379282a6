// The subcommands: one function each, in a file of its name, with the options that arguments.cpp reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <stele/deltas/updates.hpp>

#include "graphs.hpp"
#include "model.hpp"
#include "terminal.hpp"

namespace stele::command {

struct Inspect {
  std::vector<std::string> files;  // the last one is a pattern, unless it names a file or `only` is given
  std::string only{};              // a pattern
  Opening opening{};
  bool tree = false;
  bool stats = false;
  std::size_t largest = 0;
  bool verbose = false;
  std::string print{};  // NAME or NAME[slice]
  std::uint64_t max_print = 1000;
};
Result<int> inspect(const Inspect& options, Terminal& terminal);

struct Convert {
  std::string in, out;
  Opening opening{};
  std::string to{};  // a format's name; empty: by the extension of `out`
  std::string precision{};
  std::string quantize{};  // a number of bits, or a scheme
  std::vector<std::string> only{}, except{}, rename{}, transpose{};
  std::string adapt{};
  bool weights = false;     // writes only tensors, without the graph
  bool checkpoint = false;  // model and optimizer as such, not as names
  bool compress = false;
  std::string shard{};  // a size
  std::string to_tag{};
  bool append = false;
  bool allow_loss = false;
  bool allow_overflow = false;
  bool dry_run = false;
  bool no_clobber = false;
};
Result<int> convert(const Convert& options, Terminal& terminal);

/// Converts layers to PyTorch's names and axes: the layers of a Keras model with its configuration, or Linear and the
/// normalization layers of a file that stores class names. Errors: those of keras::to_pytorch and pytorch::restore.
Result<Snapshot> adapted(const Snapshot& snapshot);
/// A file to write and how.
struct Destination {
  std::shared_ptr<const Format> format;
  std::string path;
};
/// Returns true if the output is a folder of the hub: asked for by name, or its name has no format's extension and the
/// input is such a folder.
bool is_hub(const std::string& to, const std::string& out, const Format* like);
/// Returns the format of an output that is_hub() does not take. Errors: unsupported.
Result<std::shared_ptr<const Format>> format_to_write(const std::string& to, const std::string& out,
                                                      const Format* like);
/// Returns the target of a conversion's options: format, compression, shards, tag. `like`: the format that was read; a
/// folder without an extension is written in this format if it is the hub's. Errors: unsupported, invalid_argument.
Result<Destination> destination(const Convert& options, const Format* like = nullptr);

/// Adds the tag of `options` to the archive at the destination. Errors: invalid_argument (no archive, no tag),
/// not_representable (quantized tensors).
Result<Report> append_tag(Checkpoint content, const Destination& to, const Convert& options,
                          const PrecisionSpec& precision, const SaveOptions& save_options);

struct Import {
  std::string in, out;
  GraphChoice choice{};
  std::string to{};
  std::int64_t opset = 17;  // for an ONNX model
  bool allow_loss = false;
  bool dry_run = false;
  bool no_clobber = false;
};
Result<int> import_model(const Import& options, Terminal& terminal);

struct Verify {
  std::vector<std::string> files;
  Opening opening{};
};
Result<int> verify(const Verify& options, Terminal& terminal);

struct Repair {
  std::string in, out;
  Opening opening{};
  bool allow_loss = false;
};
Result<int> repair(const Repair& options, Terminal& terminal);

struct Hash {
  std::vector<std::string> files;
  Opening opening{};
  std::string algorithm = "xxh3";
  bool total_only = false;
};
Result<int> hash(const Hash& options, Terminal& terminal);

struct Diff {
  std::string a, b;
  Opening opening_a{}, opening_b{};
  double atol = 0, rtol = 0;
  bool ignore_dtype = false;
  bool tensors = false;  // without ties, values and metadata
  std::vector<std::string> only{};
  std::size_t largest = 20;
};
Result<int> diff(const Diff& options, Terminal& terminal);

/// The file that a command about deltas writes.
struct DeltaOutput {
  std::string path;
  std::string format{};
  bool allow_loss = false;
};

struct Delta {
  std::string base, next;
  Opening opening_base{}, opening_next{};
  DeltaOutput output{};
  UpdateOptions update{};  // for the format "update"
};
Result<int> delta(const Delta& options, Terminal& terminal);

struct Apply {
  std::string base;
  std::vector<std::string> deltas;
  Opening opening{};  // options for opening the base
  DeltaOutput output{};
  bool in_place = false;  // without an output
};
Result<int> apply(const Apply& options, Terminal& terminal);

struct Compact {
  std::vector<std::string> files;
  DeltaOutput output{};
};
Result<int> compact(const Compact& options, Terminal& terminal);

struct Merge {
  std::vector<std::string> files;
  std::string out;
  std::string to{};
  bool overlay = false;
  bool allow_loss = false;
};
Result<int> merge(const Merge& options, Terminal& terminal);

struct Lora {
  std::string action;  // merge, unmerge
  std::string model, adapter, out;
  std::string to{}, precision{};
  Opening opening{};                            // options for opening the model
  std::vector<std::string> conv1d{}, linear{};  // patterns
  bool allow_loss = false;
};
Result<int> lora(const Lora& options, Terminal& terminal);

struct Split {
  std::string in, out;
  Opening opening{};
  std::string size{};      // maximum size of each file
  std::size_t levels = 1;  // patterns of names, without a size
  bool allow_loss = false;
};
Result<int> split(const Split& options, Terminal& terminal);

struct Extract {
  std::string file, name, out;
  Opening opening{};
  std::string precision{};
  bool allow_overflow = false;
};
Result<int> extract(const Extract& options, Terminal& terminal);

struct Formats {};
Result<int> formats(const Formats& options, Terminal& terminal);

struct Tags {
  std::string file;
  std::string remove{};
};
Result<int> tags(const Tags& options, Terminal& terminal);

struct ReportPage {
  std::string a, b{}, out{};  // `b` that ends in .html is `out`; empty: report.html
  Opening opening{};
  std::string title{};
  bool tensors = false;  // compares tensors alone
};
Result<int> report(const ReportPage& options, Terminal& terminal);

struct Embed {
  std::string file, out = "model.hpp";
  Opening opening{};
  std::string name = "model";
  std::string precision{};
  std::vector<std::string> only{}, except{};
  bool allow_overflow = false;
  bool object = false;  // an assembler file with .incbin, and a header that declares it
};
Result<int> embed(const Embed& options, Terminal& terminal);

/// Returns the words of --precision and --quantize.
std::vector<std::string> precision_names();
std::vector<std::string> scheme_names();
/// Returns true for a name in the style of llama.cpp's mixtures, which begin with a capital letter: Q4_K_M.
bool names_mixture(const std::string& precision) noexcept;

/// Returns the precision of a name: native, f64, f32, f16, bf16, or a block dtype. Errors: invalid_argument.
Result<PrecisionSpec> parse_precision(const std::string& name);
/// Returns the tensors at a precision that parse_precision() reads, including blocks; `report` gets their rows.
Result<Snapshot> at_precision(const Snapshot& snapshot, const std::string& name, const ConvertRules& rules,
                              Report& report);
/// Applies `precision` and `quantize` of `options` to the parameters; sets `spec` to the part that the save applies.
/// Adds rows for weights that are not quantized.
Result<Snapshot> quantized(const Snapshot& parameters, const Convert& options, const Format& target,
                           PrecisionSpec& spec, Report& rows);

/// Applies `precision` of `options` to a model that llama_cpp::from_hub() made, whose vectors and norms stay f32.
/// Adds rows for matrices that keep f32. Errors: invalid_argument (a precision that llama.cpp does not have), those of
/// quantize_gguf().
Result<Snapshot> quantized_for_llama_cpp(const Snapshot& model, const Convert& options, Report& rows);

/// Writes a snapshot to a file of any format and reports losses. Sets `path` to the path of the file.
struct Target {
  std::string path;
  std::string to{};
  PrecisionSpec precision{};
  SaveOptions save{};
  Report losses{};               // rows for parts of the file that the snapshot already lacks
  const Format* like = nullptr;  // the format that was read
};
/// Returns the tags of an archive that are not read.
Result<std::vector<std::string>> other_tags(const Model& model, const Opening& opening);
/// Returns a row for each further tag, unless the user chose the tag.
Result<Report> losses_of_tags(const Model& model, const Opening& opening);
/// Returns a row for each part of a checkpoint that is in no name of its snapshot: graph, training, optimizer.
Report losses_of(const Checkpoint& checkpoint);
/// Returns the rows of tags. The rows of a checkpoint are in the report of a save; without `allow_loss`, they are an
/// error (not_representable) here.
Result<Report> losses_of(const Model& model, const Opening& opening, bool allow_loss, unsigned threads);
/// Errors: not_representable, with the first row.
Status check_losses(bool allow_loss, const Report& losses);
void add_rows(Report& to, const Report& from);
Result<Report> save_to(Target& target, const Snapshot& snapshot, Terminal& terminal);
/// Also prints the result: a document of the schema, or rows and a note. Returns the exit status.
Result<int> write_joined(Target& target, const Snapshot& snapshot, const char* schema, Terminal& terminal);

}  // namespace stele::command
