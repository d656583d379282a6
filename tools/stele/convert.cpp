#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <stele/bundle.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#ifdef STELE_COMMAND_TENSORFLOW
#include <stele/recorders/tensorflow.hpp>
#endif
#include <stele/transform.hpp>
#include <stele/transforms/keras.hpp>
#include <stele/transforms/llama_cpp.hpp>
#include <stele/transforms/pytorch.hpp>

#include "base/extension.hpp"
#include "commands.hpp"
#include "io/text.hpp"
#include "statistics.hpp"

namespace stele::command {

Result<Snapshot> adapted(const Snapshot& snapshot) {
  const auto layers = keras::layers_of(snapshot);
  if (layers) return keras::to_pytorch(snapshot, *layers);
  if (layers.error().code() != Errc::missing) return layers.error();
  std::vector<pytorch::LayerRule> rules{pytorch::linear_in_out("Linear")};
  for (const char* type : {"BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RmsNorm"}) {
    rules.push_back(pytorch::norm_gamma_beta(type));
  }
  return pytorch::restore(snapshot, rules);
}

namespace {

/// Returns true if a name seems to have a file's extension, such as model.ggfu. Llama-3.1-8B has no extension, and an
/// existing folder keeps its name.
bool has_extension(const std::string& out) {
  const std::string_view name = file_name(out);
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || dot == 0 || dot + 1 == name.size()) return false;
  const std::string_view extension = name.substr(dot + 1);
  const auto is = [](char c, bool digits) {
    const auto lower = static_cast<unsigned char>(static_cast<unsigned char>(c) | 32U);
    return (lower >= 'a' && lower <= 'z') || (digits && c >= '0' && c <= '9') || (digits && c == '_');
  };
  std::error_code none;
  return is(extension.front(), false) &&
         std::all_of(extension.begin(), extension.end(), [&](char c) { return is(c, true); }) &&
         !std::filesystem::is_directory(path_of(out), none);
}

}  // namespace

bool is_hub(const std::string& to, const std::string& out, const Format* like) {
  if (!to.empty()) return to == HubFormat().name();
  return like != nullptr && like->name() == HubFormat().name() && !format_of_path(out) && !has_extension(out);
}

Result<std::shared_ptr<const Format>> format_to_write(const std::string& to, const std::string& out,
                                                      const Format* like) {
  auto format = target_format(to, out);
  if (format || !to.empty() || like == nullptr || like->name() != HubFormat().name()) return format;
  const std::string hint(format.error().hint());
  return std::move(format).error().hint(hint + (hint.empty() ? "" : "; ") + "--to hub writes a folder of this name");
}

Result<Destination> destination(const Convert& options, const Format* like) {
  if (is_hub(options.to, options.out, like)) {
    std::uint64_t bytes = 0;
    if (!options.shard.empty()) {
      STELE_TRY_ASSIGN(bytes, parse_size(options.shard));
    }
    auto format = bytes != 0 ? std::make_shared<HubFormat>(bytes) : std::make_shared<HubFormat>();
    STELE_TRY_ASSIGN(std::string path, output_path(*format, options.out));
    return Destination{std::move(format), std::move(path)};
  }
  if (!options.shard.empty()) {
    STELE_TRY_ASSIGN(const std::uint64_t bytes, parse_size(options.shard));
    constexpr std::string_view index = ".safetensors.index.json";
    std::string path = options.out;
    if (detail::has_extension(path, ".safetensors")) path += index.substr(sizeof ".safetensors" - 1);
    if (!detail::has_extension(path, index)) {
      return Error(Errc::invalid_argument, "shards are safetensors files")
          .file(path)
          .expected("a name that ends in " + std::string(index));
    }
    return Destination{std::make_shared<ShardedSafetensorsFormat>(bytes), std::move(path)};
  }
  STELE_TRY_ASSIGN(auto format, format_to_write(options.to, options.out, like));
  STELE_TRY_ASSIGN(std::string path, output_path(*format, options.out));
  const bool archive = format->name() == "archive";
  if ((options.append || !options.to_tag.empty()) && !archive) {
    return Error(Errc::invalid_argument, "only archives have tags").file(options.out).found(format->name());
  }
  if (format->name() == "pytorch") {
    STELE_TRY_ASSIGN(PytorchOptions parts, pytorch_options(options.opening));
    parts.optimizer.clear();  // names a part of the input
    format = std::make_shared<PytorchFormat>(std::move(parts));
  }
  if (archive) {
    format = archive_format(options.to_tag, options.compress);
  } else if (options.compress && format->name() == "stele") {
    format = std::make_shared<CompressedSteleFormat>();
  } else if (options.compress) {
    return Error(Errc::invalid_argument, "the format has no compressed form")
        .found(format->name())
        .hint("write a .stele, .zip or .json.zst file");
  }
  return Destination{std::move(format), std::move(path)};
}

namespace {

/// Splits REGEX=TEXT at its last '='. Errors: invalid_argument.
Result<std::vector<Rename>> rename_rules(const std::vector<std::string>& texts) {
  std::vector<Rename> rules;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    if (equals == text.npos || equals == 0) {
      return Error(Errc::invalid_argument, "not a rule of --rename").expected("REGEX=TEXT").found(text);
    }
    rules.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return rules;
}

/// Returns a note for each rule without which the names would be the same.
Result<std::vector<std::string>> idle_rules(const Snapshot& snapshot, const std::vector<Rename>& rules) {
  const auto paths = [&](const std::vector<Rename>& by) -> Result<std::vector<std::string>> {
    STELE_TRY_ASSIGN(const Snapshot renamed, rename(snapshot, by));
    std::vector<std::string> all;
    for (std::uint32_t i = 0; i < renamed.nodes().size(); ++i) all.push_back(renamed.path(i));
    return all;
  };
  STELE_TRY_ASSIGN(const auto all, paths(rules));
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    std::vector<Rename> others = rules;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const auto without = paths(others);
    if (without && *without == all) notes.push_back("--rename " + safe(rules[i].pattern) + " changes no name");
  }
  return notes;
}

/// Applies names, choice and axes. Optimizer state, which has the names of the parameters, gets the same changes, but
/// need not have a tensor for every pattern.
Result<Snapshot> transformed(const Convert& options, Snapshot snapshot, bool state) {
  if (!options.adapt.empty()) {
    STELE_TRY_ASSIGN(snapshot, adapted(snapshot));
  }
  const auto any = [](const std::vector<std::string>& patterns, std::string_view path) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, path); });
  };
  if (!options.only.empty() || !options.except.empty()) {
    Filter by{state ? std::vector<std::string>() : options.only, options.except, {}};
    if (state && !options.only.empty()) {
      by.keep = [&](std::string_view path, const LeafView*) { return any(options.only, path); };
    }
    auto chosen = filter(snapshot, by);
    if (!chosen) return with_similar(chosen.error(), snapshot);
    snapshot = *std::move(chosen);
  }
  for (const std::string& pattern : options.transpose) {
    auto turned = transpose(snapshot, pattern);
    if (!turned && state && turned.error().code() == Errc::not_found) continue;
    if (!turned) return with_similar(turned.error(), snapshot);
    snapshot = *std::move(turned);
  }
  if (!options.rename.empty()) {
    STELE_TRY_ASSIGN(const auto rules, rename_rules(options.rename));
    STELE_TRY_ASSIGN(snapshot, rename(snapshot, rules));
  }
  return snapshot;
}

/// Returns true if each tensor of `kind` is one number, equal to `count`.
Result<bool> all_equal(const Snapshot& kind, std::int64_t count) {
  for (std::size_t i = 0; i < kind.leaf_count(); ++i) {
    const LeafView leaf = kind.leaf(i);
    if (leaf.size() != 1 || !facts::has_numbers(leaf.dtype()) || facts::parts_of(leaf.dtype()) != 1 ||
        element_size(leaf.dtype()) == 0)
      return false;
    std::array<std::byte, 8> bytes{};
    STELE_TRY(leaf.read(0, std::span(bytes).first(element_size(leaf.dtype()))));
    double found = 0;
    facts::to_doubles(leaf.dtype(), bytes.data(), 1, &found);
    if (found != static_cast<double>(count)) return false;
  }
  return true;
}

/// Leaves out optimizer state that only PyTorch's files hold: a number for each parameter, `step`. If all are the
/// iteration count, nothing is lost.
Status drop_steps(Checkpoint& checkpoint, Report& losses) {
  const Snapshot* const steps = checkpoint.optimizer.find("step");
  if (steps == nullptr) return {};
  const std::int64_t count = checkpoint.training ? checkpoint.training->iteration_count : -1;
  STELE_TRY_ASSIGN(const bool known, all_equal(*steps, count));
  if (!known) losses.add(Report::What::lost, "step", "the step counts of the parameters");
  OptimizerState rest;
  for (const auto& [kind, state] : checkpoint.optimizer.kinds()) {
    if (kind != "step") rest.set_snapshot(kind, state);
  }
  checkpoint.optimizer = std::move(rest);
  return {};
}

/// Lists the settings of the optimizer that only PyTorch's files hold.
Status drop_settings(const Checkpoint& checkpoint, Report& losses) {
  STELE_TRY_ASSIGN(const auto settings, settings_of_pytorch_alone(checkpoint));
  for (const std::string& name : settings) losses.add(Report::What::lost, name, "a setting of the optimizer");
  return {};
}

/// The input: parameters, and the other parts of a checkpoint.
struct Content {
  Checkpoint checkpoint;
  bool whole = false;  // written as a checkpoint
  Report losses;
  std::vector<std::string> notes;
};

/// Adds the way around the graph to the hint of an error of import.
Error without_graph(Error error) {
  const std::string own(error.hint());
  return std::move(error).hint(own + (own.empty() ? "" : "; ") +
                               "stele import has the options of graphs; --weights writes the tensors alone");
}

/// Opens a checkpoint of TensorFlow, whose format is only read, and has optimizer state beside the names of its
/// tensors.
Result<Checkpoint> open_bundle(const std::string& path, [[maybe_unused]] const LoadOptions& options) {
#ifdef STELE_COMMAND_TENSORFLOW
  return TensorBundleRecorder<>().open_checkpoint(path, options);
#else
  return Error(Errc::unsupported, "this command was built without TensorFlow").file(path);
#endif
}

Result<Content> read(const Convert& options, const Model& model, const Format& target, unsigned threads) {
  Content content{{model.snapshot}, false, {}, model.snapshot.notes()};
  const bool part = !options.opening.part.empty();
  if (!options.weights && !part && holds_graphs(target) && has_foreign_graph(model)) {
    auto imported = open_graph(options.in, {}, content.losses, threads);
    if (!imported) return without_graph(imported.error());
    if (!imported->graph->operations.empty()) {
      content.checkpoint = *std::move(imported);
      content.whole = true;
      return content;
    }
    content.losses = {};  // a file with only tensors
  }
  const CheckpointFormat* format = model.format->checkpoints();
  const bool bundle = model.format->name() == "tensor-bundle";
  const bool has_checkpoints = format != nullptr || bundle;
  // The names of PyTorch's files contain all parts of a checkpoint; those of the others only the parameters.
  const bool in_names = model.format->name() == "pytorch";
  if (options.checkpoint && (!has_checkpoints || (part && !in_names))) {
    return Error(Errc::invalid_argument, has_checkpoints
                                             ? "only PyTorch's files have several models to choose with --part"
                                             : "the file's format has no checkpoints")
        .file(options.in)
        .found(model.format->name());
  }
  if (!has_checkpoints || (part && !options.checkpoint)) return content;
  STELE_TRY_ASSIGN(const LoadOptions load, load_options(options.opening, threads));
  PytorchOptions parts;
  if (in_names) {
    STELE_TRY_ASSIGN(parts, pytorch_options(options.opening));
    parts.part = options.opening.part;
  }
  const PytorchFormat chosen(std::move(parts));
  if (in_names) format = &chosen;
  auto opened = bundle ? open_bundle(options.in, load) : open_checkpoint(*format, input_of(options.in), load);
  if (!opened && bundle && !options.checkpoint) {
    const Errc code = opened.error().code();
    if (code == Errc::not_found || code == Errc::invalid_argument)
      return content;  // the file has no objects, or several models
  }
  if (in_names && !options.checkpoint) {
    if (opened && opened->training)
      content.notes.push_back("the file is a training checkpoint: --checkpoint writes its model and optimizer as such");
    return content;
  }
  STELE_TRY_ASSIGN(Checkpoint checkpoint, std::move(opened));
  if (target.checkpoints() != nullptr) {
    content.losses = std::exchange(checkpoint.left_out, {});
    if (target.name() != "pytorch") {
      STELE_TRY(drop_settings(checkpoint, content.losses));
      STELE_TRY(drop_steps(checkpoint, content.losses));
    }
    content.whole = options.checkpoint || checkpoint.graph || checkpoint.training || !checkpoint.optimizer.empty();
    content.checkpoint = std::move(checkpoint);
    return content;
  }
  STELE_TRY(check_losses(options.allow_loss, losses_of(checkpoint)));  // rows of the save's report
  return content;
}

/// Checks the path to write, and adds the losses of tags. A model may replace itself if all of it stays: a failure, or
/// a loss, would leave neither.
Status check_target(const Convert& options, const Model& model, const Destination& to, Content& content) {
  const bool in_place = overlap_of(to.path) == Overlap::whole;
  if (!in_place) {
    STELE_TRY_ASSIGN(const Report losses, losses_of_tags(model, options.opening));
    add_rows(content.losses, losses);
    return check_output(to.path);
  }
  STELE_TRY_ASSIGN(const auto tags, other_tags(model, options.opening));
  const bool less = !tags.empty() || !options.only.empty() || !options.except.empty() || !options.quantize.empty() ||
                    !(options.precision.empty() || options.precision == "native");
  if (!options.opening.part.empty() || !content.losses.empty() || (less && !options.append)) {
    return Error(Errc::invalid_argument, "the output would replace the model, and have less than all of it")
        .file(to.path)
        .hint("choose another name");
  }
  return {};
}

/// Returns the folder with a model's config.json; null if there is none.
std::shared_ptr<const Bundle> folder_of(const Model& model) {
  const auto source = input_of(model.path).open("", {});
  return source ? (*source)->bundle() : nullptr;
}

/// Returns the content of config.json; null if there is none. Errors: those of reading.
Result<Value> config_in(const Bundle& folder) {
  constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;
  STELE_TRY_ASSIGN(const bool exists, folder.contains("config.json"));
  if (!exists) return Value();
  STELE_TRY_ASSIGN(const SourcePtr file, folder.open("config.json"));
  STELE_TRY_ASSIGN(const std::string text, detail::read_text(*file, max_bytes));
  return parse_json(text);
}

/// Returns the model as llama.cpp has it, if a GGUF file is written of a model of transformers; nullopt for other
/// models, whose tensors are written under their names.
Result<std::optional<Snapshot>> for_llama_cpp(const Convert& options, const Model& model, const Snapshot& parameters,
                                              Report& rows) {
  constexpr std::string_view from[] = {"hub", "safetensors", "safetensors-sharded", "pytorch"};
  const bool weights =
      std::find(std::begin(from), std::end(from), model.format->name()) != std::end(from) && !options.opening.raw;
  if (!weights) return std::optional<Snapshot>();
  const auto way_out = [](Error error) {
    const std::string own(error.hint());
    return std::move(error).hint(own + (own.empty() ? "" : "; ") + "--raw writes the tensors under their own names");
  };
  const auto folder = folder_of(model);
  const bool known = llama_cpp::has_known_names(parameters);
  auto config = folder != nullptr ? config_in(*folder) : Result<Value>(Value());
  if (!config && !known) return std::optional<Snapshot>();  // not a model of transformers
  if (!config) return way_out(std::move(config).error());
  if (!llama_cpp::is_model_config(*config)) {
    if (!known) return std::optional<Snapshot>();
    return way_out(Error(Errc::missing, "not a model for llama.cpp: config.json is missing").file(model.path));
  }
  auto converted = llama_cpp::from_hub(parameters, *folder, &rows);
  if (!converted) return way_out(std::move(converted).error());
  return std::optional(*std::move(converted));
}

Result<Report> write(const Convert& options, const Model& model, const Destination& to, Content& content,
                     Terminal& terminal) {
  Progress progress(terminal, "converting");
  SaveOptions save_options;
  save_options.allow_loss = options.allow_loss;
  save_options.convert.allow_overflow = options.allow_overflow;
  save_options.dry_run = options.dry_run;
  save_options.file.overwrite = !options.no_clobber;
  save_options.threads = terminal.common().threads;
  save_options.progress = progress.callback();
  Checkpoint result = content.checkpoint;
  if (!options.rename.empty()) {
    STELE_TRY_ASSIGN(const auto rules, rename_rules(options.rename));
    STELE_TRY_ASSIGN(const auto idle, idle_rules(result.parameters, rules));
    content.notes.insert(content.notes.end(), idle.begin(), idle.end());
  }
  STELE_TRY_ASSIGN(const auto idle, idle_patterns(result.parameters, "--except", options.except));
  content.notes.insert(content.notes.end(), idle.begin(), idle.end());
  STELE_TRY_ASSIGN(result.parameters, transformed(options, result.parameters, false));
  PrecisionSpec precision;
  std::optional<Snapshot> language_model;
  if (to.format->name() == "gguf") {
    STELE_TRY_ASSIGN(language_model, for_llama_cpp(options, model, result.parameters, content.losses));
  }
  if (language_model) {
    STELE_TRY_ASSIGN(result.parameters, quantized_for_llama_cpp(*language_model, options, content.losses));
  } else {
    STELE_TRY_ASSIGN(result.parameters, quantized(result.parameters, options, *to.format, precision, content.losses));
  }
  OptimizerState optimizer;
  for (const auto& [kind, state] : result.optimizer.kinds()) {
    STELE_TRY_ASSIGN(Snapshot changed, transformed(options, state, true));
    optimizer.set_snapshot(kind, std::move(changed));
  }
  result.optimizer = std::move(optimizer);
  if (options.append) return append_tag(std::move(result), to, options, precision, save_options);
  const auto saved = [&](SaveOptions how) {
    how.format = to.format.get();
    how.precision = precision;
    return content.whole ? save(result, to.path, how) : save(result.parameters, to.path, how);
  };
  if (overlap_of(to.path) == Overlap::whole) {
    SaveOptions dry = save_options;
    dry.dry_run = true;
    dry.allow_loss = false;
    STELE_TRY_ASSIGN(const Report losses, saved(dry));
    if (losses.count(Report::What::lost) != 0) {
      return Error(Errc::not_representable, "the output would replace the model, and lose a part of it")
          .path(losses[0].path)
          .found(losses[0].detail)
          .file(to.path)
          .hint("choose another name");
    }
  }
  STELE_TRY_ASSIGN(Report report, saved(save_options));
  const bool blocks = !language_model &&
                      (names_mixture(options.precision) || !options.quantize.empty() || !precision.block_rules.empty());
  if (blocks && report.count(Report::What::quantized) == 0) {
    content.notes.push_back(
        "no tensor is quantized: " +
        (precision.quantized_bits != 0
             ? std::string("the file has no floats")
             : (options.quantize.empty() ? options.precision : options.quantize) + " applies to matrices of floats"));
  }
  return report;
}

}  // namespace

Result<int> convert(const Convert& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(options.in, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(const Destination to, destination(options, model.format.get()));
  if (options.checkpoint && to.format->checkpoints() == nullptr) {
    return Error(Errc::invalid_argument, "the target's format has no checkpoints").found(to.format->name());
  }
  STELE_TRY_ASSIGN(Content content, read(options, model, *to.format, terminal.common().threads));
  STELE_TRY(check_target(options, model, to, content));
  STELE_TRY(check_losses(options.allow_loss, content.losses));
  STELE_TRY_ASSIGN(const Report report, write(options, model, to, content, terminal));
  Report rows = content.losses;
  add_rows(rows, report);
  if (terminal.json()) {
    Document document(terminal, "stele.convert/1");
    document.member("in", Value(options.in));
    document.member("out", Value(to.path));
    document.member("format", Value(to.format->name()));
    document.member("written", Value(!options.dry_run));
    document.member("rows", to_value(rows));
    Value::List notes;
    for (const std::string& note : content.notes) notes.emplace_back(note);
    document.member("notes", Value(std::move(notes)));
    return exit_ok;
  }
  print_rows(terminal, rows);
  for (const std::string& note : content.notes) terminal.note("note: " + note);
  terminal.note((options.dry_run ? "would write " : "wrote ") + safe(to.path) + ", " + std::string(to.format->name()));
  return exit_ok;
}

}  // namespace stele::command
