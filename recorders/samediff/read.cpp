// Reads an open SameDiff model: parameters, graph, training configuration, optimizer state.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/meter.hpp"
#include "container.hpp"
#include "graph/checkpoint.hpp"
#include "model.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/unread.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele::inline v0 {
namespace detail::samediff {

const LeafOps Model::whole_ops{.locate = [](const void* at, std::uint64_t) -> SourceRange {
  const Stored& s = *static_cast<const Stored*>(at);
  return {s.source.get(), s.segments.front().offset};
}};

const LeafOps Model::chunked_ops{
    .read = [](const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) -> Status {
      const Stored& s = *static_cast<const Stored*>(at);
      for (const Segment& segment : s.segments) {
        if (out.empty()) break;
        if (offset >= segment.size) {
          offset -= segment.size;
          continue;
        }
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(segment.size - offset, out.size()));
        STELE_TRY(s.source->read_at(segment.offset + offset, out.first(n)));
        out = out.subspan(n);
        offset = 0;
      }
      return {};
    }};

Result<const Model::Stored*> Model::find_array(const Part& part, const stele_fb::Array* array, const std::string& name,
                                               DType dtype, const flatbuffers::Vector<std::int64_t>* shape) {
  Stored out;
  out.source = part.source;
  const auto appended = part.manifest.find(name);
  const bool here = array != nullptr && (array->buffer() != nullptr || array->chunks() != nullptr);
  if (array != nullptr) {
    STELE_TRY_ASSIGN(out.facts, facts_of(*array, part.dialect, dtype));
  } else if (appended != part.manifest.end()) {
    // In files of early 2025, no array describes the data after the FlatBuffer.
    out.facts.dtype = dtype;
    if (shape == nullptr) return malformed("the array has no shape");
    STELE_TRY_ASSIGN(out.facts.shape, extents_of(*shape));
    STELE_TRY_ASSIGN(out.facts.bytes, bytes_of_array(dtype, out.facts.shape));
  } else {
    return nullptr;
  }
  if (array != nullptr && array->is_external()) {
    return Error(Errc::unsupported, "the array is in another file, which no version of DL4J writes");
  }
  const auto place = [&](const flatbuffers::Vector<std::int8_t>& bytes) {
    return part.begin +
           static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(bytes.data()) - part.bytes.data());
  };
  std::uint64_t stored_bytes = 0;
  if (appended != part.manifest.end() && (!here || array->buffer() == nullptr || array->buffer()->size() == 0)) {
    const ManifestEntry& e = appended->second;
    if (array != nullptr && array->appended_length() != 0) {
      const auto offset = static_cast<std::uint64_t>(array->appended_offset());
      const auto length = static_cast<std::uint64_t>(array->appended_length());
      if (e.offset - part.blobs != offset || e.length != length) {
        return malformed("the array's position differs from the manifest's").offset(e.offset);
      }
    }
    out.segments.push_back({e.offset, e.length});
    stored_bytes = e.length;
  } else if (array != nullptr && array->appended_length() != 0) {
    return malformed("the manifest lacks the array");
  } else if (array->chunks() != nullptr && array->chunks()->size() != 0) {
    std::vector<const stele_fb::Chunk*> chunks(array->chunks()->begin(), array->chunks()->end());
    std::stable_sort(chunks.begin(), chunks.end(), [](auto* a, auto* b) { return a->index() < b->index(); });
    for (const auto* chunk : chunks) {
      if (chunk->data() == nullptr) continue;
      out.segments.push_back({place(*chunk->data()), chunk->data()->size()});
      stored_bytes += chunk->data()->size();
      if (!spend(sizeof(Segment))) return too_much();
    }
  } else if (array->buffer() != nullptr && array->buffer()->size() != 0) {
    out.segments.push_back({place(*array->buffer()), array->buffer()->size()});
    stored_bytes = array->buffer()->size();
  }
  if (out.facts.dtype == DType::string) out.facts.bytes = stored_bytes;
  if (out.facts.bytes != stored_bytes) return wrong_length(out.facts.bytes, stored_bytes);
  if (out.segments.empty()) out.segments.push_back({part.begin, 0});
  if (!spend(sizeof(Stored) + 64 + 8 * out.facts.shape.size())) return too_much();
  return &arrays_.emplace_back(std::move(out));
}

Status Model::add(Arrays& to, const std::string& name, const Stored& array) {
  if (!spend(Arrays::memory_of(name, array.facts))) return too_much();
  if (to.contains(name)) return Error(Errc::duplicate, "two arrays have the same name");
  if (array.facts.dtype != DType::string) {
    return to.add(name, array.facts, {array.segments.size() == 1 ? &whole_ops : &chunked_ops, &array, 0});
  }
  Bytes bytes(static_cast<std::size_t>(array.facts.bytes));
  if (!bytes.empty()) STELE_TRY(array.source->read_at(array.segments.front().offset, bytes.span()));
  return to.add_texts(name, array.facts, bytes.span());
}

template <class Fb>
Status Model::add_variables(const Part& part, const Fb& root, Arrays& arrays) {
  std::size_t used = 0;
  if (root.variables() != nullptr) {
    for (const auto* v : *root.variables()) {
      const auto kind = static_cast<VariableKind>(v->kind());
      if (kind != VariableKind::variable && kind != VariableKind::constant) continue;
      const std::string name = text_of(v->name());
      const auto of_variable = [&](Error error) { return std::move(error).path(name); };
      auto dtype = dtype_of(v->dtype());
      if (!dtype) return of_variable(std::move(dtype).error());
      used += part.manifest.contains(name) ? 1 : 0;
      // The graph's shard declares arrays that are stored in another shard.
      const bool promised = parts_.size() > 1 && &part == &parts_.front();
      if (promised) {
        missing_.emplace(name, name);
        continue;
      }
      auto stored = find_array(part, v->array(), name, *dtype, v->shape());
      if (!stored) return of_variable(std::move(stored).error());
      if (*stored == nullptr) {
        if (parts_.size() == 1) return of_variable(malformed("the variable has no array"));
        continue;
      }
      missing_.erase(name);
      if (auto r = add(arrays, name, **stored); !r) return of_variable(std::move(r).error());
    }
  }
  if (used != part.manifest.size()) {
    return malformed("an array in the manifest does not belong to a variable").file(part.source->name());
  }
  return {};
}

template <class Fb>
Status Model::add_states(const Part& part, const Fb& root, States& states) {
  if (root.states() == nullptr) return {};
  for (const auto* state : *root.states()) {
    const std::string name = text_of(state->parameter());
    const auto of_parameter = [&](Error error) { return std::move(error).path(name); };
    const auto n = state->keys() != nullptr ? state->keys()->size() : 0;
    if (n != (state->arrays() != nullptr ? state->arrays()->size() : 0)) {
      return of_parameter(malformed("the number of state arrays differs from the number of their names"));
    }
    for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
      const std::string key = state->keys()->Get(i)->str();
      auto stored = find_array(part, state->arrays()->Get(i), "", DType::none, nullptr);
      if (!stored) return of_parameter(std::move(stored).error());
      const auto [place, first] = states.places.try_emplace(key, states.kinds.size());
      if (first) {
        if (!spend(sizeof(SnapshotData) + 256)) return too_much();
        states.kinds.emplace_back(key, Arrays());
      }
      if (auto r = add(states.kinds[place->second].second, name, **stored); !r)
        return of_parameter(std::move(r).error());
    }
  }
  return {};
}

void Model::leave_out_rest(Arrays& arrays) const {
  const auto any = [](const auto* items) { return items != nullptr && items->size() != 0; };
  bool graph = false, training = false, states = false;
  for (const Part& part : parts_) {
    with_root(part, [&](const auto& root) {
      graph =
          graph || any(root.nodes()) || any(root.outputs()) || any(root.placeholders()) || any(root.loss_variables());
      training = training || any(root.training_config());
      states = states || any(root.states());
    });
  }
  if (graph) arrays.leave_out(graph_part);
  if (training) arrays.leave_out(training_part);
  if (states) arrays.leave_out(optimizer_part);
}

Result<Checkpoint> Model::checkpoint(bool all) {
  Checkpoint out;
  Arrays arrays;
  for (const Part& part : parts_) {
    STELE_TRY(with_root(part, [&](const auto& root) { return add_variables(part, root, arrays); }));
  }
  if (!missing_.empty()) return malformed("the variable has no array").path(missing_.begin()->first);
  const Part& first = parts_.front();
  if (first.newer) {
    const auto& root = *flatbuffers::GetRoot<stele_fb::SameDiffGraph>(first.bytes.data());
    const auto n = root.metadata_keys() != nullptr ? root.metadata_keys()->size() : 0;
    if (n != (root.metadata_values() != nullptr ? root.metadata_values()->size() : 0)) {
      return malformed("the number of metadata values differs from the number of keys");
    }
    std::map<std::string, std::string> metadata;
    for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
      std::string key = root.metadata_keys()->Get(i)->str();
      std::string value = root.metadata_values()->Get(i)->str();
      memory_.admit(value.size(), index_rate::index);
      if (!spend(3 * (key.size() + value.size()) + 160)) return too_much();
      if (std::find(std::begin(own_metadata), std::end(own_metadata), key) != std::end(own_metadata)) continue;
      if (!metadata.emplace(std::move(key), std::move(value)).second)
        return Error(Errc::duplicate, "a metadata key occurs twice");
    }
    STELE_TRY(arrays.set_metadata(std::move(metadata), memory_));
  }
  if (!all) leave_out_rest(arrays);
  STELE_TRY_ASSIGN(out.parameters, arrays.finish(shared_from_this()));
  if (!all) return out;

  // In memory, strings and lists take a few times their size in the file.
  std::uint64_t tables = first.bytes.size();
  for (const Stored& s : arrays_) {
    if (s.source == first.source && s.segments.front().offset < first.begin + first.bytes.size()) {
      tables -= std::min(tables, s.facts.bytes);
    }
  }
  if (!graph_fits(first.bytes, 16 * tables + index_base)) return too_much();
  STELE_TRY_ASSIGN(out.graph, with_root(first, [&](const auto& root) { return read_graph(root, first.dialect); }));
  const std::string json = with_root(first, [](const auto& root) { return text_of(root.training_config()); });
  if (!json.empty()) {
    STELE_TRY_ASSIGN(out.training, TrainingConfig::parse(json));
  }
  States states;
  for (const Part& part : parts_) {
    STELE_TRY(with_root(part, [&](const auto& root) { return add_states(part, root, states); }));
  }
  for (auto& [key, state] : states.kinds) {
    STELE_TRY_ASSIGN(Snapshot snapshot, state.finish(shared_from_this()));
    out.optimizer.set_snapshot(key, std::move(snapshot));
  }
  return out;
}

}  // namespace detail::samediff

namespace {

/// Names the entries of a zip file without variables that are not its model.
Snapshot with_unread_entries(Snapshot parameters, const detail::samediff::Model& model) {
  const detail::zip::Directory* const directory = model.directory();
  if (directory == nullptr || parameters.leaf_count() != 0) return parameters;
  std::vector<std::string> names;
  for (const detail::zip::Entry& entry : directory->entries()) names.emplace_back(entry.name);
  return detail::with_unread(std::move(parameters), names, [](std::string_view name) {
    return name == "model" || name.starts_with("model.shard") || name.ends_with(".sdnb");
  });
}

}  // namespace

Result<Snapshot> SameDiffFormat::open(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                      const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, context.options().limits));
  STELE_TRY_ASSIGN(Checkpoint checkpoint, model->checkpoint(false));
  return with_unread_entries(std::move(checkpoint.parameters), *model);
}

Result<Report> SameDiffFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                      const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, context.options().limits));
  STELE_TRY_ASSIGN(const Checkpoint checkpoint, model->checkpoint(true));
  STELE_TRY(detail::check_found(with_unread_entries(checkpoint.parameters, *model)));
  detail::Meter meter(context.options().progress,
                      checkpoint.parameters.byte_size() + detail::optimizer_bytes(checkpoint));
  STELE_TRY(detail::check_leaves(checkpoint.parameters, context.options(), meter));
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    STELE_TRY(detail::check_leaves(arrays, context.options(), meter));
  }
  if (const detail::zip::Directory* const directory = model->directory()) return directory->check(meter);
  Report report;
  detail::add_unchecked_contents(report);
  return report;
}

Result<Checkpoint> SameDiffFormat::open_checkpoint(
    SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
    const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, context.options().limits));
  STELE_TRY_ASSIGN(Checkpoint all, model->checkpoint(true));
  all.parameters = with_unread_entries(std::move(all.parameters), *model);
  return all;
}

Result<Checkpoint> open_samediff(const Input& from, const LoadOptions& options) {
  return detail::open_checkpoint(SameDiffFormat(), from, options);
}

}  // namespace stele::inline v0
