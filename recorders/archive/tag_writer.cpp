// Writes one tag of an archive.
#include "tag_writer.hpp"

#include <algorithm>
#include <map>

#include "dl4j/checkpoint.hpp"
#include "graph_fb.hpp"
#include "io/os/os.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"

namespace stele::inline v0::detail::archive {

namespace {

/// Returns the graph with its variables' dtypes and shapes set to those stored.
Graph stored_graph(Graph graph, const Snapshot& parameters, const LeafPaths& paths) {
  std::map<std::string_view, std::uint32_t> leaves;
  for (std::uint32_t i = 0; i < parameters.leaf_count(); ++i) leaves.emplace(paths[i], i);
  for (GraphVariable& v : graph.variables) {
    if (v.kind != VariableKind::variable && v.kind != VariableKind::constant) continue;
    const auto found = leaves.find(v.name);
    if (found == leaves.end()) continue;
    const LeafView leaf = parameters.leaf(found->second);
    v.dtype = leaf.dtype();
    const bool scalar = v.shape && v.shape->empty() && leaf.byte_size() == 0;  // ND4J's empty scalar
    if (!scalar) v.shape.emplace(leaf.shape().begin(), leaf.shape().end());
  }
  return graph;
}

}  // namespace

std::string entry_of(std::string_view tag, Kind kind, std::uint32_t number, const char* extension) {
  return std::string(tag) + '/' + std::string(folder_of(kind)) + '/' + std::to_string(number) + extension;
}

std::string_view top_of(const zip::Entry& entry) { return entry.name.substr(0, entry.name.find('/')); }

Status TagWriter::write(const Checkpoint& checkpoint) {
  const Snapshot parameters = in_file_order(checkpoint.parameters);
  const LeafPaths paths(*parameters.data());
  std::vector<Line> lines;
  for (std::uint32_t i = 0; i < parameters.leaf_count(); ++i) {
    STELE_TRY_ASSIGN(Reference r, array(Kind::params, parameters.leaf(i),
                                        kept != nullptr ? kept->parameters.leaf(i) : parameters.leaf(i), paths[i]));
    lines.push_back({std::string(paths[i]), {std::move(r)}, {}, {}});
  }
  Training training;
  STELE_TRY_ASSIGN(const std::vector<Line> states, write_states(checkpoint, paths, training.state_keys));
  STELE_TRY(text("params.txt", lines_text(lines)));
  if (!states.empty()) STELE_TRY(text("updater.txt", lines_text(states)));

  std::map<std::string, std::string> metadata = checkpoint.parameters.metadata();
  STELE_TRY_ASSIGN(std::string extras, flat_extras(checkpoint.parameters));
  STELE_TRY(add_flat_key(metadata, std::move(extras)));
  if (!metadata.empty()) {
    std::string json;
    json::Writer to(json);
    to.begin_object();
    for (const auto& [key, value] : metadata) {
      to.key(key);
      to.string(value);
    }
    to.end_object();
    STELE_TRY(text("metadata.json", json));
  }
  const TrainingConfig* config = checkpoint.training ? &*checkpoint.training : nullptr;
  if (config != nullptr) training.json = config->json();
  if (config != nullptr || !training.state_keys.empty()) {
    STELE_TRY(text("trainingConfig.fb", write_training(training, config)));
  }
  if (checkpoint.graph) {
    STELE_TRY(samediff::check_arrays(*checkpoint.graph));
    STELE_TRY_ASSIGN(const std::string graph, write_graph(stored_graph(*checkpoint.graph, parameters, paths)));
    STELE_TRY(text("graph.fb", graph));
  }
  return {};
}

/// A kind of optimizer state, with the leaves that are not written yet.
struct TagWriter::Column {
  std::string key;
  Snapshot arrays, plain;
  std::map<std::string, std::uint32_t> leaves;
};

Result<std::vector<TagWriter::Column>> TagWriter::columns_of(const Checkpoint& checkpoint) const {
  std::vector<Column> columns;
  if (checkpoint.optimizer.kinds().size() > max_state_kinds) {
    return Error(Errc::not_representable, "the optimizer has too many kinds of state")
        .expected("at most " + std::to_string(max_state_kinds))
        .found(std::to_string(checkpoint.optimizer.kinds().size()));
  }
  for (std::size_t i = 0; i < checkpoint.optimizer.kinds().size(); ++i) {
    const auto& [key, arrays] = checkpoint.optimizer.kinds()[i];
    if (key.empty() || key.find_first_of(" \t\r\n=") != key.npos || !json::valid_utf8(key)) {
      return Error(Errc::not_representable, "the name of a kind of optimizer state is invalid")
          .expected("UTF-8 without white space and =")
          .found(key);
    }
    const Snapshot& plain = kept != nullptr ? kept->optimizer.kinds()[i].second : arrays;
    Column& column = columns.emplace_back(Column{key, in_file_order(arrays), plain, {}});
    const LeafPaths names(*column.arrays.data());
    for (std::uint32_t k = 0; k < column.arrays.leaf_count(); ++k) column.leaves.emplace(names[k], k);
  }
  // If the updater is one of DL4J's, the columns have DL4J's order.
  if (checkpoint.training) {
    if (const auto order = updater_state_keys(checkpoint.training->updater.type)) {
      std::stable_sort(columns.begin(), columns.end(), [&](const Column& a, const Column& b) {
        const auto rank = [&](const Column& c) {
          return std::find(order->begin(), order->end(), c.key) - order->begin();
        };
        return rank(a) < rank(b);
      });
    }
  }
  return columns;
}

Result<std::vector<Line>> TagWriter::write_states(const Checkpoint& checkpoint, const LeafPaths& paths,
                                                  std::vector<std::string>& keys) {
  std::vector<Line> lines;
  STELE_TRY_ASSIGN(std::vector<Column> columns, columns_of(checkpoint));
  for (const Column& c : columns) keys.push_back(c.key);
  for (std::uint32_t i = 0; !columns.empty() && i < checkpoint.parameters.leaf_count(); ++i) {
    Line line{std::string(paths[i]), {}, {}, {}};
    for (Column& column : columns) {
      const auto found = column.leaves.find(line.name);
      if (found == column.leaves.end()) continue;
      const LeafView leaf = column.arrays.leaf(found->second);
      const LeafView plain = column.plain.leaf(found->second);
      column.leaves.erase(found);
      STELE_TRY(check_state(line.name, checkpoint.parameters.leaf(i), leaf));
      STELE_TRY_ASSIGN(Reference r, array(Kind::updater, leaf, plain, line.name));
      line.arrays.push_back(std::move(r));
      line.keys.push_back(column.key);
    }
    if (line.arrays.empty()) continue;
    if (line.arrays.size() == columns.size())
      line.keys.clear();  // if all columns are present, their order identifies them
    lines.push_back(std::move(line));
  }
  for (const Column& column : columns) {
    if (column.leaves.empty()) continue;
    return Error(Errc::not_representable, "optimizer state belongs to a tensor that is not a parameter")
        .path(column.leaves.begin()->first)
        .found(column.key);
  }
  return lines;
}

Status TagWriter::text(std::string_view name, std::string_view content) {
  return zip_.add(tag_ + '/' + std::string(name), bytes_of(content), options_.deflate ? zip::deflated : zip::stored);
}

Result<Reference> TagWriter::array(Kind kind, const LeafView& leaf, const LeafView& plain, std::string_view path) {
  const auto of_leaf = [&](Error error) {
    return error.path().empty() ? std::move(error).path(std::string(path)) : std::move(error);
  };
  if (auto known = opened_from_file(kind, plain)) return *std::move(known);
  std::optional<std::uint32_t> crc;
  if (options_.deduplicate && leaf.byte_size() != 0) {
    CrcSink sink;
    if (auto r = leaf.stream(sink, context_); !r) return of_leaf(std::move(r).error());
    crc = sink.crc;
    auto same = pool.find(kind, leaf, *crc, context_);
    if (!same) return of_leaf(std::move(same).error());
    if (*same) return local(**std::move(same));
  }
  const Reference made{{}, next_[static_cast<int>(kind)]++};
  if (auto r = write_array(kind, made.number, leaf, crc); !r) return of_leaf(std::move(r).error());
  if (crc) pool.add(kind, Pool::key(leaf, *crc), {{tag_, made.number}, nullptr, leaf});
  return made;
}

Reference TagWriter::local(Reference r) const {
  if (same_tag(r.tag, tag_)) r.tag.clear();
  return r;
}

std::optional<Reference> TagWriter::opened_from_file(Kind kind, const LeafView& leaf) {
  if (kept == nullptr || leaf.provider().ops != &stored_ops) return std::nullopt;
  const Stored& stored = *static_cast<const Stored*>(leaf.provider().at);
  if (stored.facts.big_endian || !stored.facts.axes.empty() || !stored.checked) return std::nullopt;
  // In the same file, an entry with this name, offset and CRC-32 is the same entry.
  if (compared_ != stored.source) {
    compared_ = stored.source;
    const Source& here = *kept->file.directory().source();
    const Source& other = *stored.source;
    same_ = (!here.view().empty() && here.view().data() == other.view().data()) ||
            (here.file() != nullptr && other.file() != nullptr && os::same_file(*here.file(), *other.file()));
  }
  if (!same_) return std::nullopt;
  const zip::Entry* entry = kept->file.directory().find(stored.entry->name);
  if (entry == nullptr || entry->header != stored.entry->header || entry->crc != stored.entry->crc) return std::nullopt;
  const std::string_view name = entry->name;
  const std::size_t slash = name.find('/');
  const std::string_view tag = name.substr(0, slash);
  if (same_tag(tag, kept->dropped) || !valid_tag(tag)) return std::nullopt;
  const std::string folder = '/' + std::string(folder_of(kind)) + '/';
  if (!name.substr(slash).starts_with(folder)) return std::nullopt;
  auto lines = parse_lines(
      "x " + std::string(name.substr(slash + folder.size(), name.rfind('.') - slash - folder.size())), 4096);
  if (!lines || lines->size() != 1 || lines->front().arrays.size() != 1) return std::nullopt;
  return local({std::string(tag), lines->front().arrays.front().number});
}

Status TagWriter::write_array(Kind kind, std::uint32_t number, const LeafView& leaf, std::optional<std::uint32_t> crc) {
  const std::string name = entry_of(tag_, kind, number, ".fb");
  const std::uint64_t size = leaf.byte_size();
  if (size == 0) return zip_.add(name, bytes_of(samediff::array_alone(leaf.dtype(), leaf.shape(), {}, 0)));
  const std::string head = samediff::array_head(leaf.dtype(), leaf.shape(), size % 8 + 8);
  if (size <= samediff::max_buffer - head.size()) {
    return write_leaf(name, samediff::array_head(leaf.dtype(), leaf.shape(), size), leaf, crc);
  }
  const std::string beside = std::to_string(number) + ".bin";
  STELE_TRY(zip_.add(name, bytes_of(samediff::array_alone(leaf.dtype(), leaf.shape(), beside, size))));
  return write_leaf(entry_of(tag_, kind, number, ".bin"), {}, leaf, crc);
}

Status TagWriter::write_leaf(const std::string& name, const std::string& head, const LeafView& leaf,
                             std::optional<std::uint32_t> crc) {
  const std::uint64_t size = leaf.byte_size();
  const std::uint64_t all = head.size() + size;
  const std::uint32_t head_crc = zip::crc32(0, head.data(), head.size());
  const auto begin = [&](std::uint32_t of_content) -> Status {
    STELE_TRY(
        zip_.begin(name, zip::stored, all, all, zip::crc32_joined(head_crc, of_content, size), head.size(), alignment));
    return out_.write(bytes_of(head));
  };
  if (crc) {
    STELE_TRY(begin(*crc));
    return out_.leaf(leaf, context_);
  }
  return out_.leaf_after_hash(
      leaf, context_, [&](std::uint64_t found) { return begin(static_cast<std::uint32_t>(found)); },
      [&](std::uint64_t found) {
        return zip_.set_crc(zip::crc32_joined(head_crc, static_cast<std::uint32_t>(found), size));
      });
}

}  // namespace stele::inline v0::detail::archive
