#include "stele/recorders/nnef.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "encodings/gzip/gzip.hpp"
#include "encodings/tar/tar.hpp"
#include "io/files.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "stele/bundle.hpp"
#include "stele/layout.hpp"
#include "steps/byte_order.hpp"
#include "tensor.hpp"
#include "text.hpp"

namespace stele {
inline namespace v0 {
namespace {

namespace nnef = detail::nnef;
namespace tar = detail::tar;

constexpr std::string_view graph_file = "graph.nnef";
constexpr std::string_view quant_file = "graph.quant";
constexpr std::string_view ending = ".dat";
// First line of the graphs that stele writes. stele may replace such a graph: it has no operations that would be lost.
constexpr std::string_view made_here = "# Variables alone, by stele.\n";
// Maximum size of a text file. Real ones have a line for each operation.
constexpr std::uint64_t max_text = std::uint64_t{256} << 20;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

// ---- reading --------------------------------------------------------------------------------------------------------

Result<std::string> read_text(const Bundle& bundle, std::string_view name) {
  STELE_TRY_ASSIGN(const SourcePtr source, bundle.open(name));
  if (source->size() > max_text) return Error(Errc::limit, "a text that is too large").file(source->name());
  std::string text(static_cast<std::size_t>(source->size()), '\0');
  STELE_TRY(source->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string path_of(std::string_view label) {
  std::string path;
  for (std::size_t begin = 0; begin <= label.size();) {
    const std::size_t end = std::min(label.find('/', begin), label.size());
    if (begin != 0) path += '.';
    append_segment(path, label.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

class Opener {
 public:
  Opener(std::shared_ptr<const Bundle> bundle, const Limits& limits) : bundle_(std::move(bundle)), memory_(limits, 0) {}

  Result<Snapshot> run() {
    builder_.set_flat();
    STELE_TRY_ASSIGN(const bool described, bundle_->contains(graph_file));
    if (described) {
      STELE_TRY(read_described());
    } else {
      STELE_TRY_ASSIGN(const auto files, bundle_->names());
      const auto is_tensor = [](const std::string& file) {
        return file.ends_with(ending) && file.size() > ending.size();
      };
      if (std::none_of(files.begin(), files.end(), is_tensor)) {
        return Error(Errc::missing, "no NNEF model")
            .expected(std::string(graph_file) + ", or files with the extension .dat");
      }
      for (const std::string& file : files) {
        if (is_tensor(file)) {
          STELE_TRY(add(std::string_view(file).substr(0, file.size() - ending.size()), nullptr, {}));
        }
      }
    }
    return builder_.finish();
  }

 private:
  Status read_described() {
    STELE_TRY_ASSIGN(const std::string graph, read_text(*bundle_, graph_file));
    auto variables = nnef::read_graph(graph);
    if (!variables) return std::move(variables).error().file(std::string(graph_file));
    std::string quant;
    STELE_TRY_ASSIGN(const bool quantized, bundle_->contains(quant_file));
    if (quantized) {
      STELE_TRY_ASSIGN(quant, read_text(*bundle_, quant_file));
    }
    auto operations = nnef::read_quantizations(quant);
    if (!operations) return std::move(operations).error().file(std::string(quant_file));
    for (const nnef::Variable& variable : *variables) {
      const auto operation = variable.id.empty() ? operations->end() : operations->find(variable.id);
      std::string_view label = variable.label;
      if (label.starts_with('/')) label.remove_prefix(1);  // like NNEF's own reader
      STELE_TRY(add(label, variable.shape ? &*variable.shape : nullptr,
                    operation != operations->end() ? operation->second : std::string_view()));
    }
    return {};
  }

  Status add(std::string_view label, const std::vector<std::uint64_t>* shape, std::string_view operation) {
    const std::string path = path_of(label);
    const auto check_shape = [&](std::span<const Extent> found) -> Status {
      if (shape == nullptr || std::equal(shape->begin(), shape->end(), found.begin(), found.end())) return {};
      return Error(Errc::shape_mismatch, "a file of another shape than the graph says")
          .path(path)
          .expected(to_string(std::span<const Extent>(*shape)))
          .found(to_string(found));
    };
    const auto [known, fresh] = labels_.try_emplace(lower(label), std::string(label));
    if (!fresh) {
      // A repeated label means one tensor with two names in the graph.
      if (known->second == label) return check_shape(shapes_[known->second]);
      return Error(Errc::duplicate, "labels that differ in capitals alone").path(path).found(known->second);
    }
    auto source = detail::open_of_set(bundle_, std::string(label) + std::string(ending), count_++);
    if (!source) {
      if (source.error().code() != Errc::invalid_argument) return std::move(source).error().path(path);
      return Error(Errc::malformed, "a label that is no path within the folder").path(path).found(std::string(label));
    }
    memory_.admit((*source)->size(), detail::index_rate::entry);
    if (!memory_.take(entry_memory + 6 * path.size())) {
      return detail::index_error("more tensors than files of this size may have").path(path);
    }
    auto tensor = nnef::read_header(**source);
    if (!tensor) return std::move(tensor).error().path(path).file((*source)->name());
    STELE_TRY(check_shape(tensor->shape()));
    shapes_.emplace(label, std::vector<Extent>(tensor->shape().begin(), tensor->shape().end()));
    if (!operation.empty()) nnef::note_operation(operation, tensor->notes);
    nnef::add(builder_, path, std::move(*tensor), std::move(*source));
    return {};
  }

  /// Memory of a tensor in bytes: an open file, two tables of labels, node, leaf and annotations.
  static constexpr std::uint64_t entry_memory = 1024;

  std::shared_ptr<const Bundle> bundle_;
  detail::IndexBudget memory_;
  SnapshotBuilder builder_;
  std::map<std::string, std::string> labels_;  // by lower-case label
  std::map<std::string, std::vector<Extent>, std::less<>> shapes_;
  std::size_t count_ = 0;
};

/// Opens one file. Its tensor gets the name of the only tensor that the layout has, else the file's name.
Result<Snapshot> open_tensor(SourcePtr source, const OpenContext& context) {
  STELE_TRY_ASSIGN(auto tensor, nnef::read_header(*source));
  std::string_view stem = file_name(source->name());
  if (stem.ends_with(ending)) stem.remove_suffix(ending.size());
  std::string path;
  append_segment(path, stem);
  if (const auto layout = context.layout(); layout && layout->tensors.size() == 1) path = layout->tensors[0].path;
  SnapshotBuilder builder;
  if (!path.empty()) builder.set_flat();  // an empty path: the loaded object is itself a tensor
  nnef::add(builder, path, std::move(tensor), std::move(source));
  return builder.finish();
}

// ---- writing --------------------------------------------------------------------------------------------------------

/// Returns the label for a path. Errors: not_representable.
Result<std::string> label_of(std::string_view path) {
  const auto refuse = [&](std::string found) {
    return Error(Errc::not_representable, "a path that NNEF has no label for")
        .path(std::string(path))
        .expected("segments of [A-Za-z0-9_.-], other than dots alone")
        .found(std::move(found));
  };
  std::string label;
  std::string_view rest = path;
  for (bool more = true; more;) {
    std::string_view raw;
    std::string segment;
    if (!detail::first_segment(rest, raw, segment)) return refuse("a wrong escape");
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
    const auto [known, fresh] = files.try_emplace(lower(label) + std::string(ending), i);
    labels.push_back(std::move(label));
    if (fresh) continue;
    return Error(Errc::not_representable, "paths that differ in capitals alone, as labels of NNEF may not")
        .path(std::string(paths[i]))
        .found(std::string(paths[known->second]));
  }
  // `a.dat` may be the file of one tensor and the folder of another.
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string label = lower(labels[i]);
    for (std::size_t slash = label.find('/'); slash != std::string::npos; slash = label.find('/', slash + 1)) {
      const std::string folder = label.substr(0, slash);
      const auto file = files.find(folder);
      if (file == files.end() && folder != graph_file && folder != quant_file) continue;
      return Error(Errc::not_representable, "a folder of the name of a file")
          .path(std::string(paths[i]))
          .found(file != files.end() ? std::string(paths[file->second]) : folder);
    }
  }
  return labels;
}

const Value* note_of(const LeafView& leaf, std::string_view key) {
  const Annotations* notes = leaf.annotations();
  const auto found = notes != nullptr ? notes->find(std::string(key)) : Annotations::const_iterator();
  return notes != nullptr && found != notes->end() ? &found->second : nullptr;
}

/// Returns the leaf's operation for graph.quant; empty if it has none.
Result<std::string> quantization_of(const LeafView& leaf) {
  if (const Value* note = note_of(leaf, quantization_key)) {
    std::string text = nnef::operation_of(*note);
    if (!text.empty()) return text;
    return Error(Errc::not_representable, "a quantization that NNEF has no operation for").path(leaf.path());
  }
  const Value* note = note_of(leaf, nnef::operation_key);
  if (note == nullptr) return std::string();
  const std::string* text = note->as_string();
  if (text != nullptr) {
    const std::string line = "'': " + *text + ';';
    const auto read = nnef::read_quantizations(line);
    if (read && read->size() == 1 && read->begin()->second == *text) return *text;
  }
  return Error(Errc::not_representable, "an annotation that graph.quant cannot hold")
      .path(leaf.path())
      .expected("an operation as text in " + std::string(nnef::operation_key));
}

struct Texts {
  std::string graph;
  std::string quant;
};

/// Names in the graph are labels with a number before them: names allow fewer characters, and must be unique.
Texts describe(const Snapshot& snapshot, std::span<const std::string> labels, std::span<const std::string> operations) {
  std::string names;
  std::string lines;
  Texts texts;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    std::string name = 'v' + std::to_string(i) + '_' + labels[i];
    for (char& c : name) c = c == '/' || c == '.' || c == '-' ? '_' : c;
    const DTypeClass kind = dtype_class(leaf.dtype());
    const bool integers = kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
    const bool quantized = !operations[i].empty() || note_of(leaf, nnef::quantized_key) != nullptr;
    const char* type = kind == DTypeClass::boolean ? "logical" : integers && !quantized ? "integer" : "scalar";
    names += (i != 0 ? ", " : "") + name;
    lines += "    " + name + " = variable<" + type + ">(shape = " + to_string(leaf.shape()) + ", label = '" +
             labels[i] + "');\n";
    if (!operations[i].empty()) texts.quant += '"' + name + "\": " + operations[i] + ";\n";
  }
  if (labels.empty()) names = "none";  // a graph needs a result
  // NNEF's readers require an input.
  texts.graph = std::string(made_here) + "version 1.0;\n\ngraph variables(none) -> (" + names +
                ") {\n    none = external<scalar>(shape = [1]);\n" + lines + "}\n";
  return texts;
}

Status write_text(Bundle& bundle, std::string_view name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto file, bundle.create(name));
  STELE_TRY(file->reserve(text.size()));
  STELE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

bool holds(DType dtype) {
  switch (dtype_class(dtype)) {
    case DTypeClass::floating:
      return is_plain_float(dtype) && dtype != DType::bf16;
    case DTypeClass::signed_int:
    case DTypeClass::unsigned_int:
      return element_size(dtype) != 0;
    case DTypeClass::boolean:
    case DTypeClass::opaque:
      return true;
    default:
      return false;
  }
}

bool keeps(std::string_view annotation) {
  return annotation == quantization_key || annotation == nnef::bits_key || annotation == nnef::quantized_key ||
         annotation == nnef::vendor_key || annotation == nnef::type_key || annotation == nnef::operation_key;
}

NnefContainer container_at(NnefContainer container, std::string_view path) noexcept {
  if (container != NnefContainer::by_name) return container;
  return path.ends_with(".tgz")   ? NnefContainer::tgz
         : path.ends_with(ending) ? NnefContainer::tensor
                                  : NnefContainer::folder;
}

}  // namespace

std::string_view NnefFormat::name() const noexcept {
  switch (options_.container) {
    case NnefContainer::by_name:
    case NnefContainer::folder:
      return "nnef";
    case NnefContainer::tgz:
      return "nnef-tgz";
    case NnefContainer::tensor:
      break;
  }
  return "nnef-tensor";
}

std::string_view NnefFormat::extension() const noexcept {
  switch (options_.container) {
    case NnefContainer::by_name:
    case NnefContainer::folder:
      return ".nnef";
    case NnefContainer::tgz:
      return ".nnef.tgz";
    case NnefContainer::tensor:
      break;
  }
  return ending;
}

const Capabilities& NnefFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = nnef::max_rank, .holds = holds, .keeps = keeps};
  return can;
}

bool NnefFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  std::byte room[tar::head_size];
  const bool any = options_.container == NnefContainer::by_name;
  if ((any || options_.container == NnefContainer::tgz) &&
      (tar::looks_like_tar(head) || tar::looks_like_tar(detail::gzip::inflated_head(head, room)))) {
    return true;
  }
  return (any || options_.container == NnefContainer::tensor) && head.size() >= 4 && head[0] == std::byte{0x4e} &&
         head[1] == std::byte{0xef} && head[2] == std::byte{1};
}

bool NnefFormat::makes_folder(std::string_view path) const noexcept {
  return container_at(options_.container, path) == NnefContainer::folder;
}

bool NnefFormat::recognises_folder(const Bundle& folder) const {
  if (!is_folder()) return false;  // other NnefFormats open the other containers
  const auto described = folder.contains(graph_file);
  if (described && *described) return true;
  const auto files = folder.names();
  return files && std::any_of(files->begin(), files->end(), [](const std::string& f) { return f.ends_with(ending); });
}

Status NnefFormat::may_replace(const Bundle& folder) const {
  STELE_TRY_ASSIGN(const auto files, folder.names());
  for (const std::string& file : files) {
    bool ours = file.ends_with(ending) || file == quant_file;
    if (file == graph_file) {
      STELE_TRY_ASSIGN(const std::string text, read_text(folder, file));
      ours = text.starts_with(made_here);
    }
    if (ours) continue;
    return Error(Errc::exists, "the folder holds more than parameters")
        .expected("another place, or FileSinkOptions::allow_nonatomic")
        .found(file);
  }
  return {};
}

Result<Report> NnefFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                  const OpenContext& context) const {
  STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
  STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
  STELE_TRY_ASSIGN(const bool gzip, detail::gzip::is_gzip(*source));
  gzip ? detail::gzip::add_unchecked_header(report) : detail::add_unchecked_contents(report);
  return report;
}

Result<Snapshot> NnefFormat::open(SourcePtr source, const OpenContext& context) const {
  if (source->is_folder()) return detail::in_host_order(Opener(source->bundle(), context.options().limits).run());
  std::byte magic[2] = {};
  if (source->size() >= sizeof magic) STELE_TRY(source->read_at(0, magic));
  if (magic[0] == std::byte{0x4e} || options_.container == NnefContainer::tensor) {
    return detail::in_host_order(open_tensor(std::move(source), context));
  }
  STELE_TRY_ASSIGN(auto bundle, tar::open(std::move(source), context.options().limits));
  return detail::in_host_order(Opener(std::move(bundle), context.options().limits).run());
}

Status NnefFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  const std::size_t count = snapshot.leaf_count();
  const NnefContainer container = container_at(options_.container, sink.name());
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
      return Error(Errc::not_representable, "a tensor file cannot say what quantized numbers mean: a folder can")
          .path(std::string(paths[i]));
    }
  }
  const Snapshot ordered = detail::in_file_order(snapshot);
  ReadContext context(detail::workers_of(options));
  if (single) {
    if (count == 1) return nnef::write(ordered.leaf(0), forms[0], sink, context);
    return Error(Errc::not_representable, "a tensor file holds one tensor")
        .expected("1")
        .found(std::to_string(count) + " tensors");
  }
  STELE_TRY_ASSIGN(const auto labels, labels_of(snapshot, paths));
  const auto archive = container == NnefContainer::folder ? nullptr : std::make_shared<tar::Writer>(sink, true);
  const std::shared_ptr<Bundle> bundle = archive != nullptr ? archive : sink.bundle();
  if (bundle == nullptr) return Error(Errc::unsupported, "a folder needs a place").expected("a path, or bundle_sink()");
  if (described) {
    const Texts texts = describe(snapshot, labels, operations);
    STELE_TRY(write_text(*bundle, graph_file, texts.graph));
    if (!texts.quant.empty()) STELE_TRY(write_text(*bundle, quant_file, texts.quant));
  }
  for (std::size_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const auto file, bundle->create(labels[i] + std::string(ending)));
    STELE_TRY(nnef::write(ordered.leaf(i), forms[i], *file, context));
    STELE_TRY(file->commit());
  }
  return archive != nullptr ? archive->finish() : Status();
}

}  // namespace v0
}  // namespace stele
