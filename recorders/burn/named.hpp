// Encodings that say the names of fields: tokens in and out, and what a record is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "snapshot/leaf_gather.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"
#include "types.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {

/// Deepest nesting of lists and maps in a file.
inline constexpr unsigned max_depth = 64;
/// Longest text (a key, an id, a name) in a file, in bytes.
inline constexpr std::size_t max_text = std::size_t{64} << 10;

struct Token {
  enum class Kind : std::uint8_t {
    nil,
    text,    // `text`; keys of maps come as such
    scalar,  // `scalar`: bool, i64, u64, f64
    bytes,   // the elements of a tensor, stepped over: `size` of them, and `at` for provider()
    list,    // up to its `end`
    map,     // a key and its value in turn, up to its `end`
    end,     // of a list or map, or of the document
  };
  Kind kind = Kind::nil;
  std::string text{};
  Value scalar{};
  std::uint64_t size = 0;
  std::uint64_t at = 0;
  std::uint64_t offset = 0;  // where it begins in the file
};

/// Pull reader of one value, bounded: depth, texts and lengths are checked before anything is made of them. Reads
/// forward and allocates nothing but texts. Not shared between threads.
class Tokens {
 public:
  virtual ~Tokens() = default;
  /// Errors: truncated, malformed, unsupported, limit, io.
  virtual Status next(Token& token) = 0;
  /// Another reader at the same place.
  virtual std::unique_ptr<Tokens> clone() const = 0;
  /// Of a leaf whose elements a token stands for; valid as long as keeper() lives.
  virtual Provider provider(const Token& bytes) const = 0;
  virtual std::shared_ptr<const void> keeper() const = 0;
};

/// `source` is the record, inflated.
std::unique_ptr<Tokens> mpk_tokens(SourcePtr source);
/// A number list behind the key "bytes" is one token. `memory` is what opening may allocate. Errors: as next().
Result<std::unique_ptr<Tokens>> json_tokens(SourcePtr source, std::uint64_t memory);

/// Writes one value. Calls come in an order that makes one; `entries` are counted exactly.
class Out {
 public:
  virtual ~Out() = default;
  virtual Status begin_map(std::size_t entries) = 0;
  virtual Status key(std::string_view name) = 0;
  virtual Status begin_list(std::size_t entries) = 0;
  /// Of the innermost list or map.
  virtual Status end() = 0;
  virtual Status nil() = 0;
  /// A Rust struct without fields (`_b`).
  virtual Status unit() = 0;
  /// Any value. Errors: not_representable (bytes in JSON, a text that is not UTF-8, …).
  virtual Status value(const Value& value) = 0;
  /// A tensor's elements, streamed. Errors: those of the leaf, not_representable (too long for the encoding).
  virtual Status bytes(const LeafView& leaf) = 0;
  /// Behind the last call.
  virtual Status finish() = 0;
};

/// MessagePack. Without `gather` nothing is written, and `size` counts how long it would be.
std::unique_ptr<Out> mpk_out(LeafGather* gather, ReadContext& context, std::uint64_t& size);
/// JSON as serde_json writes it: `pretty`, or without blanks. Leaves are streamed through `context`.
std::unique_ptr<Out> json_out(Sink& sink, ReadContext& context, bool pretty);

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
