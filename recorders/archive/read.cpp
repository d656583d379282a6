// Opens the tags of an archive.
#include <algorithm>
#include <map>

#include "base/entry_names.hpp"
#include "base/meter.hpp"
#include "base/skipped.hpp"
#include "file.hpp"
#include "graph/checkpoint.hpp"
#include "graph_fb.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/unread.hpp"
#include "stele/recorders/archive.hpp"

namespace stele::inline v0 {
namespace detail::archive {
namespace {

using samediff::too_much;

Error too_many_kinds() {
  return Error(Errc::limit, "the tag has too many kinds of optimizer state")
      .expected("at most " + std::to_string(max_state_kinds));
}

constexpr std::string_view tag_entries[] = {"params.txt", "updater.txt", "metadata.json", "trainingConfig.fb",
                                            "graph.fb"};

bool any_later(const std::vector<Line>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const Line& line) { return !line.kind.empty(); });
}

Status read_metadata(std::string_view text, std::map<std::string, std::string>& metadata) {
  json::Reader in(text);
  std::string key_scratch, value_scratch;
  std::string_view key, value;
  in.begin_object();
  while (in.next_key(key, key_scratch)) {
    std::string name(key);
    if (!in.read_string(value, value_scratch)) break;
    if (!metadata.emplace(std::move(name), std::string(value)).second) in.fail(Errc::duplicate, "each key once");
  }
  return in.finish() ? Status() : in.status();
}

}  // namespace

Status File::add(samediff::Arrays& to, const std::string& name, const Stored& array) {
  if (!spend(samediff::Arrays::memory_of(name, array.facts))) return too_much();
  if (array.facts.dtype != DType::string) return to.add(name, array.facts, {&stored_ops, &array, 0});
  Bytes bytes(static_cast<std::size_t>(array.facts.bytes));
  STELE_TRY(array.source->read_at(array.offset, bytes.span()));
  if (array.checked && zip::crc32(0, bytes.data(), bytes.size()) != array.crc) {
    return Error(Errc::checksum, "the CRC-32 of the string array does not match");
  }
  return to.add_texts(name, array.facts, bytes.span());
}

File::Parts File::parts_beside_parameters(std::string_view tag) const {
  Parts parts;
  const auto add = [&](std::string_view rest, std::string_view part) {
    if (directory_->find(entry_name(tag, rest)) != nullptr) parts.emplace_back(part);
  };
  add("graph.fb", graph_part);
  add("trainingConfig.fb", training_part);
  add("updater.txt", optimizer_part);
  return parts;
}

File::Parts File::older_tags() const {
  Parts parts;
  Skipped older;
  const std::size_t count = tags_.size() - 1;
  for (std::size_t i = 0; i < count; ++i) older.add(tags_[i]);
  older.leave_out(parts, std::string(other_tags_part).append(" (").append(std::to_string(count)).append(")"));
  return parts;
}

File::Parts File::other_entries(std::string_view tag, bool around) const {
  Parts parts;
  Skipped other;
  for (const zip::Entry& e : directory_->entries()) {
    if (is_other(tag, e.name, around)) other.add(e.name);
  }
  other.leave_out(parts, other_entries_part);
  return parts;
}

bool File::is_other(std::string_view tag, std::string_view entry, bool around) const {
  if (entry.ends_with('/') || entry == "tags.txt") return false;
  const std::string own = entry_name(tag, "");
  if (!entry.starts_with(own)) return around && !folders_.contains(folded(entry.substr(0, entry.find('/'))));
  const std::string_view rest = entry.substr(own.size());
  return std::find(std::begin(tag_entries), std::end(tag_entries), rest) == std::end(tag_entries) &&
         !rest.starts_with("params/") && !rest.starts_with("updater/");
}

Result<Snapshot> File::parameters(std::string_view tag, Parts left_out) {
  STELE_TRY_ASSIGN(const std::vector<Line> lines, this->lines(tag, Kind::params));
  samediff::Arrays arrays;
  for (const Line& line : lines) {
    if (!line.kind.empty()) continue;
    const auto of_line = [&](Error error) { return std::move(error).path(line.name); };
    if (line.arrays.size() != 1) {
      return of_line(Error(Errc::malformed, "the parameter does not have exactly one array")
                         .expected("1")
                         .found(std::to_string(line.arrays.size())));
    }
    auto array = this->array(tag, Kind::params, line.arrays.front());
    if (!array) return of_line(std::move(array).error());
    if (auto r = add(arrays, line.name, **array); !r) return of_line(std::move(r).error());
  }
  STELE_TRY_ASSIGN(const std::optional<Bytes> bytes, read(tag, "metadata.json"));
  if (bytes) {
    // The size of a compressed entry raises the memory bound.
    const zip::Entry* entry = directory_->find(entry_name(tag, "metadata.json"));
    memory_.admit(entry->compressed, index_rate::index);
    if (!spend(3 * bytes->size())) return too_much();
    std::map<std::string, std::string> metadata;
    STELE_TRY(read_metadata({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, metadata));
    STELE_TRY(arrays.set_metadata(std::move(metadata), memory_));
  }
  if (any_later(lines)) left_out.emplace_back("parameters of kinds that a later version wrote");
  for (const std::string& part : left_out) arrays.leave_out(part);
  STELE_TRY_ASSIGN(Snapshot found, arrays.finish(shared_from_this()));
  if (found.leaf_count() != 0) return found;
  std::vector<std::string> names;
  for (const zip::Entry& e : directory_->entries()) names.emplace_back(e.name);
  return with_unread(std::move(found), names, [&](std::string_view name) { return !is_other(tag, name, true); });
}

Result<Checkpoint> File::checkpoint(std::string_view tag, Parts left_out) {
  Checkpoint out;
  STELE_TRY_ASSIGN(const std::vector<Line> lines, this->lines(tag, Kind::updater));
  if (any_later(lines)) left_out.emplace_back("optimizer state of kinds that a later version wrote");
  STELE_TRY_ASSIGN(out.parameters, parameters(tag, std::move(left_out)));
  Training training;
  STELE_TRY_ASSIGN(const std::optional<Bytes> config, read(tag, "trainingConfig.fb"));
  if (config) {
    auto read = read_training(config->span(), memory_.left());
    if (!read) return std::move(read).error().file(entry_name(tag, "trainingConfig.fb"));
    training = *std::move(read);
    if (!training.json.empty()) {
      STELE_TRY_ASSIGN(out.training, TrainingConfig::parse(training.json));
    }
  }
  STELE_TRY_ASSIGN(const std::optional<Bytes> graph, read(tag, "graph.fb"));
  if (graph) {
    // As Values, strings and lists take many times their size in the file, more than the memory bound for parameters.
    const std::string name = entry_name(tag, "graph.fb");
    auto read = read_graph(graph->span(), memory_.left() + 16 * directory_->find(name)->compressed);
    if (!read) return std::move(read).error().file(name);
    out.graph = *std::move(read);
  }

  STELE_TRY_ASSIGN(out.optimizer, states(tag, lines, out, std::move(training.state_keys)));
  return out;
}

Result<OptimizerState> File::states(std::string_view tag, const std::vector<Line>& lines, const Checkpoint& model,
                                    std::vector<std::string> state_keys) {
  OptimizerState out;
  if (state_keys.empty() && model.training) {
    if (const auto keys = updater_state_keys(model.training->updater.type)) {
      state_keys.assign(keys->begin(), keys->end());
    }
  }
  std::vector<std::pair<std::string, samediff::Arrays>> kinds;
  std::unordered_map<std::string, std::uint32_t> leaves;
  for (std::uint32_t i = 0; !lines.empty() && i < model.parameters.leaf_count(); ++i) {
    leaves.emplace(model.parameters.leaf(i).path(), i);
  }
  for (const Line& line : lines) {
    if (!line.kind.empty()) continue;
    const auto of_line = [&](Error error) { return std::move(error).path(line.name); };
    const auto& keys = line.keys.empty() ? state_keys : line.keys;
    if (keys.size() > max_state_kinds) return of_line(too_many_kinds());
    if (keys.size() != line.arrays.size()) {
      return of_line(Error(Errc::malformed, "the number of state arrays differs from the updater's")
                         .expected(std::to_string(keys.size()))
                         .found(std::to_string(line.arrays.size())));
    }
    const auto found = leaves.find(line.name);
    if (found == leaves.end()) {
      return of_line(Error(Errc::malformed, "optimizer state belongs to an unknown parameter"));
    }
    const LeafView parameter = model.parameters.leaf(found->second);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) !=
          keys.begin() + static_cast<std::ptrdiff_t>(i)) {
        return of_line(Error(Errc::duplicate, "two state arrays have the same kind").found(keys[i]));
      }
      auto array = this->array(tag, Kind::updater, line.arrays[i]);
      if (!array) return of_line(std::move(array).error());
      const auto& shape = (*array)->facts.shape;
      if (!std::equal(shape.begin(), shape.end(), parameter.shape().begin(), parameter.shape().end())) {
        return of_line(Error(Errc::shape_mismatch, "the shape of the optimizer state differs from the parameter's")
                           .expected(to_string(parameter.shape()))
                           .found(to_string(shape)));
      }
      auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == keys[i]; });
      if (kind == kinds.end()) {
        if (kinds.size() == max_state_kinds) return of_line(too_many_kinds());
        kind = kinds.emplace(kinds.end(), keys[i], samediff::Arrays());
      }
      if (auto r = add(kind->second, line.name, **array); !r) return of_line(std::move(r).error());
    }
  }
  for (auto& [key, arrays] : kinds) {
    STELE_TRY_ASSIGN(Snapshot snapshot, arrays.finish(shared_from_this()));
    out.set_snapshot(key, std::move(snapshot));
  }
  return out;
}

Status File::check_tags(const LoadOptions& options, Meter& meter) {
  // Reads an array once, even if several tags refer to it, unless it has a transform.
  std::unordered_set<const void*> seen;
  const auto is_new = [&](const LeafView& leaf) {
    return leaf.provider().ops != &stored_ops || seen.insert(leaf.provider().at).second;
  };
  const IndexBudget memory = memory_;
  for (const std::string& tag : tags_) {
    memory_ = memory;  // the previous tag's memory was freed
    STELE_TRY_ASSIGN(const Checkpoint checkpoint, this->checkpoint(tag, {}));
    STELE_TRY(check_leaves(checkpoint.parameters, options, meter, is_new));
    for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
      STELE_TRY(check_leaves(arrays, options, meter, is_new));
    }
  }
  for (const Stored& s : arrays_) {
    if (s.checked) checked_.insert(s.external != nullptr ? s.external : s.entry);
  }
  return {};
}

}  // namespace detail::archive

bool ArchiveFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  const auto first = detail::zip::first_name(head);
  if (!first || detail::is_pytorch_zip_entry(first->name) || detail::is_numpy_zip_entry(first->name)) return false;
  // Archives store entries in folders, except tags.txt. DL4J's SDZ files contain `model`, or shards of it.
  const bool below = first->name.find('/') != first->name.npos;
  return first->name == "tags.txt" || (below && detail::is_archive_zip_entry(first->name));
}

Result<bool> ArchiveFormat::recognises_file(const Source& source) const {
  STELE_TRY_ASSIGN(const auto directory, detail::zip::directory_of(source));
  return directory != nullptr && directory->find("tags.txt") != nullptr;
}

namespace {
/// Returns the parts of the archive around a tag. `newest`: the caller has not chosen the tag.
detail::archive::File::Parts left_out_beside(const detail::archive::File& file, std::string_view tag, bool newest) {
  auto parts = file.other_entries(tag, true);
  if (newest) detail::add_left_out(parts, file.older_tags());
  return parts;
}
}  // namespace

Result<Snapshot> ArchiveFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), context.options().limits));
  STELE_TRY_ASSIGN(const std::string tag, file->find_tag(options_.tag));
  auto left_out = file->parts_beside_parameters(tag);
  detail::add_left_out(left_out, left_out_beside(*file, tag, options_.tag.empty()));
  return file->parameters(tag, std::move(left_out));
}

Result<Report> ArchiveFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                     const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(source, context.options().limits));
  STELE_TRY_ASSIGN(const std::string tag, file->find_tag(options_.tag));
  STELE_TRY_ASSIGN(const Snapshot parameters, file->parameters(tag, {}));
  STELE_TRY(detail::check_found(parameters));
  detail::Meter meter(context.options().progress, source->size());
  STELE_TRY(file->check_tags(context.options(), meter));
  STELE_TRY_ASSIGN(const Report report, file->directory().check(meter, [&](const detail::zip::Entry& entry) {
    return file->has_checked(entry);
  }));
  STELE_TRY(meter.add(source->size()));  // counts the bytes outside of arrays and entries
  return report;
}

Result<Checkpoint> ArchiveFormat::open_checkpoint(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), context.options().limits));
  STELE_TRY_ASSIGN(const std::string tag, file->find_tag(options_.tag));
  return file->checkpoint(tag, left_out_beside(*file, tag, options_.tag.empty()));
}

Result<std::vector<std::string>> archive_tags(const Input& from) {
  return detail::guarded([&]() -> Result<std::vector<std::string>> {
    STELE_TRY_ASSIGN(SourcePtr source, from.open(".zip", default_load_options()));
    STELE_TRY(detail::check_kind(*source, false));
    STELE_TRY_ASSIGN(const auto file, detail::archive::File::open(std::move(source), {}));
    return file->tags();
  });
}

Result<Checkpoint> open_archive(const Input& from, std::string_view tag, const LoadOptions& options) {
  return detail::open_checkpoint(ArchiveFormat({.tag = std::string(tag)}), from, options);
}

}  // namespace stele::inline v0
