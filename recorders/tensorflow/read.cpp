// Reads a checkpoint into a Snapshot, and the slots of its optimizers.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "encodings/protobuf/protobuf.hpp"
#include "encodings/tensor_bundle/bundle.hpp"
#include "names.hpp"
#include "passes/byte_order.hpp"
#include "recorder.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/tensorflow.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::tensorflow;  // NOLINT(google-build-using-namespace): this file implements the format

/// Builds a flat Snapshot from entries.
class Renamed {
 public:
  explicit Renamed(const detail::tensorflow::Bundle& bundle) : from_(bundle) { to_.set_flat(); }

  std::uint32_t add(const Entry& entry, std::string_view path) {
    const std::string_view name = to_.intern(path);
    if (entry.has_strings()) return to_.value(name, entry.strings);
    const std::uint32_t node = to_.tensor(name, entry.type->dtype, entry.shape.span(), entry.bytes, entry.provider);
    if (element_size(entry.type->dtype) == 0 || entry.type->narrow_bits != 0) {
      to_.annotate(std::string(dtype_key), Value(entry.type->name));
    }
    return node;
  }

  void add_tie(std::string_view path, std::uint32_t target) { to_.alias(to_.intern(path), target); }

  /// Returns the Snapshot. Errors: duplicate.
  Result<Snapshot> finish() {
    if (auto sorted = detail::sort_names(to_); !sorted) {
      return std::move(sorted).error().hint("set TensorBundleOptions::names to TensorBundleNames::keys");
    }
    to_.keep(from_.owner());
    return detail::in_host_order(to_.finish());
  }

 private:
  const detail::tensorflow::Bundle& from_;
  SnapshotBuilder to_;
};

Result<Snapshot> parameters_of(const detail::tensorflow::Bundle& bundle, const Named& named) {
  Renamed renamed(bundle);
  std::vector<std::uint32_t> nodes;
  nodes.reserve(named.parameters.size());
  for (const Named::Parameter& p : named.parameters) nodes.push_back(renamed.add(*p.entry, p.path));
  for (const Named::Tie& tie : named.ties) renamed.add_tie(tie.path, nodes[tie.parameter]);
  return renamed.finish();
}

Result<OptimizerState> slots_of(const detail::tensorflow::Bundle& bundle, const Named& named) {
  std::map<std::string_view, Renamed> kinds;
  for (const Named::Slot& slot : named.slots) {
    kinds.try_emplace(slot.kind, bundle).first->second.add(*slot.entry, named.parameters[slot.parameter].path);
  }
  OptimizerState state;
  for (auto& [kind, renamed] : kinds) {
    STELE_TRY_ASSIGN(Snapshot arrays, renamed.finish());
    state.set_snapshot(std::string(kind), std::move(arrays));
  }
  return state;
}

Result<Checkpoint> open_all(SourcePtr source, const LoadOptions& options, TensorBundleNames names, bool slots) {
  detail::IndexBudget memory(options.limits, 0);
  bool graph = false;  // a SavedModel
  if (source->is_folder()) {
    STELE_TRY_ASSIGN(graph, source->bundle()->contains("saved_model.pb"));
  }
  STELE_TRY_ASSIGN(const auto bundle, open_bundle(std::move(source), memory));
  STELE_TRY_ASSIGN(const auto named, detail::in_file(name_entries(bundle, names, memory), bundle.name()));
  STELE_TRY_ASSIGN(Snapshot parameters, detail::in_file(parameters_of(bundle, named), bundle.name()));
  if (graph || (!slots && !named.slots.empty())) {
    auto data = detail::derived_data(parameters);
    if (graph) data->left_out.emplace_back(detail::graph_part);
    if (!slots && !named.slots.empty()) data->left_out.emplace_back(detail::optimizer_part);
    parameters = Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  }
  Checkpoint out{std::move(parameters)};
  if (!slots) return out;
  STELE_TRY_ASSIGN(out.optimizer, detail::in_file(slots_of(bundle, named), bundle.name()));
  return out;
}

}  // namespace

bool TensorBundleFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  // The first entry of the table has an empty key, and a BundleHeaderProto as its value. Snappy puts the length of the
  // block and a literal's tag before the entry.
  constexpr std::size_t max_header = 64, min_table = 48 + 3 * 5;
  const std::string_view state(reinterpret_cast<const char*>(head.data()), head.size());
  if (state.starts_with("model_checkpoint_path")) return true;
  if (size < min_table) return false;
  for (std::size_t at = 0; at <= 6 && at + 3 < head.size(); ++at) {
    if (head[at] != std::byte{0} || head[at + 1] != std::byte{0}) continue;
    const auto length = std::to_integer<std::size_t>(head[at + 2]);
    if (length == 0 || length > max_header || length > head.size() - at - 3) return false;
    detail::protobuf::Reader in(head.subspan(at + 3, length));
    bool version = false;
    while (in.next()) {
      if (!in.is(1) && !in.is(2) && !in.is(3)) return false;
      version = version || (in.is(3) && in.has_length());
    }
    return version && in.status().has_value();
  }
  return false;
}

bool TensorBundleFormat::recognises_folder(const stele::Bundle& folder) const {
  const auto contains = [&](const char* name) {
    const auto found = folder.contains(name);
    return found && *found;
  };
  if (contains("variables/variables.index")) return true;
  if (!contains("checkpoint")) {
    const auto names = folder.names();
    if (!names) return false;
    const auto is_index = [](const std::string& name) {
      return name.ends_with(".index") && name.find('/') == name.npos;
    };
    const auto index = std::find_if(names->begin(), names->end(), is_index);
    if (index == names->end()) return false;
    const auto table = folder.open(*index);
    std::byte head[128]{};
    const std::size_t size =
        table ? static_cast<std::size_t>(std::min<std::uint64_t>((*table)->size(), sizeof head)) : 0;
    return size != 0 && (*table)->read_at(0, {head, size}) && recognises({head, size}, (*table)->size());
  }
  const auto state = folder.open("checkpoint");
  std::byte head[64]{};
  const std::size_t size = state ? static_cast<std::size_t>(std::min<std::uint64_t>((*state)->size(), sizeof head)) : 0;
  if (size == 0 || !(*state)->read_at(0, {head, size})) return false;
  return std::string_view(reinterpret_cast<const char*>(head), size).starts_with("model_checkpoint_path");
}

Result<Snapshot> TensorBundleFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(Checkpoint all, open_all(std::move(source), context.options(), options_.names, false));
  return std::move(all.parameters);
}

Result<Checkpoint> TensorBundleFormat::open_checkpoint(SourcePtr source, const OpenContext& context) const {
  return open_all(std::move(source), context.options(), options_.names, true);
}

Result<Checkpoint> detail::open_checkpoint(const TensorBundleFormat& format, const Input& from,
                                           const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Checkpoint> {
    STELE_TRY(refuse_part(from, options));
    STELE_TRY_ASSIGN(SourcePtr source, from.open(format.extension(), options));
    return format.open_checkpoint(std::move(source), OpenContext(options, {}));
  });
}

}  // namespace stele::inline v0
