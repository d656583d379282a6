// The tensors of a file: their forms in the pickle, and their storages.
//
// A tensor is a call, torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), whose
// storage is a persistent id: ("storage", class, key, "cpu", number of elements). Tensors of dtypes without a storage
// class (f8, u16, u32, u64, pairs of f4) are calls of _rebuild_tensor_v3 with the dtype, and their storage is untyped
// bytes. Source:
// pytorch 2.15, torch/_tensor.py, torch/_utils.py, torch/storage.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "encodings/pickle/pickle.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::pytorch {

/// Returns true if PyTorch can have the dtype; an opaque leaf also needs the name of its type.
bool holds(DType dtype) noexcept;

/// PyTorch's affine quantization: (q - zero point) * scale, for a whole tensor or for each index of an axis.
struct Affine {
  std::vector<double> scales;
  std::vector<std::int64_t> zero_points;
  std::vector<double> real_zero_points;  // instead, if one is not an integer
  std::optional<std::uint64_t> axis;
};
/// Returns the quantization of a leaf with the annotation `quantization`, or nullopt if PyTorch has no such tensor.
std::optional<Affine> affine_of(const LeafView& leaf);

/// Returns the reason why PyTorch cannot store a leaf whose dtype it has, or an empty string.
std::string obstacle(const LeafView& leaf);

/// The bytes of one storage: a leaf, or a small array of a leaf's quantization.
struct SavedStorage {
  static constexpr std::uint32_t own = 0xffffffffU;
  std::uint32_t part = 0;   // number of the snapshot; `own`: an array
  std::uint32_t index = 0;  // index of the leaf or array
};

/// Writes tensors into a pickle. Storages get their keys in the order of first use.
class TensorWriter {
 public:
  explicit TensorWriter(pickle::Writer& out) : out_(out) {}

  /// Begins a snapshot of `leaves` leaves and returns its number.
  std::uint32_t begin(std::size_t leaves);
  /// Writes a leaf of a snapshot; leaves that are written twice share their storage.
  void tensor(std::uint32_t part, std::uint32_t index, const LeafView& leaf);
  /// Writes an empty collections.OrderedDict.
  void ordered_dict();

  const std::vector<SavedStorage>& storages() const noexcept { return storages_; }
  const std::string& array(std::uint32_t index) const noexcept { return arrays_[index]; }

 private:
  void word(std::string_view text, std::optional<std::uint32_t>& memo);
  void storage(std::string_view module, std::string_view type, std::uint32_t key, std::uint64_t size);
  void extents(std::span<const Extent> extents);
  /// Writes a tensor's arguments from its offset to its strides.
  void place(std::span<const Extent> shape);
  std::uint32_t add(SavedStorage storage);
  void quantized(const Affine& affine, std::string_view type, std::uint32_t key, const LeafView& leaf);
  template <class T>
  void array_tensor(std::string_view type, const std::vector<T>& numbers);

  pickle::Writer& out_;
  std::vector<std::vector<std::uint32_t>> keys_;  // by part and leaf
  std::vector<SavedStorage> storages_;
  std::vector<std::string> arrays_;
  std::optional<std::uint32_t> storage_memo_, cpu_memo_;
};

}  // namespace stele::inline v0::detail::pytorch
