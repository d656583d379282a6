#include <algorithm>
#include <map>
#include <set>

#include "base/parallel.hpp"
#include "dl4j/record.hpp"
#include "file.hpp"
#include "graph_fb.hpp"
#include "io/os/os.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/archive.hpp"
#include "steps/byte_order.hpp"
#include "steps/progress.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace archive {
namespace {

constexpr std::uint64_t alignment = 64;
// A computed (converted, decompressed) array of up to this size is held in memory to find its CRC-32. For a larger one,
// the CRC-32 is patched in after its bytes, or the array is computed twice.
constexpr std::uint64_t held = std::uint64_t{1} << 20;

std::string entry_of(std::string_view tag, Kind kind, std::uint32_t number, const char* extension) {
  return std::string(tag) + '/' + std::string(folder_of(kind)) + '/' + std::to_string(number) + extension;
}

/// Returns the first part of an entry's name, usually a tag.
std::string_view top_of(const zip::Entry& entry) { return entry.name.substr(0, entry.name.find('/')); }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class CrcSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    crc = zip::crc32(crc, bytes.data(), bytes.size());
    return {};
  }
  std::uint32_t crc = 0;
};

class HoldSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return {};
  }
  std::vector<std::byte> all;
};

/// Signals that two leaves' bytes differ.
constexpr Errc differs = Errc::checksum;

/// Compares a leaf's bytes with bytes that can be read at any offset.
template <class Read>
class CompareSink final : public PieceSink {
 public:
  explicit CompareSink(Read read) : read_(std::move(read)) {}
  Status piece(std::span<const std::byte> bytes) override {
    other_.resize(bytes.size());
    STELE_TRY(read_(done_, std::span(other_)));
    done_ += bytes.size();
    return std::equal(bytes.begin(), bytes.end(), other_.begin()) ? Status() : Error(differs);
  }

 private:
  Read read_;
  std::vector<std::byte> other_;
  std::uint64_t done_ = 0;
};

/// The arrays in the file by dtype, shape and CRC-32, to find duplicates.
class Pool {
 public:
  struct Known {
    Reference reference;
    const Stored* stored = nullptr;  // else `leaf`, from this save
    std::optional<LeafView> leaf;
  };
  using Key = std::tuple<DType, std::vector<Extent>, std::uint32_t>;
  static Key key(const LeafView& leaf, std::uint32_t crc) {
    return {leaf.dtype(), {leaf.shape().begin(), leaf.shape().end()}, crc};
  }
  void add(Kind kind, Key key, Known known) {
    known_[static_cast<int>(kind)].emplace(std::move(key), std::move(known));
  }

  /// Finds an array with the same bytes. A read error ends the search: the save would meet it, too.
  Result<std::optional<Reference>> find(Kind kind, const LeafView& leaf, std::uint32_t crc,
                                        ReadContext& context) const {
    const auto [first, last] = known_[static_cast<int>(kind)].equal_range(key(leaf, crc));
    for (auto it = first; it != last; ++it) {
      const Known& other = it->second;
      Status same;
      if (other.stored != nullptr) {
        CompareSink sink([&](std::uint64_t at, std::span<std::byte> out) {
          return other.stored->source->read_at(other.stored->offset + at, out);
        });
        same = leaf.stream(sink, context);
      } else {
        CompareSink sink([&](std::uint64_t at, std::span<std::byte> out) { return other.leaf->read(at, out); });
        same = leaf.stream(sink, context);
      }
      if (same) return std::optional(other.reference);
      if (same.error().code() != differs) return std::move(same).error();
    }
    return std::optional<Reference>();
  }

 private:
  std::multimap<Key, Known> known_[2];
};

/// Writes one tag.
class TagWriter {
 public:
  TagWriter(std::string tag, LeafGather& out, zip::Writer& zip, const ArchiveOptions& options, const Workers& workers)
      : tag_(std::move(tag)), out_(out), zip_(zip), options_(options), context_(workers) {}

  /// The existing file, whose arrays new lines may refer to; null if there is none.
  const File* kept = nullptr;
  std::string dropped;  // a tag of it that is removed, so that no line can refer to its arrays
  Pool pool;

  Status write(const Content& content) {
    const Snapshot parameters = in_file_order(content.parameters);
    const LeafPaths paths(*parameters.data());
    std::vector<Line> lines;
    for (std::uint32_t i = 0; i < parameters.leaf_count(); ++i) {
      STELE_TRY_ASSIGN(Reference r, array(Kind::params, parameters.leaf(i), content.plain.leaf(i), paths[i]));
      lines.push_back({std::string(paths[i]), {std::move(r)}, {}, {}});
    }
    Training training;
    STELE_TRY_ASSIGN(const std::vector<Line> states, write_states(content, paths, training.state_keys));
    STELE_TRY(text("params.txt", lines_text(lines)));
    if (!states.empty()) STELE_TRY(text("updater.txt", lines_text(states)));

    std::map<std::string, std::string> metadata = content.parameters.metadata();
    STELE_TRY_ASSIGN(std::string extras, flat_extras(content.parameters));
    if (!extras.empty()) metadata.emplace(flat_key, std::move(extras));
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
    const Checkpoint* more = content.more;
    if (more == nullptr) return {};
    const TrainingConfig* config = more->training ? &*more->training : nullptr;
    if (config != nullptr) training.json = config->json();
    if (config != nullptr || !training.state_keys.empty()) {
      STELE_TRY(text("trainingConfig.fb", write_training(training, config)));
    }
    if (more->graph) {
      STELE_TRY(samediff::check_arrays(*more->graph));
      STELE_TRY_ASSIGN(const std::string graph, write_graph(stored_graph(*more->graph, parameters, paths)));
      STELE_TRY(text("graph.fb", graph));
    }
    return {};
  }

 private:
  /// Returns the graph with its variables' dtypes and shapes set to those stored.
  static Graph stored_graph(Graph graph, const Snapshot& parameters, const LeafPaths& paths) {
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

  /// Writes the state arrays, in the order of the parameters.
  Result<std::vector<Line>> write_states(const Content& content, const LeafPaths& paths,
                                         std::vector<std::string>& keys) {
    std::vector<Line> lines;
    if (content.more == nullptr || content.more->optimizer.empty()) return lines;
    struct Column {
      std::string key;
      Snapshot arrays, plain;
      std::map<std::string, std::uint32_t> leaves;
    };
    std::vector<Column> columns;
    if (content.more->optimizer.kinds().size() > most_kinds) {
      return Error(Errc::not_representable, "more kinds of optimizer state than archives have")
          .expected(std::to_string(most_kinds));
    }
    for (const auto& [key, arrays] : content.more->optimizer.kinds()) {
      if (key.empty() || key.find_first_of(" \t\r\n=") != key.npos || !json::valid_utf8(key)) {
        return Error(Errc::not_representable, "a kind of optimizer state whose name is no plain word").found(key);
      }
      Column& column =
          columns.emplace_back(Column{key, in_file_order(with_progress(arrays, *content.meter)), arrays, {}});
      const LeafPaths names(*column.arrays.data());
      for (std::uint32_t i = 0; i < column.arrays.leaf_count(); ++i) column.leaves.emplace(names[i], i);
    }
    // DL4J's order if the updater is one of DL4J's.
    if (content.more->training) {
      if (const auto order = updater_state_keys(content.more->training->updater.type)) {
        std::stable_sort(columns.begin(), columns.end(), [&](const Column& a, const Column& b) {
          const auto rank = [&](const Column& c) {
            return std::find(order->begin(), order->end(), c.key) - order->begin();
          };
          return rank(a) < rank(b);
        });
      }
    }
    for (const Column& c : columns) keys.push_back(c.key);
    for (std::uint32_t i = 0; i < content.parameters.leaf_count(); ++i) {
      Line line{std::string(paths[i]), {}, {}, {}};
      for (Column& column : columns) {
        const auto found = column.leaves.find(line.name);
        if (found == column.leaves.end()) continue;
        const LeafView leaf = column.arrays.leaf(found->second);
        const LeafView plain = column.plain.leaf(found->second);
        column.leaves.erase(found);
        const auto refuse = [&](const char* why) { return Error(Errc::not_representable, why).path(line.name); };
        const auto shape = content.parameters.leaf(i).shape();
        if (!std::equal(shape.begin(), shape.end(), leaf.shape().begin(), leaf.shape().end())) {
          return refuse("optimizer state of another shape than its parameter")
              .expected(to_string(shape))
              .found(to_string(leaf.shape()));
        }
        if (!samediff::holds(leaf.dtype())) {
          return refuse("optimizer state of a dtype that archives have none for")
              .found(std::string(name(leaf.dtype())));
        }
        STELE_TRY_ASSIGN(Reference r, array(Kind::updater, leaf, plain, line.name));
        line.arrays.push_back(std::move(r));
        line.keys.push_back(column.key);
      }
      if (line.arrays.empty()) continue;
      if (line.arrays.size() == columns.size()) line.keys.clear();  // with all columns, the order identifies them
      lines.push_back(std::move(line));
    }
    for (const Column& column : columns) {
      if (column.leaves.empty()) continue;
      return Error(Errc::not_representable, "optimizer state of a tensor that is no parameter")
          .path(column.leaves.begin()->first)
          .found(column.key);
    }
    return lines;
  }

  Status text(std::string_view name, std::string_view content) {
    return zip_.add(tag_ + '/' + std::string(name), bytes_of(content), options_.deflate ? zip::deflated : zip::stored);
  }

  /// Writes an array, or finds it in the file.
  Result<Reference> array(Kind kind, const LeafView& leaf, const LeafView& plain, std::string_view path) {
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

  Reference local(Reference r) const {
    if (same_tag(r.tag, tag_)) r.tag.clear();
    return r;
  }

  /// Finds a leaf's array if the leaf was lazily opened from this very file and its tag stays.
  std::optional<Reference> opened_from_file(Kind kind, const LeafView& leaf) {
    if (kept == nullptr || leaf.provider().ops != &stored_ops) return std::nullopt;
    const Stored& stored = *static_cast<const Stored*>(leaf.provider().at);
    if (stored.facts.big_endian || !stored.facts.axes.empty() || !stored.checked) return std::nullopt;
    // In the same file, an entry with this name, offset and CRC-32 is the same entry.
    if (compared_ != stored.source) {
      compared_ = stored.source;
      const Source& here = *kept->directory().source();
      const Source& there = *stored.source;
      same_ = (!here.view().empty() && here.view().data() == there.view().data()) ||
              (here.file() != nullptr && there.file() != nullptr && os::same_file(*here.file(), *there.file()));
    }
    if (!same_) return std::nullopt;
    const zip::Entry* entry = kept->directory().find(stored.entry->name);
    if (entry == nullptr || entry->header != stored.entry->header || entry->crc != stored.entry->crc)
      return std::nullopt;
    const std::string_view name = entry->name;
    const std::size_t slash = name.find('/');
    const std::string_view tag = name.substr(0, slash);
    if (same_tag(tag, dropped) || !valid_tag(tag)) return std::nullopt;
    const std::string folder = '/' + std::string(folder_of(kind)) + '/';
    if (!name.substr(slash).starts_with(folder)) return std::nullopt;
    auto lines = parse_lines(
        "x " + std::string(name.substr(slash + folder.size(), name.rfind('.') - slash - folder.size())), 4096);
    if (!lines || lines->size() != 1 || lines->front().arrays.size() != 1) return std::nullopt;
    return local({std::string(tag), lines->front().arrays.front().number});
  }

  Status write_array(Kind kind, std::uint32_t number, const LeafView& leaf, std::optional<std::uint32_t> crc) {
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

  /// Writes an entry with `head` and the leaf's bytes, which are aligned.
  Status write_leaf(const std::string& name, const std::string& head, const LeafView& leaf,
                    std::optional<std::uint32_t> crc) {
    const std::uint64_t size = leaf.byte_size();
    const std::uint64_t all = head.size() + size;
    const std::uint32_t head_crc = zip::crc32(0, head.data(), head.size());
    const auto begin = [&](std::uint32_t of_content) {
      return zip_.begin(name, zip::stored, all, all, zip::crc32_joined(head_crc, of_content, size), head.size(),
                        alignment);
    };
    if (!crc && size <= held && !LeafGather::passes_by(leaf)) {
      HoldSink sink;
      sink.all.reserve(static_cast<std::size_t>(size));
      STELE_TRY(leaf.stream(sink, context_));
      STELE_TRY(begin(zip::crc32(0, sink.all.data(), sink.all.size())));
      STELE_TRY(out_.write(bytes_of(head)));
      return out_.write(sink.all);
    }
    if (!crc && size <= held) {
      crc = zip::crc32(0, leaf.view().data(), leaf.view().size());
    } else if (!crc && !out_.can_patch()) {
      CrcSink sink;
      STELE_TRY(leaf.stream(sink, context_));
      crc = sink.crc;
    }
    STELE_TRY(begin(crc.value_or(0)));
    STELE_TRY(out_.write(bytes_of(head)));
    std::uint64_t found = 0;
    STELE_TRY(out_.leaf(leaf, context_, crc ? nullptr : &found));
    if (crc) return {};
    return zip_.set_crc(zip::crc32_joined(head_crc, static_cast<std::uint32_t>(found), size));
  }

  std::string tag_;
  LeafGather& out_;
  zip::Writer& zip_;
  const ArchiveOptions& options_;
  ReadContext context_;
  std::uint32_t next_[2] = {0, 0};
  SourcePtr compared_;  // the previous leaf's source; same_: whether it is the file
  bool same_ = false;
};

/// Rewrites an archive without a tag, or with another one.
class Rewriter {
 public:
  Rewriter(File& old, std::string dropped, LeafGather& out, zip::Writer& zip)
      : old_(old), dropped_(std::move(dropped)), out_(out), zip_(zip) {}

  /// Decides which entries stay, which move to another tag, and how the lines change.
  Status plan() {
    for (const std::string& tag : old_.tags()) {
      if (same_tag(tag, dropped_)) continue;
      for (const Kind kind : {Kind::params, Kind::updater}) {
        const IndexBudget memory = old_.memory();
        STELE_TRY_ASSIGN(std::vector<Line> lines, old_.lines(tag, kind));
        old_.set_memory(memory);
        bool changed = false;
        for (Line& line : lines) {
          for (Reference& r : line.arrays) STELE_TRY(keep(tag, kind, line, r, changed));
        }
        if (changed) texts_[old_.entry_name(tag, std::string(folder_of(kind)) + ".txt")] = lines_text(lines);
      }
    }
    return {};
  }

  /// Copies the entries that stay.
  Status copy() {
    const auto entries = old_.directory().entries();
    const Source& source = *old_.directory().source();
    // Copy adjacent entries that keep their offsets in one piece: the file system can then share it between both files.
    std::uint64_t same = 0;
    std::vector<const zip::Entry*> unmoved;
    for (const zip::Entry& e : entries) {
      if (e.header != same || goes(e) || moved_.contains(&e)) break;
      unmoved.push_back(&e);
      same = e.end;
    }
    if (same != 0) STELE_TRY(out_.copy(source, 0, same));
    for (const zip::Entry* e : unmoved) zip_.adopt(*e, e->header);
    for (std::size_t i = unmoved.size(); i < entries.size(); ++i) {
      const zip::Entry& e = entries[i];
      const auto move = moved_.find(&e);
      if (move == moved_.end() && goes(e)) continue;
      const std::string name = move != moved_.end() ? move->second.name : std::string(e.name);
      if (move != moved_.end() && !move->second.head.empty()) {
        STELE_TRY(zip_.add(name, bytes_of(move->second.head)));
        continue;
      }
      STELE_TRY_ASSIGN(const std::uint64_t data, old_.directory().data(e));
      // Keep the alignment of the content.
      STELE_TRY(zip_.begin(name, e.method, e.compressed, e.size, e.crc, (alignment - data % alignment) % alignment,
                           alignment));
      STELE_TRY(out_.copy(source, data, e.compressed));
    }
    for (const auto& [name, text] : texts_) STELE_TRY(zip_.add(name, bytes_of(text)));
    return {};
  }

 private:
  struct Move {
    std::string name;
    std::string head;  // set if the array's content is in another entry: names that entry
  };

  /// Updates a reference from a tag that stays, and moves its array if the array's tag is removed.
  Status keep(const std::string& tag, Kind kind, const Line& line, Reference& r, bool& changed) {
    if (dropped_.empty() || r.tag.empty() || !same_tag(r.tag, dropped_)) return {};
    if (!line.kind.empty()) {
      return Error(Errc::unsupported, "a line of a later version refers to the tag")
          .path(line.name)
          .found(line.kind.substr(0, 200));
    }
    STELE_TRY_ASSIGN(const Stored* array, old_.array(tag, kind, r));
    auto home = homes_.find(array);
    if (home == homes_.end()) {
      // The first tag that refers to the array gets it.
      Reference here{tag, 0};
      STELE_TRY_ASSIGN(here.number, next_number(tag, kind));
      home = homes_.emplace(array, here).first;
      const std::string folder = old_.entry_name(tag, "");
      Move move{entry_of(std::string_view(folder).substr(0, folder.size() - 1), kind, here.number, ".fb"), {}};
      bool fresh = true;
      if (array->external != nullptr) {
        const std::string beside = std::to_string(here.number) + ".bin";
        move.head = samediff::array_alone(array->facts, beside);
        fresh =
            moved_.try_emplace(array->external, Move{folder + std::string(folder_of(kind)) + '/' + beside, {}}).second;
      }
      if (!moved_.try_emplace(array->entry, std::move(move)).second || !fresh) {
        return Error(Errc::unsupported, "two arrays of the tag that goes share their bytes").path(line.name);
      }
    }
    r = home->second;
    if (same_tag(r.tag, tag)) r.tag.clear();
    changed = true;
    return {};
  }

  /// Returns a number that no array of the tag has.
  Result<std::uint32_t> next_number(const std::string& tag, Kind kind) {
    const std::string folder = old_.entry_name(tag, std::string(folder_of(kind)) + '/');
    const auto [next, fresh] = next_.emplace(folder, 0);
    while (old_.directory().find(folder + std::to_string(next->second) + ".fb") != nullptr ||
           old_.directory().find(folder + std::to_string(next->second) + ".bin") != nullptr) {
      if (++next->second == UINT32_MAX) return Error(Errc::limit, "too many arrays of one tag");
    }
    return next->second++;
  }

  bool goes(const zip::Entry& e) const {
    return e.name == "tags.txt" || (!dropped_.empty() && same_tag(top_of(e), dropped_)) ||
           texts_.contains(std::string(e.name));
  }

  File& old_;
  std::string dropped_;
  LeafGather& out_;
  zip::Writer& zip_;
  std::map<const Stored*, Reference> homes_;
  std::map<const zip::Entry*, Move> moved_;
  std::map<std::string, std::uint32_t> next_;
  std::map<std::string, std::string> texts_;  // entries whose lines changed
};

/// Adds all arrays of the tags that stay, for deduplication.
Status fill_pool(File& file, const std::string& dropped, Pool& pool) {
  for (const std::string& tag : file.tags()) {
    if (same_tag(tag, dropped)) continue;
    for (const Kind kind : {Kind::params, Kind::updater}) {
      const IndexBudget memory = file.memory();
      STELE_TRY_ASSIGN(const std::vector<Line> lines, file.lines(tag, kind));
      file.set_memory(memory);
      for (const Line& line : lines) {
        if (!line.kind.empty()) continue;
        for (const Reference& r : line.arrays) {
          if (!r.tag.empty()) continue;  // added with its own tag
          STELE_TRY_ASSIGN(const Stored* s, file.array(tag, kind, r));
          if (!s->checked || s->facts.big_endian || !s->facts.axes.empty()) continue;
          pool.add(kind, {s->facts.dtype, s->facts.shape, s->crc}, {{tag, r.number}, s, {}});
        }
      }
    }
  }
  return {};
}

Status check_tag(const std::string& tag) {
  if (valid_tag(tag)) return {};
  return Error(Errc::invalid_argument, "not a tag")
      .expected("1 to 128 of A-Z a-z 0-9 . _ -, no number, no dot at the end, no device of Windows")
      .found(tag.substr(0, 200));
}

Status check_texts(const Snapshot& snapshot) {
  const LeafPaths paths(*snapshot.data());
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (json::valid_utf8(paths[i])) continue;
    return Error(Errc::not_representable, "archives have names in UTF-8 only").path(std::string(paths[i]));
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (names.insert(paths[i]).second) continue;
    return Error(Errc::duplicate, "two tensors have the same name").path(std::string(paths[i]));
  }
  for (const auto& [key, text] : snapshot.metadata()) {
    if (key == flat_key) return Error(Errc::not_representable, "the metadata key stele is the library's own");
    if (!json::valid_utf8(key) || !json::valid_utf8(text)) {
      return Error(Errc::not_representable, "archives have metadata in UTF-8 only").found("another text");
    }
  }
  return {};
}

Status write_new(const ArchiveFormat& format, const Content& content, Sink& sink, const SaveOptions& options) {
  const std::string tag = format.options().tag.empty() ? "main" : format.options().tag;
  STELE_TRY(check_tag(tag));
  STELE_TRY(check_texts(content.parameters));
  if (!format.options().deduplicate) STELE_TRY(reserve_arrays(sink, content));
  LeafGather out(sink, zip::crc32);
  zip::Writer zip(out);
  TagWriter writer(tag, out, zip, format.options(), workers_of(options));
  STELE_TRY(writer.write(content));
  STELE_TRY(zip.add("tags.txt", bytes_of(tags_text(std::span(&tag, 1)))));
  STELE_TRY(zip.finish());
  return out.flush();
}

/// Rewrites `old`: without `dropped` (if it is not empty), with `added` (if there is content).
Status rewrite(const ArchiveFormat& format, File& old, const std::string& dropped, const std::string& added,
               const Content* content, std::vector<std::string> tags, Sink& sink, const SaveOptions& options) {
  if (content != nullptr) STELE_TRY(check_texts(content->parameters));
  LeafGather out(sink, zip::crc32);
  zip::Writer zip(out);
  Rewriter rewriter(old, dropped, out, zip);
  STELE_TRY(rewriter.plan());
  STELE_TRY(rewriter.copy());
  if (content != nullptr) {
    TagWriter writer(added, out, zip, format.options(), workers_of(options));
    writer.kept = &old;
    writer.dropped = dropped;
    if (format.options().deduplicate) STELE_TRY(fill_pool(old, dropped, writer.pool));
    STELE_TRY(writer.write(*content));
  }
  STELE_TRY(zip.add("tags.txt", bytes_of(tags_text(tags))));
  STELE_TRY(zip.finish());
  return out.flush();
}

}  // namespace
}  // namespace archive

Result<Report> record_archive(const ArchiveFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                              Sink& sink, const SaveOptions& options) {
  return guarded([&]() -> Result<Report> {
    return record_checkpoint(format, precision, checkpoint, &sink, options, [&](const Content& content) {
      return archive::write_new(format, content, sink, options);
    });
  });
}

Result<Report> record_archive(const ArchiveFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                              const std::string& path, const SaveOptions& options) {
  return guarded([&]() -> Result<Report> {
    if (options.dry_run) {
      BufferSink nothing;
      return record_archive(format, precision, checkpoint, nothing, options);
    }
    STELE_TRY_ASSIGN(const auto sink, file_sink(with_extension(path, format.extension()), options.file));
    return record_archive(format, precision, checkpoint, *sink, options);
  });
}

Result<Report> edit_archive(const ArchiveFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                            const std::string& path, std::string_view tag, ArchiveEdit edit,
                            const SaveOptions& options) {
  const std::string full = with_extension(path, format.extension());
  return guarded(full, [&]() -> Result<Report> {
    STELE_TRY_ASSIGN(SourcePtr source, open_file(full));
    STELE_TRY_ASSIGN(const auto old, archive::File::open(std::move(source), {}));
    std::string name(tag);
    STELE_TRY(archive::check_tag(name));
    std::vector<std::string> tags = old->tags();
    const auto at = std::find_if(tags.begin(), tags.end(), [&](const auto& t) { return archive::same_tag(t, tag); });
    std::string dropped;
    if (edit == ArchiveEdit::append) {
      if (at != tags.end()) return Error(Errc::exists, "the archive has this tag already").found(*at);
      for (const zip::Entry& e : old->directory().entries()) {
        if (!archive::same_tag(archive::top_of(e), name)) continue;
        return Error(Errc::exists, "the archive has something else of this tag's name").found(std::string(e.name));
      }
      tags.push_back(name);
    } else {
      STELE_TRY_ASSIGN(dropped, old->find_tag(tag));
      *at = name;
      if (edit == ArchiveEdit::touch) std::rotate(at, at + 1, tags.end());
    }
    std::unique_ptr<Sink> sink;
    if (!options.dry_run) {
      STELE_TRY_ASSIGN(sink, file_sink(full, options.file));
    }
    return record_checkpoint(format, precision, checkpoint, sink.get(), options, [&](const Content& content) {
      return archive::rewrite(format, *old, dropped, name, &content, tags, *sink, options);
    });
  });
}

}  // namespace detail

Status ArchiveFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::archive::write_new(*this, {snapshot, snapshot}, sink, options);
}

Status remove_archive_tag(const std::string& path, std::string_view tag, const SaveOptions& options) {
  const std::string full = detail::with_extension(path, ".zip");
  return detail::guarded(full, [&]() -> Status {
    STELE_TRY_ASSIGN(SourcePtr source, open_file(full));
    STELE_TRY_ASSIGN(const auto old, detail::archive::File::open(std::move(source), {}));
    if (tag.empty()) return Error(Errc::invalid_argument, "no tag is named");
    STELE_TRY_ASSIGN(const std::string dropped, old->find_tag(tag));
    std::vector<std::string> tags = old->tags();
    std::erase(tags, dropped);
    if (tags.empty())
      return Error(Errc::invalid_argument, "the last tag of an archive; remove the file").found(dropped);
    STELE_TRY_ASSIGN(const auto sink, file_sink(full, options.file));
    STELE_TRY(detail::archive::rewrite(ArchiveFormat(), *old, dropped, {}, nullptr, std::move(tags), *sink, options));
    return sink->commit();
  });
}

}  // namespace v0
}  // namespace stele
