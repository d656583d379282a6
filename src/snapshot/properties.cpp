#include "snapshot/properties.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/limits.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "stele/report.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {
namespace {

/// The sections of the text: key -> value, and key -> original type in a file.
constexpr std::string_view values_section = "values", types_section = "types";

Status read_types(json::Reader& in, std::map<std::string, std::string>& out, IndexBudget& memory) {
  std::string key_scratch, scratch;
  std::string_view key, text;
  if (!in.begin_object()) return {};
  while (in.next_key(key, key_scratch) && in.read_string(text, scratch)) {
    if (!memory.take(128 + key.size() + text.size()))
      return index_error("the types of the properties take too much memory");
    if (!out.emplace(key, text).second) in.fail(Errc::duplicate, "each key once", "a property has two types");
  }
  return {};
}

Result<Properties> read_properties(std::string_view text, IndexBudget& memory) {
  Properties properties;
  json::Reader in(text);
  std::string scratch;
  std::string_view section;
  if (in.begin_object()) {
    while (in.next_key(section, scratch)) {
      if (section == values_section && properties.values.is_null()) {
        STELE_TRY(json::read_value(in, properties.values, static_cast<std::size_t>(memory.left())));
        if (properties.values.as_map() == nullptr) in.fail(Errc::malformed, "an object of properties");
      } else if (section == types_section && properties.types.empty()) {
        STELE_TRY(read_types(in, properties.types, memory));
      } else {
        in.fail(Errc::unsupported, "a section that this version knows, once");
      }
    }
  }
  if (!in.finish()) return in.error();
  if (properties.values.is_null()) return Error(Errc::malformed, "the properties have no values");
  return properties;
}

}  // namespace

std::string properties_beside_metadata(const Snapshot& snapshot) {
  std::string names;
  if (snapshot.properties().as_map() == nullptr) return names;
  for (const auto& [key, value] : *snapshot.properties().as_map()) {
    if (value.as_string() != nullptr && snapshot.metadata().contains(key)) continue;
    if (names.size() < Report::max_part_bytes) names += (names.empty() ? "" : ", ") + key;
  }
  return names;
}

Result<Snapshot> properties_to_metadata(const Snapshot& snapshot) {
  const Properties& properties = *snapshot.data()->properties;
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key(values_section);
  if (auto r = json::write_value(out, properties.values); !r) {
    return std::move(r).error().path(std::string(properties_key));
  }
  if (!properties.types.empty()) {
    out.key(types_section);
    out.begin_object();
    for (const auto& [key, type] : properties.types) out.key(key), out.string(type);
    out.end_object();
  }
  out.end_object();
  return with_metadata(snapshot, {{std::string(properties_key), std::move(text)}});
}

Result<Snapshot> properties_from_metadata(const Snapshot& snapshot, const Limits& limits, std::uint64_t file_bytes) {
  const auto found = snapshot.metadata().find(std::string(properties_key));
  if (found == snapshot.metadata().end()) return snapshot;
  IndexBudget memory(limits, std::min<std::uint64_t>(found->second.size(), file_bytes), index_rate::index);
  if (found->second.size() > file_bytes) memory.admit_compressed();
  auto read = read_properties(found->second, memory);
  if (!read) return std::move(read).error().path(std::string(properties_key));
  Properties& properties = *read;
  auto data = derived_data(snapshot);
  // The caller may have changed a string of the metadata since.
  for (auto& [key, value] : *properties.values.as_map()) {
    const auto text = data->metadata.find(key);
    if (value.as_string() != nullptr && text != data->metadata.end()) value = Value(text->second);
  }
  data->metadata.erase(std::string(properties_key));
  data->properties = std::make_shared<const Properties>(std::move(properties));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
