// Tokens -> Snapshot.
#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "elements.hpp"
#include "fields.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {
namespace {

using Kind = Token::Kind;

/// Lets the reader look ahead. Reads no token twice, because going back in a gzip file means inflating it again.
class Ahead {
 public:
  explicit Ahead(Tokens& tokens) : tokens_(&tokens) {}

  Status next(Token& token) {
    if (queue_.empty()) return tokens_->next(token);
    token = std::move(queue_.front());
    queue_.pop_front();
    return {};
  }
  /// Returns the token `i` places ahead; valid until it is read.
  Result<const Token*> peek(std::size_t i) {
    while (i >= queue_.size()) {
      Token token;
      STELE_TRY(tokens_->next(token));
      queue_.push_back(std::move(token));
    }
    return &queue_[i];
  }
  /// Returns another reader, placed after all tokens in the queue.
  std::unique_ptr<Tokens> clone() const { return tokens_->clone(); }
  /// Continues after a list that `behind` has read, and whose first token was the last in the queue.
  void go_on(std::unique_ptr<Tokens> behind) {
    const bool all = queue_.front().kind == Token::Kind::end;
    queue_.pop_front();
    if (all) return;
    own_ = std::move(behind);
    tokens_ = own_.get();
  }
  Provider provider(const Token& bytes) const { return tokens_->provider(bytes); }
  std::shared_ptr<const void> keeper() const { return tokens_->keeper(); }

 private:
  Tokens* tokens_;
  std::unique_ptr<Tokens> own_;
  std::deque<Token> queue_;
};

class NamedReader {
 public:
  NamedReader(Tokens& tokens, std::uint64_t memory, const BurnOptions& options, const TypeInfo* type)
      : tokens_(tokens), options_(options), type_(type), budget_(memory) {}

  const Heading& heading() const noexcept { return heading_; }

  Result<Snapshot> run() {
    Token token;
    std::map<std::string, std::string> metadata;
    bool item = false;
    bool heading = false;
    STELE_TRY(expect(token, Kind::map, "a record"));
    for (;;) {
      STELE_TRY(tokens_.next(token));
      if (token.kind == Kind::end) break;
      const std::string key = token.text;
      if ((key == "item" && item) || (key == "metadata" && heading)) {
        return Error(Errc::duplicate, "a record with two of one key").path(key).offset(token.offset);
      }
      if (key == "metadata") {
        heading = true;
        STELE_TRY(texts([&](const std::string& name, std::string text) {
          const auto* found = std::find(std::begin(heading_names), std::end(heading_names), name);
          if (found == std::end(heading_names)) return true;
          std::string& mine = *member(heading_, static_cast<std::size_t>(found - heading_names));
          if (!mine.empty()) return false;
          mine = std::move(text);
          return true;
        }));
      } else if (key == own_key) {
        STELE_TRY(texts(
            [&](const std::string& name, std::string text) { return metadata.emplace(name, std::move(text)).second; }));
      } else if (key == "item") {
        item = true;
        STELE_TRY(read_item());
      } else {
        STELE_TRY(tokens_.next(token));
        STELE_TRY(skip(token));
      }
    }
    STELE_TRY(tokens_.next(token));  // the end: nothing follows the record
    if (!item) return Error(Errc::malformed, "a record without an item");
    STELE_TRY(check(heading_, options_));
    keep(heading_, builder_);
    builder_.set_metadata(std::move(metadata));
    builder_.keep(tokens_.keeper());
    builder_.set_unknown_kinds({.all = true});
    const std::uint32_t twice = clashing_sibling(builder_.data(), true);
    if (twice != no_index) {
      return Error(Errc::duplicate, "two fields of one name").path(node_path(builder_.data(), twice));
    }
    return builder_.finish();
  }

 private:
  Status expect(Token& token, Kind kind, const char* what) {
    STELE_TRY(tokens_.next(token));
    return token.kind == kind ? Status() : wrong(token, what);
  }
  Error wrong(const Token& token, std::string_view expected) {
    static constexpr std::string_view names[] = {"nothing", "a text", "a number", "bytes", "a list", "a map", "an end"};
    return Error(Errc::malformed, "a record with something else there than Burn has")
        .path(path())
        .offset(token.offset)
        .expected(std::string(expected))
        .found(std::string(names[static_cast<std::size_t>(token.kind)]));
  }
  /// Returns the path of the current node.
  std::string path() const {
    std::string text;
    for (const NodeName& segment : path_) {
      if (!text.empty()) text += '.';
      append_segment(text, segment.data != nullptr ? std::string_view(segment.data, segment.size)
                                                   : std::string_view(std::to_string(segment.size)));
    }
    return text;
  }

  /// Skips the rest of a value whose first token was read.
  Status skip(Token& token) {
    unsigned open = 0;
    for (;;) {
      if (token.kind == Kind::list || token.kind == Kind::map) ++open;
      if (token.kind == Kind::end) --open;
      if (open == 0) return {};
      STELE_TRY(budget_.node(0, 0, token.offset));  // bounds the time; nothing is kept
      STELE_TRY(tokens_.next(token));
    }
  }

  template <class Add>
  Status texts(Add add) {
    Token token;
    STELE_TRY(expect(token, Kind::map, "a map of texts"));
    for (;;) {
      STELE_TRY(tokens_.next(token));
      if (token.kind == Kind::end) return {};
      const std::string name = token.text;
      const std::uint64_t at = token.offset;
      STELE_TRY(budget_.node(2 * name.size(), 0, token.offset));
      STELE_TRY(tokens_.next(token));
      if (token.kind != Kind::text) return wrong(token, "a text");
      STELE_TRY(budget_.node(2 * token.text.size(), 0, token.offset));
      if (!add(name, std::move(token.text)))
        return Error(Errc::duplicate, "metadata of one name").path(name).offset(at);
    }
  }

  /// Reads a value that is not a record, from its first token `token` on.
  Status read_value(Token& token, Value& out) {
    STELE_TRY(budget_.node(token.kind == Kind::text ? token.text.size() : 0, 0, token.offset));
    switch (token.kind) {
      case Kind::nil:
        out = Value();
        return {};
      case Kind::text:
        out = Value(std::move(token.text));
        return {};
      case Kind::scalar:
        out = std::move(token.scalar);
        return {};
      case Kind::list:
      case Kind::map: {
        const bool map = token.kind == Kind::map;
        Value::List list;
        Value::Map entries;
        for (;;) {
          STELE_TRY(tokens_.next(token));
          if (token.kind == Kind::end) break;
          std::string key;
          if (map) {
            key = std::move(token.text);
            STELE_TRY(budget_.node(key.size(), 0, token.offset));
            STELE_TRY(tokens_.next(token));
          }
          Value value;
          STELE_TRY(read_value(token, value));
          if (map) {
            entries.emplace_back(std::move(key), std::move(value));
          } else {
            list.push_back(std::move(value));
          }
        }
        out = map ? Value(std::move(entries)) : Value(std::move(list));
        return {};
      }
      default:
        return wrong(token, "a value");
    }
  }

  // ---- the item

  /// Returns the type of a field of the loaded type; null if unknown.
  static const TypeInfo* field_of(const TypeInfo* type, std::string_view name) {
    if (type == nullptr || type->kind == TypeKind::map) return type != nullptr ? type->element : nullptr;
    for (const FieldInfo& field : type->fields) {
      if (field.name == name) return field.type;
    }
    return nullptr;
  }
  static const TypeInfo* element_of(const TypeInfo* type, std::size_t i) {
    if (type == nullptr || type->kind != TypeKind::tuple) return type != nullptr ? type->element : nullptr;
    return i < type->fields.size() ? type->fields[i].type : nullptr;
  }

  /// Returns true if null is a value of the type.
  static bool is_null(const TypeInfo& type) {
    if (type.value->check == nullptr) return false;
    const auto fits = guarded([&]() -> Result<bool> { return type.value->check(Value()).empty(); });
    return fits && *fits;
  }

  Status read_item() {
    auto era = options_.era != BurnEra::automatic ? Result<BurnEra>(options_.era) : era_of(heading_.version);
    old_ = !era || *era == BurnEra::v0_13;
    Token token;
    STELE_TRY(tokens_.next(token));
    if (token.kind == Kind::map || token.kind == Kind::list) return read_node("", type_, token, false);
    if (token.kind != Kind::nil) return wrong(token, "a module");
    builder_.begin(NodeKind::module, "");
    builder_.end();
    return {};
  }

  Status read_node(NodeName name, const TypeInfo* type, Token& token, bool conditional) {
    const bool held = type != nullptr && is_holder(*type);
    while (type != nullptr && is_holder(*type)) type = type->element;
    STELE_TRY(budget_.node(0, 0, token.offset));
    // A field of type Value accepts any content.
    if (type != nullptr && type->kind == TypeKind::value && type->value->dtype == DType::none &&
        (token.kind == Kind::list || token.kind == Kind::map || (token.kind == Kind::nil && !held && is_null(*type)))) {
      Value value;
      STELE_TRY(read_value(token, value));
      return builder_.value(name, std::move(value), conditional), Status();
    }
    switch (token.kind) {
      case Kind::nil:
        builder_.none(name, conditional);
        return {};
      case Kind::text:
        STELE_TRY(budget_.node(token.text.size(), 0, token.offset));
        builder_.value(name, Value(std::move(token.text)), conditional);
        return {};
      case Kind::scalar:
        builder_.value(name, std::move(token.scalar), conditional);
        return {};
      case Kind::list: {
        builder_.begin(NodeKind::list, name, conditional);
        for (std::size_t i = 0;; ++i) {
          STELE_TRY(tokens_.next(token));
          if (token.kind == Kind::end) break;
          path_.push_back(NodeName::element(i));
          STELE_TRY(read_node(path_.back(), element_of(type, i), token, true));
          path_.pop_back();
        }
        builder_.end();
        return {};
      }
      case Kind::map:
        return read_map(name, type, token, conditional);
      default:
        return wrong(token, "a field of a module");
    }
  }

  Status read_map(NodeName name, const TypeInfo* type, Token& token, bool conditional) {
    STELE_TRY(tokens_.next(token));
    const bool root = builder_.nodes().empty();
    if (!root && token.kind == Kind::text) {
      STELE_TRY_ASSIGN(const Map map, look(token));
      if (map == Map::parameter) return read_parameter(name, type, token, conditional);
      if (map == Map::tensor || map == Map::elements) return read_tensor(name, type, token, conditional, false);
    }
    builder_.begin(NodeKind::module, name, conditional);
    for (; token.kind != Kind::end;) {
      STELE_TRY(budget_.node(token.text.size(), 0, token.offset));
      const std::string_view key = builder_.intern(token.text);
      STELE_TRY(tokens_.next(token));
      path_.emplace_back(key);
      STELE_TRY(read_node(path_.back(), field_of(type, key), token, false));
      path_.pop_back();
      STELE_TRY(tokens_.next(token));
    }
    builder_.end();
    return {};
  }

  /// `elements`: an old file's tensor, whose elements are numbers. `foreign`: such a tensor in a file that declares a
  /// newer version.
  enum class Map : std::uint8_t { module, parameter, tensor, elements, foreign };
  /// Maximum bytes of tokens read ahead (8 MiB: a shape of 65,535 extents).
  static constexpr std::size_t most_ahead = std::size_t{8} << 20;
  /// Returns the kind of a map whose first key is `token`. A module may have a field of any name, so all keys are
  /// checked.
  Result<Map> look(const Token& token) {
    elements_ = nullptr;
    if (bit_of(token.text) == 0) return Map::module;
    std::size_t at = 0;
    std::size_t bytes = 0;
    return look(&token, at, bytes);
  }
  unsigned bit_of(std::string_view key) const {
    static constexpr std::string_view keys[] = {"id", "param", "bytes", "shape", "dtype", "value"};
    const auto* found = std::find(std::begin(keys), std::end(keys), key);
    return found != std::end(keys) ? 1U << (found - keys) : 0U;
  }
  /// Does not read to the end of a module, nor into the elements of a tensor, which are separate tokens in old files.
  /// `at` is the index of the next token.
  Result<Map> look(const Token* next, std::size_t& at, std::size_t& bytes) {
    unsigned seen = 0;
    bool identified = false;
    while (next->kind != Kind::end) {
      const unsigned bit = bit_of(next->text);
      if ((seen & bit) != 0) return Map::module;  // also for two fields of one name
      seen |= bit;
      STELE_TRY_ASSIGN(next, ahead(at, bytes));
      const bool fits = bit == 1    ? next->kind == Kind::text
                        : bit == 2  ? next->kind == Kind::map
                        : bit == 4  ? next->kind == Kind::bytes
                        : bit == 8  ? next->kind == Kind::list
                        : bit == 16 ? next->kind == Kind::text || next->kind == Kind::map
                        : bit == 32 ? next->kind == Kind::list
                                    : false;
      if (!fits) return Map::module;
      identified = identified || (bit == 1 && parse_id(next->text));
      if (bit == 2) {
        STELE_TRY_ASSIGN(next, ahead(at, bytes));
        STELE_TRY_ASSIGN(const Map param, look(next, at, bytes));
        if (param == Map::elements) return Map::parameter;
        if (param == Map::foreign && identified) return other_era();
        if (param != Map::tensor) return Map::module;
      } else if (bit == 32) {
        if (old_) elements_ = tokens_.clone();
        STELE_TRY_ASSIGN(next, ahead(at, bytes));
        if (next->kind == Kind::scalar) return old_ ? Result<Map>(Map::elements) : Map::foreign;
        if (next->kind != Kind::end || !old_) return Map::module;
      } else {
        for (unsigned open = 0;;) {
          if (next->kind == Kind::list || next->kind == Kind::map) ++open;
          if (next->kind == Kind::end) --open;
          if (open == 0) break;
          STELE_TRY_ASSIGN(next, ahead(at, bytes));
          if (bytes > most_ahead) return Map::module;
        }
      }
      STELE_TRY_ASSIGN(next, ahead(at, bytes));
    }
    return seen == 3 ? Map::parameter : seen == 28 || seen == 40 ? Map::tensor : Map::module;
  }
  Error other_era() const {
    return Error(Errc::unsupported,
                 "a parameter as Burn 0.13 and before wrote it, in a record that says a later version")
        .path(path())
        .expected("BurnOptions::era = BurnEra::v0_13 for this file")
        .found("version " + heading_.version);
  }
  Result<const Token*> ahead(std::size_t& at, std::size_t& bytes) {
    STELE_TRY_ASSIGN(const Token* token, tokens_.peek(at++));
    bytes += sizeof(Token) + token->text.size();
    return token;
  }

  Status read_parameter(NodeName name, const TypeInfo* type, Token& token, bool conditional) {
    std::string id;
    std::uint64_t at = 0;
    for (; token.kind != Kind::end;) {
      if (token.text == "id" && id.empty()) {
        STELE_TRY(expect(token, Kind::text, "an id"));
        id = std::move(token.text);
        at = token.offset;
      } else {
        STELE_TRY(expect(token, Kind::map, "a tensor"));
        STELE_TRY(tokens_.next(token));
        STELE_TRY(read_tensor(name, type, token, conditional, true));
      }
      STELE_TRY(tokens_.next(token));
    }
    auto set = set_id(builder_, id, at);
    return set ? std::move(set) : Status(std::move(set).error().path(path()));
  }

  Status read_tensor(NodeName name, const TypeInfo* type, Token& token, bool conditional, bool parameter) {
    Tensor tensor;
    bool bytes = false;
    const std::uint64_t begin = token.offset;
    for (; token.kind != Kind::end;) {
      const std::string key = token.text;
      STELE_TRY(tokens_.next(token));
      if (key == "bytes" && token.kind == Kind::bytes && !bytes) {
        bytes = true;
        tensor.bytes = token.size;
        tensor.provider = tokens_.provider(token);
      } else if (key == "shape" && token.kind == Kind::list && tensor.shape.empty()) {
        for (;;) {
          STELE_TRY(tokens_.next(token));
          if (token.kind == Kind::end) break;
          const std::int64_t* extent = token.kind == Kind::scalar ? token.scalar.as_i64() : nullptr;
          if (extent == nullptr || *extent < 0) return wrong(token, "an extent");
          STELE_TRY(budget_.node(0, 1, token.offset));
          tensor.shape.push_back(static_cast<Extent>(*extent));
        }
      } else if (key == "dtype") {
        Value spelled;
        const std::uint64_t at = token.offset;
        STELE_TRY(read_value(token, spelled));
        auto dtype = read_dtype(spelled);
        if (!dtype) return std::move(dtype).error().path(path()).offset(at);
        tensor.dtype = *std::move(dtype);
      } else if (key == "value" && token.kind == Kind::list && elements_ != nullptr && !bytes) {
        bytes = true;
        STELE_TRY(budget_.node(300, 0, token.offset));  // memory of a mark
        const DType floats = dtype_of_rust(heading_.floats);
        const DType ints = dtype_of_rust(heading_.ints);
        if (floats == DType::none || ints == DType::none) return wrong(token, "elements of known types");
        STELE_TRY_ASSIGN(const auto list, read_elements(*elements_, floats, ints,
                                                        type != nullptr && type->kind == TypeKind::tensor
                                                            ? dtype_class(type->tensor->dtype)
                                                            : DTypeClass::none));
        tokens_.go_on(std::move(elements_));
        tensor.dtype.dtype = list->dtype;
        tensor.bytes = list->count * element_size(list->dtype);
        tensor.provider = list->provider();
        builder_.keep(list);
      } else {
        return wrong(token, "bytes, shape and dtype");
      }
      STELE_TRY(tokens_.next(token));
    }
    if (!bytes || tensor.dtype.dtype == DType::none) return wrong(token, "bytes, shape and dtype");
    auto added = add(builder_, name, std::move(tensor), conditional);
    if (!added) return std::move(added).error().path(path()).offset(begin);
    if (!parameter) builder_.annotate(std::string(bare_note), Value(true));
    return {};
  }

  Ahead tokens_;
  std::unique_ptr<Tokens> elements_;  // placed before the first element, if look() found elements
  const BurnOptions& options_;
  const TypeInfo* type_;
  Budget budget_;
  Heading heading_;
  bool old_ = false;  // has tensors of 0.13 and before
  SnapshotBuilder builder_;
  std::vector<NodeName> path_;
};

}  // namespace

Result<Snapshot> read_named(Tokens& tokens, std::uint64_t memory, const BurnOptions& options, const TypeInfo* type) {
  NamedReader reader(tokens, memory, options, type);
  auto read = reader.run();
  return read ? std::move(read) : Result<Snapshot>(with_age(std::move(read).error(), reader.heading()));
}

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
