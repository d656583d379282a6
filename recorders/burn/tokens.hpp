// Readers and writers of tokens, for the encodings that store field names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "encodings/msgpack/msgpack.hpp"
#include "snapshot/leaf_gather.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::burn {

using msgpack::max_depth;
/// Maximum length of a string (a key, an id, a name) in a file, in bytes.
inline constexpr std::size_t max_text = msgpack::max_string_bytes;

/// Both encodings have the tokens of MessagePack. In JSON, `bytes` is the list of a tensor's numbers, and `at` is its
/// index.
using msgpack::Token;

/// Pull reader of one value. Bounded: checks depth, strings and lengths before using them. Reads forward and allocates
/// only strings. Not thread-safe.
class TokenReader {
 public:
  virtual ~TokenReader() = default;
  /// Reads the next token. Errors: truncated, malformed, unsupported, limit, io.
  virtual Status next(Token& token) = 0;
  /// Returns another reader at the current position.
  virtual std::unique_ptr<TokenReader> clone() const = 0;
  /// Returns the provider of a leaf whose elements are in this token; valid while keeper() lives.
  virtual Provider provider(const Token& bytes) const = 0;
  virtual std::shared_ptr<const void> keeper() const = 0;
};

/// Reads MessagePack. `source` is the inflated record.
std::unique_ptr<TokenReader> mpk_reader(SourcePtr source);
/// Reads JSON. A list of numbers after the key "bytes" is one token. `memory` bounds the allocations of opening.
/// Errors: those of TokenReader::next().
Result<std::unique_ptr<TokenReader>> json_reader(SourcePtr source, std::uint64_t memory);

/// Writes one value. The calls must form a valid value, with exactly as many `entries` as declared.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  virtual Status begin_map(std::size_t entries) = 0;
  virtual Status key(std::string_view name) = 0;
  virtual Status begin_list(std::size_t entries) = 0;
  /// Ends the innermost open list or map.
  virtual Status end() = 0;
  virtual Status nil() = 0;
  /// Writes a Rust struct without fields (`_b`).
  virtual Status unit() = 0;
  /// Writes any value. Errors: not_representable (bytes in JSON, a string that is not UTF-8, …).
  virtual Status value(const Value& value) = 0;
  /// Streams a tensor's elements. Errors: those of the leaf, not_representable (too long for the encoding).
  virtual Status bytes(const LeafView& leaf) = 0;
  /// Ends the output; must be the last call.
  virtual Status finish() = 0;
};

/// Writes MessagePack. Without `gather`, writes nothing. finish() sets `size` to the length.
std::unique_ptr<TokenWriter> mpk_writer(LeafGather* gather, ReadContext& context, std::uint64_t& size);
/// Writes JSON like serde_json: `pretty`, or without blanks. Streams leaves through `context`.
std::unique_ptr<TokenWriter> json_writer(Sink& sink, ReadContext& context, bool pretty);

}  // namespace stele::inline v0::detail::burn
