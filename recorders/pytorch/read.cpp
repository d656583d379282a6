// The recorder's read side: finds the kind of a file, and the part to read.
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/entry_names.hpp"
#include "base/extension.hpp"
#include "base/in_file.hpp"
#include "checkpoint.hpp"
#include "dcp_metadata.hpp"
#include "encodings/tar/tar.hpp"
#include "graph/checkpoint.hpp"
#include "io/files.hpp"
#include "io/os/os.hpp"
#include "objects.hpp"
#include "passes/byte_order.hpp"
#include "read.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/items.hpp"
#include "snapshot/model_folder.hpp"
#include "snapshot/shard_set.hpp"
#include "snapshot/side_files.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/expansion.hpp"
#include "tree.hpp"

namespace stele::inline v0 {
namespace detail::pytorch {
namespace {

/// The first bytes of a stream: PROTO 2, and the magic number as a long integer of ten bytes.
constexpr std::string_view stream_magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_stream(std::span<const std::byte> head) {
  // Protocol 4 and later put a frame between PROTO and the number.
  const std::string_view text = text_of(head);
  const std::size_t at = text.find(stream_magic.substr(2));
  return pickle::protocol(head) && at != text.npos && at <= 12;
}
bool is_zip(std::span<const std::byte> head) { return text_of(head).starts_with(std::string_view("PK\3\4", 4)); }
bool is_index(std::span<const std::byte> head) { return is_shard_index(head) && lists_pickles(head); }
bool is_tar(std::span<const std::byte> head) {
  const std::string_view text = text_of(head).substr(0, 100);
  return tar::looks_like_tar(head) && is_pytorch_tar_entry(text.substr(0, text.find('\0')));
}

Result<std::span<const std::byte>> head_of(const Source& source, std::span<std::byte> buffer) {
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), buffer.size()));
  STELE_TRY(source.read_at(0, buffer.first(size)));
  return std::span<const std::byte>(buffer.first(size));
}

/// A file of one of the kinds. Files without a pickle are opened directly as Snapshots.
using Opened = std::variant<File, Snapshot>;

Result<Opened> open_any(const SourcePtr& source, const PytorchOptions& options, const Limits& limits,
                        IndexBudget& memory, Kinds kinds) {
  std::byte buffer[1024];
  STELE_TRY_ASSIGN(const auto head, head_of(*source, buffer));
  if (is_zip(head)) {
    STELE_TRY_ASSIGN(const auto directory, zip::Directory::open(source, memory.left()));
    STELE_TRY_ASSIGN(const std::string_view root, root_of(*directory));
    if (kinds == Kinds::all && directory->find(std::string(root) + "/archive_format") != nullptr) {
      STELE_TRY_ASSIGN(Snapshot program, open_pt2(directory, root, options, memory));
      return Opened(std::move(program));
    }
    STELE_TRY_ASSIGN(File file, open_zip(directory, root, !options.ignore_checksums, memory));
    return Opened(std::move(file));
  }
  if (is_stream(head)) {
    STELE_TRY_ASSIGN(File file, open_stream(source, memory));
    return Opened(std::move(file));
  }
  if (kinds == Kinds::all && is_index(head)) {
    PytorchOptions whole = options;  // the part is a part of the whole model, not of each shard
    whole.part.clear();
    STELE_TRY_ASSIGN(Snapshot set, open_shard_set(source, limits, [&](const SourcePtr& shard) {
                       IndexBudget own(limits, shard->size());
                       return open_file(shard, whole, limits, own, Kinds::saved);
                     }));
    return Opened(std::move(set));
  }
  if (tar::looks_like_tar(head)) {
    STELE_TRY_ASSIGN(File file, open_tar(source, limits, memory));
    return Opened(std::move(file));
  }
  return Error(Errc::bad_magic, "the file is not a PyTorch file").file(source->name());
}

/// Returns true for the names of PyTorch's files and indexes.
bool is_ours(std::string_view name) {
  constexpr std::string_view extensions[] = {".bin", ".pt", ".pth", ".ckpt"};
  return is_index_of(name, ".bin") ||
         std::any_of(std::begin(extensions), std::end(extensions), [&](auto e) { return has_extension(name, e); });
}

/// Returns the names of the folder's indexes of shards.
Result<std::vector<std::string>> indexes_of(const Bundle& folder) {
  STELE_TRY_ASSIGN(auto names, folder.names());
  // If the folder also has an index of safetensors files, the safetensors format opens it: many models are published in
  // both formats.
  const std::string weights = model_folder(names).weights;
  const auto is_theirs = [](const std::string& name) { return name.ends_with(".safetensors.index.json"); };
  if (has_extension(weights, ".safetensors") || is_index_of(weights, ".safetensors") ||
      std::any_of(names.begin(), names.end(), is_theirs)) {
    return std::vector<std::string>();
  }
  std::erase_if(
      names, [](const std::string& name) { return !name.ends_with(".bin.index.json") || name.find('/') != name.npos; });
  return names;
}

/// Returns the file or index in the folder that has the model's weights, by its name; empty if names leave it open, or
/// it has another format.
std::string weights_in(const std::vector<std::string>& names) {
  std::string weights = model_folder(names).weights;
  return is_ours(weights) ? weights : std::string();
}

/// Opens the file or index in the folder that has the model's weights.
Result<SourcePtr> open_weights(const Bundle& folder, const std::string& name) {
  const std::shared_ptr<const Bundle> borrowed(std::shared_ptr<const Bundle>(), &folder);
  return open_of_set(borrowed, name, 0);
}

/// Adds the folder's other files to a model that is read from one of them.
Result<Snapshot> with_folder(const Snapshot& model, const std::shared_ptr<const Bundle>& folder) {
  auto data = derived_data(model);
  STELE_TRY_ASSIGN(const auto names, folder->names());
  const ModelFolder found = model_folder(names);
  const auto is_read = [&](std::string_view name) {
    if (!is_index_of(found.weights, ".bin")) return name == found.weights;
    return name.find('/') == name.npos && (name.ends_with(".bin") || is_index_of(name, ".bin"));
  };
  STELE_TRY_ASSIGN(const auto inside, folder->beneath());
  STELE_TRY_ASSIGN(data->beside, side_files(inside != nullptr ? inside : folder, is_read, data->left_out));
  if (std::string note = note_of_others(found, ".bin"); !note.empty()) data->notes.push_back(std::move(note));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

/// Opens a distributed checkpoint, or the shards of the folder's index, in the byte order of files.
Result<Snapshot> open_folder(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options) {
  const auto bundle = folder->bundle();
  if (has_index(*bundle)) {
    STELE_TRY_ASSIGN(const Snapshot whole, open_dcp(folder, context, options));
    return part_of(whole, options.part);
  }
  STELE_TRY_ASSIGN(const auto names, bundle->names());
  const std::string weights = weights_in(names);
  STELE_TRY_ASSIGN(const auto indexes, indexes_of(*bundle));
  if (weights.empty() && indexes.size() > 1) {
    return Error(Errc::malformed, "the folder has more than one index")
        .file(folder->name())
        .found(indexes[0] + " and " + indexes[1])
        .hint("open one of them");
  }
  if (weights.empty() && indexes.empty()) {
    return Error(Errc::not_found, "the folder has no .metadata, no index of shards, and no file with the weights")
        .file(folder->name())
        .hint("name a file of the folder");
  }
  STELE_TRY_ASSIGN(const SourcePtr file, open_weights(*bundle, weights.empty() ? indexes.front() : weights));
  const Limits& limits = context.options().limits;
  IndexBudget memory(limits, file->size());
  STELE_TRY_ASSIGN(const Snapshot model, open_file(file, options, limits, memory, Kinds::all));
  return weights.empty() ? model : with_folder(model, bundle);
}

/// Names the records of a file without tensors that are not read.
Result<Snapshot> with_unread_records(Snapshot built, const SourcePtr& source, const File& file,
                                     const PytorchOptions& options) {
  if (built.leaf_count() != 0 || !options.part.empty()) return built;
  std::byte buffer[4]{};
  STELE_TRY_ASSIGN(const auto head, head_of(*source, buffer));
  if (!is_zip(head)) return built;
  STELE_TRY_ASSIGN(const auto directory, zip::Directory::open(source, UINT64_MAX));
  STELE_TRY_ASSIGN(const std::string_view root, root_of(*directory));
  constexpr std::size_t max_names = 64;  // a message has fewer
  constexpr std::string_view known[] = {"data.pkl", "constants.pkl", "version", "byteorder"};
  std::vector<std::string> names;
  for (const zip::Entry& entry : directory->entries()) {
    const std::string_view name = entry.name.substr(root.size() + 1);
    const bool described = std::find(std::begin(known), std::end(known), name) != std::end(known) ||
                           name.starts_with("code/") || name.starts_with("extra/") || name.starts_with('.');
    if (!described && !file.storages->has(entry) && names.size() < max_names) names.emplace_back(name);
  }
  return with_unread(std::move(built), names);
}

}  // namespace

Result<Snapshot> open_file(const SourcePtr& source, const PytorchOptions& options, const Limits& limits,
                           IndexBudget& memory, Kinds kinds) {
  return in_file(
      [&]() -> Result<Snapshot> {
        STELE_TRY_ASSIGN(Opened opened, open_any(source, options, limits, memory, kinds));
        if (auto* snapshot = std::get_if<Snapshot>(&opened)) return part_of(*snapshot, options.part);
        File& file = std::get<File>(opened);
        STELE_TRY_ASSIGN(const pickle::Ref part, find_part(file.objects, options.part));
        STELE_TRY_ASSIGN(Snapshot built, build(file, part, memory));
        return with_unread_records(std::move(built), source, file, options);
      }(),
      source->name());
}

}  // namespace detail::pytorch

namespace py = detail::pytorch;

bool PytorchFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  if (py::is_zip(head)) {
    const auto first = detail::zip::first_name(head);
    return first && detail::is_pytorch_zip_entry(first->name);
  }
  return py::is_stream(head) || py::is_tar(head) || py::is_index(head);
}

bool PytorchFormat::recognises_folder(const Bundle& folder) const {
  if (py::has_index(folder)) return true;
  const auto indexes = py::indexes_of(folder);
  if (indexes && !indexes->empty()) return true;
  const auto names = folder.names();
  const std::string weights = names ? py::weights_in(*names) : std::string();
  if (weights.empty()) return false;
  const auto source = folder.open(weights);  // other programs have files with these extensions, too
  std::byte buffer[1024];
  const auto head = source ? py::head_of(**source, buffer) : source.error();
  return head && recognises(*head, (*source)->size());
}

Result<Snapshot> PytorchFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    if (source->is_folder()) {
      return detail::in_host_order(py::open_folder(source, context, options_));
    }
    detail::IndexBudget memory(context.options().limits, source->size());
    return detail::in_host_order(py::open_file(source, options_, context.options().limits, memory, py::Kinds::all));
  });
}

Result<Report> PytorchFormat::verify(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Report> {
    const LoadOptions& options = context.options();
    if (source->is_folder()) {
      STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
      return detail::verify_leaves(snapshot, options);
    }
    detail::IndexBudget memory(options.limits, source->size());
    STELE_TRY_ASSIGN(py::Opened opened, py::open_any(source, options_, options.limits, memory, py::Kinds::all));
    auto* const file = std::get_if<py::File>(&opened);
    const auto parts = [&]() -> Result<Snapshot> {
      if (file == nullptr) return std::get<Snapshot>(opened);
      STELE_TRY_ASSIGN(const detail::pickle::Ref part, py::find_part(file->objects, options_.part));
      STELE_TRY_ASSIGN(Snapshot built, py::build(*file, part, memory));
      return py::with_unread_records(std::move(built), source, *file, options_);
    }();
    STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(detail::in_file(parts, source->name())));
    STELE_TRY(detail::check_found(snapshot));
    detail::Meter meter(options.progress, source->size());
    // Reads the storages of expanded tensors once each, as entries of the zip file: reading the tensors would take too
    // long.
    const bool expanded = !check_expansion(snapshot);
    if (!expanded) STELE_TRY(detail::check_leaves(snapshot, options, meter));
    std::byte buffer[4]{};
    STELE_TRY(source->read_at(0, buffer));
    if (!py::is_zip(buffer) || options_.ignore_checksums) {
      Report report;
      detail::add_unreadable_rows(snapshot, report);
      detail::add_unchecked_contents(report);
      return report;
    }
    STELE_TRY_ASSIGN(const auto directory, detail::zip::Directory::open(source, UINT64_MAX));
    STELE_TRY_ASSIGN(Report report, directory->check(meter, [&](const detail::zip::Entry& entry) {
      return !expanded && file != nullptr && file->storages->has(entry);
    }));
    detail::add_unreadable_rows(snapshot, report);
    return report;
  });
}

Result<Checkpoint> PytorchFormat::open_checkpoint(SourcePtr source,  // NOLINT(performance-unnecessary-value-param)
                                                  const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Checkpoint> {
    if (source->is_folder()) {
      STELE_TRY_ASSIGN(Snapshot parameters, open(source, context));
      return Checkpoint{std::move(parameters)};
    }
    detail::IndexBudget memory(context.options().limits, source->size());
    STELE_TRY_ASSIGN(py::Opened opened,
                     py::open_any(source, options_, context.options().limits, memory, py::Kinds::all));
    if (auto* const snapshot = std::get_if<Snapshot>(&opened)) {
      STELE_TRY_ASSIGN(Snapshot parameters, detail::in_host_order(detail::part_of(*snapshot, options_.part)));
      return Checkpoint{std::move(parameters)};
    }
    return detail::in_file(py::checkpoint_of(std::get<py::File>(opened), options_, memory), source->name());
  });
}

}  // namespace stele::inline v0
