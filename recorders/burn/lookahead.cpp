// Distinguishes modules, parameters and tensors among the maps of a record.
#include "lookahead.hpp"

#include <algorithm>
#include <iterator>

#include "ids.hpp"

namespace stele::inline v0::detail::burn {
namespace {

using Kind = Token::Kind;

/// Maximum bytes of tokens read ahead (8 MiB: a shape of 65,535 extents).
constexpr std::size_t max_ahead_bytes = std::size_t{8} << 20;

// Bits for the keys of a parameter or a tensor.
enum Key : unsigned { none = 0, id = 1, param = 2, bytes = 4, shape = 8, dtype = 16, value = 32 };

Key key_of(std::string_view text) {
  static constexpr std::string_view keys[] = {"id", "param", "bytes", "shape", "dtype", "value"};
  const auto* found = std::find(std::begin(keys), std::end(keys), text);
  return found != std::end(keys) ? static_cast<Key>(1U << (found - keys)) : none;
}

bool fits(Key key, Kind kind) {
  switch (key) {
    case id:
      return kind == Kind::text;
    case param:
      return kind == Kind::map;
    case bytes:
      return kind == Kind::bytes;
    case shape:
    case value:
      return kind == Kind::list;
    case dtype:
      return kind == Kind::text || kind == Kind::map;
    case none:
      break;
  }
  return false;
}

}  // namespace

Status Lookahead::next(Token& token) {
  if (queue_.empty()) return tokens_->next(token);
  token = std::move(queue_.front());
  queue_.pop_front();
  return {};
}

/// Returns the next token of kind_of_map(); valid until it is read.
Result<const Token*> Lookahead::peek() {
  while (at_ >= queue_.size()) {
    Token token;
    STELE_TRY(tokens_->next(token));
    queue_.push_back(std::move(token));
  }
  const Token* token = &queue_[at_++];
  bytes_ += sizeof(Token) + token->text.size();
  return token;
}

/// Requires that the list's first token is the last in the queue.
void Lookahead::skip_elements() {
  const bool empty = queue_.front().kind == Kind::end;
  queue_.pop_front();
  if (empty) {
    elements_.reset();
    return;
  }
  own_ = std::move(elements_);
  tokens_ = own_.get();
}

Result<MapKind> Lookahead::kind_of_map(const Token& token, bool old) {
  elements_ = nullptr;
  if (key_of(token.text) == none) return MapKind::module;
  at_ = bytes_ = 0;
  old_ = old;
  return kind_from(&token);
}

/// Stops before the end of a module and before the elements of a tensor, which are separate tokens in old files.
Result<MapKind> Lookahead::kind_from(const Token* next) {
  unsigned seen = 0;
  bool identified = false;
  while (next->kind != Kind::end) {
    const Key key = key_of(next->text);
    if ((seen & key) != 0) return MapKind::module;  // also if two fields have the same name
    seen |= key;
    STELE_TRY_ASSIGN(next, peek());
    if (!fits(key, next->kind)) return MapKind::module;
    identified = identified || (key == id && parse_id(next->text));
    if (key == param) {
      STELE_TRY_ASSIGN(next, peek());
      STELE_TRY_ASSIGN(const MapKind inner, kind_from(next));
      if (inner == MapKind::elements) return MapKind::parameter;
      if (inner == MapKind::newer_elements && identified) return MapKind::newer_parameter;
      if (inner != MapKind::tensor) return inner == MapKind::newer_parameter ? inner : MapKind::module;
    } else if (key == value) {
      if (old_) elements_ = tokens_->clone();
      STELE_TRY_ASSIGN(next, peek());
      if (next->kind == Kind::scalar) return old_ ? MapKind::elements : MapKind::newer_elements;
      if (next->kind != Kind::end || !old_) return MapKind::module;
    } else {
      STELE_TRY_ASSIGN(const bool skipped, skip_value(next));
      if (!skipped) return MapKind::module;
    }
    STELE_TRY_ASSIGN(next, peek());
  }
  if (seen == (id | param)) return MapKind::parameter;
  return seen == (bytes | shape | dtype) || seen == (shape | value) ? MapKind::tensor : MapKind::module;
}

/// Skips the rest of a value whose first token is `next`. Returns false if it takes too much memory.
Result<bool> Lookahead::skip_value(const Token*& next) {
  for (unsigned open = 0;;) {
    if (next->kind == Kind::list || next->kind == Kind::map) ++open;
    if (next->kind == Kind::end) --open;
    if (open == 0) return true;
    STELE_TRY_ASSIGN(next, peek());
    if (bytes_ > max_ahead_bytes) return false;
  }
}

}  // namespace stele::inline v0::detail::burn
