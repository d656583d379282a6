// Quantized: a field type for tensors that remain blocks as in files, so that an engine can compute on the blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "stele/bytes.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0 {

/// A tensor whose elements remain encoded: blocks of ggml (stele/precision/blocks.hpp), or f64, f32, f16 or bf16. The
/// last axis is contiguous and consists of whole blocks. Owns 64-byte aligned memory, or views a mapped file
/// (Storage::mmap); copies own their memory. A default-constructed BlockTensor is unset: a load gives it the file's
/// dtype and shape.
class STELE_EXPORT BlockTensor {
 public:
  BlockTensor() noexcept = default;
  /// Leaves the bytes uninitialised. Throws std::invalid_argument (another dtype; a last axis that does not consist of
  /// whole blocks) and std::bad_alloc.
  BlockTensor(DType dtype, Shape shape);
  /// Views the bytes. `keeper` keeps them alive.
  BlockTensor(DType dtype, Shape shape, std::byte* blocks, std::shared_ptr<const void> keeper);
  /// Encodes `elements`, in row-major order. Errors: invalid_argument (their number, a dtype that encode_blocks does
  /// not support), out_of_range (a number that is not finite, or too large for f16).
  static Result<BlockTensor> encode(DType dtype, Shape shape, std::span<const float> elements);
  BlockTensor(const BlockTensor& other);
  BlockTensor(BlockTensor&& other) noexcept;
  BlockTensor& operator=(BlockTensor other) noexcept;
  ~BlockTensor() = default;

  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  /// Returns the number of elements.
  std::size_t size() const noexcept;
  bool is_set() const noexcept { return dtype_ != DType::none; }
  bool is_view() const noexcept { return keeper_ != nullptr; }
  /// Returns all blocks, in the order of the rows of the last axis. A block has block_size(dtype()).bytes.
  std::span<const std::byte> blocks() const noexcept { return {data_, size_}; }
  std::span<std::byte> blocks() noexcept { return {data_, size_}; }
  /// Returns the number of rows: the product of all extents except the last.
  std::size_t rows() const noexcept;
  /// Returns the blocks of one row; `i` must be less than rows() (not checked).
  std::span<const std::byte> row(std::size_t i) const noexcept;
  /// Decodes row `i` to `out`. Errors: invalid_argument (an invalid `i`, or the size of `out` differs from the last
  /// extent).
  Status decode_row(std::size_t i, std::span<float> out) const;
  /// Decodes all elements, in row-major order. Throws std::bad_alloc.
  Tensor<float> decode() const;

  static constexpr bool takes(DType d) noexcept { return is_block(d) || is_plain_float(d); }

 private:
  void swap(BlockTensor& other) noexcept;

  DType dtype_ = DType::none;
  Shape shape_;
  Bytes own_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<const void> keeper_;
};

/// A BlockTensor of one dtype, Quantized<DType::q4_k>, or of the file's dtype, Quantized<>. If the file's dtype differs
/// from the type's dtype, a load is an error (dtype_mismatch).
template <DType Blocks = DType::none>
class Quantized : public BlockTensor {
  static_assert(Blocks == DType::none || BlockTensor::takes(Blocks),
                "stele: Quantized is for blocks (q4_k, …), f64, f32, f16 and bf16");

 public:
  Quantized() noexcept = default;
  explicit Quantized(Shape shape) requires(Blocks != DType::none) : BlockTensor(Blocks, std::move(shape)) {}
  /// Takes a tensor of that dtype. Throws std::invalid_argument for any other dtype.
  Quantized(BlockTensor tensor)  // NOLINT(google-explicit-constructor)
      : BlockTensor(std::move(tensor)) {
    if (Blocks != DType::none && is_set() && dtype() != Blocks) {
      STELE_THROW(std::invalid_argument("stele: the dtype of the blocks differs from that of Quantized"));
    }
  }
};

template <DType Blocks>
struct tensor_traits<Quantized<Blocks>> {
  using element = std::byte;
  using type = Quantized<Blocks>;
  static constexpr DType dtype = Blocks;
  static constexpr int rank = dynamic_rank;
  static Shape shape(const type& t) { return t.is_set() ? t.shape() : Shape{0}; }
  static DType dtype_of(const type& t) { return t.is_set() ? t.dtype() : Blocks == DType::none ? DType::f32 : Blocks; }
  static const std::byte* data(const type& t) { return t.blocks().data(); }
  static std::byte* data(type& t) { return t.blocks().data(); }
  static void resize(type& t, const Shape& shape, DType blocks) { t = type(BlockTensor(blocks, shape)); }
  static bool unset(const type& t) { return !t.is_set(); }
  static void adopt(type& t, std::byte* data, const Shape& shape, std::shared_ptr<const void> keeper, DType blocks) {
    t = type(BlockTensor(blocks, shape, data, std::move(keeper)));
  }
};

}  // namespace stele::inline v0
