// Writes the text of a document to a sink: plain, or compressed by zstd or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "stele/executor.hpp"
#include "stele/sink.hpp"
#include "text_in.hpp"

namespace stele::inline v0::detail::json {

class TextOut {
 public:
  virtual ~TextOut() = default;
  Status write(std::string_view text);
  /// Writes the bytes in base64. All calls but the last must take a multiple of three bytes.
  Status base64(std::span<const std::byte> bytes);
  /// Counts characters without writing them.
  void skip(std::uint64_t characters) noexcept { position_ += characters; }
  /// Returns the number of characters so far.
  std::uint64_t position() const noexcept { return position_; }
  /// Writes the remaining text. `index`: the index (3) of text_in.hpp; used only if wants_index().
  virtual Status finish(std::string_view index) = 0;
  virtual bool wants_index() const noexcept { return false; }

 protected:
  /// Receives the text. full() is called when it has no space left, and makes some.
  std::span<char> room_;
  virtual Status full() = 0;

 private:
  std::uint64_t position_ = 0;
};

/// Returns a TextOut that writes nothing and only counts position().
std::unique_ptr<TextOut> counted_text();

/// `level` 0: the default. For `noise`, text that is nearly all base64, zlib then skips the search for repetitions: the
/// numbers of a tensor hardly ever repeat, and the search would take three quarters of the time. `stored`: gzip does
/// not compress.
std::unique_ptr<TextOut> text_out(Coding coding, int level, bool noise, bool stored, const Workers& workers,
                                  Sink& sink);

}  // namespace stele::inline v0::detail::json
