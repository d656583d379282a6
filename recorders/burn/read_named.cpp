// Reads tokens into a Snapshot.
#include <algorithm>
#include <vector>

#include "base/skipped.hpp"
#include "elements.hpp"
#include "fields.hpp"
#include "lookahead.hpp"
#include "module/walk.hpp"
#include "record_reader.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail::burn {
namespace {

using Kind = Token::Kind;

class NamedReader final : public RecordReader {
 public:
  NamedReader(TokenReader& tokens, std::uint64_t memory, const BurnOptions& options, const TypeInfo* type)
      : RecordReader(memory, options), tokens_(tokens), type_(type) {}

  Result<Snapshot> run() {
    Token token;
    std::map<std::string, std::string> metadata;
    bool item = false;
    bool header = false;
    STELE_TRY(expect(token, Kind::map, "a record"));
    for (;;) {
      STELE_TRY(tokens_.next(token));
      if (token.kind == Kind::end) break;
      const std::string key = token.text;
      if ((key == "item" && item) || (key == "metadata" && header)) {
        return Error(Errc::duplicate, "the key occurs twice in the record").path(key).offset(token.offset);
      }
      if (key == "metadata") {
        header = true;
        STELE_TRY(texts([&](const std::string& name, std::string text) {
          const auto* found = std::find(std::begin(header_names), std::end(header_names), name);
          if (found == std::end(header_names)) return skipped_.add("metadata." + name), true;
          std::string& mine = *member(header_, static_cast<std::size_t>(found - header_names));
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
        STELE_TRY(budget_.node(key.size(), 0, token.offset));
        if (key != "_b") skipped_.add(key);
        STELE_TRY(tokens_.next(token));
        STELE_TRY(skip(token));
      }
    }
    STELE_TRY(tokens_.next(token));  // the end of the record, which is the end of the tokens
    if (!item) return Error(Errc::malformed, "the record has no item");
    STELE_TRY(check(header_, options_));
    builder_.set_metadata(std::move(metadata));
    skipped_.leave_out(builder_.data().left_out, "unknown keys of the record");
    builder_.set_unknown_kinds({.all = true});
    return finish(tokens_.keeper());
  }

 private:
  Status expect(Token& token, Kind kind, const char* what) {
    STELE_TRY(tokens_.next(token));
    return token.kind == kind ? Status() : wrong(token, what);
  }
  Error wrong(const Token& token, std::string_view expected) {
    static constexpr std::string_view names[] = {"nothing", "a string", "a number", "bytes",
                                                 "a list",  "a map",    "an end"};
    return Error(Errc::malformed, "the record contains an unexpected value")
        .path(path())
        .offset(token.offset)
        .expected(std::string(expected))
        .found(std::string(names[static_cast<std::size_t>(token.kind)]));
  }
  /// Skips the rest of a value whose first token was read.
  Status skip(Token& token) {
    unsigned open = 0;
    for (;;) {
      if (token.kind == Kind::list || token.kind == Kind::map) ++open;
      if (token.kind == Kind::end) --open;
      if (open == 0) return {};
      STELE_TRY(budget_.node(0, 0, token.offset));  // bounds the time: skipped values keep no memory
      STELE_TRY(tokens_.next(token));
    }
  }

  template <class Add>
  Status texts(Add add) {
    Token token;
    STELE_TRY(expect(token, Kind::map, "a map of strings"));
    for (;;) {
      STELE_TRY(tokens_.next(token));
      if (token.kind == Kind::end) return {};
      const std::string name = token.text;
      const std::uint64_t at = token.offset;
      STELE_TRY(budget_.node(2 * name.size(), 0, token.offset));
      STELE_TRY(tokens_.next(token));
      if (token.kind != Kind::text) return wrong(token, "a string");
      STELE_TRY(budget_.node(2 * token.text.size(), 0, token.offset));
      if (!add(name, std::move(token.text)))
        return Error(Errc::duplicate, "the metadata key occurs twice").path(name).offset(at);
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

  Status read_item() {
    auto era = options_.era != BurnEra::automatic ? Result<BurnEra>(options_.era) : era_of(header_.version);
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
        (token.kind == Kind::list || token.kind == Kind::map ||
         (token.kind == Kind::nil && !held && accepts_null(*type->value)))) {
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
      STELE_TRY_ASSIGN(const MapKind kind, tokens_.kind_of_map(token, old_));
      if (kind == MapKind::newer_parameter) return other_era();
      if (kind == MapKind::parameter) return read_parameter(name, type, token, conditional);
      if (kind == MapKind::tensor || kind == MapKind::elements) {
        STELE_TRY(read_tensor(name, type, token, conditional));
        return mark_bare(), Status();
      }
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

  Error other_era() const {
    return Error(Errc::unsupported,
                 "the parameter has the layout of Burn 0.13 or earlier, but the record declares a later version")
        .path(path())
        .found("version " + header_.version)
        .hint("set BurnOptions::era to BurnEra::v0_13");
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
        STELE_TRY(read_tensor(name, type, token, conditional));
      }
      STELE_TRY(tokens_.next(token));
    }
    return add_id(id, at);
  }

  Status read_tensor(NodeName name, const TypeInfo* type, Token& token, bool conditional) {
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
      } else if (key == "value" && token.kind == Kind::list && tokens_.elements() != nullptr && !bytes) {
        bytes = true;
        STELE_TRY(budget_.node(300, 0, token.offset));  // memory for a mark
        const DType floats = dtype_of_rust(header_.floats);
        const DType ints = dtype_of_rust(header_.ints);
        if (floats == DType::none || ints == DType::none) return wrong(token, "elements of known types");
        STELE_TRY_ASSIGN(const auto list, read_elements(*tokens_.elements(), floats, ints,
                                                        type != nullptr && type->kind == TypeKind::tensor
                                                            ? dtype_class(type->tensor->dtype)
                                                            : DTypeClass::none));
        tokens_.skip_elements();
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
    return add_tensor(name, std::move(tensor), conditional, begin);
  }

  Lookahead tokens_;
  const TypeInfo* type_;
  bool old_ = false;  // the record has tensors in the layout of 0.13 and earlier
  Skipped skipped_;   // keys of the record
};

}  // namespace

Result<Snapshot> read_named(TokenReader& tokens, std::uint64_t memory, const BurnOptions& options,
                            const TypeInfo* type) {
  NamedReader reader(tokens, memory, options, type);
  auto read = reader.run();
  return read ? std::move(read) : Result<Snapshot>(with_age(std::move(read).error(), reader.header()));
}

}  // namespace stele::inline v0::detail::burn
