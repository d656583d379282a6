// Distinguishes the maps of a record: modules, parameters and tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "tokens.hpp"

namespace stele::inline v0::detail::burn {

enum class MapKind : std::uint8_t {
  module,
  parameter,
  tensor,
  elements,         // a tensor of an old file, whose elements are numbers
  newer_elements,   // such a tensor in a file that declares a newer version
  newer_parameter,  // a parameter that contains such a tensor
};

/// Reads each token only once, because going back in a gzip file means inflating it again.
class Lookahead {
 public:
  explicit Lookahead(TokenReader& tokens) : tokens_(&tokens) {}

  Status next(Token& token);
  /// Returns the kind of a map whose first key is `token`. Checks all keys, because a module may have a field of any
  /// name. `old`: the file may have old tensors.
  Result<MapKind> kind_of_map(const Token& token, bool old);
  /// Returns a reader positioned before the first element if kind_of_map() found elements; else null.
  TokenReader* elements() const noexcept { return elements_.get(); }
  /// Continues after a list of elements that elements() has read.
  void skip_elements();
  Provider provider(const Token& bytes) const { return tokens_->provider(bytes); }
  std::shared_ptr<const void> keeper() const { return tokens_->keeper(); }

 private:
  Result<const Token*> peek();
  Result<MapKind> kind_from(const Token* next);
  Result<bool> skip_value(const Token*& next);

  TokenReader* tokens_;
  std::unique_ptr<TokenReader> own_;
  std::deque<Token> queue_;
  std::unique_ptr<TokenReader> elements_;
  // State of kind_of_map():
  std::size_t at_ = 0;     // index of the next token in the queue
  std::size_t bytes_ = 0;  // memory of the tokens read ahead
  bool old_ = false;
};

}  // namespace stele::inline v0::detail::burn
