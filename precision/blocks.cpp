#include "stele/precision/blocks.hpp"

#include <algorithm>
#include <cmath>

#include "block_kernels.hpp"
#include "float_modes.hpp"

namespace stele::inline v0 {

namespace pd = precision_detail;

bool encodable(DType d) noexcept { return pd::block_encoder(d) != nullptr; }

void decode_blocks(DType d, const std::byte* src, float* dst, std::size_t blocks) noexcept {
  const pd::BlockDecoder decode = pd::block_decoder(d);
  if (decode == nullptr) return;
  const pd::DefaultFloatModes modes;
  decode(src, dst, blocks);
}

std::size_t encode_blocks(DType d, const float* src, std::byte* dst, std::size_t blocks) noexcept {
  const pd::BlockEncoder encode = pd::block_encoder(d);
  if (encode == nullptr) return 0;
  const pd::DefaultFloatModes modes;
  const BlockSize size = block_size(d);
  // Numbers that are checked and then encoded while they are in the first-level cache.
  constexpr std::size_t kPiece = 4096;
  const std::size_t step = kPiece / size.elements;
  for (std::size_t at = 0; at < blocks; at += step) {
    const std::size_t n = std::min(step, blocks - at);
    const float* numbers = src + at * size.elements;
    const std::size_t count = n * size.elements;
    if (pd::any_not_finite(numbers, count)) {
      const float* bad = std::find_if_not(numbers, numbers + count, [](float x) { return std::isfinite(x); });
      return static_cast<std::size_t>(bad - src);
    }
    encode(numbers, dst + at * size.bytes, n);
  }
  return blocks * size.elements;
}

}  // namespace stele::inline v0
