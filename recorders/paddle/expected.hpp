// Expected tensors: facts from a program or the model that are known before the records are read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/layout.hpp"
#include "stele/recorders/paddle.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::paddle {

struct Expected {
  std::string name;
  DType dtype = DType::none;  // none: any dtype
  std::optional<std::vector<std::int64_t>> shape{};
};

/// Returns a program's variables, sorted by name.
std::vector<Expected> expected_of(std::span<const PaddleVariable> program);
/// Returns the model's tensors in the model's order, with their shapes if `shapes`. Omits dtypes, because numbers
/// convert when they are loaded.
std::vector<Expected> expected_of(const Layout& layout, bool shapes);

void sort_by_name(std::vector<Expected>& list);
/// Checks that all names differ. `sorted` must be sorted by name.
Status check_unique(std::span<const Expected> sorted);

bool fits(const Expected& expected, DType dtype, std::span<const Extent> shape);
/// Returns the error for a tensor that does not fit.
Error misfit(const Expected& expected, DType dtype, std::span<const Extent> shape);
/// Formats a shape for messages.
std::string describe(std::span<const std::int64_t> shape);

/// A tensor of a file or a Snapshot.
struct Found {
  std::string_view name;
  DType dtype;
  std::span<const Extent> shape;
  std::optional<std::uint64_t> offset{};  // offset of its bytes in the file
};
/// Checks that a program's variables and the tensors have equal names, dtypes and shapes. Errors: duplicate, unused,
/// missing, shape_mismatch, dtype_mismatch.
Status check_program(std::span<const PaddleVariable> program, std::span<const Found> tensors);

}  // namespace stele::inline v0::detail::paddle
