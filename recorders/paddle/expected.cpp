// Names, dtypes and shapes that a program or the model expects.
#include "expected.hpp"

#include <algorithm>
#include <utility>

#include "base/name_order.hpp"

namespace stele::inline v0::detail::paddle {
namespace {

std::string describe(DType dtype, const auto& shape) {
  std::string text = dtype != DType::none ? std::string(name(dtype)) + " [" : "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ']';
}

}  // namespace

std::vector<Expected> expected_of(std::span<const PaddleVariable> program) {
  std::vector<Expected> list;
  list.reserve(program.size());
  for (const PaddleVariable& v : program) list.push_back({v.name, v.dtype, v.shape});
  sort_by_name(list);
  return list;
}

std::vector<Expected> expected_of(const Layout& layout, bool shapes) {
  std::vector<Expected> list;
  list.reserve(layout.tensors.size());
  for (const Layout::Tensor& t : layout.tensors) {
    Expected& expected = list.emplace_back(Expected{t.path});
    if (t.shape && shapes) expected.shape.emplace(t.shape->begin(), t.shape->end());
  }
  return list;
}

void sort_by_name(std::vector<Expected>& list) {
  std::stable_sort(list.begin(), list.end(), [](const Expected& a, const Expected& b) { return a.name < b.name; });
}

Status check_unique(std::span<const Expected> sorted) {
  const auto same = std::adjacent_find(sorted.begin(), sorted.end(),
                                       [](const Expected& a, const Expected& b) { return a.name == b.name; });
  if (same == sorted.end()) return {};
  return Error(Errc::duplicate, "the tensor name occurs twice").path(same->name);
}

bool fits(const Expected& expected, DType dtype, std::span<const Extent> shape) {
  if (expected.dtype != DType::none && expected.dtype != dtype) return false;
  return !expected.shape || std::equal(shape.begin(), shape.end(), expected.shape->begin(), expected.shape->end(),
                                       [](Extent e, std::int64_t w) { return w < 0 || e == static_cast<Extent>(w); });
}

Error misfit(const Expected& expected, DType dtype, std::span<const Extent> shape) {
  const bool same_dtype = expected.dtype == DType::none || expected.dtype == dtype;
  return Error(same_dtype ? Errc::shape_mismatch : Errc::dtype_mismatch,
               same_dtype ? "the tensor's shape differs from the declared shape"
                          : "the tensor's dtype differs from the declared dtype")
      .path(expected.name)
      .expected(describe(expected.dtype, *expected.shape))
      .found(describe(expected.dtype != DType::none ? dtype : DType::none, shape));
}

std::string describe(std::span<const std::int64_t> shape) { return describe(DType::none, shape); }

Status check_program(std::span<const PaddleVariable> program, std::span<const Found> tensors) {
  const std::vector<Expected> expected = expected_of(program);
  STELE_TRY(check_unique(expected));
  const auto order =
      order_by_name(static_cast<std::uint32_t>(tensors.size()), [&](std::uint32_t i) { return tensors[i].name; });
  for (std::size_t i = 0; i < std::max(expected.size(), order.size()); ++i) {
    const Found* found = i < order.size() ? &tensors[order[i]] : nullptr;
    const Expected* wanted = i < expected.size() ? &expected[i] : nullptr;
    if (found == nullptr || wanted == nullptr || found->name != wanted->name) {
      const bool extra = wanted == nullptr || (found != nullptr && found->name < wanted->name);
      return Error(extra ? Errc::unused : Errc::missing,
                   extra ? "the program does not declare the tensor" : "the variable of the program has no tensor")
          .path(extra ? std::string(found->name) : wanted->name);
    }
    if (fits(*wanted, found->dtype, found->shape)) continue;
    Error error = misfit(*wanted, found->dtype, found->shape);
    return found->offset ? std::move(error).offset(*found->offset) : std::move(error);
  }
  return {};
}

}  // namespace stele::inline v0::detail::paddle
