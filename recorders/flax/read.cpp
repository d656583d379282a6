// Reads MessagePack into a Snapshot.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/value_memory.hpp"
#include "encodings/msgpack/msgpack.hpp"
#include "flax.hpp"
#include "leaves/boxes.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/recorders/flax.hpp"

namespace stele::inline v0 {
namespace detail::flax {
namespace {

using Token = msgpack::Token;
using Kind = Token::Kind;

/// The content of an array's extension.
struct Array {
  std::vector<Extent> shape{};
  std::string dtype{};
  std::uint64_t bytes = 0;
  Provider provider{};
};

class Reader {
 public:
  Reader(SourcePtr source, const Limits& limits)
      : in_(std::move(source), true), memory_(limits, in_.source()->size(), index_rate::token) {}

  Result<Snapshot> run() {
    Token token;
    STELE_TRY(in_.next(token));
    if (token.kind != Kind::map) return wrong(token, "a map of names");
    STELE_TRY(container("", token));
    STELE_TRY(in_.next(token));  // checks that the file ends
    if (const std::uint32_t twice = clashing_sibling(builder_.data(), true); twice != no_index) {
      return Error(Errc::duplicate, "the name occurs twice in its map").path(node_path(builder_.data(), twice));
    }
    builder_.set_unknown_kinds({.all = true});
    builder_.keep(in_.source());
    return builder_.finish();
  }

 private:
  /// Returns an error about the current entry.
  Error wrong(const Token& token, std::string_view expected) {
    static constexpr std::string_view kinds[] = {"nil",    "a string", "a number", "bytes",
                                                 "a list", "a map",    "an end",   "an extension"};
    std::string path = builder_.parent() != no_index ? node_path(builder_.data(), builder_.parent()) : "";
    if (!entry_.empty()) {
      if (!path.empty()) path += '.';
      append_segment(path, entry_);
    }
    return Error(Errc::malformed, "the file contains an unexpected value")
        .path(std::move(path))
        .offset(token.offset)
        .expected(std::string(expected))
        .found(std::string(kinds[static_cast<std::size_t>(token.kind)]));
  }
  Status take(std::uint64_t bytes, const Token& token) {
    if (memory_.take(bytes)) return {};
    return index_error("the file has more entries than its size allows").offset(token.offset);
  }
  /// Reads a token, which must have the kind `kind`.
  Status expect(Token& token, Kind kind, const char* what) {
    STELE_TRY(in_.next(token));
    return token.kind == kind ? Status() : wrong(token, what);
  }

  Status entry(NodeName name, Token& token) {
    entry_ = name.data != nullptr ? std::string(name.data, name.size) : std::to_string(name.size);
    STELE_TRY(take(sizeof(Node) + sizeof(Value) + 64, token));
    switch (token.kind) {
      case Kind::nil:
        builder_.none(name);
        return {};
      case Kind::text:
        STELE_TRY(take(token.text.size(), token));
        builder_.value(name, Value(std::move(token.text)));
        return {};
      case Kind::scalar:
        builder_.value(name, std::move(token.scalar));
        return {};
      case Kind::bytes: {
        STELE_TRY(take(token.size, token));
        Value::Bytes bytes(static_cast<std::size_t>(token.size));
        STELE_TRY(in_.source()->read_at(token.at, bytes));
        builder_.value(name, Value(std::move(bytes)));
        return {};
      }
      case Kind::extension:
        return extension(name, token);
      case Kind::list:
      case Kind::map:
        return container(name, token);
      case Kind::end:
        break;
    }
    return wrong(token, "a value");
  }

  /// Reads a list or map whose first token was read.
  Status container(NodeName name, Token& token) {
    const bool list = token.kind == Kind::list;
    STELE_TRY(in_.next(token));
    if (!list && token.kind == Kind::text && token.text == parts_key) return parts(name, token);
    const std::uint32_t node = builder_.begin(list ? NodeKind::list : NodeKind::module, name);
    for (std::size_t i = 0; token.kind != Kind::end; ++i) {
      NodeName key = NodeName::element(i);
      if (!list) {
        STELE_TRY(take(3 * token.text.size(), token));
        key = builder_.intern(token.text);
        STELE_TRY(in_.next(token));
      }
      STELE_TRY(entry(key, token));
      STELE_TRY(in_.next(token));
    }
    builder_.end();
    number_children(node);
    return {};
  }

  /// Makes the children of a node elements if all their names are numbers, in ascending order.
  void number_children(std::uint32_t node) {
    auto& nodes = builder_.data().nodes;
    std::vector<std::size_t> numbers;
    for (std::uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
      std::size_t number = 0;
      if (nodes[i].name == nullptr || !parse_index({nodes[i].name, nodes[i].name_size}, number) || number >= no_index ||
          (!numbers.empty() && number <= numbers.back())) {
        return;
      }
      numbers.push_back(number);
    }
    if (numbers.empty()) return;
    if (numbers.back() + 1 == numbers.size()) builder_.set_kind(node, NodeKind::list);
    std::size_t at = 0;
    for (std::uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
      nodes[i].name = nullptr;
      nodes[i].name_size = static_cast<std::uint32_t>(numbers[at++]);
    }
  }

  Status extension(NodeName name, Token& token) {
    const std::int8_t type = token.type;
    if (type != array_type && type != scalar_type) {
      STELE_TRY(take(unreadable_memory, token));
      const std::string reason =
          type == complex_type ? "a complex number" : "an extension of type " + std::to_string(type);
      add_unreadable(builder_, name, reason, token.size, {&source_ops, in_.source().get(), token.at});
      return {};
    }
    Array array;
    STELE_TRY(read(array, token));
    STELE_TRY(add(name, std::move(array), token));
    if (type == scalar_type) builder_.annotate(std::string(scalar_note), Value(true));
    return {};
  }

  /// Reads the content of an extension, whose token was read.
  Status read(Array& array, Token& token) {
    STELE_TRY(in_.enter(token));
    STELE_TRY(expect(token, Kind::list, "the list of an array"));
    STELE_TRY(expect(token, Kind::list, "a shape"));
    for (;;) {
      STELE_TRY(in_.next(token));
      if (token.kind == Kind::end) break;
      STELE_TRY(extent(array.shape, token));
    }
    STELE_TRY(expect(token, Kind::text, "the name of a dtype"));
    array.dtype = std::move(token.text);
    STELE_TRY(expect(token, Kind::bytes, "the bytes of an array"));
    array.bytes = token.size;
    array.provider = {&source_ops, in_.source().get(), token.at};
    STELE_TRY(expect(token, Kind::end, "the end of the list"));
    return expect(token, Kind::end, "the end of the extension");
  }
  Status extent(std::vector<Extent>& shape, const Token& token) {
    const std::int64_t* extent = token.kind == Kind::scalar ? token.scalar.as_i64() : nullptr;
    if (extent == nullptr || *extent < 0) return wrong(token, "an extent");
    STELE_TRY(take(3 * sizeof(Extent), token));
    shape.push_back(static_cast<Extent>(*extent));
    return {};
  }

  static const FlaxType* type_of(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(types), std::end(types), [&](const FlaxType& t) { return t.name == name; });
    return found != std::end(types) ? found : nullptr;
  }

  Status add(NodeName name, Array array, const Token& token) {
    STELE_TRY(take(128 + array.dtype.size() + unreadable_memory, token));
    const FlaxType* type = type_of(array.dtype);
    if (type == nullptr || array.shape.size() > 0xffff) {
      add_unreadable(builder_, name, type == nullptr ? "an array of dtype " + array.dtype : "an array of too many axes",
                     array.bytes, array.provider);
      return {};
    }
    const auto count = element_count(array.shape);
    const auto bytes = count ? byte_length(type->dtype, *count) : std::nullopt;
    if (bytes != array.bytes) {
      return wrong(token, bytes ? std::to_string(*bytes) + " bytes of the array" : "an array of less than 2^64 bytes")
          .found(std::to_string(array.bytes));
    }
    builder_.tensor(name, type->dtype, array.shape, array.bytes, array.provider);
    return {};
  }

  /// Reads the map of a large array, whose first key was read.
  Status parts(NodeName name, Token& token) {
    STELE_TRY(expect(token, Kind::scalar, "true"));
    Array whole;
    std::vector<Box> boxes;
    std::vector<Provider> leaves;
    std::uint64_t count = 0;
    for (;;) {
      STELE_TRY(in_.next(token));
      if (token.kind == Kind::end) break;
      const bool shape = token.text == shape_key && whole.shape.empty();
      if (!shape && (token.text != chunks_key || !boxes.empty()))
        return wrong(token, "the keys shape and chunks, once");
      STELE_TRY(expect(token, Kind::map, "a map of numbers"));
      for (std::size_t i = 0;; ++i) {
        STELE_TRY(in_.next(token));
        if (token.kind == Kind::end) break;
        if (token.text != std::to_string(i)) return wrong(token, "the keys 0, 1, …");
        STELE_TRY(in_.next(token));
        if (shape) {
          STELE_TRY(extent(whole.shape, token));
          continue;
        }
        if (token.kind != Kind::extension || token.type != array_type) return wrong(token, "an array");
        Array part;
        STELE_TRY(read(part, token));
        const FlaxType* type = type_of(part.dtype);
        if ((i != 0 && part.dtype != whole.dtype) || part.shape.size() != 1 ||
            (type != nullptr && byte_length(type->dtype, part.shape[0]) != part.bytes)) {
          return wrong(token, "parts of one axis and one dtype");
        }
        STELE_TRY(take(JoinedBoxes::memory(1, 1) + sizeof(Box) + 64, token));
        const Extent length = type != nullptr ? part.shape[0] : part.bytes;  // bytes if the dtype cannot be read
        boxes.push_back({{count}, {length}});
        leaves.push_back(part.provider);
        whole.dtype = std::move(part.dtype);
        whole.bytes += part.bytes;
        count += length;
      }
    }
    if (boxes.empty()) return wrong(token, "parts of an array");
    const FlaxType* type = type_of(whole.dtype);
    const Extent flat[] = {count};
    const auto joined =
        std::make_shared<JoinedBoxes>(flat, type != nullptr ? element_size(type->dtype) : 1, boxes, leaves);
    whole.provider = joined->provider();
    builder_.keep(joined);
    return add(name, std::move(whole), token);
  }

  msgpack::Reader in_;
  IndexBudget memory_;
  SnapshotBuilder builder_;
  std::string entry_;  // the name of the current entry
};

}  // namespace
}  // namespace detail::flax

bool FlaxFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  const auto byte = [&](std::size_t i) { return i < head.size() ? std::to_integer<std::size_t>(head[i]) : 0; };
  const std::size_t mark = byte(0);
  if (mark == 0x80) return size == 1;
  std::size_t at = mark == 0xdf ? 5 : mark == 0xde ? 3 : mark > 0x80 && mark < 0x90 ? 1 : 0;
  if (at == 0) return false;
  // Checks the first key and the mark of its value; `head` may end inside the key.
  const std::size_t key = byte(at);
  std::size_t length = 0;
  if (key >= 0xa0 && key < 0xc0)
    length = key - 0xa0;
  else if (key == 0xd9)
    length = byte(at + 1);
  else if (key == 0xda)
    length = byte(at + 1) << 8 | byte(at + 2);
  else
    return false;
  at += key == 0xda ? 3 : key == 0xd9 ? 2 : 1;
  if (at + length >= size) return false;
  if (at + length >= head.size()) return true;
  const std::string_view name(reinterpret_cast<const char*>(head.data()) + at, length);
  const bool burn = mark >= 0x82 && mark < 0x90 && name == "metadata";
  return !burn && byte(at + length) != 0xc1;
}

Result<Snapshot> FlaxFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(detail::flax::Reader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
