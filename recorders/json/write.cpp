// Writes a Snapshot as JSON.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/extension.hpp"
#include "base/hex.hpp"
#include "base/parallel.hpp"
#include "json/json.hpp"
#include "numbers.hpp"
#include "passes/byte_order.hpp"
#include "skeleton.hpp"
#include "snapshot/ahead.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/json.hpp"
#include "text_out.hpp"

namespace stele::inline v0 {

namespace json = detail::json;

namespace {

// Size of the text that is gathered before it is written (64 KiB).
constexpr std::size_t gathered = std::size_t{64} << 10;

// Approximate size of a node in a document, without its data.
constexpr std::uint64_t max_node_bytes = 100;

/// Returns true if a tensor is written as numbers.
bool is_readable(const LeafView& leaf, const JsonOptions& options) {
  const std::uint64_t size = leaf.size();
  return size != 0 && size <= options.numbers_up_to && json::has_numbers(leaf.dtype());
}

/// Writes a tensor's bytes as base64.
class Base64Sink final : public PieceSink {
 public:
  explicit Base64Sink(json::TextOut& out) : out_(out) {}
  Status piece(std::span<const std::byte> bytes) override {
    // Completes a group of three bytes that crosses two pieces.
    while (rest_ != 0 && !bytes.empty()) {
      group_[rest_++] = bytes.front();
      bytes = bytes.subspan(1);
      if (rest_ == 3) STELE_TRY(finish());
    }
    const std::size_t whole = bytes.size() / 3 * 3;
    STELE_TRY(out_.base64(bytes.first(whole)));
    for (const std::byte b : bytes.subspan(whole)) group_[rest_++] = b;
    return {};
  }
  Status finish() { return out_.base64(std::span<const std::byte>(group_, std::exchange(rest_, 0))); }

 private:
  json::TextOut& out_;
  std::byte group_[3]{};
  std::size_t rest_ = 0;
};

/// Writes a tensor's elements as numbers.
class NumberSink final : public PieceSink {
 public:
  NumberSink(json::NumberWriter writer, json::TextOut& out) : writer_(std::move(writer)), out_(out) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min<std::size_t>(bytes.size(), 8192));
      text_.clear();
      writer_.add(now, text_);
      STELE_TRY(out_.write(text_));
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  json::NumberWriter writer_;
  json::TextOut& out_;
  std::string text_;
};

class DocumentWriter {
 public:
  /// `measures`: only counts characters, without reading data.
  DocumentWriter(Snapshot snapshot, const JsonOptions& options, json::TextOut& out, const detail::Workers& workers,
                 bool measures = false)
      : snapshot_(std::move(snapshot)),
        data_(*snapshot_.data()),
        options_(options),
        out_(out),
        measures_(measures),
        context_(workers),
        writer_(text_, options.pretty) {}

  Status run() {
    if (const std::uint32_t i = detail::clashing_sibling(data_, true); i != no_index) {
      return Error(Errc::duplicate, "a name occurs twice, or elements are not in ascending order")
          .path(snapshot_.path(i));
    }
    writer_.begin_object();
    writer_.key("format");
    writer_.string("stele-json");
    writer_.key("version");
    writer_.u64(1);
    if (data_.flat || data_.unknown_kinds.all) {
      writer_.key("layout");
      writer_.string(data_.flat ? "flat" : "guessed");
    }
    writer_.key("metadata");
    Value::Map metadata;
    for (const auto& [key, text] : data_.metadata) metadata.emplace_back(key, Value(text));
    STELE_TRY(put_value(Value(std::move(metadata))));
    writer_.key("record");
    if (data_.nodes.empty()) {
      writer_.begin_object();
      writer_.end_object();
    }
    for (std::uint32_t i = 0; i < data_.nodes.size(); ++i) {
      if (auto r = node(i); !r) {
        Error error = std::move(r).error();
        return error.path().empty() ? std::move(error).path(snapshot_.path(i)) : std::move(error);
      }
    }
    close_ended(static_cast<std::uint32_t>(data_.nodes.size()));
    writer_.end_object();
    STELE_TRY(flush());
    return out_.finish(out_.wants_index() ? json::encode_index(skeleton_) : std::string());
  }

 private:
  struct Open {
    std::uint32_t end;
    NodeKind kind;
    bool list;      // a list: elements have no names
    bool numbered;  // {"$elements":{…}}
  };

  Status flush() {
    if (out_.wants_index()) skeleton_.text += text_;
    auto written = out_.write(text_);
    text_.clear();
    return written;
  }

  void close_ended(std::uint32_t at) {
    for (; !open_.empty() && open_.back().end <= at; open_.pop_back()) {
      if (open_.back().list) {
        writer_.end_array();
        continue;
      }
      writer_.end_object();
      if (open_.back().numbered) writer_.end_object();
    }
  }

  static std::string coded(const Node& node) {
    return node.name == nullptr ? std::to_string(node.name_size) : json::coded_key({node.name, node.name_size});
  }

  void name_of(const Node& node) {
    if (open_.empty() || open_.back().list) return;
    writer_.key(open_.back().kind == NodeKind::variant ? "value" : coded(node));
  }

  Status node(std::uint32_t i) {
    const Node& node = data_.nodes[i];
    close_ended(i);
    if (!open_.empty() && open_.back().kind == NodeKind::variant && data_.nodes[node.parent + 1].end <= i) {
      return Error(Errc::not_representable, "a variant has more than one alternative");
    }
    name_of(node);
    ++skeleton_.nodes;
    switch (node.kind) {
      case NodeKind::tensor:
        --skeleton_.nodes;
        return tensor(node);
      case NodeKind::value:
        return value(data_.values[node.index]);
      case NodeKind::none:
        writer_.null();
        break;
      case NodeKind::alias:
        alias(node.index);
        break;
      case NodeKind::variant:
        variant(i);
        break;
      case NodeKind::list:
      case NodeKind::array:
      case NodeKind::tuple:
        list(i);
        break;
      case NodeKind::module:
      case NodeKind::map:
        writer_.begin_object();
        if (const std::uint32_t version = snapshot_.version(node); version != 0) {
          writer_.key("$version");
          writer_.u64(version);
        }
        open_.push_back({node.end, node.kind, false, false});
        break;
    }
    return text_.size() >= gathered ? flush() : Status();
  }

  void list(std::uint32_t i) {
    const Node& node = data_.nodes[i];
    bool whole = true;
    std::uint32_t next = 0;
    for (std::uint32_t k = i + 1; k < node.end; k = data_.nodes[k].end) {
      whole = whole && data_.nodes[k].name == nullptr && data_.nodes[k].name_size == next++;
    }
    if (whole) {
      writer_.begin_array();
    } else {
      writer_.begin_object();
      writer_.key("$elements");
      writer_.begin_object();
      skeleton_.nodes += 2;
    }
    open_.push_back({node.end, node.kind, whole, !whole});
  }

  void variant(std::uint32_t i) {
    const Node& node = data_.nodes[i];
    writer_.begin_object();
    writer_.key("$variant");
    if (node.end == i + 1) {
      writer_.null();
    } else {
      writer_.string(coded(data_.nodes[i + 1]));
    }
    ++skeleton_.nodes;
    open_.push_back({node.end, node.kind, false, false});
  }

  void alias(std::uint32_t target) {
    writer_.begin_object();
    writer_.key("$ref");
    writer_.string(json::coded_key(snapshot_.path(target)));
    writer_.end_object();
  }

  /// Writes a value on one line. Its nesting limit does not depend on the nodes around it.
  Status put_value(const Value& value) {
    std::string text;
    json::Writer inner(text);
    STELE_TRY(json::write_value(inner, value));
    // For a reader without a better estimate, each of these characters counts as a node.
    skeleton_.nodes += static_cast<std::uint64_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '{' || c == '['; }));
    writer_.item();
    text_ += text;
    return text_.size() >= gathered ? flush() : Status();
  }

  Status value(const Value& value) {
    const Value::Kind kind = value.kind();
    if (kind != Value::Kind::null && kind != Value::Kind::list && kind != Value::Kind::map) return put_value(value);
    // A reader would take a bare null, list or map for a missing node or a container.
    writer_.begin_object();
    writer_.key("$value");
    STELE_TRY(put_value(value));
    writer_.end_object();
    return {};
  }

  // ---- tensors ----

  void member(std::string_view key) {
    if (text_.back() != '{') text_ += options_.pretty ? ", " : ",";
    text_.append(1, '"').append(key).append(options_.pretty ? "\": " : "\":");
  }

  Status tensor(const Node& node) {
    const LeafView leaf = snapshot_.leaf(node.index);
    writer_.item();
    text_ += '{';
    member("$dtype");
    text_.append(1, '"').append(json::dtype_name(leaf.dtype())).append(1, '"');
    member("shape");
    text_ += '[';
    for (const Extent e : leaf.shape()) {
      if (text_.back() != '[') text_ += options_.pretty ? ", " : ",";
      text_ += std::to_string(e);
    }
    text_ += ']';
    if (const auto id = leaf.id()) {
      member("id");
      text_.append(1, '"').append(text_of(*id)).append(1, '"');
    }
    if (const Annotations* annotations = leaf.annotations()) {
      Value::Map map;
      for (const auto& [key, v] : *annotations) map.emplace_back(key, v);
      member("annotations");
      std::string text;
      json::Writer inner(text);
      STELE_TRY(json::write_value(inner, Value(std::move(map))));
      text_ += text;
    }
    member("data");
    STELE_TRY(data(leaf));
    text_ += '}';
    return text_.size() >= gathered ? flush() : Status();
  }

  Status data(const LeafView& leaf) {
    if (measures_) {
      out_.skip(base64_size(static_cast<std::size_t>(leaf.byte_size())) + 2);
      return {};
    }
    const bool numbers = is_readable(leaf, options_);
    STELE_TRY(flush());
    json::Data range;
    range.at = out_.position();
    range.numbers = numbers;
    if (numbers) {
      const int indent = options_.pretty ? static_cast<int>(2 * (writer_.depth() + 1)) : -1;
      NumberSink sink(json::NumberWriter(leaf.dtype(), leaf.shape(), indent), out_);
      STELE_TRY(stream(leaf, sink));
    } else {
      Base64Sink sink(out_);
      STELE_TRY(out_.write("\""));
      STELE_TRY(stream(leaf, sink));
      STELE_TRY(sink.finish());
      STELE_TRY(out_.write("\""));
    }
    range.size = out_.position() - range.at;
    if (out_.wants_index()) {
      skeleton_.text += "null";
      skeleton_.data.push_back(range);
    }
    return {};
  }
  Status stream(const LeafView& leaf, PieceSink& sink) {
    return detail::worth_ahead(leaf, context_.workers()) ? detail::stream_ahead(leaf, context_, nullptr, sink)
                                                         : leaf.stream(sink, context_);
  }

  static std::string text_of(const ParamId& id) {
    if (id.form == ParamId::Form::u64) return std::to_string(id.low);
    std::string text = detail::hex(id.high) + detail::hex(id.low);
    for (const std::size_t dash : {20U, 16U, 12U, 8U}) text.insert(dash, 1, '-');
    return text;
  }

  const Snapshot snapshot_;
  const detail::SnapshotData& data_;
  const JsonOptions& options_;
  json::TextOut& out_;
  bool measures_;
  ReadContext context_;
  std::string text_;  // text that is not written yet
  json::Writer writer_;
  std::vector<Open> open_;
  json::Skeleton skeleton_;
};

/// Counts bytes.
class CountingSink final : public Sink {
 public:
  CountingSink() : Sink(std::string()) {}
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) size += piece.size();
    return {};
  }
  std::uint64_t size = 0;
};

/// Returns true if the document's structure compresses so well that a reader would refuse the memory for it.
Result<bool> compresses_too_well(const Snapshot& snapshot, const JsonOptions& options, bool noise,
                                 const detail::Workers& workers) {
  CountingSink sink;
  STELE_TRY_ASSIGN(const auto out, json::text_out(json::Coding::gzip, options.level, noise, false, workers, sink));
  STELE_TRY(DocumentWriter(snapshot, options, *out, workers, true).run());
  std::uint64_t data = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    data += base64_size(static_cast<std::size_t>(snapshot.leaf(i).byte_size()));
  }
  return !json::admits(sink.size, out->position() - data);
}

json::Coding coding_of(const JsonOptions& options, std::string_view name) {
  switch (options.encoding) {
    case JsonEncoding::plain:
      return json::Coding::plain;
    case JsonEncoding::zstd:
      return json::Coding::zstd;
    case JsonEncoding::gzip:
      return json::Coding::gzip;
    case JsonEncoding::by_name:
      break;
  }
  return detail::has_extension(name, ".json") ? json::Coding::plain
         : detail::has_extension(name, ".gz") ? json::Coding::gzip
                                              : json::Coding::zstd;
}

}  // namespace

Status JsonFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::Workers workers = detail::workers_of(options);
  const json::Coding coding = coding_of(options_, sink.name());
  std::uint64_t base64 = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (!is_readable(leaf, options_)) base64 += (leaf.byte_size() + 2) / 3 * 4;
  }
  // True if data are nearly the whole text.
  const bool noise = base64 / 16 > max_node_bytes * snapshot.nodes().size();
  if (coding == json::Coding::plain && options_.numbers_up_to == 0) {
    const auto count = json::counted_text();
    STELE_TRY(DocumentWriter(snapshot, options_, *count, workers, true).run());
    STELE_TRY(sink.reserve(count->position()));
  }
  bool stored = false;
  if (coding == json::Coding::gzip) {
    STELE_TRY_ASSIGN(stored, compresses_too_well(snapshot, options_, noise, workers));
  }
  STELE_TRY_ASSIGN(const auto out, json::text_out(coding, options_.level, noise, stored, workers, sink));
  return DocumentWriter(detail::in_file_order(snapshot), options_, *out, workers).run();
}

}  // namespace stele::inline v0
