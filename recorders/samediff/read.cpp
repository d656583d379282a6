#include <algorithm>
#include <charconv>

#include "base/meter.hpp"
#include "encodings/zip/zip.hpp"
#include "model.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/flat.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {
namespace {

Error too_much() { return index_error("more names, arrays and texts than a file of this size may have"); }

Error bad(const char* text) { return Error(Errc::malformed, text); }

std::uint64_t big64(const std::byte* p) { return __builtin_bswap64(load_le<std::uint64_t>(p)); }

bool digits(std::string_view text, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// Returns true if the root table has field number `field` (its vtable is long enough and has an offset for it).
bool has_field(std::span<const std::byte> verified, std::size_t field) {
  const auto* table = flatbuffers::GetRoot<flatbuffers::Table>(verified.data());
  return table->GetOptionalFieldOffset(static_cast<flatbuffers::voffset_t>(4 + 2 * field)) != 0;
}

/// Returns true if the verifier rejects nodes in the format of DL4J before 1.0.0-beta4: id 7 is a byte, with no space
/// for four, where later files have a vector's offset; and there is no id 18.
bool is_before_beta4(std::span<const std::byte> bytes) {
  auto verifier = verifier_of(bytes);
  if (!verifier.VerifyBuffer<stele_fb::OldGraph>(nullptr)) return false;
  const auto* nodes = flatbuffers::GetRoot<stele_fb::OldGraph>(bytes.data())->nodes();
  if (nodes == nullptr || nodes->size() == 0) return false;
  for (const auto* node : *nodes) {
    const auto& table = *reinterpret_cast<const flatbuffers::Table*>(node);
    constexpr auto slot = [](int field) { return static_cast<flatbuffers::voffset_t>(4 + 2 * field); };
    if (table.GetOptionalFieldOffset(slot(18)) != 0) return false;
    const unsigned dtype = table.GetOptionalFieldOffset(slot(7));
    bool is_byte = dtype % 4 != 0;
    for (int field = 0; field < 18 && !is_byte; ++field) {
      const unsigned other = table.GetOptionalFieldOffset(slot(field));
      is_byte = dtype != 0 && other > dtype && other < dtype + 4;
    }
    if (!is_byte) return false;
  }
  return true;
}

template <class Visit>
auto with_root(const Part& part, Visit visit) {
  return part.newer ? visit(*flatbuffers::GetRoot<stele_fb::SameDiffGraph>(part.bytes.data()))
                    : visit(*flatbuffers::GetRoot<stele_fb::PlainGraph>(part.bytes.data()));
}

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view file) {
  if (file.ends_with(".sdnb")) file.remove_suffix(5);
  const std::size_t of = file.rfind("-of-");
  const std::size_t shard = file.rfind(".shard");
  if (of == file.npos || shard == file.npos || shard + 6 > of) return std::nullopt;
  ShardName out{std::string(file.substr(0, shard)), 0, 0};
  if (!digits(file.substr(shard + 6, of - shard - 6), out.index) || !digits(file.substr(of + 4), out.count)) {
    return std::nullopt;
  }
  return out;
}

std::string shard_name(std::string_view base, std::size_t index, std::size_t count) {
  return std::string(base) + ".shard" + std::to_string(index) + "-of-" + std::to_string(count) + ".sdnb";
}

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

Status Model::fetch(Part& part, std::uint64_t size) {
  if (size > max_buffer) return Error(Errc::malformed, "a FlatBuffer of 2 GiB or more").file(part.source->name());
  // If the file can be mapped, only the FlatBuffer's tables are touched.
  SourcePtr memory = part.source;
  if (memory->view().empty() && size != 0) memory = part.source->mapped();
  if (memory != nullptr && !memory->view().empty()) {
    part.bytes = memory->view().subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(size));
    part.keeper = memory;
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(part.bytes.data()) % 8 == 0;
  if (part.bytes.size() != size || !aligned) {
    if (!spend(size)) return too_much().file(part.source->name());
    auto copy = std::make_shared<Bytes>(static_cast<std::size_t>(size));
    STELE_TRY(part.source->read_at(part.begin, copy->span()));
    part.bytes = copy->span();
    part.keeper = std::move(copy);
  }
  auto verifier = verifier_of(part.bytes);
  const auto refuse = [&]() -> Error {
    const bool old = part.dialect == Dialect::a && part.bytes.size() >= 8 && is_before_beta4(part.bytes);
    const Error error =
        old ? Error(Errc::unsupported, "a graph of DL4J before 1.0.0-beta4, which later ones do not read")
                  .expected("one of 1.0.0-beta4 or later")
            : bad("not a graph of SameDiff: FlatBuffers' verifier refuses it");
    return Error(error).file(part.source->name()).offset(part.begin);
  };
  if (part.bytes.size() < 8) return refuse();
  if (part.dialect == Dialect::a) {
    if (!verifier.VerifyBuffer<stele_fb::PlainGraph>(nullptr)) return refuse();
    // In DL4J's .fb files, id 9 is not a list of strings. Files with later fields are newer.
    if (!has_field(part.bytes, 10)) return {};
    auto again = verifier_of(part.bytes);
    part.newer = again.VerifyBuffer<stele_fb::SameDiffGraph>(nullptr);
    return {};
  }
  if (!verifier.VerifyBuffer<stele_fb::SameDiffGraph>(nullptr)) return refuse();
  part.newer = true;
  return {};
}

Status Model::open_fb(SourcePtr source) {
  Part& part = parts_.emplace_back();
  const std::uint64_t size = source->size();
  part.source = std::move(source);
  return fetch(part, size);
}

Status Model::open_sdnb(const SourcePtr& source) {
  Part& part = parts_.emplace_back();
  part.source = source;
  part.dialect = Dialect::b;
  const auto refuse = [&](const char* why, std::uint64_t offset) {
    return bad(why).file(source->name()).offset(offset);
  };
  if (source->size() < sdnb_header) return Error(Errc::truncated, "too short for an SDNB file").file(source->name());
  std::byte head[sdnb_header];
  STELE_TRY(source->read_at(0, head));
  const std::uint32_t version = __builtin_bswap32(load_le<std::uint32_t>(head + 4));
  if (version != 1) {
    return Error(Errc::unsupported, "another version of SDNB")
        .file(source->name())
        .expected("1")
        .found(std::to_string(version));
  }
  const std::uint64_t manifest_at = big64(head + 8), manifest_size = big64(head + 16);
  if (big64(head + 24) != sdnb_header) return refuse("a FlatBuffer that does not begin behind the header", 24);
  if (manifest_at < sdnb_header || manifest_at > source->size()) return refuse("a manifest outside the file", 8);
  if (manifest_size != source->size() - manifest_at) return refuse("a manifest that does not end the file", 16);
  if (!spend(manifest_size)) return too_much().file(source->name());
  Bytes bytes(static_cast<std::size_t>(manifest_size));
  STELE_TRY(source->read_at(manifest_at, bytes.span()));
  auto entries = parse_manifest(bytes.span(), memory_.left());
  if (!entries) return std::move(entries).error().file(source->name());
  part.begin = sdnb_header;
  part.blobs = manifest_at;
  std::vector<Segment> taken;
  for (ManifestEntry& e : *entries) {
    if (!spend(sizeof e + 96 + e.name.size())) return too_much().file(source->name());
    if (e.offset < sdnb_header || e.offset > manifest_at || e.length > manifest_at - e.offset) {
      return refuse("an array outside the file", manifest_at).path(e.name);
    }
    part.blobs = std::min(part.blobs, e.offset);
    if (e.length != 0) taken.push_back({e.offset, e.length});
    std::string name = e.name;
    part.manifest.emplace(std::move(name), std::move(e));
  }
  std::sort(taken.begin(), taken.end(), [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].offset - taken[i - 1].offset < taken[i - 1].size) {
      return refuse("two arrays that overlap", taken[i].offset);
    }
  }
  return fetch(part, part.blobs - sdnb_header);
}

Status Model::open_shards(const ShardName& name, const std::function<Result<SourcePtr>(const std::string&)>& open) {
  // Maximum number of shards: limits the open files, and is more than any model has.
  constexpr std::uint32_t most = 100'000;
  if (name.count == 0 || name.count > most || name.index >= name.count)
    return bad("a shard of another count than it says");
  for (std::uint32_t i = 0; i < name.count; ++i) {
    const std::string file = shard_name(name.base, i, name.count);
    auto source = open(file);
    if (!source) {
      if (source.error().code() != Errc::not_found) return std::move(source).error();
      return Error(Errc::missing, "a shard of the model is missing").file(file);
    }
    STELE_TRY(open_sdnb(*source));
  }
  return {};
}

Status Model::open_sdz(const SourcePtr& source) {
  STELE_TRY_ASSIGN(directory_, zip::Directory::open(source, memory_.left()));
  std::uint64_t taken = 0;
  for (const zip::Entry& e : directory_->entries()) taken += sizeof e + 64 + e.name.size();
  if (!spend(taken)) return too_much().file(source->name());
  const auto open = [&](const std::string& name) -> Result<SourcePtr> {
    const zip::Entry* entry = directory_->find(name);
    if (entry == nullptr && name.ends_with(".sdnb")) entry = directory_->find(name.substr(0, name.size() - 5));
    if (entry == nullptr) return Error(Errc::not_found).file(name);
    return directory_->open(*entry);
  };
  // In DL4J's order: model.sdnb, model, shards, the only .sdnb entry.
  for (const char* name : {"model.sdnb", "model"}) {
    if (directory_->find(name) == nullptr) continue;
    STELE_TRY_ASSIGN(const SourcePtr entry, open(name));
    return open_sdnb(entry);
  }
  const zip::Entry* only = nullptr;
  for (const zip::Entry& e : directory_->entries()) {
    if (const auto shard = parse_shard_name(e.name)) return open_shards(*shard, open);
    if (!e.name.ends_with(".sdnb")) continue;
    if (only != nullptr) return bad("several SDNB files that are no shards of each other").file(source->name());
    only = &e;
  }
  if (only == nullptr) return bad("a zip file without a SameDiff model").file(source->name());
  STELE_TRY_ASSIGN(const SourcePtr entry, directory_->open(*only));
  return open_sdnb(entry);
}

Result<std::shared_ptr<Model>> Model::open(const SourcePtr& source, const Limits& limits) {
  auto model = std::make_shared<Model>();
  std::byte head[4]{};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof head));
  STELE_TRY(source->read_at(0, {head, n}));
  const std::string_view magic(reinterpret_cast<const char*>(head), n);
  const bool is_zip = magic == std::string_view("PK\3\4", 4);
  model->memory_ = IndexBudget(limits, source->size(), is_zip ? index_rate::compressed : index_rate::entry);
  if (is_zip) model->memory_.admit_compressed();
  if (is_zip) {
    STELE_TRY(model->open_sdz(source));
  } else if (magic == sdnb_magic) {
    const auto bundle = source->bundle();
    const auto open = [&](const std::string& name) -> Result<SourcePtr> {
      STELE_TRY_ASSIGN(SourcePtr shard, bundle->open(name));
      model->memory_.admit(shard->size(), index_rate::entry);
      return shard;
    };
    auto shard = parse_shard_name(file_name(source->name()));
    if (!shard) {
      STELE_TRY(model->open_sdnb(source));
      // A graph without the arrays of its variables stores the number of its shards.
      const Part& part = model->parts_.front();
      const auto& root = *flatbuffers::GetRoot<stele_fb::SameDiffGraph>(part.bytes.data());
      const auto* keys = root.metadata_keys();
      const auto* values = root.metadata_values();
      const auto n = keys != nullptr && values != nullptr ? std::min(keys->size(), values->size()) : 0;
      for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
        ShardName name{std::string(file_name(source->name())), 0, 0};
        if (keys->Get(i)->string_view() != "shard.count" || !digits(values->Get(i)->string_view(), name.count))
          continue;
        if (name.base.ends_with(".sdnb")) name.base.resize(name.base.size() - 5);
        shard = std::move(name);
      }
      if (shard) model->parts_.clear();
    }
    if (shard) {
      if (bundle == nullptr) return bad("a shard whose others cannot be found").file(source->name());
      STELE_TRY(model->open_shards(*shard, open));
    }
  } else {
    STELE_TRY(model->open_fb(source));
  }
  return model;
}

Result<const Model::Stored*> Model::find_array(const Part& part, const stele_fb::Array* array, const std::string& name,
                                               DType dtype, const flatbuffers::Vector<std::int64_t>* shape) {
  Stored out;
  out.source = part.source;
  const auto appended = part.manifest.find(name);
  const bool here = array != nullptr && (array->buffer() != nullptr || array->chunks() != nullptr);
  if (array != nullptr) {
    STELE_TRY_ASSIGN(out.facts, facts_of(*array, part.dialect, dtype));
  } else if (appended != part.manifest.end()) {
    // Files of early 2025 have no array to describe the data after the FlatBuffer.
    out.facts.dtype = dtype;
    if (shape == nullptr) return bad("an array whose shape nothing says");
    for (const std::int64_t extent : numbers_of<std::int64_t>(shape)) {
      if (extent < 0) return bad("an array with a negative extent");
      out.facts.shape.push_back(static_cast<Extent>(extent));
    }
    const auto count = element_count(out.facts.shape);
    const auto bytes = count ? byte_length(dtype, *count) : std::nullopt;
    if (!bytes) return bad("an array of too many elements");
    out.facts.bytes = *bytes;
  } else {
    return nullptr;
  }
  if (array != nullptr && array->is_external()) {
    return Error(Errc::unsupported, "an array in a file of its own, which no DL4J writes");
  }
  const auto place = [&](const flatbuffers::Vector<std::int8_t>& bytes) {
    return part.begin +
           static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(bytes.data()) - part.bytes.data());
  };
  std::uint64_t there = 0;
  if (appended != part.manifest.end() && (!here || array->buffer() == nullptr || array->buffer()->size() == 0)) {
    const ManifestEntry& e = appended->second;
    if (array != nullptr && array->appended_length() != 0) {
      const auto offset = static_cast<std::uint64_t>(array->appended_offset());
      const auto length = static_cast<std::uint64_t>(array->appended_length());
      if (e.offset - part.blobs != offset || e.length != length) {
        return bad("an array that lies elsewhere than the manifest says").offset(e.offset);
      }
    }
    out.segments.push_back({e.offset, e.length});
    there = e.length;
  } else if (array != nullptr && array->appended_length() != 0) {
    return bad("an array that the manifest does not have");
  } else if (array->chunks() != nullptr && array->chunks()->size() != 0) {
    std::vector<const stele_fb::Chunk*> chunks(array->chunks()->begin(), array->chunks()->end());
    std::stable_sort(chunks.begin(), chunks.end(), [](auto* a, auto* b) { return a->index() < b->index(); });
    for (const auto* chunk : chunks) {
      if (chunk->data() == nullptr) continue;
      out.segments.push_back({place(*chunk->data()), chunk->data()->size()});
      there += chunk->data()->size();
      if (!spend(sizeof(Segment))) return too_much();
    }
  } else if (array->buffer() != nullptr && array->buffer()->size() != 0) {
    out.segments.push_back({place(*array->buffer()), array->buffer()->size()});
    there = array->buffer()->size();
  }
  if (out.facts.dtype == DType::string) out.facts.bytes = there;
  if (out.facts.bytes != there) {
    return bad("an array whose length is not that of its type and shape")
        .expected(std::to_string(out.facts.bytes) + " bytes")
        .found(std::to_string(there));
  }
  if (out.segments.empty()) out.segments.push_back({part.begin, 0});
  if (!spend(sizeof(Stored) + 64 + 8 * out.facts.shape.size())) return too_much();
  return &arrays_.emplace_back(std::move(out));
}

Status Model::add(Arrays& to, const std::string& name, const Stored& array) {
  const std::uint64_t text = array.facts.dtype == DType::string ? 8 * array.facts.bytes : 0;
  if (!spend(3 * (sizeof(Node) + sizeof(LeafData) + name.size()) + 64 + 16 * array.facts.shape.size() + text)) {
    return too_much();
  }
  if (to.node(name) != no_index) return Error(Errc::duplicate, "two arrays of one name");
  if (array.facts.dtype == DType::string) {
    Bytes bytes(static_cast<std::size_t>(array.facts.bytes));
    if (!bytes.empty()) STELE_TRY(array.source->read_at(array.segments.front().offset, bytes.span()));
    STELE_TRY_ASSIGN(const auto texts, texts_of(array.facts, bytes.span()));
    to.add(name, value_of(texts, array.facts.shape));
    return {};
  }
  return to.add(name, array.facts, {array.segments.size() == 1 ? &whole_ops : &chunked_ops, &array, 0});
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
        if (parts_.size() == 1) return of_variable(bad("a variable without an array"));
        continue;
      }
      missing_.erase(name);
      if (auto r = add(arrays, name, **stored); !r) return of_variable(std::move(r).error());
    }
  }
  if (used != part.manifest.size()) {
    return bad("an array in the manifest that is no variable").file(part.source->name());
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
      return of_parameter(bad("another number of state arrays than of their names"));
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

Result<Checkpoint> Model::checkpoint(bool all) {
  Checkpoint out;
  Arrays arrays;
  for (const Part& part : parts_) {
    STELE_TRY(with_root(part, [&](const auto& root) { return add_variables(part, root, arrays); }));
  }
  if (!missing_.empty()) return bad("a variable without an array").path(missing_.begin()->first);
  const Part& first = parts_.front();
  if (first.newer) {
    const auto& root = *flatbuffers::GetRoot<stele_fb::SameDiffGraph>(first.bytes.data());
    const auto n = root.metadata_keys() != nullptr ? root.metadata_keys()->size() : 0;
    if (n != (root.metadata_values() != nullptr ? root.metadata_values()->size() : 0)) {
      return bad("metadata of which there are not as many values as names");
    }
    std::map<std::string, std::string> metadata;
    for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
      std::string key = root.metadata_keys()->Get(i)->str();
      std::string value = root.metadata_values()->Get(i)->str();
      memory_.admit(value.size(), index_rate::index);
      if (!spend(3 * (key.size() + value.size()) + 160)) return too_much();
      if (std::find(std::begin(own_metadata), std::end(own_metadata), key) != std::end(own_metadata)) continue;
      if (!metadata.emplace(std::move(key), std::move(value)).second)
        return Error(Errc::duplicate, "metadata of one name twice");
    }
    if (const auto extras = metadata.find(std::string(flat_key)); extras != metadata.end()) {
      STELE_TRY(add_flat_extras(
          extras->second, arrays.builder(), [&](std::string_view name) { return arrays.node(name); }, memory_));
      metadata.erase(extras);
    }
    arrays.builder().set_metadata(std::move(metadata));
  }
  STELE_TRY_ASSIGN(out.parameters, arrays.finish(shared_from_this()));
  if (!all) return out;

  // Strings and lists take a few times their size in the file.
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

}  // namespace samediff
}  // namespace detail

Result<Snapshot> SameDiffFormat::open(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                      const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, context.options().limits));
  STELE_TRY_ASSIGN(Checkpoint checkpoint, model->checkpoint(false));
  return std::move(checkpoint.parameters);
}

Result<Report> SameDiffFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                      const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, context.options().limits));
  STELE_TRY_ASSIGN(const Checkpoint checkpoint, model->checkpoint(true));
  std::uint64_t bytes = checkpoint.parameters.byte_size();
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) bytes += arrays.byte_size();
  detail::Meter meter(context.options().progress, bytes);
  STELE_TRY(detail::check_leaves(checkpoint.parameters, context.options(), meter));
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    STELE_TRY(detail::check_leaves(arrays, context.options(), meter));
  }
  if (const detail::zip::Directory* const directory = model->directory()) return directory->check(meter);
  Report report;
  detail::add_unchecked_contents(report);
  return report;
}

Result<Checkpoint> open_samediff(const Input& from, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Checkpoint> {
    STELE_TRY_ASSIGN(const SourcePtr source, from.open(".fb", options));
    STELE_TRY(detail::check_kind(*source, false));
    STELE_TRY_ASSIGN(const auto model, detail::samediff::Model::open(source, options.limits));
    return model->checkpoint(true);
  });
}

}  // namespace v0
}  // namespace stele
