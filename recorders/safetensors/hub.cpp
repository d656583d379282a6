// Folders of models of the Hugging Face hub: safetensors files, config.json and other files.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/extension.hpp"
#include "encodings/safetensors/file.hpp"
#include "file.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/model_folder.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/side_files.hpp"
#include "stele/composite.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {
namespace {

namespace json = detail::json;
using detail::composites::config_key;
using detail::composites::model_type_key;

constexpr const char *config_name = "config.json", *adapter_config_name = "adapter_config.json";
constexpr std::uint64_t max_config = std::uint64_t{16} << 20;  // bytes
/// Files that describe the quantization beside config.json (gptqmodel, autoawq, modelopt).
constexpr std::string_view other_configs[] = {"quantize_config.json", "quant_config.json", "hf_quant_config.json"};

Result<std::string> text_of(const Bundle& folder, const char* name) {
  STELE_TRY_ASSIGN(const SourcePtr file, folder.open(name));
  return detail::read_text(*file, max_config, "the configuration is too large");
}

/// A member of a JSON object: places of its key and its value in the text.
struct JsonMember {
  std::string key;
  std::size_t begin = 0, value = 0, end = 0;
};

/// Lists the members of the object that a text consists of; nullopt if it is something else.
std::optional<std::vector<JsonMember>> members_of(std::string_view text) {
  json::Reader in(text);
  std::vector<JsonMember> all;
  std::string scratch;
  std::string_view key, raw;
  if (!in.begin_object()) return std::nullopt;
  while (in.next_key(key, scratch)) {
    JsonMember& m = all.emplace_back();
    m.key = key;
    m.begin = static_cast<std::size_t>(in.offset());
    if (!in.skip_value(&raw)) return std::nullopt;
    m.value = static_cast<std::size_t>(raw.data() - text.data());
    m.end = m.value + raw.size();
  }
  if (!in.finish()) return std::nullopt;
  return all;
}

/// Returns the value of a member as text; empty if there is none.
std::string_view value_of(std::string_view text, const std::vector<JsonMember>& members, std::string_view key) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const JsonMember& m) { return m.key == key; });
  return found != members.end() ? text.substr(found->value, found->end - found->value) : std::string_view();
}

bool same_json(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const auto x = parse_json(a), y = parse_json(b);
  return x && y && *x == *y;
}

/// Removes a member, if it is there.
void remove_member(std::string& text, std::string_view key) {
  const auto members = members_of(text);
  if (!members) return;
  const auto found = std::find_if(members->begin(), members->end(), [&](const JsonMember& m) { return m.key == key; });
  if (found == members->end()) return;
  const auto next = std::next(found);
  if (found != members->begin()) {
    const std::size_t begin = std::prev(found)->end;
    text.erase(begin, found->end - begin);
  } else if (next != members->end()) {
    text.erase(found->begin, next->begin - found->begin);
  } else {
    text.erase(found->begin, found->end - found->begin);
  }
}

/// The place of a value in a text.
struct TextRange {
  std::size_t begin = 0, size = 0;
};

/// Finds the value under these keys, the outermost first.
std::optional<TextRange> place_of(std::string_view text, const std::vector<std::string>& path) {
  TextRange at{0, text.size()};
  for (const std::string& key : path) {
    const std::string_view inner = text.substr(at.begin, at.size);
    const auto members = members_of(inner);
    const std::string_view found = members ? value_of(inner, *members, key) : std::string_view();
    if (found.empty()) return std::nullopt;
    at = {static_cast<std::size_t>(found.data() - text.data()), found.size()};
  }
  return at;
}

/// Removes the descriptions of a quantization from a configuration, but for one under `config_key`.
void remove_quantization(std::string& text) {
  constexpr int max_models = 16;  // models in a model; each takes a pass over the text
  for (int i = 0; i < max_models; ++i) {
    auto paths = detail::composites::quantization_paths(detail::composites::parse_config(text));
    std::erase_if(paths, [](const auto& path) { return path.size() == 1 && path[0] == config_key; });
    if (paths.empty()) return;
    std::vector<std::string> path = std::move(paths.front());
    const std::string key = std::move(path.back());
    path.pop_back();
    const auto place = place_of(text, path);
    std::string outer = place ? text.substr(place->begin, place->size) : std::string();
    remove_member(outer, key);
    if (!place || outer.size() == place->size) return;
    text.replace(place->begin, place->size, outer);
  }
}

/// Returns the configuration with this description of the quantization, or without a description; all other bytes stay
/// unchanged.
std::string updated(std::string text, const std::string& quantization) {
  if (!members_of(text)) return text;
  const auto path = detail::composites::quantization_path(detail::composites::parse_config(text));
  const auto now = path.empty() ? std::nullopt : place_of(text, path);
  if (now && same_json(std::string_view(text).substr(now->begin, now->size), quantization)) return text;
  remove_quantization(text);
  if (quantization.empty()) {
    remove_member(text, config_key);
    return text;
  }
  const auto left = *members_of(text);
  const auto old = std::find_if(left.begin(), left.end(), [](const JsonMember& m) { return m.key == config_key; });
  if (old != left.end()) return text.replace(old->value, old->end - old->value, quantization);
  const std::string entry = "\"" + std::string(config_key) + "\": " + quantization;
  if (left.empty()) return text.insert(text.find('{') + 1, entry);
  // After the last member, with the space that is before it.
  const std::size_t comma = left.size() > 1 ? text.find(',', left[left.size() - 2].end) : text.find('{');
  const std::string space = text.substr(comma + 1, left.back().begin - comma - 1);
  return text.insert(left.back().end, "," + space + entry);
}

/// Returns the configuration with the dtype of the floats, if no float has the dtype that it names.
std::string with_dtype(std::string text, const Snapshot& snapshot) {
  static constexpr std::pair<std::string_view, DType> names[] = {
      {"\"float32\"", DType::f32}, {"\"float16\"", DType::f16}, {"\"bfloat16\"", DType::bf16}};
  std::optional<DType> all;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const DType dtype = snapshot.leaf(i).dtype();
    if (composite(snapshot.leaf(i))) continue;
    if (std::none_of(std::begin(names), std::end(names), [&](const auto& n) { return n.second == dtype; })) continue;
    if (all && *all != dtype) return text;
    all = dtype;
  }
  if (!all) return text;
  for (const char* const key : {"dtype", "torch_dtype"}) {
    const auto members = members_of(text);
    if (!members) return text;
    const auto found =
        std::find_if(members->begin(), members->end(), [&](const JsonMember& m) { return m.key == key; });
    if (found == members->end()) continue;
    const std::string_view now = std::string_view(text).substr(found->value, found->end - found->value);
    const auto named = std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return n.first == now; });
    if (named == std::end(names) || named->second == *all) continue;
    const auto other =
        std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return n.second == *all; });
    text.replace(found->value, found->end - found->value, other->first);
  }
  return text;
}

/// The configurations of a folder that is written.
struct Configs {
  std::string text{};                   // config.json; empty: none
  std::vector<std::string> left_out{};  // files that describe another quantization
};

Result<Configs> configs_for(const Snapshot& snapshot) {
  const auto& beside = snapshot.data()->beside;
  const auto metadata = snapshot.metadata().find(config_key);
  const std::string quantization = metadata != snapshot.metadata().end() ? metadata->second : std::string();
  const auto has = [&](std::string_view name) {
    return beside != nullptr && std::find(beside->names.begin(), beside->names.end(), name) != beside->names.end();
  };
  Configs made;
  bool changed = !quantization.empty();
  if (has(config_name)) {
    STELE_TRY_ASSIGN(const std::string old, text_of(*beside->folder, config_name));
    made.text = updated(old, quantization);
    changed = made.text != old;
    made.text = with_dtype(std::move(made.text), snapshot);
  } else if (!quantization.empty()) {
    const auto type = snapshot.metadata().find(model_type_key);
    if (type != snapshot.metadata().end()) {
      STELE_TRY_ASSIGN(const std::string name, to_json(Value(type->second)));
      made.text = "  \"" + std::string(model_type_key) + "\": " + name + ",\n";
    }
    made.text = "{\n" + made.text + "  \"" + std::string(config_key) + "\": " + quantization + "\n}\n";
  }
  for (const std::string_view name : other_configs) {
    if (changed && has(name)) made.left_out.emplace_back(name);
  }
  return made;
}

Status write_text(Bundle& folder, std::string_view name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto file, folder.create(name));
  STELE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

Status copy(const Source& from, Sink& to) {
  constexpr std::uint64_t at_once = std::uint64_t{1} << 20;
  STELE_TRY(to.reserve(from.size()));
  Bytes piece(static_cast<std::size_t>(std::min(at_once, from.size())));
  for (std::uint64_t done = 0; done < from.size();) {
    const auto bytes = piece.span().first(static_cast<std::size_t>(std::min(at_once, from.size() - done)));
    STELE_TRY(from.read_at(done, bytes));
    STELE_TRY(to.write(bytes));
    done += bytes.size();
  }
  return to.commit();
}

}  // namespace

const Capabilities& HubFormat::capabilities() const noexcept {
  static const Capabilities can = [] {
    Capabilities c = SafetensorsFormat().capabilities();
    c.keeps = [](std::string_view part) { return part == detail::side_files_part; };
    c.leaves_out = [](const Snapshot& snapshot) {
      std::vector<std::string> rows;
      if (const auto configs = configs_for(snapshot)) {  // write() reports the error
        for (const std::string& name : configs->left_out)
          rows.push_back(name + ", which describes another quantization");
      }
      return rows;
    };
    return c;
  }();
  return can;
}

bool HubFormat::recognises(std::span<const std::byte> /*head*/, std::uint64_t /*size*/) const noexcept { return false; }

bool HubFormat::recognises_folder(const Bundle& folder) const {
  for (const char* const name : {config_name, adapter_config_name, "params.json", "model.safetensors"}) {
    const auto there = folder.contains(name);
    if (there && *there) return detail::safetensors::recognises_folder(folder);
  }
  return false;
}

Status HubFormat::may_replace(const Bundle& folder) const {
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  const auto own = [](const std::string& name) {
    return name == "model.safetensors" || name == "model.safetensors.index.json" ||
           (name.starts_with("model-") && name.ends_with(".safetensors") && name.find('/') == name.npos);
  };
  const auto other = std::find_if_not(names.begin(), names.end(), own);
  if (other == names.end()) return {};
  return Error(Errc::exists, "the target folder has other files than weights")
      .found(*other)
      .hint("save to another path");
}

Result<Snapshot> HubFormat::open(SourcePtr source, const OpenContext& context) const {
  const auto bundle = source->bundle();
  STELE_TRY_ASSIGN(const Snapshot model, ShardedSafetensorsFormat().open(source, context));
  auto data = detail::derived_data(model);
  STELE_TRY_ASSIGN(const auto inside, bundle->beneath());
  STELE_TRY_ASSIGN(const auto names, bundle->names());
  const detail::ModelFolder folder = detail::model_folder(names);
  const auto is_read = [&](std::string_view name) {
    if (detail::has_extension(folder.weights, ".safetensors")) return name == folder.weights;
    return name.find('/') == name.npos && (name.ends_with(".safetensors") || detail::is_index_of(name, ".safetensors"));
  };
  STELE_TRY_ASSIGN(data->beside, detail::side_files(inside != nullptr ? inside : bundle, is_read, data->left_out));
  if (std::string note = detail::note_of_others(folder, ".safetensors"); !note.empty()) {
    data->notes.push_back(std::move(note));
  }
  STELE_TRY_ASSIGN(const bool configured, bundle->contains(config_name));
  if (configured && !data->metadata.contains(config_key)) {
    STELE_TRY_ASSIGN(const std::string text, text_of(*bundle, config_name));
    const Value config = detail::composites::parse_config(text);
    const auto path = detail::composites::quantization_path(config);
    if (const auto place = path.empty() ? std::nullopt : place_of(text, path)) {
      data->metadata.emplace(config_key, text.substr(place->begin, place->size));
      const std::string type = detail::composites::model_with_conv1d(config);
      if (!type.empty()) data->metadata.emplace(model_type_key, type);
    }
  }
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

Status HubFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const auto bundle = sink.bundle();
  STELE_TRY_ASSIGN(const Configs configs, configs_for(snapshot));
  auto data = detail::derived_data(snapshot);
  if (data->metadata.erase(std::string(config_key)) != 0) data->metadata.erase(model_type_key);  // config.json has them
  const auto beside = data->beside;
  const Snapshot weights(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  STELE_TRY(detail::safetensors::write_files(weights, *bundle, "model", shard_bytes_, options));
  if (!configs.text.empty()) STELE_TRY(write_text(*bundle, config_name, configs.text));
  static const std::vector<std::string> none;
  for (const std::string& name : beside != nullptr ? beside->names : none) {
    const auto& left_out = configs.left_out;
    if (name == config_name || std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
    STELE_TRY_ASSIGN(const SourcePtr from, beside->folder->open(name));
    STELE_TRY_ASSIGN(const auto to, bundle->create(name));
    STELE_TRY(copy(*from, *to));
  }
  return {};
}

}  // namespace stele::inline v0
