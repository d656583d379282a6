#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>

#include "base/of_machine.hpp"
#include "commands.hpp"
#include "graphs.hpp"

#ifdef STELE_COMMAND_IR
#include <stele/export.hpp>
#include <stele/import.hpp>
#endif

namespace stele::command {

bool holds_graphs(const Format& format) { return format.checkpoints() != nullptr && format.name() != "pytorch"; }

bool has_foreign_graph(const Model& model) {
  if (model.format->name() == "onnx") return true;
  std::error_code ignored;
  return model.format->name() == "tensor-bundle" &&
         std::filesystem::exists(path_of(model.path) / "saved_model.pb", ignored);
}

#ifdef STELE_COMMAND_IR

namespace {

/// Reads NAME=1,3,?; an extent that stays open is '?'. Errors: invalid_argument.
Status add_shape(const std::string& text, std::map<std::string, std::vector<std::int64_t>>& shapes) {
  const auto refuse = [&] {
    return Error(Errc::invalid_argument, "not a shape for --shape").expected("NAME=1,3,?").found(text);
  };
  const std::size_t equals = text.rfind('=');
  if (equals == text.npos || equals == 0) return refuse();
  std::vector<std::int64_t> shape;
  for (std::size_t begin = equals + 1; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part(text.data() + begin, end - begin);
    std::int64_t extent = -1;
    const auto [rest, code] = std::from_chars(part.data(), part.data() + part.size(), extent);
    const bool number = code == std::errc() && rest == part.data() + part.size() && extent >= 0;
    if (!number && part != "?") return refuse();
    shape.push_back(number ? extent : -1);
    begin = end + 1;
  }
  if (text.back() == ',' || !shapes.emplace(text.substr(0, equals), std::move(shape)).second) return refuse();
  return {};
}

}  // namespace

Result<Checkpoint> open_graph(const std::string& path, const GraphChoice& choice, Report& report, unsigned threads) {
  ImportOptions options;
  options.load.threads = threads;
  options.outputs = choice.outputs;
  options.report = &report;
  if (!choice.signature.empty()) options.signature = choice.signature;
  for (const std::string& text : choice.shapes) STELE_TRY(add_shape(text, options.shapes));
  STELE_TRY_ASSIGN(const SourcePtr source, Input(path).open("", options.load));
  const auto format = format_of_content(*source);  // a frozen graph of TensorFlow is not recognised
  if (!format && detail::is_of_machine(format.error())) return format.error();
  const bool onnx = format && (*format)->name() == "onnx";
  std::shared_ptr<const Format> tagged;
  if (!choice.tag.empty()) {
    STELE_TRY_ASSIGN(tagged, input_format(path, {.tag = choice.tag}, options.load));
  }
  if (format && holds_graphs(**format)) {
    if (!choice.shapes.empty() || !choice.outputs.empty() || !choice.signature.empty() || !choice.mappings.empty()) {
      return Error(Errc::invalid_argument,
                   "--shape, --output, --signature and --mappings are for models of ONNX and "
                   "TensorFlow")
          .file(path)
          .found((*format)->name());
    }
    const CheckpointFormat& opened = *(tagged ? *tagged : **format).checkpoints();
    STELE_TRY_ASSIGN(Checkpoint model, stele::open_checkpoint(opened, path, options.load));
    if (model.graph) return model;
    return Error(Errc::missing, "the file has no graph").file(path).found((*format)->name());
  }
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(const bool saved_model, source->bundle()->contains("saved_model.pb"));
    if (!saved_model) {
      return Error(Errc::missing, "the folder has no graph")
          .file(path)
          .expected("saved_model.pb of TensorFlow, or the name of a file")
          .hint("stele convert reads the tensors of folders");
    }
  }
  MappingSet rules = onnx ? MappingSet::onnx() : MappingSet::tensorflow();
  if (!choice.mappings.empty()) {
    STELE_TRY_ASSIGN(const MappingSet own, MappingSet::open(choice.mappings));
    rules.add(own);
    options.mappings = &rules;
  }
  return onnx ? import_onnx(path, options) : import_tensorflow(path, options);
}

Result<Report> write_onnx(const Checkpoint& model, const std::string& path, std::int64_t opset,
                          const SaveOptions& save) {
  return export_onnx(model, path, {.opset = opset, .save = save});
}

#else

namespace {
Error without_graphs() {
  return Error(Errc::unsupported, "this command was built without the component ir, which imports graphs")
      .hint("build it where protobuf and protoc are installed");
}
}  // namespace

Result<Checkpoint> open_graph(const std::string& path, const GraphChoice&, Report&, unsigned) {
  return without_graphs().file(path);
}
Result<Report> write_onnx(const Checkpoint&, const std::string& path, std::int64_t, const SaveOptions&) {
  return without_graphs().file(path);
}

#endif

Result<int> import_model(const Import& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const auto format, target_format(options.to, options.out));
  const bool onnx = format->name() == "onnx";
  if (!onnx && !holds_graphs(*format)) {
    return Error(Errc::invalid_argument, "the target's format has no graphs")
        .file(options.out)
        .expected(".fb, .sdz, .sdnb, .zip or .onnx")
        .found(format->name());
  }
  Report losses;
  STELE_TRY_ASSIGN(const Checkpoint model, open_graph(options.in, options.choice, losses, terminal.common().threads));
  if (model.graph->operations.empty() && model.graph->outputs.empty()) {
    return Error(Errc::missing, "the model has no graph").file(options.in).hint("stele convert writes its tensors");
  }
  note_input(options.in, nullptr, model.parameters);
  STELE_TRY_ASSIGN(const std::string out, output_path(*format, options.out));
  STELE_TRY(check_output(out));
  STELE_TRY(check_losses(options.allow_loss, losses));
  Progress progress(terminal, "writing");
  SaveOptions save_options;
  if (!onnx) save_options.format = format.get();
  save_options.allow_loss = options.allow_loss;
  save_options.dry_run = options.dry_run;
  save_options.file.overwrite = !options.no_clobber;
  save_options.threads = terminal.common().threads;
  save_options.progress = progress.callback();
  STELE_TRY_ASSIGN(const Report report,
                   onnx ? write_onnx(model, out, options.opset, save_options) : save(model, out, save_options));
  if (terminal.json()) {
    Document document(terminal, "stele.import/1");
    document.member("in", Value(options.in));
    document.member("out", Value(out));
    document.member("format", Value(format->name()));
    document.member("written", Value(!options.dry_run));
    document.member("operations", number(static_cast<std::uint64_t>(model.graph->operations.size())));
    Value rows = to_value(losses);
    const Value more = to_value(report);
    rows.as_list()->insert(rows.as_list()->end(), more.as_list()->begin(), more.as_list()->end());
    document.member("rows", rows);
    return exit_ok;
  }
  print_rows(terminal, losses);
  print_rows(terminal, report);
  terminal.note((options.dry_run ? "would write " : "wrote ") + safe(out) + ", " + std::string(format->name()) + ": " +
                counted(model.graph->operations.size(), "operation"));
  return exit_ok;
}

}  // namespace stele::command
