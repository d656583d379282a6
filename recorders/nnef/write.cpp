// Writes a Snapshot as a folder, an archive or a tensor file.
#include <algorithm>
#include <map>
#include <memory>

#include "base/parallel.hpp"
#include "encodings/tar/tar.hpp"
#include "files.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "stele/bundle.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/nnef.hpp"
#include "tensor.hpp"
#include "text.hpp"

namespace stele::inline v0 {
namespace {

namespace nnef = detail::nnef;
namespace tar = detail::tar;

/// Returns the label for a path. Errors: not_representable.
Result<std::string> label_of(std::string_view path) {
  const auto refuse = [&](std::string_view found) {
    return Error(Errc::not_representable, "the path has no NNEF label")
        .path(std::string(path))
        .expected("segments of [A-Za-z0-9_.-], other than dots alone")
        .found(found)
        .hint("rename the tensor");
  };
  std::string label;
  std::string_view rest = path;
  for (bool more = true; more;) {
    std::string_view raw;
    std::string segment;
    if (!detail::first_segment(rest, raw, segment)) return refuse("an invalid escape");
    const bool plain = std::all_of(segment.begin(), segment.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.';
    });
    if (!plain || segment.find_first_not_of('.') == std::string::npos) return refuse(segment);
    label += label.empty() ? segment : '/' + segment;
    more = raw.size() < rest.size();
    if (more) rest.remove_prefix(raw.size() + 1);
  }
  return label;
}

Result<std::vector<std::string>> labels_of(const Snapshot& snapshot, const detail::LeafPaths& paths) {
  std::vector<std::string> labels;
  std::map<std::string, std::size_t> files;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    STELE_TRY_ASSIGN(std::string label, label_of(paths[i]));
    const auto [known, fresh] = files.try_emplace(nnef::lower(label) + std::string(nnef::ending), i);
    labels.push_back(std::move(label));
    if (fresh) continue;
    return Error(Errc::not_representable, "the NNEF labels of two paths differ only in case")
        .path(std::string(paths[i]))
        .found(paths[known->second])
        .hint("rename one of the tensors");
  }
  // `a.dat` could be both the file of one tensor and the folder of another.
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string label = nnef::lower(labels[i]);
    for (std::size_t slash = label.find('/'); slash != std::string::npos; slash = label.find('/', slash + 1)) {
      const std::string folder = label.substr(0, slash);
      const auto file = files.find(folder);
      if (file == files.end() && folder != nnef::graph_file && folder != nnef::quant_file) continue;
      return Error(Errc::not_representable, "a folder of the model would have the name of a file")
          .path(std::string(paths[i]))
          .found(file != files.end() ? std::string(paths[file->second]) : folder);
    }
  }
  return labels;
}

/// Returns the leaf's operation for graph.quant, or an empty string if the leaf has none.
Result<std::string> quantization_of(const LeafView& leaf) {
  if (const Value* note = nnef::note_of(leaf, quantization_key)) {
    std::string text = nnef::operation_of(*note);
    if (!text.empty()) return text;
    Error error = Error(Errc::not_representable, "NNEF has no operation for the quantization").path(leaf.path());
    if (note->find("axis") == nullptr) return error;
    return std::move(error).expected("one scale and zero point for the whole tensor").found("one for each channel");
  }
  const Value* note = nnef::note_of(leaf, nnef::operation_key);
  if (note == nullptr) return std::string();
  const std::string* text = note->as_string();
  if (text != nullptr) {
    const std::string line = "'': " + *text + ';';
    const auto read = nnef::read_quantizations(line);
    if (read && read->size() == 1 && read->begin()->second == *text) return *text;
  }
  return Error(Errc::not_representable, "graph.quant cannot store the annotation")
      .path(leaf.path())
      .expected("an operation as a string in " + std::string(nnef::operation_key));
}

struct GraphFiles {
  std::string graph;
  std::string quant;
};

/// Makes the graph files. A name in the graph is a number and the label, because names allow fewer characters than
/// labels and must be unique.
GraphFiles describe(const Snapshot& snapshot, std::span<const std::string> labels,
                    std::span<const std::string> operations) {
  std::string names;
  std::string lines;
  GraphFiles texts;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    std::string name = 'v' + std::to_string(i) + '_' + labels[i];
    for (char& c : name) c = c == '/' || c == '.' || c == '-' ? '_' : c;
    const DTypeClass kind = dtype_class(leaf.dtype());
    const bool integers = kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
    const bool quantized = !operations[i].empty() || nnef::note_of(leaf, nnef::quantized_key) != nullptr;
    const char* type = kind == DTypeClass::boolean ? "logical" : integers && !quantized ? "integer" : "scalar";
    names += (i != 0 ? ", " : "") + name;
    lines += "    " + name + " = variable<" + type + ">(shape = " + to_string(leaf.shape()) + ", label = '" +
             labels[i] + "');\n";
    if (!operations[i].empty()) texts.quant += '"' + name + "\": " + operations[i] + ";\n";
  }
  if (labels.empty()) return {std::string(nnef::empty_graph), ""};
  // NNEF's readers require an input.
  texts.graph = std::string(nnef::made_here) + "version 1.0;\n\ngraph variables(none) -> (" + names +
                ") {\n    none = external<scalar>(shape = [1]);\n" + lines + "}\n";
  return texts;
}

Status write_text(Bundle& bundle, std::string_view name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto file, bundle.create(name));
  STELE_TRY(file->reserve(text.size()));
  STELE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

}  // namespace

Status NnefFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  const std::size_t count = snapshot.leaf_count();
  const NnefContainer container = nnef::container_at(options_.container, sink.name());
  const bool single = container == NnefContainer::tensor;
  std::vector<nnef::Form> forms;
  std::vector<std::string> operations;
  bool described = options_.graph || count == 0;  // an empty folder is not a model
  for (std::size_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(forms.emplace_back(), nnef::form_of(snapshot.leaf(i)));
    STELE_TRY_ASSIGN(operations.emplace_back(), quantization_of(snapshot.leaf(i)));
    if (operations.back().empty()) continue;
    described = true;
    if (single) {
      return Error(Errc::not_representable, "a tensor file cannot store the quantization")
          .path(paths[i])
          .hint("save to a folder or an archive");
    }
  }
  const Snapshot ordered = detail::in_file_order(snapshot);
  ReadContext context(detail::workers_of(options));
  if (single) {
    if (count == 1) return nnef::write(ordered.leaf(0), forms[0], sink, context);
    return Error(Errc::not_representable, "a tensor file holds exactly one tensor")
        .expected("1 tensor")
        .found(std::to_string(count))
        .hint("save to a folder or an archive");
  }
  STELE_TRY_ASSIGN(const auto labels, labels_of(snapshot, paths));
  const auto archive = container == NnefContainer::folder ? nullptr : std::make_shared<tar::Writer>(sink, true);
  const std::shared_ptr<Bundle> bundle = archive != nullptr ? archive : sink.bundle();
  if (bundle == nullptr)
    return Error(Errc::unsupported, "the sink cannot create a folder").hint("save to a path, or to bundle_sink()");
  if (described) {
    const GraphFiles texts = describe(snapshot, labels, operations);
    STELE_TRY(write_text(*bundle, nnef::graph_file, texts.graph));
    if (!texts.quant.empty()) STELE_TRY(write_text(*bundle, nnef::quant_file, texts.quant));
  }
  for (std::size_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const auto file, bundle->create(labels[i] + std::string(nnef::ending)));
    STELE_TRY(nnef::write(ordered.leaf(i), forms[i], *file, context));
    STELE_TRY(file->commit());
  }
  return archive != nullptr ? archive->finish() : Status();
}

}  // namespace stele::inline v0
