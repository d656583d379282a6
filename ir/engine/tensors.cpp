#include "ir/engine/tensors.hpp"

#include <algorithm>
#include <utility>

#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::ir {

namespace {

/// Returns the dtype in which elements of `dtype` are computed, or nullopt if they are not computed.
std::optional<DType> wide(DType dtype) noexcept {
  if (element_size(dtype) == 0) return std::nullopt;
  switch (dtype_class(dtype)) {
    case DTypeClass::floating:
      return DType::f64;
    case DTypeClass::signed_int:
    case DTypeClass::unsigned_int:
      return dtype == DType::u64 ? std::nullopt : std::optional(DType::i64);
    case DTypeClass::boolean:
      return DType::i64;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::size_t> small_count(const Ints& shape, std::size_t max_count) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  return count <= static_cast<std::int64_t>(max_count) ? std::optional(static_cast<std::size_t>(count)) : std::nullopt;
}

std::unordered_set<std::string> names_of(const Snapshot& snapshot) {
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) names.insert(snapshot.leaf(i).path());
  return names;
}

Result<std::optional<Constant>> constant_of(const LeafView& leaf) {
  const auto as = wide(leaf.dtype());
  if (!as || leaf.size() > max_list) return std::optional<Constant>();
  Constant out{.dtype = leaf.dtype()};
  for (const Extent e : leaf.shape()) out.shape.push_back(static_cast<std::int64_t>(e));
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
  STELE_TRY(leaf.read(0, bytes));
  const auto count = static_cast<std::size_t>(leaf.size());
  const DType from = leaf.dtype() == DType::boolean ? DType::u8 : leaf.dtype();
  const auto read = [&]<class T>(std::vector<T> elements) {
    elements.resize(count);
    convert(from, bytes.data(), *as, reinterpret_cast<std::byte*>(elements.data()), count);
    out.elements = std::move(elements);
  };
  if (*as == DType::f64) {
    read(Reals());
  } else {
    read(Ints());
  }
  return std::optional(std::move(out));
}

Result<std::vector<std::byte>> bytes_of(const Constant& constant) {
  const std::size_t count = constant.size();
  std::vector<std::byte> bytes(static_cast<std::size_t>(*byte_length(constant.dtype, count)));
  const DType to = constant.dtype == DType::boolean ? DType::u8 : constant.dtype;
  const DType from = constant.ints() != nullptr ? DType::i64 : DType::f64;
  const ConvertOutcome done = std::visit(
      [&](const auto& elements) {
        return convert(from, reinterpret_cast<const std::byte*>(elements.data()), to, bytes.data(), count,
                       {.allow_overflow = true, .allow_kind_change = true});
      },
      constant.elements);
  if (done.status == ConvertStatus::ok) return bytes;
  return Error(Errc::out_of_range, "an element of a constant does not fit its dtype")
      .expected(name(constant.dtype))
      .found("element " + std::to_string(done.index));
}

bool is_partial(const Constant& constant) noexcept {
  const Ints* const ints = constant.ints();
  return ints != nullptr && std::find(ints->begin(), ints->end(), unknown_extent) != ints->end();
}

}  // namespace stele::inline v0::detail::ir
