// The text of a document on its way into a sink: plain, or compressed by zstd or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "stele/executor.hpp"
#include "stele/sink.hpp"
#include "text_in.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace json {

class TextOut {
 public:
  virtual ~TextOut() = default;
  Status write(std::string_view text);
  /// The bytes in base64. In pieces: all but the last call take multiples of three.
  Status base64(std::span<const std::byte> bytes);
  /// Counts characters that are not written.
  void skip(std::uint64_t characters) noexcept { position_ += characters; }
  /// Characters so far.
  std::uint64_t position() const noexcept { return position_; }
  /// Writes what is left. `index`: what (3) of text_in.hpp holds; only for who wants_index().
  virtual Status finish(std::string_view index) = 0;
  virtual bool wants_index() const noexcept { return false; }

 protected:
  /// The text goes here; full() is called when there is no room left, and makes some.
  std::span<char> room_;
  virtual Status full() = 0;

 private:
  std::uint64_t position_ = 0;
};

/// Writes nothing: position() is all it is for.
std::unique_ptr<TextOut> counted_text();

/// `level` 0: the default, with which zlib does not look for what repeats in `noise`, text that is nearly all base64:
/// numbers of a tensor hardly ever do, and the search would take three quarters of the time.
std::unique_ptr<TextOut> text_out(Coding coding, int level, bool noise, const Workers& workers, Sink& sink);

}  // namespace json
}  // namespace detail
}  // namespace v0
}  // namespace stele
