#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "stele/precision/blocks.hpp"
#include "stele/precision/convert.hpp"
#include "stele/quantized.hpp"

namespace stele::inline v0 {
namespace {

/// Returns the size of a tensor in bytes; throws std::invalid_argument.
std::size_t checked_bytes(DType dtype, const Shape& shape) {
  const std::size_t unit = block_size(dtype).elements;
  const bool whole = unit == 0 || (shape.rank() != 0 && shape[shape.rank() - 1] % unit == 0);
  const auto count = shape.element_count();
  const auto bytes = count && whole && BlockTensor::takes(dtype) ? byte_length(dtype, *count) : std::nullopt;
  if (!bytes || *bytes > static_cast<std::uint64_t>(PTRDIFF_MAX)) {
    STELE_THROW(std::invalid_argument(
        "stele: a BlockTensor needs a block dtype, f64, f32, f16 or bf16, and a last axis of whole blocks"));
  }
  return static_cast<std::size_t>(*bytes);
}

Extent last(const Shape& shape) { return shape.rank() != 0 ? shape[shape.rank() - 1] : 1; }

}  // namespace

BlockTensor::BlockTensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(std::move(shape)), own_(checked_bytes(dtype, shape_)) {
  data_ = own_.data();
  size_ = own_.size();
}

BlockTensor::BlockTensor(DType dtype, Shape shape, std::byte* blocks, std::shared_ptr<const void> keeper)
    : dtype_(dtype),
      shape_(std::move(shape)),
      data_(blocks),
      size_(checked_bytes(dtype, shape_)),
      keeper_(std::move(keeper)) {}

BlockTensor::BlockTensor(const BlockTensor& other) {
  if (!other.is_set()) return;
  BlockTensor copy(other.dtype_, other.shape_);
  if (other.size_ != 0) std::memcpy(copy.data_, other.data_, other.size_);
  swap(copy);
}

BlockTensor::BlockTensor(BlockTensor&& other) noexcept { swap(other); }

BlockTensor& BlockTensor::operator=(BlockTensor other) noexcept {
  swap(other);
  return *this;
}

void BlockTensor::swap(BlockTensor& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(shape_, other.shape_);
  std::swap(own_, other.own_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(keeper_, other.keeper_);
}

std::size_t BlockTensor::size() const noexcept {
  return is_set() ? static_cast<std::size_t>(shape_.element_count().value_or(0)) : 0;
}

std::size_t BlockTensor::rows() const noexcept {
  const Extent columns = last(shape_);
  return columns != 0 ? size() / static_cast<std::size_t>(columns) : 0;
}

std::span<const std::byte> BlockTensor::row(std::size_t i) const noexcept {
  const std::size_t bytes = size_ / rows();
  return blocks().subspan(i * bytes, bytes);
}

namespace {

void decode_to(DType dtype, std::span<const std::byte> blocks, float* out) {
  if (const BlockSize block = block_size(dtype); block.elements != 0) {
    decode_blocks(dtype, blocks.data(), out, blocks.size() / block.bytes);
  } else {
    static_cast<void>(convert(dtype, blocks.data(), DType::f32, reinterpret_cast<std::byte*>(out),
                              blocks.size() / element_size(dtype), {.allow_overflow = true}));
  }
}

}  // namespace

Status BlockTensor::decode_row(std::size_t i, std::span<float> out) const {
  if (i >= rows() || out.size() != last(shape_)) {
    return Error(Errc::invalid_argument, "the row number or the row size is invalid")
        .expected(std::to_string(rows()) + " rows of " + std::to_string(last(shape_)))
        .found("row " + std::to_string(i) + ", " + std::to_string(out.size()) + " numbers");
  }
  decode_to(dtype_, row(i), out.data());
  return {};
}

Tensor<float> BlockTensor::decode() const {
  if (!is_set()) return {};
  Tensor<float> out(shape_);
  decode_to(dtype_, blocks(), out.data());
  return out;
}

Result<BlockTensor> BlockTensor::encode(DType dtype, Shape shape, std::span<const float> elements) {
  return detail::guarded([&]() -> Result<BlockTensor> {
    const bool blocks = is_block(dtype);
    if (blocks ? !encodable(dtype) : !is_plain_float(dtype)) {
      return Error(Errc::invalid_argument, "this dtype cannot be encoded").found(name(dtype));
    }
    const std::size_t unit = blocks ? block_size(dtype).elements : 1;
    if (shape.element_count() != elements.size() || last(shape) % unit != 0) {
      return Error(Errc::invalid_argument, "the elements do not match the shape in rows of whole blocks")
          .expected(to_string(shape) + ", rows of whole blocks of " + std::to_string(unit))
          .found(std::to_string(elements.size()) + " elements");
    }
    BlockTensor tensor(dtype, std::move(shape));
    std::size_t bad = elements.size();
    if (blocks) {
      bad = encode_blocks(dtype, elements.data(), tensor.data_, elements.size() / unit);
    } else {
      const ConvertOutcome outcome = convert(DType::f32, reinterpret_cast<const std::byte*>(elements.data()), dtype,
                                             tensor.data_, elements.size());
      if (outcome.status != ConvertStatus::ok) bad = static_cast<std::size_t>(outcome.index);
    }
    if (bad == elements.size()) return tensor;
    return Error(Errc::out_of_range, "the number cannot be encoded")
        .expected(name(dtype))
        .found("element " + std::to_string(bad));
  });
}

}  // namespace stele::inline v0
