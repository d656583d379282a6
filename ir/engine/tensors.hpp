// Dtypes, shapes and constants of a graph's tensors, as far as they are known at import.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "ir/rules/expression.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::ir {

/// The elements of a small tensor in row-major order. Integers and bools are stored as integers, floats as doubles.
struct Constant {
  DType dtype = DType::none;
  std::vector<std::int64_t> shape{};
  std::variant<std::vector<std::int64_t>, std::vector<double>> elements{};

  std::size_t size() const noexcept {
    return std::visit([](const auto& list) { return list.size(); }, elements);
  }
  const std::vector<std::int64_t>* ints() const noexcept { return std::get_if<std::vector<std::int64_t>>(&elements); }
  const std::vector<double>* reals() const noexcept { return std::get_if<std::vector<double>>(&elements); }
};

/// Maximum number of axes of a tensor in libnd4j (MAX_RANK in its system/common.h).
inline constexpr std::int64_t max_rank = 32;

struct TensorInfo {
  DType dtype = DType::none;
  std::optional<std::vector<std::int64_t>> shape{};  // unknown_extent: an open extent
  std::optional<Constant> constant{};
  std::optional<Constant> partial{};  // integers, some of which are unknown_extent
};

/// Reads a leaf of at most max_list elements. Returns nullopt if the leaf has more, or a dtype without arithmetic.
/// Errors: those of LeafView::read().
Result<std::optional<Constant>> constant_of(const LeafView& leaf);
/// Returns the elements as bytes, in host byte order. Errors: out_of_range (an element does not fit the dtype).
Result<std::vector<std::byte>> bytes_of(const Constant& constant);
/// Maximum number of elements of a computed constant.
inline constexpr std::size_t max_folded = 4096;
/// Returns the number of elements of a shape, or nullopt if an extent is open or the number exceeds `max_count`.
std::optional<std::size_t> small_count(const std::vector<std::int64_t>& shape, std::size_t max_count = max_folded);

/// Returns the paths of a snapshot's leaves, for lookups that are faster than Snapshot::find(), which walks over all
/// leaves.
std::unordered_set<std::string> names_of(const Snapshot& snapshot);

/// An ONNX node that may be computed at import.
struct FoldNode {
  std::string_view op;
  std::vector<const TensorInfo*> inputs;  // nullptr: not given
  const std::map<std::string, ExpressionValue>* attributes = nullptr;
  const Constant* value = nullptr;  // the tensor of the attribute "value"
};
/// Returns true if an element is unknown_extent.
bool is_partial(const Constant& constant) noexcept;
/// Computes the outputs of a node from constants and shapes. Unknown elements are unknown_extent. Returns nullopt if
/// the outputs cannot be computed at import. Errors: invalid_argument, shape_mismatch (the inputs do not fit).
Result<std::optional<std::vector<Constant>>> folded(const FoldNode& node);

}  // namespace stele::inline v0::detail::ir
