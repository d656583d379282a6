// Reads a folder, an archive or a tensor file into a Snapshot.
#include <algorithm>
#include <map>

#include "base/extension.hpp"
#include "base/limits.hpp"
#include "encodings/gzip/gzip.hpp"
#include "encodings/tar/tar.hpp"
#include "files.hpp"
#include "io/files.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/path_parts.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/unread.hpp"
#include "stele/bundle.hpp"
#include "stele/layout.hpp"
#include "stele/recorders/nnef.hpp"
#include "tensor.hpp"
#include "text.hpp"

namespace stele::inline v0 {
namespace {

namespace nnef = detail::nnef;
namespace tar = detail::tar;

class NnefReader {
 public:
  NnefReader(std::shared_ptr<const Bundle> bundle, const Limits& limits)
      : bundle_(std::move(bundle)), memory_(limits, 0) {}

  Result<Snapshot> run() {
    builder_.set_flat();
    STELE_TRY_ASSIGN(const bool described, bundle_->contains(nnef::graph_file));
    if (described) {
      STELE_TRY(read_described());
    } else {
      STELE_TRY_ASSIGN(const auto files, bundle_->names());
      const auto is_tensor = [](const std::string& file) {
        return file.ends_with(nnef::ending) && file.size() > nnef::ending.size();
      };
      if (std::none_of(files.begin(), files.end(), is_tensor)) {
        return Error(Errc::missing, "the folder or archive contains no NNEF model")
            .expected(std::string(nnef::graph_file) + ", or files with the extension .dat");
      }
      for (const std::string& file : files) {
        if (is_tensor(file)) {
          STELE_TRY(add(std::string_view(file).substr(0, file.size() - nnef::ending.size()), nullptr, {}));
        }
      }
    }
    return detail::with_unread(builder_.finish(), *bundle_, [&](std::string_view file) { return has(file); });
  }

  /// Returns true if the model that run() read has a file of this name.
  bool has(std::string_view file) const {
    if (file == nnef::graph_file || file == nnef::quant_file) return described_;
    return file.ends_with(nnef::ending) &&
           shapes_.find(file.substr(0, file.size() - nnef::ending.size())) != shapes_.end();
  }

 private:
  Status read_described() {
    described_ = true;
    STELE_TRY_ASSIGN(const std::string graph, nnef::read_text(*bundle_, nnef::graph_file));
    const auto described = nnef::read_graph(graph);
    if (!described) return Error(described.error()).file(std::string(nnef::graph_file));
    if (described->has_operations && graph != nnef::empty_graph)
      builder_.data().left_out.emplace_back(detail::graph_part);
    std::string quant;
    STELE_TRY_ASSIGN(const bool quantized, bundle_->contains(nnef::quant_file));
    if (quantized) {
      STELE_TRY_ASSIGN(quant, nnef::read_text(*bundle_, nnef::quant_file));
    }
    auto operations = nnef::read_quantizations(quant);
    if (!operations) return std::move(operations).error().file(std::string(nnef::quant_file));
    for (const nnef::Variable& variable : described->variables) {
      const auto operation = variable.id.empty() ? operations->end() : operations->find(variable.id);
      std::string_view label = variable.label;
      if (label.starts_with('/')) label.remove_prefix(1);  // like NNEF's own reader
      STELE_TRY(add(label, variable.shape ? &*variable.shape : nullptr,
                    operation != operations->end() ? operation->second : std::string_view()));
    }
    return {};
  }

  Status add(std::string_view label, const std::vector<std::uint64_t>* shape, std::string_view operation) {
    const std::string path = detail::path_of_parts(label, "/");
    const auto check_shape = [&](std::span<const Extent> found) -> Status {
      if (shape == nullptr || std::equal(shape->begin(), shape->end(), found.begin(), found.end())) return {};
      return Error(Errc::shape_mismatch, "the tensor file's shape differs from the graph's")
          .path(path)
          .expected(to_string(std::span<const Extent>(*shape)))
          .found(to_string(found));
    };
    const auto [known, fresh] = labels_.try_emplace(nnef::lower(label), std::string(label));
    if (!fresh) {
      // If a label occurs twice, the graph has two names for one tensor.
      if (known->second == label) return check_shape(shapes_[known->second]);
      return Error(Errc::duplicate, "two labels differ only in case").path(path).found(known->second);
    }
    auto source = detail::open_of_set(bundle_, std::string(label) + std::string(nnef::ending), count_++);
    if (!source) {
      if (source.error().code() != Errc::invalid_argument) return std::move(source).error().path(path);
      return Error(Errc::malformed, "the label is not a path within the folder").path(path).found(std::string(label));
    }
    memory_.admit((*source)->size(), detail::index_rate::entry);
    if (!memory_.take(entry_memory + 6 * path.size())) {
      return detail::index_error("the model has too many tensors for the size of its files").path(path);
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
  bool described_ = false;  // true if the model has a graph
};

/// Opens one file. Its tensor gets the name from the layout if that has exactly one tensor, else the file's name.
Result<Snapshot> open_tensor(SourcePtr source, const OpenContext& context) {
  STELE_TRY_ASSIGN(auto tensor, nnef::read_header(*source));
  std::string_view stem = file_name(source->name());
  if (detail::has_extension(stem, nnef::ending)) stem.remove_suffix(nnef::ending.size());
  std::string path;
  append_segment(path, stem);
  if (const auto layout = context.layout(); layout && layout->tensors.size() == 1) path = layout->tensors[0].path;
  SnapshotBuilder builder;
  if (!path.empty()) builder.set_flat();  // an empty path: the loaded object is itself a tensor
  nnef::add(builder, path, std::move(tensor), std::move(source));
  return builder.finish();
}

}  // namespace

Status nnef::check_whole(const Bundle& folder) {
  STELE_TRY_ASSIGN(const auto files, folder.names());
  // Checks names first: an unrelated large folder has mostly other files.
  for (const std::string& file : files) {
    if (file.ends_with(ending) || file == graph_file || file == quant_file) continue;
    return Error(Errc::exists, "a file of the folder is not a tensor").found(file);
  }
  NnefReader reader({std::shared_ptr<const Bundle>(), &folder}, Limits());
  STELE_TRY(reader.run());
  for (const std::string& file : files) {
    if (!reader.has(file)) return Error(Errc::exists, "a file of the folder is not a tensor of the graph").found(file);
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
  if (source->is_folder()) return detail::in_host_order(NnefReader(source->bundle(), context.options().limits).run());
  std::byte magic[2] = {};
  if (source->size() >= sizeof magic) STELE_TRY(source->read_at(0, magic));
  if (magic[0] == std::byte{0x4e} || options_.container == NnefContainer::tensor) {
    return detail::in_host_order(open_tensor(std::move(source), context));
  }
  STELE_TRY_ASSIGN(auto bundle, tar::open(std::move(source), context.options().limits));
  return detail::in_host_order(NnefReader(std::move(bundle), context.options().limits).run());
}

}  // namespace stele::inline v0
