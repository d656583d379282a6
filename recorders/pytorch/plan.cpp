// Plans the tensors of a file: their forms in the pickle, and their storages.
#include "plan.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "stele/detail/little_endian.hpp"
#include "stele/quantize.hpp"
#include "stele/value.hpp"
#include "storage.hpp"
#include "training/pytorch_settings.hpp"
#include "values.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

/// Returns the class of a quantized tensor's storage, or an empty string if the dtype has none.
std::string_view quantized_storage(DType dtype) noexcept {
  if (dtype == DType::i8) return "QInt8Storage";
  if (dtype == DType::u8) return "QUInt8Storage";
  return dtype == DType::i32 ? "QInt32Storage" : "";
}

const Value* quantization_of(const LeafView& leaf) {
  if (leaf.annotations() == nullptr) return nullptr;
  const auto found = leaf.annotations()->find(std::string(quantization_key));
  return found != leaf.annotations()->end() ? &found->second : nullptr;
}

/// Returns PyTorch's type of a leaf's elements; nullptr if it has none. An opaque leaf has the name of its type.
const TorchType* type_of(const LeafView& leaf) {
  if (leaf.dtype() != DType::opaque) return type_of_dtype(leaf.dtype());
  if (leaf.annotations() == nullptr) return nullptr;
  const auto found = leaf.annotations()->find(std::string(dtype_key));
  const std::string* const name = found != leaf.annotations()->end() ? found->second.as_string() : nullptr;
  const TorchType* const type = name != nullptr ? type_of_name(*name) : nullptr;
  const bool fits = type != nullptr && type->dtype == DType::opaque && leaf.size() <= UINT64_MAX / type->size &&
                    leaf.size() * type->size == leaf.byte_size();
  return fits ? type : nullptr;
}

/// Returns the row-major strides, in elements, as PyTorch computes them: an extent of 0 counts as 1.
std::vector<Extent> strides_of(std::span<const Extent> shape) {
  std::vector<Extent> strides(shape.size());
  Extent step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<Extent>(shape[i], 1);
  }
  return strides;
}

}  // namespace

bool holds(DType dtype) noexcept { return dtype == DType::opaque || type_of_dtype(dtype) != nullptr; }

std::optional<Affine> affine_of(const LeafView& leaf) {
  const Value* const note = quantization_of(leaf);
  if (note == nullptr || note->as_map() == nullptr || quantized_storage(leaf.dtype()).empty()) return std::nullopt;
  const auto item = [&](std::string_view key) {
    static const Value none;
    const Value* v = note->find(key);
    return v != nullptr ? v : &none;
  };
  const std::string* const scheme = item("scheme")->as_string();
  const std::int64_t* const width = item("bits")->as_i64();
  if (scheme == nullptr || *scheme != "zero_point" || width == nullptr || *width != bits(leaf.dtype())) {
    return std::nullopt;
  }
  if (const bool* sign = item("signed")->as_bool(); sign != nullptr && *sign == (leaf.dtype() == DType::u8)) {
    return std::nullopt;
  }
  Affine made;
  const Value* const scale = item("scale");
  const Value* const zero = item("zero_point");
  const std::int64_t* const axis = item("axis")->as_i64();
  if (axis == nullptr) {
    const auto number = number_of(*scale);
    if (!item("axis")->is_null() || !number || zero->as_i64() == nullptr) return std::nullopt;
    return Affine{{*number}, {*zero->as_i64()}, {}, std::nullopt};
  }
  if (*axis < 0 || static_cast<std::uint64_t>(*axis) >= leaf.shape().size()) return std::nullopt;
  made.axis = static_cast<std::uint64_t>(*axis);
  const Extent count = leaf.shape()[static_cast<std::size_t>(*axis)];
  const Value::List* const scales = scale->as_list();
  const Value::List* const zeros = zero->as_list();
  if (scales == nullptr || zeros == nullptr || scales->size() != count || zeros->size() != count) return std::nullopt;
  const bool real =
      std::any_of(zeros->begin(), zeros->end(), [](const Value& zero) { return zero.as_i64() == nullptr; });
  const auto is_float = [](double number) { return static_cast<double>(static_cast<float>(number)) == number; };
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = number_of((*scales)[i]), origin = number_of((*zeros)[i]);
    if (!number || !origin) return std::nullopt;
    // PyTorch converts the numbers of a quantization with real zero points to f32.
    if (real && (!is_float(*number) || !is_float(*origin))) return std::nullopt;
    made.scales.push_back(*number);
    real ? made.real_zero_points.push_back(*origin) : made.zero_points.push_back(*(*zeros)[i].as_i64());
  }
  return made;
}

std::string obstacle(const LeafView& leaf) {
  if (type_of(leaf) == nullptr) return "dtype " + std::string(name(leaf.dtype()));
  if (leaf.dtype() == DType::f4_e2m1 && (leaf.shape().empty() || leaf.shape().back() % 2 != 0)) {
    return "f4_e2m1 with an odd last extent: PyTorch stores two numbers in an element";
  }
  std::uint64_t steps = 1;  // an upper bound of all strides; the format's caller has checked that it fits 64 bits
  for (const Extent e : leaf.shape()) steps *= std::max<Extent>(e, 1);
  if (steps > INT64_MAX) return "a shape whose strides exceed 2^63 - 1";
  if (quantization_of(leaf) != nullptr && !affine_of(leaf)) {
    return "a quantized tensor: PyTorch stores only i8, u8 and i32 with scale and zero point";
  }
  return {};
}

std::uint32_t TensorWriter::begin(std::size_t leaves) {
  keys_.emplace_back(leaves, no_index);
  return static_cast<std::uint32_t>(keys_.size() - 1);
}

std::uint32_t TensorWriter::add(SavedStorage storage) {
  storages_.push_back(storage);
  return static_cast<std::uint32_t>(storages_.size() - 1);
}

void TensorWriter::ordered_dict() {
  out_.global("collections", "OrderedDict");
  out_.empty_tuple();
  out_.reduce();
}

void TensorWriter::word(std::string_view text, std::optional<std::uint32_t>& memo) {
  if (memo) return out_.get(*memo);
  out_.string(text);
  memo = out_.put();
}

void TensorWriter::storage(std::string_view module, std::string_view type, std::uint32_t key, std::uint64_t size) {
  out_.mark();
  word("storage", storage_memo_);
  out_.global(module, type);
  out_.string(std::to_string(key));
  word("cpu", cpu_memo_);
  out_.unsigned_integer(size);
  out_.tuple();
  out_.persistent();
}

void TensorWriter::extents(std::span<const Extent> extents) {
  if (extents.empty()) return out_.empty_tuple();
  if (extents.size() > 3) out_.mark();
  for (const Extent e : extents) out_.unsigned_integer(e);
  if (extents.size() > 3) return out_.tuple();
  out_.tuple(static_cast<unsigned>(extents.size()));
}

void TensorWriter::place(std::span<const Extent> shape) {
  out_.integer(0);
  extents(shape);
  extents(strides_of(shape));
}

void TensorWriter::tensor(std::uint32_t part, std::uint32_t index, const LeafView& leaf) {
  std::uint32_t& key = keys_[part][index];
  if (key == no_index) key = add({part, index});
  if (const auto affine = affine_of(leaf)) return quantized(*affine, quantized_storage(leaf.dtype()), key, leaf);
  const TorchType& type = *type_of(leaf);
  const bool bytes = type.storage.empty() || leaf.dtype() == DType::opaque;  // 2.15 has no ComplexHalfStorage
  out_.global("torch._utils", bytes ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out_.mark();
  if (bytes) {
    storage("torch.storage", "UntypedStorage", key, leaf.byte_size());
  } else {
    storage("torch", type.storage, key, leaf.size());
  }
  if (leaf.dtype() == DType::f4_e2m1) {
    std::vector<Extent> pairs(leaf.shape().begin(), leaf.shape().end());
    pairs.back() /= 2;
    place(pairs);
  } else {
    place(leaf.shape());
  }
  out_.boolean(false);
  ordered_dict();
  if (bytes) out_.global("torch", type.name);
  out_.tuple();
  out_.reduce();
}

void TensorWriter::quantized(const Affine& affine, std::string_view type, std::uint32_t key, const LeafView& leaf) {
  out_.global("torch._utils", "_rebuild_qtensor");
  out_.mark();
  storage("torch", type, key, leaf.size());
  place(leaf.shape());
  if (affine.axis) {
    out_.mark();
    const bool real = !affine.real_zero_points.empty();
    out_.global("torch", real ? "per_channel_affine_float_qparams" : "per_channel_affine");
    array_tensor("DoubleStorage", affine.scales);
    real ? array_tensor("DoubleStorage", affine.real_zero_points) : array_tensor("LongStorage", affine.zero_points);
    out_.unsigned_integer(*affine.axis);
    out_.tuple();
  } else {
    out_.global("torch", "per_tensor_affine");
    out_.real(affine.scales[0]);
    out_.integer(affine.zero_points[0]);
    out_.tuple(3);
  }
  out_.boolean(false);
  ordered_dict();
  out_.tuple();
  out_.reduce();
}

template <class T>
void TensorWriter::array_tensor(std::string_view type, const std::vector<T>& numbers) {
  std::string& bytes = arrays_.emplace_back(numbers.size() * sizeof(T), '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    store_le(reinterpret_cast<std::byte*>(bytes.data()) + i * sizeof(T), std::bit_cast<std::uint64_t>(numbers[i]));
  }
  const std::uint32_t key = add({SavedStorage::own, static_cast<std::uint32_t>(arrays_.size() - 1)});
  const Extent shape[] = {numbers.size()};
  out_.global("torch._utils", "_rebuild_tensor_v2");
  out_.mark();
  storage("torch", type, key, numbers.size());
  place(shape);
  out_.boolean(false);
  ordered_dict();
  out_.tuple();
  out_.reduce();
}

}  // namespace stele::inline v0::detail::pytorch
