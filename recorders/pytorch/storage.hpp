// The storages of a PyTorch file, and leaves whose elements are a whole storage, a part of one, or strided in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/threads.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::pytorch {

/// A dtype of PyTorch (c10/core/ScalarType.h).
struct TorchType {
  std::string_view name;      // torch.float32
  std::string_view storage;   // torch.FloatStorage; empty: the dtype uses an UntypedStorage
  DType dtype = DType::none;  // dtype of leaves; DType::opaque if stele has no such dtype
  unsigned size = 0;          // bytes of an element; if elements are packed, of a byte of elements
  // bits of an element that shares its byte with other elements; the first element is in the low bits
  unsigned packed_bits = 0;
  unsigned quantized_bits = 0;  // bits of an element of a quantized dtype; else 0
  bool quantized_signed = false;
};
/// Returns the type with the name `torch.NAME` or of a storage class; nullptr if there is none.
const TorchType* type_of_name(std::string_view name) noexcept;
const TorchType* type_of_storage(std::string_view storage_class) noexcept;
/// Returns the type with the elements of a dtype; nullptr if PyTorch has none.
const TorchType* type_of_dtype(DType dtype) noexcept;
/// Returns the type for a c10::ScalarType number; nullptr if unknown.
const TorchType* type_of_number(std::uint64_t number) noexcept;

/// Returns true if a tensor of the dtype can have a gradient; integers and bools are buffers.
constexpr bool can_be_parameter(DType dtype) noexcept {
  const DTypeClass kind = dtype_class(dtype);
  return kind == DTypeClass::floating || kind == DTypeClass::complex || kind == DTypeClass::opaque;
}

/// The annotation with the name of a PyTorch dtype, for leaves whose stele dtype does not identify it.
inline constexpr std::string_view dtype_key = "pytorch.dtype";

/// Elements that tensors share. Its address stays fixed while a Snapshot uses it.
struct Storage {
  SourcePtr source;
  std::uint64_t offset = 0;  // offset of its first byte
  std::uint64_t size = 0;    // in bytes
  std::uint32_t crc = 0;     // CRC-32 of the bytes, if `has_crc`
  bool has_crc = false;
  bool big_endian = false;
  bool lost = false;                // missing from a damaged file: reads fail
  const TorchType* type = nullptr;  // type of its elements; null: untyped, or not used yet

  /// Verifies the CRC-32 of the bytes, once. Errors: checksum, io.
  Status check() const;

 private:
  mutable Mutex mutex_;
  mutable bool checked_ = false;
};

/// A tensor's view of a storage.
struct View {
  const Storage* storage = nullptr;
  const TorchType* type = nullptr;
  std::uint64_t offset = 0;  // in elements
  Shape shape{};
  std::vector<std::uint64_t> strides{};  // in elements
  bool conjugated = false;               // reads conjugate, or negate, the stored elements
  bool negated = false;
};

/// Checks that every element of a view is in its storage. Errors: malformed, unsupported (packed elements with strides,
/// negated integers).
Status check_view(const View& view);

/// A view whose elements are gathered, changed or unpacked as they are read.
class Gathered {
 public:
  explicit Gathered(const View& view);
  /// Fills `out` with the leaf's bytes from byte `first` on.
  Status fill(std::uint64_t first, std::span<std::byte> out, ReadContext& context) const;
  const Storage& storage() const noexcept { return *storage_; }
  /// Returns each element of an expanded tensor once; a count of 0 for other views.
  StoredOnce once() const noexcept;

 private:
  struct Axis {
    std::uint64_t extent, stride, place;  // `place`: its stride in the leaf
    std::uint64_t reach;                  // the largest distance in the leaf that the later axes add
  };
  template <std::size_t Size>
  Status gather(std::size_t axis, std::uint64_t from, std::uint64_t to, std::uint64_t first, std::span<std::byte> out,
                ReadContext& context) const;
  Status unpack(std::uint64_t first, std::span<std::byte> out, ReadContext& context) const;
  void change(std::span<std::byte> out) const;

  const Storage* storage_;
  const TorchType* type_;
  std::uint64_t offset_;    // offset of the first element, in bytes of the source
  std::vector<Axis> axes_;  // by decreasing stride, so that the source is read forward; without axes of extent 1
  bool conjugated_, negated_;
  std::unique_ptr<Gathered> once_;  // the view without its axes of stride 0; null if it has none
};

/// Returns true if the view's elements are stored like a leaf's elements: row-major, little-endian.
bool is_plain(const View& view) noexcept;
/// Returns the shape of the leaf. For float4_e2m1fn_x2 it counts the elements, two for each element of PyTorch.
Shape leaf_shape(const View& view);
/// Returns the number of bytes of the leaf.
std::uint64_t leaf_bytes(const View& view) noexcept;
/// Returns the provider of a plain view.
Provider plain_provider(const View& view) noexcept;
/// Returns the provider of a gathered view.
Provider gathered_provider(const Gathered& gathered) noexcept;

}  // namespace stele::inline v0::detail::pytorch
