// Models of whisper.cpp, and other files of ggml before GGUF (whisper.cpp, src/whisper.cpp and
// models/convert-pt-to-ggml.py). Little-endian:
//
//  1. u32 0x67676d6c ("lmgg").
//  2. Eleven i32 (hparam_names). The last one, ftype, is the type of the large tensors plus 1000 × the version of
//  ggml's
//     blocks.
//  3. Mel filters: i32 rows, i32 columns, f32 elements.
//  4. Vocabulary: i32 count; for each token, i32 length and bytes.
//  5. Tensors, to the end of the file: i32 rank, i32 length of the name, i32 ggml type, i32 extents (innermost first),
//     name, elements. Nothing is aligned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "io/cursor.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::ggml {

inline constexpr std::size_t max_rank = 4;

inline constexpr std::array<std::string_view, 11> hparam_names = {
    "n_vocab",      "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx",
    "n_text_state", "n_text_head", "n_text_layer",  "n_mels",       "ftype"};

/// Returns true if a file begins with a magic number of ggml before GGUF.
bool is_legacy(std::string_view head) noexcept;

struct Header {
  std::array<std::int32_t, hparam_names.size()> hparams{};
  Extent filters[2] = {};        // rows and columns of the mel filters
  std::uint64_t filters_at = 0;  // offset of their elements
  Value::List tokens;            // strings in the alphabet of GPT-2, in which each character represents a byte
};

struct Tensor {
  std::string name{};
  Extent extents[max_rank] = {};  // outermost first
  std::size_t rank = 0;
  DType dtype = DType::none;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::string unreadable{};  // the reason why the tensor's size is unknown; its bytes then end at the end of the file
};

class WhisperFile {
 public:
  WhisperFile(SourcePtr source, IndexBudget& memory) : in_(std::move(source)), memory_(memory) {}
  /// Reads everything before the tensors. Errors: bad_magic, unsupported (a file of another model), malformed,
  /// truncated, limit.
  Result<Header> head();
  /// Returns true if no tensor remains.
  bool at_end() const { return in_.left() == 0; }
  /// Reads the next tensor's header, and skips its elements. Errors: malformed, truncated, limit.
  Result<Tensor> next();

 private:
  Status identify(Header& header);
  Status filters(Header& header);
  Status vocabulary(Header& header);

  Cursor in_;
  IndexBudget& memory_;
  std::int32_t block_version_ = 0;
};

}  // namespace stele::inline v0::detail::ggml
