// JSON -> Snapshot. Parses the document's skeleton; the data stay in the source.
#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "encodings/gzip/gzip.hpp"
#include "json/json.hpp"
#include "leaves.hpp"
#include "module/walk.hpp"
#include "numbers.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "stele/recorders/json.hpp"
#include "steps/byte_order.hpp"

namespace stele {
inline namespace v0 {

namespace json = detail::json;

namespace {

detail::IndexBudget budget_of(const Limits& limits, const Source& source, json::Coding coding) {
  const bool plain = coding == json::Coding::plain;
  detail::IndexBudget budget(limits, source.size(),
                             plain ? detail::index_rate::character : detail::index_rate::compressed);
  if (!plain) budget.admit_compressed();
  return budget;
}

/// Returns the maximum bytes of tensors in a document of that size: "0," may be a number of 8 bytes, and more text may
/// be one part of a complex number.
std::uint64_t capacity_of(const Source& source, json::Coding coding) {
  constexpr std::uint64_t max_bytes_per_character = 4;
  const std::uint64_t ratio = coding == json::Coding::zstd   ? detail::max_zstd_ratio
                              : coding == json::Coding::gzip ? detail::max_deflate_ratio
                                                             : 1;
  return detail::add_scaled(0, source.size(), ratio * max_bytes_per_character);
}

constexpr std::string_view string_key = "$str:";

/// Finds nodes by path. Hashes each node's path from its parent's hash and its own segment.
class Paths {
 public:
  explicit Paths(const detail::SnapshotData& data) : data_(data) {
    std::vector<std::uint64_t> hashes(data.nodes.size());
    std::string segment;
    by_hash_.reserve(data.nodes.size());
    for (std::uint32_t i = 0; i < data.nodes.size(); ++i) {
      const Node& node = data.nodes[i];
      if (node.parent != no_index) {
        segment.clear();
        if (data.flat) {
          segment.assign(node.name, node.name_size);
        } else {
          detail::append_node_segment(segment, node);
        }
        hashes[i] = combine(hashes[node.parent], segment);
      }
      by_hash_.emplace_back(hashes[i], i);
    }
    std::sort(by_hash_.begin(), by_hash_.end());
  }
  /// Returns no_index if no node has this path.
  std::uint32_t find(std::string_view path) const {
    std::uint64_t hash = 0;
    for (std::size_t begin = 0; !data_.flat && begin < path.size();) {
      std::size_t end = begin;
      while (end < path.size() && path[end] != '.') end += path[end] == '\\' ? 2 : 1;
      end = std::min(end, path.size());
      hash = combine(hash, path.substr(begin, end - begin));
      begin = end + 1;
    }
    if (data_.flat && !path.empty()) hash = combine(0, path);
    auto at = std::lower_bound(by_hash_.begin(), by_hash_.end(), std::pair(hash, std::uint32_t{0}));
    // Different paths with equal hashes are made on purpose, to cost time: limit the tries.
    for (int tries = 8; tries != 0 && at != by_hash_.end() && at->first == hash; --tries, ++at) {
      if (detail::node_path(data_, at->second) == path) return at->second;
    }
    return no_index;
  }

 private:
  static std::uint64_t combine(std::uint64_t parent, std::string_view segment) {
    return (parent ^ detail::hash64(segment.data(), segment.size())) * 0x9e3779b97f4a7c15U + 1;
  }
  const detail::SnapshotData& data_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_hash_;
};

/// Compares an index with its document, because other programs read only the document. Errors: malformed.
Status same(const json::Document& document, std::uint64_t budget) {
  const auto bad = [&](std::string expected, std::string found) {
    return Error(Errc::malformed, "the index of a compressed document is not that of the document")
        .expected(std::move(expected))
        .found(std::move(found))
        .file(document.file);
  };
  const json::Skeleton& index = document.skeleton;
  STELE_TRY_ASSIGN(const json::Skeleton text, json::make_skeleton(*document.text, budget));
  if (text.text != index.text) {
    const auto first = std::mismatch(text.text.begin(), text.text.end(), index.text.begin(), index.text.end());
    const auto from = [](const std::string& all, std::size_t at) { return all.substr(std::min(at, all.size()), 40); };
    const auto at = static_cast<std::size_t>(first.first - text.text.begin());
    return bad(from(text.text, at), from(index.text, at));
  }
  const auto alike = [](const json::Data& a, const json::Data& b) {
    return a.at == b.at && a.size == b.size && a.numbers == b.numbers;
  };
  if (text.stopped != Errc::none ||
      !std::equal(text.data.begin(), text.data.end(), index.data.begin(), index.data.end(), alike)) {
    return bad("the places of the tensors' data in the document", "others");
  }
  return {};
}

class Opener {
 public:
  Opener(SourcePtr source, const Limits& limits)
      : source_(std::move(source)), limits_(limits), document_(std::make_shared<json::Document>()) {
    document_->file = source_->name();
  }

  Result<Snapshot> run() {
    std::byte head[4];
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source_->size(), sizeof head));
    STELE_TRY(source_->read_at(0, {head, size}));
    const json::Coding coding = json::coding_of({head, size});
    memory_ = budget_of(limits_, *source_, coding);
    STELE_TRY_ASSIGN(json::OpenedText opened, json::open_text(source_, coding, memory_.left() / 2));
    document_->text = std::move(opened.text);
    if (document_->text->in_order()) builder_.set_in_order();
    builder_.set_capacity(capacity_of(*source_, coding));
    json::Skeleton& skeleton = document_->skeleton;
    indexed_ = !opened.index.empty();
    if (indexed_) {
      STELE_TRY_ASSIGN(skeleton, json::decode_index(std::move(opened.index), opened.size));
    } else {
      STELE_TRY_ASSIGN(skeleton, json::make_skeleton(*document_->text, memory_.left()));
    }
    memory_.take(skeleton.text.size() + skeleton.data.size() * sizeof(json::Data));
    json::Reader in(skeleton.text, {0, true, json::kDeepest});
    in_ = &in;
    if (!parse()) {
      if (!failed_) return located(in.error());
      return placed_ ? std::move(*failed_).file(document_->file) : located(std::move(*failed_));
    }
    STELE_TRY(resolve());
    if (const std::uint32_t i = detail::clashing_sibling(builder_.data(), true); i != no_index) {
      return Error(Errc::duplicate, "a name that stands twice")
          .path(detail::node_path(builder_.data(), i))
          .file(document_->file);
    }
    builder_.set_metadata(std::move(metadata_));
    builder_.keep(document_);
    builder_.set_unknown_kinds(unknown_kinds_);
    return builder_.finish();
  }

  /// Compares the index with the document, where the file has one.
  Status check_index() const {
    if (!indexed_) return {};
    return same(*document_, budget_of(limits_, *source_, json::Coding::zstd).left());
  }

 private:
  enum class Kind : std::uint8_t { list, elements, module, variant };
  struct Level {
    Kind kind;
    std::uint32_t node;
    std::size_t path;                // length of the node's own path
    std::uint32_t next = 0;          // list: number of the next element
    std::string_view alternative{};  // variant: the alternative's name, until its value has been read
  };
  struct Alias {
    std::uint32_t node;
    std::string target;
  };

  // ---- errors; these functions return false ----

  bool fail(Errc code, const char* expected, const char* message = "") { return in_->fail(code, expected, message); }
  /// An offset in `error` refers to the skeleton.
  bool fail(Error error) {
    if (!failed_) failed_ = std::move(error);
    return false;
  }
  /// Converts the offset to one in the document: data have been cut from the skeleton.
  Error located(Error error) const {
    if (error.offset() && !indexed_) {
      std::uint64_t offset = *error.offset();
      for (std::size_t i = 0; i < next_data_; ++i) offset += document_->skeleton.data[i].size - 4;
      error = std::move(error).offset(offset);
    }
    if (error.path().empty() && !path_.empty()) error = std::move(error).path(path_);
    return std::move(error).file(document_->file);
  }
  bool take(std::uint64_t bytes) {
    if (memory_.take(bytes)) return true;
    return fail(detail::index_error("a document whose structure takes more memory than its size allows"));
  }

  // ---- the document ----

  bool parse() {
    constexpr unsigned format = 1, version = 2, layout = 4, metadata = 8, record = 16;
    unsigned seen = 0;
    std::string_view key;
    std::string_view text;
    if (!in_->begin_object()) return false;
    while (in_->next_key(key, scratch_)) {
      const unsigned what = key == "format"     ? format
                            : key == "version"  ? version
                            : key == "layout"   ? layout
                            : key == "metadata" ? metadata
                            : key == "record"   ? record
                                                : 0U;
      if (what == 0) return fail(Errc::unsupported, "format, version, layout, metadata or record");
      if ((seen & what) != 0) return fail(Errc::duplicate, "each key once");
      if ((seen & format) == 0 && what != format) return fail(Errc::bad_magic, "format", "not a stele-json document");
      seen |= what;
      if (what == format) {
        if (!in_->read_string(text, scratch_)) return false;
        if (text != "stele-json") return fail(Errc::bad_magic, "stele-json", "not a stele-json document");
      } else if (what == version) {
        std::uint64_t number = 0;
        if (!in_->read_u64(number)) return false;
        if (number != 1) return fail(Errc::unsupported, "version 1", "a document of a later version");
      } else if (what == layout) {
        if (!in_->read_string(text, scratch_)) return false;
        if ((seen & record) != 0) return fail(Errc::malformed, "layout before record");
        builder_.data().flat = text == "flat";
        unknown_kinds_.all = text == "guessed";
        if (text != "flat" && text != "guessed") return fail(Errc::unsupported, "flat or guessed");
      } else if (!(what == metadata ? read_metadata() : read_record())) {
        return false;
      }
    }
    constexpr unsigned least = format | version | record;
    if (in_->ok() && (seen & least) != least) return fail(Errc::malformed, "format, version and record");
    return in_->finish();
  }

  bool read_metadata() {
    Value all;
    if (!read_value(all)) return false;
    if (all.as_map() == nullptr) return fail(Errc::malformed, "an object of texts");
    for (auto& [key, text] : *all.as_map()) {
      if (text.as_string() == nullptr) return fail(Errc::malformed, "an object of texts");
      metadata_.emplace(std::move(key), *text.as_string());
    }
    return true;
  }

  /// Reads a value of any kind, as json.hpp defines it. Its nesting limit does not depend on the container.
  bool read_value(Value& out) {
    std::string_view raw;
    if (in_->peek() == json::Kind::none) return fail(Errc::malformed, "a value");
    if (!in_->skip_value(&raw) || !take(raw.size() * (raw.starts_with('"') ? 2 : detail::index_rate::character / 2)))
      return false;
    const auto base = static_cast<std::uint64_t>(raw.data() - document_->skeleton.text.data());
    json::Reader inner(raw, {base, true, json::kMaxDepth});
    auto r = json::read_value(inner, out, json::kMaxValueBytesPerByte * raw.size() + 1024);
    return r || fail(std::move(r).error());
  }

  bool read_record() {
    const auto& skeleton = document_->skeleton;
    const std::size_t leaves = skeleton.data.size();
    if (!take(skeleton.nodes * sizeof(Node) + leaves * (sizeof(Node) + sizeof(detail::LeafData)))) return false;
    paid_ = static_cast<std::size_t>(skeleton.nodes) + leaves + 1;
    builder_.reserve(paid_, leaves, leaves);
    if (!read_node("")) return false;
    while (!levels_.empty()) {
      if (!read_member()) return false;
    }
    path_.clear();
    if (next_data_ != leaves) return fail(Error(Errc::malformed, "data that belong to no tensor"));
    return true;
  }

  /// Reads the next member of the innermost container, or its end.
  bool read_member() {
    Level& level = levels_.back();
    path_.resize(level.path);
    if (level.kind == Kind::list) {
      if (!in_->next_element()) return in_->ok() && end_container();
      const auto name = SnapshotBuilder::Name::element(level.next++);
      append_path(std::to_string(name.size));
      return read_node(name);
    }
    std::string_view key;
    if (pending_) {
      key = *std::exchange(pending_, std::nullopt);
    } else if (!in_->next_key(key, scratch_)) {
      return in_->ok() && end_container();
    }
    if (builder_.data().flat && levels_.size() > 1)
      return fail(Errc::malformed, "whole paths as names, and no nesting");
    if (level.kind == Kind::variant) {
      const std::string_view name = std::exchange(level.alternative, {});
      if (key != "value" || name.data() == nullptr) return fail(Errc::malformed, "an alternative's value and no more");
      append_segment_of(name);
      return read_node(name);
    }
    if (level.kind == Kind::elements) {
      std::size_t number = 0;
      if (!detail::parse_index(key, number) || number >= no_index)
        return fail(Errc::malformed, "the number of an element");
      append_path(key);
      return read_node(SnapshotBuilder::Name::element(static_cast<std::uint32_t>(number)));
    }
    std::string_view name;
    if (!name_of(key, name)) return false;
    append_segment_of(name);
    return read_node(name);
  }

  /// Returns a key as a name that outlives parsing: without the escaping $, and decoded if it is not UTF-8.
  bool name_of(std::string_view key, std::string_view& name) {
    const std::string& text = document_->skeleton.text;
    std::string decoded;
    if (key.starts_with(string_key)) {
      key.remove_prefix(string_key.size());
      decoded.resize(base64_decoded_size(key));
      if (!base64_decode(key, std::as_writable_bytes(std::span(decoded)).data()))
        return fail(Errc::malformed, "base64");
      key = decoded;
    } else if (key.starts_with('$')) {
      key.remove_prefix(1);
      if (!key.starts_with('$')) return fail(Errc::unsupported, "a name; $ in front of one is doubled");
    }
    if (std::greater_equal<>()(key.data(), text.data()) && std::less<>()(key.data(), text.data() + text.size())) {
      return name = key, true;
    }
    if (!take(key.size())) return false;
    name = builder_.intern(key);
    return true;
  }

  void append_path(std::string_view text) {
    if (!path_.empty()) path_ += '.';
    path_ += text;
  }
  void append_segment_of(std::string_view name) {
    if (builder_.data().flat) {
      path_ += name;
      return;
    }
    if (!path_.empty()) path_ += '.';
    append_segment(path_, name);
  }

  bool begin_container(Kind kind, NodeKind as, SnapshotBuilder::Name name, std::uint32_t version = 0) {
    levels_.push_back({kind, builder_.begin(as, name, true, {}, version), path_.size()});
    return true;
  }
  bool end_container() {
    std::string_view key;
    if (levels_.back().kind == Kind::elements && in_->next_key(key, scratch_)) {
      return fail(Errc::malformed, "$elements alone in its object");
    }
    if (!in_->ok()) return false;
    builder_.end();
    levels_.pop_back();
    return true;
  }

  bool in_list() const { return !levels_.empty() && levels_.back().kind != Kind::module; }

  bool add_value(SnapshotBuilder::Name name, Value value) {
    if (!take(sizeof(Value))) return false;
    builder_.value(name, std::move(value), in_list());
    return true;
  }

  bool read_node(SnapshotBuilder::Name name) {
    if (levels_.size() > detail::max_depth) return fail(Errc::limit, "fewer levels", "nodes nested too deep");
    // An index may store too low a node count. A growing vector holds three times its content.
    if (builder_.nodes().size() >= paid_ && !take(3 * sizeof(Node))) return false;
    Value value;
    switch (in_->peek()) {
      case json::Kind::null:
        // A module with an absent member may be a map, and other formats must keep the member's key.
        if (!levels_.empty() && levels_.back().kind == Kind::module) {
          builder_.set_kind(levels_.back().node, NodeKind::map);
          unknown_kinds_.maps = true;
        }
        builder_.none(name, true);
        return in_->read_null();
      case json::Kind::boolean:
      case json::Kind::number:
      case json::Kind::string:
        return read_value(value) && add_value(name, std::move(value));
      case json::Kind::array:
        return in_->begin_array() && begin_container(Kind::list, NodeKind::list, name);
      case json::Kind::object:
        return read_object(name);
      case json::Kind::none:
        break;
    }
    return fail(Errc::malformed, "a value");
  }

  bool read_object(SnapshotBuilder::Name name) {
    const json::Reader start = *in_;
    std::string_view key;
    if (!in_->begin_object()) return false;
    if (!in_->next_key(key, scratch_)) {
      if (!in_->ok()) return false;
      builder_.begin(NodeKind::module, name, true);
      builder_.end();
      return true;
    }
    if (key == "$dtype") return read_tensor(name);
    if (key == "$ref") return read_alias(name) && alone();
    if (key == "$variant") return read_variant(name);
    if (key == "$elements") return in_->begin_object() && begin_container(Kind::elements, NodeKind::list, name);
    if (key == "$version") {
      std::uint64_t version = 0;
      if (!in_->read_u64(version)) return false;
      if (version > 0xffffffffU) return fail(Errc::out_of_range, "a version below 2^32");
      return begin_container(Kind::module, NodeKind::module, name, static_cast<std::uint32_t>(version));
    }
    Value value;
    if (key == "$value") return read_value(value) && add_value(name, std::move(value)) && alone();
    if (key == "$bytes" || key == "$str" || key == "$f64") {
      *in_ = start;
      return read_value(value) && add_value(name, std::move(value));
    }
    pending_ = key;
    return begin_container(Kind::module, NodeKind::module, name);
  }

  bool alone() {
    std::string_view key;
    if (in_->next_key(key, scratch_)) return fail(Errc::malformed, "a $ key alone in its object");
    return in_->ok();
  }

  bool read_variant(SnapshotBuilder::Name name) {
    std::string_view alternative;
    if (in_->peek() == json::Kind::null) {
      if (!in_->read_null()) return false;
    } else {
      if (!in_->read_string(alternative, scratch_) || !name_of(alternative, alternative)) return false;
    }
    if (!begin_container(Kind::variant, NodeKind::variant, name)) return false;
    levels_.back().alternative = alternative;
    return true;
  }

  bool read_alias(SnapshotBuilder::Name name) {
    std::string_view target;
    if (!in_->read_string(target, scratch_) || !name_of(target, target)) return false;
    if (!take(sizeof(Alias) + target.size())) return false;
    aliases_.push_back({builder_.alias(name, no_index, in_list()), std::string(target)});
    return true;
  }

  /// Targets come before their aliases and are complete, so a document cannot make cycles.
  Status resolve() {
    if (aliases_.empty()) return {};
    detail::SnapshotData& data = builder_.data();
    const Paths paths(data);
    for (const Alias& alias : aliases_) {
      const std::uint32_t target = paths.find(alias.target);
      const bool fits = target < alias.node && data.nodes[target].end <= alias.node &&
                        data.nodes[target].kind != NodeKind::alias && data.nodes[target].kind != NodeKind::none;
      if (!fits) {
        return Error(Errc::malformed, "a $ref to what does not come before it")
            .path(detail::node_path(data, alias.node))
            .expected("the path of something before it that is no $ref itself")
            .found(alias.target)
            .file(document_->file);
      }
      data.nodes[alias.node].index = target;
    }
    return {};
  }

  // ---- tensors ----

  bool read_tensor(SnapshotBuilder::Name name) {
    constexpr unsigned shape = 1, data = 2, id = 4, annotations = 8;
    std::string_view text;
    std::string_view key;
    if (!in_->read_string(text, scratch_)) return false;
    const DType dtype = json::dtype_of(text);
    if (dtype == DType::none || bits(dtype) == 0) return fail(Errc::unsupported, "a dtype, as F32");
    unsigned seen = 0;
    std::size_t number = 0;
    std::optional<ParamId> identity;
    Value notes;
    extents_.clear();
    while (in_->next_key(key, scratch_)) {
      const unsigned what = key == "shape"         ? shape
                            : key == "data"        ? data
                            : key == "id"          ? id
                            : key == "annotations" ? annotations
                                                   : 0U;
      if (what == 0) return fail(Errc::unsupported, "shape, data, id or annotations");
      if ((seen & what) != 0) return fail(Errc::duplicate, "each key of a tensor once");
      seen |= what;
      if (what == shape) {
        std::uint64_t extent = 0;
        if (!in_->begin_array()) return false;
        while (in_->next_element()) {
          if (!in_->read_u64(extent)) return false;
          if (extents_.size() == 0xffff) return fail(Errc::limit, "at most 65535 dimensions");
          extents_.push_back(extent);
        }
      } else if (what == data) {
        number = next_data_;
        if (in_->peek() != json::Kind::null || number == document_->skeleton.data.size()) {
          return fail(Errc::malformed, "a string or an array, and key and $dtype without escapes");
        }
        if (number + 1 == document_->skeleton.data.size() && document_->skeleton.stopped != Errc::none) {
          return check_data(dtype, number);
        }
        if (!in_->read_null()) return false;
        ++next_data_;
      } else if (what == id) {
        if (!in_->read_string(text, scratch_)) return false;
        identity = parse_id(text);
        if (!identity) return fail(Errc::malformed, "a number below 2^64, or a UUID");
      } else {
        if (!read_value(notes)) return false;
        if (notes.as_map() == nullptr) return fail(Errc::malformed, "an object");
      }
    }
    if (!in_->ok()) return false;
    if ((seen & (shape | data)) != (shape | data)) return fail(Errc::malformed, "$dtype, shape and data");
    if (!check_data(dtype, number) || !take(std::uint64_t{2} * sizeof(Extent) * extents_.size())) return false;
    json::Data& found = document_->skeleton.data[number];
    builder_.tensor(name, dtype, extents_, found.bytes, {&json::ops_of(found), document_.get(), number}, in_list());
    if (identity || notes.as_map() != nullptr) {
      if (!take(sizeof(detail::LeafExtra))) return false;
    }
    if (identity) builder_.set_id(*identity);
    if (notes.as_map() != nullptr) {
      for (auto& [k, v] : *notes.as_map()) builder_.annotate(std::move(k), std::move(v));
    }
    return true;
  }

  /// Checks that the data fit a tensor of that dtype and of extents_.
  bool check_data(DType dtype, std::size_t number) {
    json::Data& data = document_->skeleton.data[number];
    const Errc stopped = number + 1 == document_->skeleton.data.size() ? document_->skeleton.stopped : Errc::none;
    const auto wrong = [&](Errc code, const char* text, std::string expected, std::string found) {
      // `at` is an offset in the document, not in the skeleton.
      const std::uint64_t at = data.at;
      failed_ = Error(code, text).path(path_).expected(std::move(expected)).found(std::move(found)).offset(at);
      placed_ = true;
      return false;
    };
    const auto elements = element_count(extents_);
    const auto bytes = elements ? byte_length(dtype, *elements) : std::nullopt;
    if (!bytes || *bytes > UINT64_MAX / 4) {
      return wrong(Errc::malformed, "a tensor of too many elements", "less than 2^62 bytes", to_string(extents_));
    }
    data.bytes = *bytes;
    data.dtype = dtype;
    if (data.numbers) {
      if (!json::has_numbers(dtype)) {
        return wrong(Errc::unsupported, "numbers for a dtype that has none", "base64", std::string(name(dtype)));
      }
      if (stopped != Errc::none) {
        return wrong(stopped, "an array of numbers that does not end", "the numbers of the tensor", "more text");
      }
      // Each number takes at least a digit and a comma.
      if (*elements == 0 || *elements > data.size / 2) {
        return wrong(Errc::malformed, "numbers that cannot be those of the tensor's shape",
                     std::to_string(*elements) + " numbers", std::to_string(data.size) + " characters");
      }
      data.shape = static_cast<std::uint32_t>(document_->shapes.size());
      document_->shapes.push_back(extents_.size());
      document_->shapes.insert(document_->shapes.end(), extents_.begin(), extents_.end());
      return true;
    }
    const std::uint64_t characters = (*bytes + 2) / 3 * 4;
    if (stopped == Errc::none && data.size == characters + 2) return true;
    return wrong(stopped == Errc::none ? Errc::malformed : stopped,
                 stopped == Errc::truncated ? "a tensor beyond the end of the document"
                                            : "data whose length is not that of their dtype and shape",
                 std::to_string(characters) + " characters",
                 stopped == Errc::truncated ? std::to_string(data.size - 1) : std::to_string(data.size - 2));
  }

  static std::optional<ParamId> parse_id(std::string_view text) {
    const auto number = [](std::string_view digits, int base, std::uint64_t& out) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
      return error == std::errc() && end == digits.data() + digits.size();
    };
    std::uint64_t low = 0;
    if (text.size() != 36) return number(text, 10, low) ? std::optional(ParamId::from_u64(low)) : std::nullopt;
    std::string digits;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
      if (dash != (text[i] == '-')) return std::nullopt;
      if (!dash) digits += text[i];
    }
    std::uint64_t high = 0;
    const bool hex = number(std::string_view(digits).substr(0, 16), 16, high) &&
                     number(std::string_view(digits).substr(16), 16, low);
    return hex ? std::optional(ParamId::from_uuid(high, low)) : std::nullopt;
  }

  SourcePtr source_;
  const Limits& limits_;
  detail::IndexBudget memory_;
  std::shared_ptr<json::Document> document_;
  SnapshotBuilder builder_;
  UnknownKinds unknown_kinds_;
  json::Reader* in_ = nullptr;
  std::optional<Error> failed_;
  bool placed_ = false;   // failed_ has an offset in the document, not in its skeleton
  bool indexed_ = false;  // the skeleton comes from an index
  std::string scratch_, path_;
  std::optional<std::string_view> pending_;  // a key that was read, but not its value
  std::vector<Level> levels_;
  std::vector<Alias> aliases_;
  std::vector<Extent> extents_;
  std::map<std::string, std::string> metadata_;
  std::size_t next_data_ = 0;
  std::size_t paid_ = 0;  // nodes whose memory is already counted
};

bool holds(DType dtype) { return is_known(dtype) && bits(dtype) != 0; }

/// Returns true if the available text can begin a document of this format.
bool is_document(std::string_view text) {
  const auto skip = [&](std::string_view token) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  return skip("{") && skip("\"format\"") && skip(":") && skip("\"stele-json\"");
}

/// Returns true if gzip data may inflate to a document, as far as `head` shows. A tar archive does not.
bool inflates_to_document(std::span<const std::byte> head) noexcept {
  std::byte room[64];
  const auto inflated = detail::gzip::inflated_head(head, room);
  const std::string_view text(reinterpret_cast<const char*>(inflated.data()), inflated.size());
  if (text.size() == sizeof room) return is_document(text);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == text.npos || text[first] == '{';
}

}  // namespace

std::string_view JsonFormat::name() const noexcept {
  return options_.encoding == JsonEncoding::plain  ? "json"
         : options_.encoding == JsonEncoding::gzip ? "json.gz"
                                                   : "json.zst";
}

std::string_view JsonFormat::extension() const noexcept {
  return options_.encoding == JsonEncoding::plain  ? ".json"
         : options_.encoding == JsonEncoding::gzip ? ".json.gz"
                                                   : ".json.zst";
}

const Capabilities& JsonFormat::capabilities() const noexcept {
  static constexpr Capabilities plain{true, true, true, true, false, true, true, false, 0xffff, holds};
  static constexpr Capabilities checked{true, true, true, true, false, true, true, true, 0xffff, holds};
  return options_.encoding == JsonEncoding::plain ? plain : checked;
}

bool JsonFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  const json::Coding coding = json::coding_of(head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const bool plain = coding == json::Coding::plain && is_document(text);
  const bool gzip = coding == json::Coding::gzip && inflates_to_document(head);
  switch (options_.encoding) {
    case JsonEncoding::plain:
      return plain;
    case JsonEncoding::gzip:
      return gzip;
    case JsonEncoding::zstd:
      return coding == json::Coding::zstd;
    case JsonEncoding::by_name:
      break;
  }
  return plain || gzip || coding == json::Coding::zstd;
}

Result<Report> JsonFormat::verify(SourcePtr source,  // NOLINT(performance-unnecessary-value-param): overrides
                                  const OpenContext& context) const {
  Opener opener(source, context.options().limits);
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(opener.run()));
  STELE_TRY_ASSIGN(Report report, detail::verify_packed(snapshot, *source, context.options()));
  STELE_TRY(opener.check_index());
  return report;
}

Result<Snapshot> JsonFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(Opener(std::move(source), context.options().limits).run());
}

}  // namespace v0
}  // namespace stele
