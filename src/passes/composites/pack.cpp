// Packs codes, scales and zero points into the bytes of parts.
#include <cmath>
#include <utility>

#include "passes/composites/composite.hpp"
#include "passes/composites/encoder.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::composites {
namespace {

template <class Code>
void store_interleaved(std::byte* to, const Code& code) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < 8; ++i) word |= std::uint32_t{code(interleaved_columns[i])} << (4 * i);
  store_le(to, word);
}

}  // namespace

Status Encoder::pack(const Weight::PartData& part) {
  switch (part.kind) {
    case PartKind::codes:
      w_.by_columns() ? pack_columns() : pack_rows(part);
      break;
    case PartKind::scales:
      return pack_scales(part);
    case PartKind::zeros:
      pack_zeros();
      break;
    case PartKind::global:
    case PartKind::constant:
      break;
  }
  swap_big_endian(packed_, element_size(part.dtype));
  return {};
}

void Encoder::pack_rows(const Weight::PartData& part) {
  if (w_.scheme->bits == 8) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(codes_.data());
    packed_.assign(bytes, bytes + codes_.size());
    if (w_.scheme->coding == Coding::integer && part.dtype == DType::i8) {
      for (std::byte& b : packed_) b ^= std::byte{0x80};
    }
    return;
  }
  if (codes_.size() % 2 != 0) codes_.push_back(0);
  packed_.resize(codes_.size() / 2);
  pack_halves(codes_.data(), w_.scheme->package != Package::bitsandbytes, packed_.data(), codes_.size());
}

void Encoder::pack_columns() {
  const auto rows = static_cast<std::size_t>(w_.rows), width = static_cast<std::size_t>(width_);
  packed_.resize(codes_.size() / 2);
  if (w_.scheme->package == Package::gptq) {
    std::vector<std::byte> words(packed_.size());
    pack_halves(codes_.data(), true, words.data(), codes_.size());
    return transpose_words(words.data(), rows, width / 8, packed_.data());
  }
  for (std::size_t k = 0; k < width; ++k) {
    for (std::size_t j = 0; j < rows / 8; ++j) {
      store_interleaved(packed_.data() + (k * (rows / 8) + j) * 4,
                        [&](std::size_t i) { return codes_[(j * 8 + i) * width + k]; });
    }
  }
}

Status Encoder::pack_scales(const Weight::PartData& part) {
  const std::size_t element = element_size(part.dtype);
  packed_.resize(stored_.size() * element);
  if (part.dtype == DType::u8) {  // exponents
    for (std::size_t i = 0; i < stored_.size(); ++i) packed_[i] = static_cast<std::byte>(std::ilogb(stored_[i]) + 127);
    return {};
  }
  if (w_.by_columns()) {
    const std::size_t groups = static_cast<std::size_t>(width_ / w_.group), rows = stored_.size() / groups;
    turned_.resize(stored_.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t g = 0; g < groups; ++g) turned_[g * rows + r] = stored_[r * groups + g];
    }
    std::swap(turned_, stored_);
  }
  return convert_scales(part.dtype, packed_.data());
}

void Encoder::pack_zeros() {
  const std::size_t groups = static_cast<std::size_t>(width_ / w_.group), rows = zeros_.size() / groups;
  packed_.resize(zeros_.size() / 2);
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t j = 0; j < rows / 8; ++j) {
      std::byte* const to = packed_.data() + (g * (rows / 8) + j) * 4;
      const auto zero = [&](std::size_t i) { return static_cast<std::uint32_t>(zeros_[(j * 8 + i) * groups + g]); };
      if (w_.scheme->package == Package::awq) {
        store_interleaved(to, zero);
      } else {
        std::uint32_t word = 0;
        for (unsigned i = 0; i < 8; ++i) word |= (zero(i) - 1) << (4 * i);
        store_le(to, word);
      }
    }
  }
}

}  // namespace stele::inline v0::detail::composites
