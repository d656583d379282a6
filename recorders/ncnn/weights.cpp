// Finds arrays in a .bin file.
#include "weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "leaves/source_range.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ncnn {
namespace {

constexpr std::uint32_t f16_tag = 0x01306b47, i8_tag = 0x000d4b38, f32_tag = 0x0002c056, no_tag = 0;
constexpr std::uint64_t tag_bytes = 4, codebook_bytes = 1024;

/// Reads elements through the codebook at `number`.
Status read_codebook(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& /*context*/) {
  const auto& source = *static_cast<const Source*>(at);
  std::array<std::byte, codebook_bytes> book;
  std::array<std::byte, 4096> indexes;
  STELE_TRY(source.read_at(number, book));
  std::uint64_t from = number + codebook_bytes + offset / 4;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min(indexes.size(), (out.size() - done) / 4);
    STELE_TRY(source.read_at(from, std::span(indexes).first(count)));
    for (std::size_t i = 0; i < count; ++i, done += 4) {
      std::memcpy(out.data() + done, book.data() + 4 * std::to_integer<std::size_t>(indexes[i]), 4);
    }
    from += count;
  }
  return {};
}

constexpr LeafOps codebook_ops{.read = read_codebook, .encoding = "codebook"};

}  // namespace

bool has_tag(std::string_view head) noexcept {
  if (head.size() < tag_bytes) return false;
  const auto tag = load_le<std::uint32_t>(reinterpret_cast<const std::byte*>(head.data()));
  return tag == f16_tag || tag == i8_tag || tag == f32_tag;
}

Result<Weight> find_weight(const Source& source, std::uint64_t offset, const Blob& blob) {
  const std::uint64_t left = source.size() - std::min(source.size(), offset);
  const auto truncated = [&](std::string_view wanted) {
    return Error(Errc::truncated, "the file ends before the layer's weights do")
        .expected(wanted)
        .found(std::to_string(left) + " bytes")
        .offset(offset);
  };
  Weight weight{.dtype = DType::f32};
  std::uint64_t before = 0, stored = 4;  // bytes before the elements; bytes of a stored element
  const LeafOps* ops = &source_ops;
  if (blob.stored != Stored::raw) {
    std::byte raw[tag_bytes];
    if (left < tag_bytes) return truncated("at least 4 bytes");
    STELE_TRY(source.read_at(offset, raw));
    const auto tag = load_le<std::uint32_t>(raw);
    before = tag_bytes;
    if (blob.stored == Stored::packed) {
      weight.dtype = DType::u8;
      stored = 1;
      if (tag != i8_tag) before = 0;
    } else if (tag == f16_tag) {
      weight.dtype = DType::f16;
      stored = 2;
    } else if (tag == i8_tag) {
      weight.dtype = DType::i8;
      stored = 1;
    } else if (tag != f32_tag && tag != no_tag) {
      before += codebook_bytes;
      stored = 1;
      ops = &codebook_ops;
    }
  }
  const auto count = element_count(blob.shape());
  // A stored element has at least one byte.
  if (!count || *count > left) {
    return truncated(count ? std::to_string(*count) + " elements" : "fewer than 2^64 elements");
  }
  const std::uint64_t size = before + (*count * stored + 3) / 4 * 4;
  if (size > left) return truncated(std::to_string(size) + " bytes");
  weight.bytes = *count * element_size(weight.dtype);
  const std::uint64_t skipped = ops == &codebook_ops ? tag_bytes : before;
  weight.provider = {ops, &source, offset + skipped};
  weight.end = offset + size;
  return weight;
}

}  // namespace stele::inline v0::detail::ncnn
