// Matrices of scales and zero points: finds the elements to which each applies.
#include <algorithm>
#include <array>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

namespace {

/// Returns the size of `groups` groups of an extent, the last of which may be incomplete, if only one fits; otherwise
/// 0.
std::uint64_t only_size(std::uint64_t extent, std::uint64_t groups) {
  if (groups == 1) return extent;
  const std::uint64_t min = divided_up(extent, groups), max = (extent - 1) / (groups - 1);
  return groups <= extent && min == max ? min : 0;
}

/// Returns [a, b] for scales of shape [a, 1, b, 1], which ModelOpt writes for blocks of a matrix; returns other shapes
/// unchanged.
Shape without_ones(std::span<const Extent> shape, std::size_t rank) {
  const bool blocks = rank == 2 && shape.size() == 4 && shape[1] == 1 && shape[3] == 1;
  return blocks ? Shape(std::array<Extent, 2>{shape[0], shape[2]}) : Shape(shape);
}

}  // namespace

void Recogniser::set_shape(Composite& c, std::span<const Extent> shape) {
  c.shape = Shape(shape);
  c.columns = shape.empty() ? 1 : shape.back();
  c.stack_rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
  c.rows = c.columns == 0 ? 0 : c.shape.element_count().value_or(0) / c.columns;
}

std::string Recogniser::set_grid(Composite& c, std::uint32_t scales, std::span<const Block> known) {
  const Shape squeezed = without_ones(leaf(scales).shape(), c.shape.rank());
  const auto shape = squeezed.span();
  const std::uint64_t count = leaf(scales).size();
  const std::uint64_t stacks = c.stack_rows == 0 ? 0 : c.rows / c.stack_rows;
  c.scales.leaf = scales;
  if (count == 1) {
    c.scales.rows = c.scales.columns = 1;
    c.group = c.columns;
    c.row_group = c.rows;
    c.stack_rows = c.rows;
    return {};
  }
  std::uint64_t a = 0, b = 1;  // of a stack
  if (shape.size() == c.shape.size() && shape.size() >= 2) {
    a = shape[shape.size() - 2];
    b = shape[shape.size() - 1];
  } else if (shape.size() + 1 == c.shape.size()) {  // a scale for each row
    a = shape.empty() ? 1 : shape.back();
    if (a != 1 && a != c.stack_rows) a = 0;  // such as the scales of joined layers
  }
  std::string wrong = "scales of the shape " + to_string(shape);
  if (a == 0 || b == 0 || a > c.stack_rows || b > c.columns || count != stacks * a * b) return wrong;
  c.row_group = only_size(c.stack_rows, a);
  c.group = only_size(c.columns, b);
  // Packages that write groups of a row divide it into whole groups; blocks may be incomplete.
  const bool whole = known.empty() && a == c.stack_rows && c.columns % b == 0;
  if (whole) c.group = c.columns / b;
  if (leaf(scales).shape().size() > shape.size()) {  // ModelOpt's blocks are whole
    c.row_group = c.stack_rows % a == 0 ? c.stack_rows / a : 0;
    c.group = c.columns % b == 0 ? c.columns / b : 0;
  }
  std::vector<Block> fitting;
  for (const Block& k : known) {
    const Block size{k.rows == 0 ? c.stack_rows : k.rows, k.columns == 0 ? c.columns : k.columns};
    if (divided_up(c.stack_rows, size.rows) != a || divided_up(c.columns, size.columns) != b) continue;
    const Block same{a == 1 ? c.stack_rows : size.rows, b == 1 ? c.columns : size.columns};
    if (std::find(fitting.begin(), fitting.end(), same) == fitting.end()) fitting.push_back(same);
  }
  if (fitting.size() == 1) {
    c.row_group = fitting[0].rows;
    c.group = fitting[0].columns;
  }
  if (c.row_group == 0 || c.group == 0) {
    if (known.empty()) return wrong + ", which fit several sizes of blocks, and the configuration has none";
    return wrong + (fitting.empty() ? ", which are not those of the blocks in the configuration"
                                    : ", which fit several blocks of the configuration");
  }
  c.scales.rows = stacks * a;
  c.scales.columns = b;
  return {};
}

bool Recogniser::set_dtype(Grid& scales, DType bytes) const {
  const DType dtype = leaf(scales.leaf).dtype();
  if (dtype == DType::u8) scales.dtype = bytes;
  return dtype == DType::u8 || is_float(leaf(scales.leaf));
}

bool Recogniser::set_tiles(Composite& c, std::uint32_t scales, std::uint64_t group) const {
  const std::uint64_t columns = divided_up(c.columns, group);
  if (c.rows > UINT32_MAX || columns > UINT32_MAX) return false;
  if (leaf(scales).size() != divided_up(c.rows, 128) * 128 * divided_up(columns, 4) * 4) return false;
  if (element_size(leaf(scales).dtype()) != 1) return false;
  c.scales.leaf = scales;
  c.scales.rows = c.rows;
  c.scales.columns = columns;
  c.scales.swizzled = true;
  c.stack_rows = c.rows;
  c.row_group = 1;
  c.group = group;
  return true;
}

Result<std::string> Recogniser::set_global(float& number, std::uint32_t part) const {
  if (part == no_index) return std::string();
  STELE_TRY_ASSIGN(const std::vector<float> found, floats_of(part));
  if (found.size() != 1 || !(found[0] != 0)) return std::string("a global scale that is no number other than 0");
  number = found[0];
  return std::string();
}

std::string Recogniser::set_axis(Composite& c, std::uint32_t scales, std::int64_t axis) {
  const LeafView leaf_of_scales = leaf(scales);
  if (leaf_of_scales.size() == 1) return set_grid(c, scales, {});
  const auto rank = static_cast<std::int64_t>(c.shape.rank());
  // [N, G, 1] for codes of [N, G, K], as in OpenVINO, and [N, G] for codes of [N, K * G], as in Core ML: scales for the
  // indices of the leading axes; the last of these axes may be divided into groups.
  const auto shape = leaf_of_scales.shape();
  std::size_t leading = shape.size();
  while (leading != 0 && shape[leading - 1] == 1) --leading;
  const bool same_rank = rank > 1 && shape.size() == c.shape.rank();
  if (same_rank && leading != 0 && std::ranges::equal(shape.first(leading - 1), c.shape.span().first(leading - 1)) &&
      shape[leading - 1] != 0 && c.shape[leading - 1] % shape[leading - 1] == 0) {
    set_rows(c, scales);
    if (leading == shape.size()) {
      c.scales.rows /= shape[leading - 1];
      c.scales.columns = shape[leading - 1];
      c.group = c.columns / shape[leading - 1];
      c.row_group = 1;
    }
    return {};
  }
  if (axis < 0) axis += rank;
  const bool last_axis = same_rank && leaf_of_scales.size() == shape.back();  // [1, K]
  if (last_axis) axis = rank - 1;
  if (axis < 0 || axis >= rank || (shape.size() != 1 && !last_axis) ||
      leaf_of_scales.size() != c.shape[static_cast<std::size_t>(axis)]) {
    return "scales of the shape " + to_string(shape);
  }
  const auto extents = c.shape.span().first(static_cast<std::size_t>(axis));
  c.scales.leaf = scales;
  c.stack_rows = c.rows;
  if (axis + 1 == rank) {
    c.group = 1;
    c.row_group = c.rows;
    c.scales.rows = 1;
    c.scales.columns = c.columns;
    return {};
  }
  if (std::any_of(extents.begin(), extents.end(), [](Extent e) { return e != 1; })) return "scales of an inner axis";
  set_rows(c, scales);
  return {};
}

void Recogniser::set_rows(Composite& c, std::uint32_t scales) {
  c.scales.leaf = scales;
  c.scales.rows = leaf(scales).size();
  c.scales.columns = 1;
  c.stack_rows = c.rows;
  c.group = c.columns;
  c.row_group = c.rows / c.scales.rows;
}

std::string Recogniser::set_zeros(Composite& c, std::uint32_t zeros) {
  if (zeros == no_index) return {};
  c.zeros = c.scales;
  c.zeros.leaf = zeros;
  c.zeros.dtype = DType::none;
  if (c.scales.swizzled || leaf(zeros).size() != leaf(c.scales.leaf).size())
    return "zero points of the shape " + to_string(leaf(zeros).shape());
  if (element_size(leaf(zeros).dtype()) == 0) return "zero points of " + std::string(name(leaf(zeros).dtype()));
  return {};
}

std::string Recogniser::set_group_of(Composite& c, std::uint32_t groups, bool may_be_unset) {
  if (groups == no_index) return {};
  const LeafView list = leaf(groups);
  if (list.dtype() != DType::i32 || list.size() != c.columns)
    return "a list of groups that has not one for each column";
  c.group_of = groups;
  c.groups_may_be_unset = may_be_unset;
  return {};
}

}  // namespace stele::inline v0::detail::composites
