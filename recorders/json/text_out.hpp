// Writes the text of a document to a sink: plain, or compressed by zstd or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "stele/executor.hpp"
#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "text_in.hpp"

namespace stele::inline v0::detail::json {

class TextOut {
 public:
  virtual ~TextOut() = default;
  Status write(std::string_view text);
  /// Writes the bytes in base64. The size must be a multiple of three, except in the last call.
  Status base64(std::span<const std::byte> bytes);
  /// Counts characters without writing them.
  void skip(std::uint64_t characters) noexcept { position_ += characters; }
  /// Returns the number of characters so far.
  std::uint64_t position() const noexcept { return position_; }
  /// Writes the remaining text. `index`: the index (3) of text_in.hpp; used only if wants_index().
  virtual Status finish(std::string_view index) = 0;
  virtual bool wants_index() const noexcept { return false; }

 protected:
  /// Space for text. full() is called when no space is left, and frees or adds space.
  std::span<char> room_;
  virtual Status full() = 0;

 private:
  std::uint64_t position_ = 0;
};

/// Returns a TextOut that writes nothing and only counts position().
std::unique_ptr<TextOut> counted_text();

/// Returns a TextOut that writes to `sink`. `level`: 0 selects the default. `noise`: the text is nearly all base64; at
/// level 0, zlib then skips the search for repetitions, because the numbers of a tensor hardly ever repeat and the
/// search would take three quarters of the time. `stored`: gzip does not compress. Errors: unsupported (a program
/// without zstd).
Result<std::unique_ptr<TextOut>> text_out(Coding coding, int level, bool noise, bool stored, const Workers& workers,
                                          Sink& sink);

}  // namespace stele::inline v0::detail::json
