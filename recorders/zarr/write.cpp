// Writes a Snapshot as a folder of zarr v3.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "base/shortened.hpp"
#include "encodings/zarr/chunk_writer.hpp"
#include "encodings/zarr/metadata.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/zarr.hpp"
#include "zarr.hpp"

namespace stele::inline v0 {
namespace detail::zarr {
namespace {

/// Returns the array's path in the folder. Errors: not_representable.
Result<std::string> name_of(std::string_view path) {
  const auto refuse = [&](std::string_view found) {
    return Error(Errc::not_representable, "the path has no name in zarr")
        .path(std::string(path))
        .expected("segments of UTF-8 without / and \\, that do not begin with __ or consist of dots")
        .found(shortened(found, 60))
        .hint("rename the tensor");
  };
  std::string name;
  std::string_view rest = path;
  for (bool more = true; more;) {
    std::string_view raw;
    std::string segment;
    if (!first_segment(rest, raw, segment)) return refuse("an invalid escape");
    const bool dots = segment.find_first_not_of('.') == std::string::npos;
    if (dots || segment.starts_with("__") || segment == v3_key || !json::valid_utf8(segment) ||
        segment.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return refuse(segment);
    }
    name += name.empty() ? segment : '/' + segment;
    more = raw.size() < rest.size();
    if (more) rest.remove_prefix(raw.size() + 1);
  }
  return name;
}

const Value* note_of(const LeafView& leaf, std::string_view key) {
  if (leaf.annotations() == nullptr) return nullptr;
  const auto found = leaf.annotations()->find(std::string(key));
  return found != leaf.annotations()->end() ? &found->second : nullptr;
}

/// Returns a leaf's annotation if a document can contain it: a map of attributes, or a name or null for each axis.
const Value* written_note(const LeafView& leaf, std::string_view key) {
  const Value* const note = note_of(leaf, key);
  if (note == nullptr || !is_plain_json(*note)) return nullptr;
  if (key == attributes_note) return note->as_map() != nullptr ? note : nullptr;
  const Value::List* const names = note->as_list();
  const auto is_name = [](const Value& v) { return v.is_null() || v.as_string() != nullptr; };
  const bool fits =
      names != nullptr && names->size() == leaf.shape().size() && std::all_of(names->begin(), names->end(), is_name);
  return fits ? note : nullptr;
}

Status write_text(Bundle& bundle, const std::string& name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto file, bundle.create(name));
  STELE_TRY(file->reserve(text.size()));
  STELE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

class Writer {
 public:
  Writer(const Snapshot& snapshot, const ZarrOptions& options, Bundle& bundle)
      : snapshot_(snapshot), options_(options), level_(std::clamp(options.level, 0, 19)), bundle_(bundle) {
    if (level_ != 0) compressor_.emplace(level_);
  }

  Status run(const std::map<std::string, std::string>& metadata, const Workers& workers) {
    const LeafPaths paths(*snapshot_.data());
    std::vector<std::string> names;
    std::set<std::string> groups, arrays;
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      STELE_TRY_ASSIGN(names.emplace_back(), name_of(paths[i]));
      const std::string& name = names.back();
      if (std::count(name.begin(), name.end(), '/') > 48) {  // a bundle's names have at most 64 parts
        return Error(Errc::not_representable, "the path has too many segments for a folder")
            .path(std::string(paths[i]));
      }
      arrays.insert(name);
      for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
        groups.insert(name.substr(0, slash));
      }
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!groups.contains(names[i])) continue;
      return Error(Errc::not_representable, "an array of zarr cannot contain other arrays")
          .path(std::string(paths[i]))
          .hint("rename the tensor");
    }
    STELE_TRY_ASSIGN(const std::string document, root(metadata));
    STELE_TRY(write_text(bundle_, std::string(v3_key), document));
    for (const std::string& group : groups) {
      STELE_TRY(write_text(bundle_, group + '/' + std::string(v3_key),
                           "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}"));
    }
    const Snapshot ordered = in_file_order(snapshot_);
    ReadContext context(workers);
    for (std::size_t i = 0; i < names.size(); ++i) STELE_TRY(array(names[i], ordered.leaf(i), context));
    return {};
  }

 private:
  Result<std::string> root(const std::map<std::string, std::string>& metadata) const {
    std::string text;
    json::Writer out(text);
    out.begin_object();
    out.key("zarr_format"), out.u64(3);
    out.key("node_type"), out.string("group");
    out.key("attributes"), out.begin_object();
    out.key(made_here_key), out.u64(1);
    if (const Value::Map* const map = snapshot_.properties().as_map()) {
      for (const auto& [key, value] : *map) {
        const bool kept = metadata.contains(key) || key == flat_key || key == made_here_key;
        if (kept || !is_plain_json(Value(Value::Map{{key, value}}))) continue;
        out.key(key);
        STELE_TRY(json::write_value(out, value));
      }
    }
    for (const auto& [key, value] : metadata) out.key(key), out.string(value);
    out.end_object();
    out.end_object();
    return text;
  }

  Status array(const std::string& name, const LeafView& leaf, ReadContext& context) {
    const ArrayPlan plan = plan_array(leaf.dtype(), leaf.shape(), options_.chunk_bytes);
    const Value none = Value::Map{};
    const Value* const attributes = written_note(leaf, attributes_note);
    STELE_TRY_ASSIGN(const std::string text, document_of(plan, level_, attributes != nullptr ? *attributes : none,
                                                         written_note(leaf, dimensions_note)));
    STELE_TRY(write_text(bundle_, name + '/' + std::string(v3_key), text));
    if (leaf.byte_size() == 0) return {};
    ChunkWriter chunks(bundle_, name, plan, compressor_ ? &*compressor_ : nullptr);
    STELE_TRY(with_path(leaf.stream(chunks, context), leaf));
    return chunks.finish();
  }

  const Snapshot& snapshot_;
  const ZarrOptions& options_;
  int level_;
  Bundle& bundle_;
  std::optional<Compressor> compressor_;
};

}  // namespace

bool is_plain_json(const Value& value) {
  if (value.as_bytes() != nullptr) return false;
  if (const double* const f = value.as_f64()) return std::isfinite(*f);
  if (const std::string* const text = value.as_string()) return json::valid_utf8(*text);
  if (const Value::List* const list = value.as_list()) {
    return std::all_of(list->begin(), list->end(), [](const Value& v) { return is_plain_json(v); });
  }
  if (const Value::Map* const map = value.as_map()) {
    std::set<std::string_view> keys;
    return std::all_of(map->begin(), map->end(), [&](const auto& entry) {
      return !entry.first.starts_with('$') && json::valid_utf8(entry.first) && keys.insert(entry.first).second &&
             is_plain_json(entry.second);
    });
  }
  return true;
}

}  // namespace detail::zarr

namespace zarr = detail::zarr;

Result<std::vector<Loss>> ZarrFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  if (const Value::Map* const map = snapshot.properties().as_map()) {
    for (const auto& [key, value] : *map) {
      if (key == zarr::made_here_key || !zarr::is_plain_json(Value(Value::Map{{key, value}}))) {
        losses.push_back({0, "the property " + key + ", which JSON cannot store"});
      }
    }
  }
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    for (const std::string_view key : {zarr::attributes_note, zarr::dimensions_note}) {
      if (zarr::note_of(leaf, key) == nullptr || zarr::written_note(leaf, key) != nullptr) continue;
      losses.push_back({leaf.node(), "the annotation " + std::string(key) + ", which zarr cannot store"});
    }
  }
  return losses;
}

Status ZarrFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const auto bundle = sink.bundle();
  if (bundle == nullptr || !sink.is_folder()) {
    return Error(Errc::unsupported, "the sink cannot create a folder").hint("save to a path, or to bundle_sink()");
  }
  std::map<std::string, std::string> metadata = snapshot.metadata();
  for (const auto& [key, text] : metadata) {
    if (key != zarr::made_here_key && detail::json::valid_utf8(key) && detail::json::valid_utf8(text)) continue;
    return Error(Errc::not_representable, "the attributes of zarr store metadata in UTF-8 only")
        .path(detail::shortened(key, 100))
        .expected("UTF-8, and a key other than " + std::string(zarr::made_here_key));
  }
  STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot));
  STELE_TRY(detail::add_flat_key(metadata, std::move(extras)));
  return zarr::Writer(snapshot, options_, *bundle).run(metadata, detail::workers_of(options));
}

}  // namespace stele::inline v0
