#include "arguments.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <stele/config.hpp>

#include "manual.hpp"

namespace stele::command {

namespace {

/// One subcommand: its options live as long as the App that writes to them.
template <class Options>
struct Sub {
  CLI::App* app;
  std::shared_ptr<Options> options;
};

/// Leaves words that the help does not list out of its line of usage.
class Help final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = Formatter::make_usage(app, std::move(name));
    for (const CLI::Option* option : app->get_options()) {
      const std::string word = " " + make_option_usage(option);
      const std::size_t at = option->get_group().empty() && option->get_positional() ? text.rfind(word) : text.npos;
      if (at != text.npos) text.erase(at, word.size());
    }
    return text;
  }
};

constexpr const char* loss_text = "Drop and list what the target cannot hold, instead of failing";
constexpr const char* tag_text = "The tag to open in an archive (default: the newest)";

class Commands {
 public:
  Commands(CLI::App& app, Arguments& arguments) : app_(app), arguments_(arguments) {}
  void add_all();

 private:
  template <class Options>
  Sub<Options> add(const char* name, const char* text, Result<int> (*run)(const Options&, Terminal&),
                   const char* examples) {
    auto options = std::make_shared<Options>();
    CLI::App* const sub = app_.add_subcommand(name, text);
    sub->footer("Examples:\n" + std::string(examples));
    sub->callback([&arguments = arguments_, options, run] {
      arguments.command = [options, run](Terminal& terminal) { return run(*options, terminal); };
    });
    common(*sub);
    return {sub, std::move(options)};
  }
  void common(CLI::App& sub) {
    Common& to = arguments_.common;
    sub.add_flag("--json", to.json, "Print one JSON document");
    sub.add_flag("-q,--quiet", to.quiet, "Print no notes and no progress");
    sub.add_option("--color", to.colour, "auto (the default), always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    sub.add_option("-j,--threads", to.threads, "Maximum number of threads; 0: all")->check(CLI::Range(0, 1024));
    sub.add_option("--plugin", to.plugins, "Load formats from this shared library, whose code then runs")
        ->allow_extra_args(false);
  }
  /// Adds an output in both places: the last word, and -o. The help lists the first one.
  static void output(CLI::App& sub, std::string& to, const char* listed, const char* hidden, const char* text) {
    CLI::Option* const shown = sub.add_option(listed, to, text);
    CLI::Option* const other = sub.add_option(hidden, to, text)->group("");
    other->each([shown, other](const std::string&) {
      if (shown->count() != 0) throw CLI::ExcludesError(shown->get_name(), other->get_name());
      shown->required(false);
    });
  }
  static void last_word(CLI::App& sub, std::string& to, const char* text) {
    output(sub, to, "out", "-o,--out", text);
    sub.get_option("out")->required();
  }
  static void after_o(CLI::App& sub, std::string& to, const char* text) { output(sub, to, "-o,--out", "out", text); }
  static void opening(CLI::App& sub, Opening& to) {
    opening_whole(sub, to);
    sub.add_option("--part", to.part, "Open only the part below this path");
    sub.add_flag("--raw", to.raw,
                 "Take codes and scales of quantized weights that are not decoded for numbers; write the tensors "
                 "of a language model to GGUF as they are");
  }
  /// The options of opening() without a part, for subcommands that read the whole file.
  static void opening_whole(CLI::App& sub, Opening& to) {
    sub.add_option("--names", to.names,
                   "Names for a file without names: a layout (.txt), a Paddle program, or a model");
    sub.add_option("--tag", to.tag, tag_text);
    sub.add_flag("--ignore-checksums", to.ignore_checksums, "Do not compare the checksums of a PyTorch file");
    sub.add_option("--void1", to.void1,
                   "The dtype of NumPy's elements of 1 byte without a type, for example f8_e4m3fn");
    sub.add_option("--void2", to.void2, "The dtype of NumPy's elements of 2 bytes without a type: bf16");
    sub.add_option("--limit", to.limit,
                   "Allow tensors of up to this size together, for example 5G, if they share elements");
  }
  static void parts_of_checkpoints(CLI::App& sub, Opening& to) {
    sub.add_option("--optimizer", to.optimizer, "The path of the optimizer in a PyTorch checkpoint that has several");
    sub.add_option("--parameters", to.parameters,
                   "The names in the order of Python's parameters(): a text with one a line, or a model");
    sub.add_option("--buffers", to.buffers,
                   "Tensors of a PyTorch checkpoint that are no parameters (*running_mean, *running_var, "
                   "*num_batches_tracked)");
  }
  static void delta_output(CLI::App& sub, DeltaOutput& to, const char* text) {
    sub.add_option("-o,--out", to.path, text)->required();
    sub.add_option("--to", to.format, "The name of the format, if the extension is another");
    sub.add_flag("--allow-loss", to.allow_loss, loss_text);
  }
  void add_looking();
  void add_checking();
  void add_writing();
  void add_pages();

  CLI::App& app_;
  Arguments& arguments_;
};

constexpr const char* tensors_text = "Compare tensors alone: no ties, plain values or metadata";
constexpr const char* overflow_text = "Numbers beyond the range become infinite, and are counted";

void Commands::add_looking() {
  const auto inspect_ = add<Inspect>("inspect", "List the tensors, metadata and format of a file", inspect,
                                     "  stele inspect model.safetensors\n"
                                     "  stele inspect model.pt 'encoder.*' --tree\n"
                                     "  stele inspect model.stele --largest 5 --stats\n"
                                     "  stele inspect model.onnx --print 'fc.weight[0:2, :]'");
  inspect_.app
      ->add_option("file", inspect_.options->files,
                   "Files or folders of any format; then, if the last word names no file, a pattern as of --only")
      ->required();
  inspect_.app->add_option("--only", inspect_.options->only, "Show only tensors that match, as 'encoder.*'");
  inspect_.app->add_flag("--tree", inspect_.options->tree, "Show modules, with totals");
  inspect_.app->add_flag("--parts", inspect_.options->opening.parts,
                         "Show the parts of quantized weights, not the weights");
  inspect_.app->add_flag("--stats", inspect_.options->stats,
                         "Read the tensors: min, max, mean, std, norm, zeros, NaN, inf");
  inspect_.app->add_option("--largest", inspect_.options->largest, "Show only the N largest tensors, largest first");
  inspect_.app->add_option("--print", inspect_.options->print, "Print the elements of NAME, or of NAME[0:2, :, -1]");
  inspect_.app->add_option("--max-print", inspect_.options->max_print, "Maximum number of printed elements (1000)");
  inspect_.app->add_flag("-v,--verbose", inspect_.options->verbose, "Print metadata in full");
  opening(*inspect_.app, inspect_.options->opening);
  parts_of_checkpoints(*inspect_.app, inspect_.options->opening);

  add<Formats>("formats", "List the formats, and what their files hold", formats, "  stele formats\n");

  const auto tags_ = add<Tags>("tags", "List or remove the tags of an archive", tags,
                               "  stele tags run.zip\n"
                               "  stele tags run.zip --remove epoch-1");
  tags_.app->add_option("file", tags_.options->file, "An archive")->required();
  tags_.app->add_option("--remove", tags_.options->remove, "Remove this tag; arrays that other tags use stay");
}

void Commands::add_checking() {
  const auto verify_ = add<Verify>("verify", "Check the structure and every checksum", verify,
                                   "  stele verify model.stele\n"
                                   "  stele verify checkpoints/*.pt --quiet");
  verify_.app->add_option("file", verify_.options->files, "Files or folders of any format")->required();
  opening_whole(*verify_.app, verify_.options->opening);

  const auto hash_ = add<Hash>("hash", "Print a digest of each tensor and of all, independent of the format", hash,
                               "  stele hash model.safetensors model.stele --total\n"
                               "  stele hash model.pt --algorithm sha256");
  hash_.app->add_option("file", hash_.options->files, "Files or folders of any format")->required();
  hash_.app->add_option("-a,--algorithm", hash_.options->algorithm, "xxh3 (the default), xxh64, sha1 or sha256")
      ->check(CLI::IsMember({"xxh3", "xxh64", "sha1", "sha256"}));
  hash_.app->add_flag("--total", hash_.options->total_only, "Print one line for each file");
  opening(*hash_.app, hash_.options->opening);

  const auto diff_ = add<Diff>("diff", "Compare two files: tensors, values, metadata, ties", diff,
                               "  stele diff a.safetensors b.pt\n"
                               "  stele diff f32.stele f16.stele --ignore-dtype --rtol 1e-3");
  diff_.app->add_option("a", diff_.options->a, "A file or folder of any format")->required();
  diff_.app->add_option("b", diff_.options->b, "The file to compare it with")->required();
  diff_.app->add_option("--atol", diff_.options->atol, "Allowed |a - b|")->check(CLI::NonNegativeNumber);
  diff_.app->add_option("--rtol", diff_.options->rtol, "Allowed |a - b| relative to |b|")
      ->check(CLI::NonNegativeNumber);
  diff_.app->add_flag("--ignore-dtype", diff_.options->ignore_dtype, "Another dtype is no difference");
  diff_.app->add_flag("--tensors", diff_.options->tensors, tensors_text);
  diff_.app->add_option("--only", diff_.options->only, "Compare only tensors and values that match a pattern");
  diff_.app->add_option("--largest", diff_.options->largest,
                        "Show at most N differences, the largest first; 0: all (20)");
  diff_.app->add_option("--names-a", diff_.options->opening_a.names, "Names for A, if it has none");
  diff_.app->add_option("--names-b", diff_.options->opening_b.names, "Names for B, if it has none");
  diff_.app->add_option("--tag-a", diff_.options->opening_a.tag, "The tag of archive A");
  diff_.app->add_option("--tag-b", diff_.options->opening_b.tag, "The tag of archive B");
  diff_.app->add_option("--part-a", diff_.options->opening_a.part, "Compare the part of A below this path");
  diff_.app->add_option("--part-b", diff_.options->opening_b.part, "Compare the part of B below this path");
}

void Commands::add_writing() {
  const auto convert_ =
      add<Convert>("convert", "Write a file in another format, precision or with other names", convert,
                   "  stele convert model.pt model.safetensors\n"
                   "  stele convert model.safetensors model.stele --precision f16 --compress\n"
                   "  stele convert model.pt out.safetensors --rename '^module\\.='\n"
                   "  stele convert big.pt big.safetensors.index.json --shard 5GB\n"
                   "  stele convert hf://owner/name s3://bucket/name.gguf --precision Q8_0");
  Convert& c = *convert_.options;
  convert_.app->add_option("in", c.in, "A file or folder of any format")->required();
  last_word(*convert_.app, c.out, "The file or folder to write; the extension is its format");
  convert_.app->add_option("--to", c.to, "The name of the format, if the extension is another");
  convert_.app->add_option("--precision", c.precision,
                           "Store floats as f64, f32, f16 or bf16, or matrices as blocks: q8_0, q4_K, "
                           "..., or mixed like llama.cpp: Q4_K_M, ...");
  convert_.app->add_option(
      "--quantize", c.quantize,
      "Store weights as checkpoints of the hub do: fp8, int4, int8, nvfp4, mxfp4, mxfp8, gptq, awq "
      "or nf4 (int4:64 has groups of 64); or all floats as integers of 2 to 8 bits");
  convert_.app->add_option("--only", c.only, "Keep only tensors that match a pattern");
  convert_.app->add_option("--except", c.except, "Drop tensors that match a pattern");
  convert_.app->add_option("--rename", c.rename, "REGEX=TEXT: replace each match in a name; \\1 is a group");
  convert_.app->add_option("--transpose", c.transpose, "Reverse the axes of tensors that match a pattern");
  convert_.app
      ->add_option("--adapt", c.adapt,
                   "pytorch: PyTorch's names and axes for Linear and norm layers, or for the layers of a Keras model")
      ->check(CLI::IsMember({"pytorch"}));
  convert_.app->add_flag("--weights", c.weights, "Leave out the graph of an ONNX or TensorFlow model: tensors alone");
  convert_.app->add_flag("--checkpoint", c.checkpoint,
                         "Write a training checkpoint (PyTorch, DL4J) as such: model, optimizer, counts");
  convert_.app->add_flag("--compress", c.compress, "Compress a .stele, .json or .zip file");
  convert_.app->add_option("--shard", c.shard, "Write safetensors shards of at most this size, as 5GB");
  convert_.app->add_option("--to-tag", c.to_tag, "The tag to write to an archive");
  convert_.app->add_flag("--append", c.append, "Add the tag to an existing archive");
  convert_.app->add_flag("--allow-loss", c.allow_loss, loss_text);
  convert_.app->add_flag("--allow-overflow", c.allow_overflow, overflow_text);
  convert_.app->add_flag("--dry-run", c.dry_run, "Write nothing; list what would be lost");
  convert_.app->add_flag("-n,--no-clobber", c.no_clobber, "Fail if the target exists");
  opening(*convert_.app, c.opening);
  parts_of_checkpoints(*convert_.app, c.opening);

  const auto import_ =
      add<Import>("import", "Write the graph of an ONNX or TensorFlow model for DL4J, or as ONNX", import_model,
                  "  stele import model.onnx model.fb --shape x=1,3,224,224\n"
                  "  stele import saved_model model.zip\n"
                  "  stele import model.fb model.onnx --opset 18");
  Import& i = *import_.options;
  import_.app->add_option("in", i.in, "An ONNX model, a SavedModel, a frozen graph (.pb), or a model of DL4J")
      ->required();
  last_word(*import_.app, i.out, "The file to write: .fb, .sdz, .sdnb, .zip or .onnx");
  import_.app->add_option("--shape", i.choice.shapes, "NAME=1,3,?: the shape of an input; ? stays open");
  import_.app->add_option("--output", i.choice.outputs, "The tensors that become outputs (default: the model's)");
  import_.app->add_option("--signature", i.choice.signature, "The function of a SavedModel (serving_default)");
  import_.app->add_option("--tag", i.choice.tag, tag_text);
  import_.app->add_option("--mappings", i.choice.mappings, "A file of mapping rules that go before stele's");
  import_.app->add_option("--to", i.to, "The name of the format, if the extension is another");
  import_.app->add_option("--opset", i.opset, "The version of ONNX's operators to write: 13 to 22 (17)");
  import_.app->add_flag("--allow-loss", i.allow_loss, loss_text);
  import_.app->add_flag("--dry-run", i.dry_run, "Write nothing; list what would be lost");
  import_.app->add_flag("-n,--no-clobber", i.no_clobber, "Fail if the target exists");

  const auto repair_ = add<Repair>("repair", "Write what is whole of a damaged file, and list what is lost", repair,
                                   "  stele repair damaged.safetensors whole.safetensors");
  repair_.app->add_option("in", repair_.options->in, "A damaged file")->required();
  last_word(*repair_.app, repair_.options->out, "The file to write");
  repair_.app->add_flag("--allow-loss", repair_.options->allow_loss, loss_text);
  opening(*repair_.app, repair_.options->opening);

  const auto merge_ = add<Merge>("merge", "Join the tensors of several files in one", merge,
                                 "  stele merge encoder.pt decoder.pt -o model.safetensors\n"
                                 "  stele merge base.stele tuned.stele --overlay -o all.stele");
  merge_.app->add_option("file", merge_.options->files, "Files or folders of any format")->required();
  merge_.app->add_option("-o,--out", merge_.options->out, "The file to write")->required();
  merge_.app->add_option("--to", merge_.options->to, "The name of the format, if the extension is another");
  merge_.app->add_flag("--overlay", merge_.options->overlay, "Later files replace tensors of earlier ones");
  merge_.app->add_flag("--allow-loss", merge_.options->allow_loss, loss_text);

  const auto delta_ = add<Delta>("delta", "Write what changed between two versions of a model", delta,
                                 "  stele delta v1.safetensors v2.safetensors -o v2.delta.stele\n"
                                 "  stele delta v1 v2 -o weight_v000002 --to update --update-version 2");
  Delta& d = *delta_.options;
  delta_.app->add_option("old", d.base, "The version that the other side has, in any format")->required();
  delta_.app->add_option("new", d.next, "The new version")->required();
  delta_output(*delta_.app, d.output, "The file to write: .stele, or .json");
  delta_.app->get_option("--to")->description("The name of the format; update: a folder for slime and SGLang");
  delta_.app->add_option("--update-version", d.update.version, "With --to update: the number of the new version (1)");
  delta_.app->add_option("--encoding", d.update.encoding, "With --to update: xor (the default) or overwrite");
  delta_.app->add_option("--checksum", d.update.checksum, "With --to update: xxh3-128 (the default) or adler32");
  delta_.app->add_option("--tag-old", d.opening_base.tag, "The tag of an archive with the old version");
  delta_.app->add_option("--tag-new", d.opening_next.tag, "The tag of an archive with the new version");
  delta_.app->add_option("--part-old", d.opening_base.part, "Compare the part of the old version below this path");
  delta_.app->add_option("--part-new", d.opening_next.part, "Compare the part of the new version below this path");

  const auto apply_ = add<Apply>("apply", "Write the version of a model that deltas give", apply,
                                 "  stele apply v1.safetensors v2.delta.stele v3.delta.stele -o v3.safetensors\n"
                                 "  stele apply model.safetensors v2.delta.stele --in-place");
  apply_.app->add_option("base", apply_.options->base, "The version that the first delta changes")->required();
  apply_.app->add_option("delta", apply_.options->deltas,
                         "Deltas, in their order; with --in-place, none completes an interrupted change");
  delta_output(*apply_.app, apply_.options->output, "The file or folder to write; the extension is its format");
  apply_.app->get_option("--out")->required(false);
  apply_.app->add_flag("--in-place", apply_.options->in_place,
                       "Change the base itself, through a journal: for files without checksums, such as safetensors");
  opening(*apply_.app, apply_.options->opening);

  const auto compact_ = add<Compact>("compact", "Join deltas that follow each other", compact,
                                     "  stele compact v2.delta.stele v3.delta.stele -o v1-to-v3.delta.stele");
  compact_.app->add_option("delta", compact_.options->files, "Deltas, in their order")->required();
  delta_output(*compact_.app, compact_.options->output, "The file to write: .stele, or .json");

  const auto lora_ = add<Lora>("lora", "Merge a LoRA adapter into a model, or take it out", lora,
                               "  stele lora merge llama-folder adapter-folder -o merged.safetensors\n"
                               "  stele lora unmerge merged.safetensors adapter-folder -o llama.safetensors");
  lora_.app->add_option("action", lora_.options->action, "merge or unmerge")
      ->required()
      ->check(CLI::IsMember({"merge", "unmerge"}));
  lora_.app->add_option("model", lora_.options->model, "A file or folder of any format")->required();
  lora_.app->add_option("adapter", lora_.options->adapter, "A folder of PEFT: adapter_config.json and its tensors")
      ->required();
  lora_.app->add_option("-o,--out", lora_.options->out, "The file to write")->required();
  lora_.app->add_option("--to", lora_.options->to, "The name of the format, if the extension is another");
  lora_.app->add_option("--precision", lora_.options->precision, "Store floats as f64, f32, f16, bf16, or blocks");
  lora_.app->add_option("--conv1d", lora_.options->conv1d,
                        "Layers with weights [in, out], where the model leaves it open, as '*.c_proj'");
  lora_.app->add_option("--linear", lora_.options->linear, "Layers with weights [out, in], where it leaves it open");
  lora_.app->add_flag("--allow-loss", lora_.options->allow_loss, loss_text);
  opening(*lora_.app, lora_.options->opening);

  const auto split_ = add<Split>("split", "Write the parts of a file as files of their own", split,
                                 "  stele split model.safetensors part.safetensors\n"
                                 "  stele split model.pt part.pt --size 2GB");
  split_.app->add_option("in", split_.options->in, "A file or folder of any format")->required();
  last_word(*split_.app, split_.options->out, "part.EXT: the files are part.NAME.EXT, or part-1-of-N.EXT");
  split_.app->add_option("--size", split_.options->size, "Maximum bytes of tensors in a file, as 2GB");
  split_.app->add_option("--levels", split_.options->levels, "Levels of names that make a part (1)")
      ->check(CLI::Range(1, 64));
  split_.app->add_flag("--allow-loss", split_.options->allow_loss, loss_text);
  opening(*split_.app, split_.options->opening);

  const auto extract_ = add<Extract>("extract", "Write one tensor: .npy, .bin (raw bytes), or any format", extract,
                                     "  stele extract model.pt fc.weight -o weight.npy");
  extract_.app->add_option("file", extract_.options->file, "A file or folder of any format")->required();
  extract_.app->add_option("name", extract_.options->name, "The tensor's name")->required();
  after_o(*extract_.app, extract_.options->out, "The file to write");
  extract_.app->get_option("--out")->required();
  extract_.app->add_option("--precision", extract_.options->precision,
                           "Store floats as f64, f32, f16, bf16, or blocks");
  extract_.app->add_flag("--allow-overflow", extract_.options->allow_overflow, overflow_text);
  opening(*extract_.app, extract_.options->opening);
}

void Commands::add_pages() {
  const auto report_ = add<ReportPage>("report", "Write a page of HTML: sizes, histograms, differences", report,
                                       "  stele report model.pt -o report.html\n"
                                       "  stele report before.stele after.stele -o changes.html");
  report_.app->add_option("file", report_.options->a, "A file or folder of any format")->required();
  report_.app->add_option("b", report_.options->b, "A second file, to compare with");
  after_o(*report_.app, report_.options->out, "The page to write (report.html)");
  report_.app->add_flag("--tensors", report_.options->tensors, tensors_text);
  report_.app->add_option("--title", report_.options->title, "The page's title");
  opening(*report_.app, report_.options->opening);

  const auto embed_ = add<Embed>("embed", "Write a model as a constant for firmware", embed,
                                 "  stele embed model.safetensors -o model.hpp --precision f16\n"
                                 "  stele embed model.stele -o firmware.hpp --object");
  embed_.app->add_option("file", embed_.options->file, "A file or folder of any format")->required();
  after_o(*embed_.app, embed_.options->out, "The header to write (model.hpp)");
  embed_.app->add_option("--name", embed_.options->name, "The constant's name (model)");
  embed_.app->add_option("--precision", embed_.options->precision, "Store floats as f64, f32, f16, bf16, or blocks");
  embed_.app->add_flag("--allow-overflow", embed_.options->allow_overflow, overflow_text);
  embed_.app->add_option("--only", embed_.options->only, "Keep only tensors that match a pattern");
  embed_.app->add_option("--except", embed_.options->except, "Drop tensors that match a pattern");
  embed_.app->add_flag("--object", embed_.options->object,
                       "Write the bytes to a .stele file, and an assembler file (.S) that includes it");
  opening(*embed_.app, embed_.options->opening);
}

void Commands::add_all() {
  add_looking();
  add_writing();
  add_checking();
  add_pages();
}

}  // namespace

namespace {

/// Returns the names of an app's long options: --out.
std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
  }
  return all;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

Error wrong(const std::string& message, const std::string& hint) {
  return Error(Errc::invalid_argument, message).hint(hint);
}

Error no_command(const CLI::App& app, const std::string& word) {
  const std::string similar = did_you_mean(word, names_of_commands(app));
  return wrong("there is no command " + word, similar.empty() ? "stele --help lists them" : similar);
}

/// Returns an error about the first unexpected word of the command line, or about a missing word.
Error wrong_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const auto parsed = app.get_subcommands();
  const CLI::App& at = parsed.empty() || !app.remaining().empty() ? app : *parsed.front();
  const bool before = &at == &app;
  const std::string command = at.get_name();
  const std::string help = before ? "see stele --help" : "see stele " + command + " --help";
  if (error.get_name() == "ExcludesError") {
    return wrong(command + " has two outputs: the last word and the one of -o", help);
  }
  const std::vector<std::string> words = at.remaining();
  const auto option = std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with('-'); });
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::string similar = name.starts_with("--") ? did_you_mean(name, options_of(at)) : "";
    if (!similar.empty()) return wrong(command + " has no option " + name, similar);
    return before ? wrong("there is no option " + name + " before the command", help)
                  : wrong(command + " has no option " + name, help);
  }
  if (!words.empty() && parsed.empty()) return no_command(app, words.front());
  if (!words.empty()) return wrong(command + " does not expect " + words.front(), help);
  return wrong(parsed.empty() ? "a command is missing" : command + ": " + error.what(), help);
}

/// Prints an error about wrong arguments. Returns the exit status.
int fail(const std::vector<std::string>& words, const Error& error, std::string* output) {
  if (std::find(words.begin(), words.end(), "--json") != words.end()) {
    Terminal terminal({.json = true, .output = output});
    Document(terminal, "stele.error/1").member("error", to_value(error));
  } else {
    std::fprintf(stderr, "stele: %s; %s\n", safe(error.message()).c_str(), safe(error.hint()).c_str());
  }
  return exit_failed;
}

/// Returns the help of a command, or the overview for an empty name; nullopt if there is no such command.
std::optional<std::string> help_of(const CLI::App& app, const std::string& name) {
  if (name.empty()) return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  const auto found = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? std::nullopt : std::optional(found.front()->help(app.get_name()));
}

}  // namespace

std::optional<Arguments> parse_arguments(const std::vector<std::string>& words, std::string* output, int& status) {
  CLI::App app("Looks at, converts, checks and compares model files", "stele");
  app.formatter(std::make_shared<Help>());
  app.allow_windows_style_options(false);  // /a/b is a path on Windows, too
  Arguments arguments;
  arguments.common.output = output;
  Commands(app, arguments).add_all();
  app.set_version_flag("--version", "stele " STELE_VERSION_STRING);
  app.require_subcommand(1);
  std::string shell;
  CLI::App* const completion = app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  completion->add_option("shell", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App* const manual = app.add_subcommand("manual", "Print the manual page, in roff");
  std::string topic;
  CLI::App* const help = app.add_subcommand("help", "Print the help of a command, or this overview");
  help->add_option("command", topic, "A command of stele");
  app.footer(
      "Exit status: 0 success; 1 the answer is no (files differ, a file is damaged); 2 an error.\n"
      "stele COMMAND --help explains a command, with examples.");
  try {
    // CLI11 expects them in reverse, without the program
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    if (!reversed.empty()) reversed.pop_back();
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    const bool help_asked = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    status = help_asked ? app.exit(error) : fail(words, wrong_arguments(app, error), output);
    return std::nullopt;
  }
  if (help->parsed()) {
    const auto text = help_of(app, topic);
    if (text) Terminal(arguments.common).print(*text);
    status = text ? exit_ok : fail(words, no_command(app, topic), output);
    return std::nullopt;
  }
  if (completion->parsed() || manual->parsed()) {
    const std::string text = manual->parsed() ? manual_page(app) : completion_script(app, shell);
    Terminal(arguments.common).print(text);
    status = exit_ok;
    return std::nullopt;
  }
  return arguments;
}

}  // namespace stele::command
