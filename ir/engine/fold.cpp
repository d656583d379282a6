// Constant folding of the ONNX operators that computations of shapes consist of.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "ir/engine/fold.hpp"

namespace stele::inline v0::detail::ir {

namespace {

constexpr std::size_t any_count = std::numeric_limits<std::int64_t>::max();

Error bad(std::string_view message) { return Error(Errc::invalid_argument, message); }

}  // namespace

class Folder {
 public:
  explicit Folder(const FoldNode& node) : node_(node) {}

  Result<Folded> elementwise() const {
    Constant result = at(0);
    for (std::size_t i = 1; i < node_.inputs.size(); ++i) {  // Min and Max take any number of inputs
      if (!has(i)) return Folded();
      STELE_TRY_ASSIGN(auto next, binary(node_.op, result, at(i)));
      if (!next) return Folded();
      result = std::move(next->front());
    }
    return one(std::move(result));
  }
  Result<Folded> modulus() const { return remainder(at(0), at(1), integer("fmod", 0) != 0); }
  Result<Folded> changed() const { return unary(node_.op, at(0)); }

  Result<Folded> shape() const {
    const TensorInfo& input = *node_.inputs[0];
    if (!input.shape) return Folded();
    const auto rank = static_cast<std::int64_t>(input.shape->size());
    const auto place = [&](std::int64_t p) { return std::clamp<std::int64_t>(p < 0 ? p + rank : p, 0, rank); };
    const std::int64_t from = place(integer("start", 0)), to = std::max(from, place(integer("end", rank)));
    Ints extents(input.shape->begin() + from, input.shape->begin() + to);
    return one(of_ints(std::move(extents)));
  }

  Result<Folded> size() const {
    const TensorInfo& input = *node_.inputs[0];
    const auto count = input.shape ? small_count(*input.shape, any_count) : std::nullopt;
    if (!count) return Folded();
    Constant c = of_ints({static_cast<std::int64_t>(*count)});
    c.shape.clear();
    return one(std::move(c));
  }

  Result<Folded> filled() const {
    const Ints* const wanted = at(0).ints();
    if (wanted == nullptr) return Folded();
    const Ints& extents = *wanted;
    const auto count = small_count(extents);
    if (!count) return Folded();
    Constant c{.dtype = DType::f32, .shape = extents, .elements = Reals(*count, 0.0)};
    if (node_.value != nullptr) {
      if (node_.value->size() != 1) return bad("the value of ConstantOfShape does not have one element");
      c = taken(*node_.value, extents, std::vector<std::size_t>(*count, 0));
    }
    return one(std::move(c));
  }

  /// Ignores `saturate`, which applies only to 8-bit floats; the result is never an 8-bit float.
  Result<Folded> cast() const {
    const std::int64_t code = integer("to", 0);
    constexpr std::array<std::pair<std::int64_t, DType>, 5> dtypes = {
        {{1, DType::f32}, {6, DType::i32}, {7, DType::i64}, {9, DType::boolean}, {11, DType::f64}}};
    const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.first == code; });
    if (found == dtypes.end()) return Folded();
    Constant out = at(0);
    out.dtype = found->second;
    const bool whole = out.dtype == DType::i32 || out.dtype == DType::i64;
    if (is_partial(out) && !whole) return Folded();
    if (dtype_class(out.dtype) == DTypeClass::floating) {
      round_elements(out);
      return one(std::move(out));
    }
    Ints ints;
    if (const Reals* const reals = out.reals()) {
      for (const double e : *reals) {
        if (whole && !(std::abs(e) < 2147483648.0)) return Folded();
        ints.push_back(whole ? static_cast<std::int64_t>(e) : e != 0);
      }
    } else {
      for (const std::int64_t e : *out.ints()) ints.push_back(whole ? e : e != 0);
    }
    out.elements = std::move(ints);
    return one(std::move(out));
  }

  Result<Folded> gather() const {
    if (at(1).ints() == nullptr) return Folded();
    const Constant& data = at(0);
    const Ints& indices = *at(1).ints();
    STELE_TRY_ASSIGN(const std::size_t on, axis(integer("axis", 0), data.shape.size()));
    Ints shape(data.shape.begin(), data.shape.begin() + static_cast<std::ptrdiff_t>(on));
    shape.insert(shape.end(), at(1).shape.begin(), at(1).shape.end());
    shape.insert(shape.end(), data.shape.begin() + static_cast<std::ptrdiff_t>(on) + 1, data.shape.end());
    if (!small_count(shape)) return Folded();
    const std::int64_t inner = stride_of(data.shape, on + 1), extent = data.shape[on];
    const std::int64_t outer = stride_of(data.shape, 0) / std::max<std::int64_t>(1, inner * extent);
    std::vector<std::size_t> positions;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (const std::int64_t index : indices) {
        const std::int64_t i = index < 0 ? index + extent : index;
        if (i < 0 || i >= extent) return bad("an index of Gather is outside its axis");
        for (std::int64_t k = 0; k < inner; ++k)
          positions.push_back(static_cast<std::size_t>((o * extent + i) * inner + k));
      }
    }
    return one(taken(data, std::move(shape), positions));
  }

  Result<Folded> reshaped() const {
    Constant out = at(0);
    Ints shape = out.shape;
    if (node_.op == "Flatten") {
      const auto rank = static_cast<std::int64_t>(shape.size());
      std::int64_t split = integer("axis", 1);
      if (split < 0) split += rank;
      if (split < 0 || split > rank) return bad("an axis is outside the tensor's rank");
      const std::int64_t columns = stride_of(shape, static_cast<std::size_t>(split));
      out.shape = {columns == 0 ? 0 : static_cast<std::int64_t>(out.size()) / columns, columns};
      return one(std::move(out));
    }
    if (node_.op == "Reshape") {
      if (at(1).ints() == nullptr) return Folded();
      out.shape = *at(1).ints();
      std::int64_t known = 1;
      std::int64_t* open = nullptr;
      for (std::size_t i = 0; i < out.shape.size(); ++i) {
        std::int64_t& extent = out.shape[i];
        if (extent == 0 && integer("allowzero", 0) == 0) {
          if (i >= shape.size()) return bad("Reshape copies an extent that the tensor does not have");
          extent = shape[i];
        }
        if (extent == -1) {
          if (open != nullptr) return bad("Reshape has two open extents");
          open = &extent;
        } else if (extent < 0 || __builtin_mul_overflow(known, extent, &known)) {
          return bad("an extent of Reshape is negative or too large");
        }
      }
      if (open != nullptr) *open = known == 0 ? 0 : static_cast<std::int64_t>(out.size()) / known;
      if (small_count(out.shape, any_count) != out.size()) return bad("Reshape changes the number of elements");
      return one(std::move(out));
    }
    auto axes = integers("axes", 1);
    if (node_.op == "Unsqueeze") {
      if (!axes) return Folded();
      const std::size_t rank = shape.size() + axes->size();
      if (rank > static_cast<std::size_t>(max_rank)) return Folded();
      for (std::int64_t& a : *axes) {
        STELE_TRY_ASSIGN(const std::size_t on, axis(a, rank));
        a = static_cast<std::int64_t>(on);
      }
      std::sort(axes->begin(), axes->end());
      if (std::adjacent_find(axes->begin(), axes->end()) != axes->end()) return bad("Unsqueeze names an axis twice");
      for (const std::int64_t a : *axes) shape.insert(shape.begin() + a, 1);
    } else {
      if (axes && axes->empty()) return Folded();  // programs differ: they remove no axis, or all axes of extent 1
      Ints kept;
      std::vector<bool> gone(shape.size());
      for (std::size_t i = 0; i < shape.size(); ++i) gone[i] = !axes && shape[i] == 1;
      for (const std::int64_t a : axes.value_or(Ints())) {
        STELE_TRY_ASSIGN(const std::size_t on, axis(a, shape.size()));
        if (shape[on] != 1) return bad("Squeeze removes an axis whose extent is not 1");
        gone[on] = true;
      }
      for (std::size_t i = 0; i < shape.size(); ++i) {
        if (!gone[i]) kept.push_back(shape[i]);
      }
      shape = std::move(kept);
    }
    out.shape = std::move(shape);
    return one(std::move(out));
  }

  Result<Folded> concat() const {
    Constant out = at(0);
    if (out.shape.size() != 1) return Folded();
    STELE_TRY(axis(integer("axis", 0), 1));
    for (std::size_t i = 1; i < node_.inputs.size(); ++i) {
      if (!has(i) || at(i).dtype != out.dtype || at(i).shape.size() != 1) return Folded();
      std::visit(
          [&]<class T>(std::vector<T>& elements) {
            const auto& more = std::get<std::vector<T>>(at(i).elements);
            elements.insert(elements.end(), more.begin(), more.end());
          },
          out.elements);
      if (out.size() > max_folded) return Folded();
    }
    out.shape = {static_cast<std::int64_t>(out.size())};
    return one(std::move(out));
  }

  Result<Folded> slice() const {
    const Constant& data = at(0);
    const auto starts = integers("starts", 1), ends = integers("ends", 2);
    if (!starts || !ends || starts->size() != ends->size() || data.shape.size() > static_cast<std::size_t>(max_rank))
      return Folded();
    Ints axes(starts->size()), steps(starts->size(), 1);
    std::iota(axes.begin(), axes.end(), 0);
    if (const auto given = integers("axes", 3)) axes = *given;
    if (has(4)) {
      if (at(4).ints() == nullptr) return Folded();
      steps = *at(4).ints();
    }
    if (axes.size() != starts->size() || steps.size() != starts->size())
      return bad("the inputs of Slice differ in length");
    Constant out = data;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      STELE_TRY_ASSIGN(const std::size_t on, axis(axes[k], data.shape.size()));
      const std::int64_t extent = out.shape[on], step = steps[k];
      if (step == 0) return bad("a step of Slice is 0");
      // Negative positions count from the end. With a negative step, the slice starts at an element and may end before
      // the first.
      const auto place = [&](std::int64_t p, std::int64_t min_place) {
        return std::clamp(p < 0 ? p + extent : p, min_place, std::max(min_place, step > 0 ? extent : extent - 1));
      };
      const std::int64_t from = place((*starts)[k], 0), to = place((*ends)[k], step > 0 ? 0 : -1);
      Ints picked;
      for (std::int64_t i = from; extent != 0 && (step > 0 ? i < to : i > to); i += step) {
        picked.push_back(i);
        if (step > extent || step < -extent) break;
      }
      const std::int64_t inner = stride_of(out.shape, on + 1);
      const std::int64_t outer = static_cast<std::int64_t>(out.size()) / std::max<std::int64_t>(1, inner * extent);
      std::vector<std::size_t> positions;
      for (std::int64_t o = 0; o < outer; ++o) {
        for (const std::int64_t i : picked) {
          for (std::int64_t n = 0; n < inner; ++n) {
            positions.push_back(static_cast<std::size_t>((o * extent + i) * inner + n));
          }
        }
      }
      Ints shape = out.shape;
      shape[on] = static_cast<std::int64_t>(picked.size());
      out = taken(out, std::move(shape), positions);
    }
    return one(std::move(out));
  }

  Result<Folded> range() const {
    if (at(0).size() != 1 || at(1).size() != 1 || at(2).size() != 1) return Folded();
    if (at(0).ints() == nullptr || at(1).ints() == nullptr || at(2).ints() == nullptr) return Folded();
    const std::int64_t from = at(0).ints()->front(), to = at(1).ints()->front(), step = at(2).ints()->front();
    if (step == 0) return bad("the step of Range is 0");
    Ints out;
    for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
      if (out.size() == max_folded) return Folded();
      out.push_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return one(of_ints(std::move(out), at(0).dtype));
  }

  Result<Folded> where() const {
    if (at(0).dtype != DType::boolean || at(1).dtype != at(2).dtype) return Folded();
    STELE_TRY_ASSIGN(const Ints both, broadcast_shape(at(1).shape, at(2).shape));
    STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(at(0).shape, both));
    if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank)) return Folded();
    STELE_TRY_ASSIGN(const Constant condition, aligned(at(0), shape));
    STELE_TRY_ASSIGN(Constant out, aligned(at(1), shape));
    STELE_TRY_ASSIGN(const Constant other, aligned(at(2), shape));
    std::visit(
        [&]<class T>(std::vector<T>& elements) {
          const auto& others = std::get<std::vector<T>>(other.elements);
          for (std::size_t i = 0; i < elements.size(); ++i) {
            if ((*condition.ints())[i] == 0) elements[i] = others[i];
          }
        },
        out.elements);
    return one(std::move(out));
  }

  Result<Folded> expand() const {
    if (at(1).ints() == nullptr) return Folded();
    STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(at(0).shape, *at(1).ints()));
    if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank)) return Folded();
    STELE_TRY_ASSIGN(Constant out, aligned(at(0), shape));
    return one(std::move(out));
  }

  Result<Folded> transpose() const {
    const Constant& data = at(0);
    const std::size_t rank = data.shape.size();
    if (rank > static_cast<std::size_t>(max_rank)) return Folded();
    Ints order(rank);
    std::iota(order.rbegin(), order.rend(), 0);
    if (const auto given = integers("perm", 0)) order = *given;
    Ints sorted = order, all(rank);
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all) return bad("perm is not a permutation of the axes");
    Ints shape;
    for (const std::int64_t axis : order) shape.push_back(data.shape[static_cast<std::size_t>(axis)]);
    std::vector<std::size_t> positions(data.size());
    for (std::size_t n = 0; n < positions.size(); ++n) {
      auto rest = static_cast<std::int64_t>(n);
      std::int64_t at = 0;
      for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t below = stride_of(shape, i + 1);
        at += rest / below * stride_of(data.shape, static_cast<std::size_t>(order[i]) + 1);
        rest %= below;
      }
      positions[n] = static_cast<std::size_t>(at);
    }
    return one(taken(data, std::move(shape), positions));
  }

  /// Reduces a list of integers to a number. Computations of shapes need no other reductions.
  Result<Folded> reduced() const {
    const Constant& data = at(0);
    if (data.shape.size() != 1 || data.ints() == nullptr || data.dtype == DType::boolean) return Folded();
    const Ints axes = integers("axes", 1).value_or(Ints());
    if (axes.empty() && integer("noop_with_empty_axes", 0) != 0) return one(data);
    for (const std::int64_t a : axes) STELE_TRY(axis(a, 1));
    const bool multiplies = node_.op == "ReduceProd";
    std::int64_t total = multiplies ? 1 : 0;
    for (const std::int64_t e : *data.ints()) {
      const auto next = (multiplies ? product_of : sum_of)(total, e);
      if (!next) return Folded();
      total = *next;
    }
    Constant out = of_ints({total}, data.dtype);
    if (integer("keepdims", 1) == 0) out.shape.clear();
    return one(std::move(out));
  }

 private:
  bool has(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != nullptr; }
  const Constant& at(std::size_t i) const {
    const TensorInfo& input = *node_.inputs[i];
    return input.constant ? *input.constant : *input.partial;
  }

  const ExpressionValue* attribute(const std::string& name) const {
    const auto found = node_.attributes->find(name);
    return found != node_.attributes->end() ? &found->second : nullptr;
  }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    const auto* const value = attribute(name);
    return value != nullptr ? std::get<std::int64_t>(*value) : otherwise;
  }
  /// Returns the integers of an attribute, or of the input that replaces it in later versions of the operator.
  std::optional<Ints> integers(const std::string& name, std::size_t input) const {
    if (const auto* const value = attribute(name)) return std::get<Ints>(*value);
    return input != 0 && has(input) ? std::optional(*at(input).ints()) : std::nullopt;
  }

  static Result<std::size_t> axis(std::int64_t value, std::size_t rank) {
    const auto n = static_cast<std::int64_t>(rank);
    if (value < 0) value += n;
    if (value < 0 || value >= n) return bad("an axis is outside the tensor's rank");
    return static_cast<std::size_t>(value);
  }

  const FoldNode& node_;
};

namespace {

constexpr std::uint32_t none = 0, first = 1, all = ~std::uint32_t{0};
constexpr std::size_t any = 1 << 16;
constexpr FoldAttribute axis{"axis"}, axes{"axes", AttributeType::integers, 1};
constexpr FoldAttribute keepdims{"keepdims"}, noop{"noop_with_empty_axes"};

constexpr auto operators = std::to_array<FoldOperator>({
    {"Abs", 1, 1, first, &Folder::changed},
    {"Add", 2, 2, all, &Folder::elementwise},
    {"And", 2, 2, none, &Folder::elementwise},
    {"Cast", 1, 1, first, &Folder::cast, {{{"to"}, {"saturate"}}}},
    {"Ceil", 1, 1, first, &Folder::changed},
    {"Concat", 1, any, all, &Folder::concat, {axis}},
    {"ConstantOfShape", 1, 1, none, &Folder::filled, {{{"value", AttributeType::tensor}}}},
    {"Div", 2, 2, all, &Folder::elementwise},
    {"Equal", 2, 2, none, &Folder::elementwise},
    {"Expand", 2, 2, first, &Folder::expand},
    {"Flatten", 1, 1, first, &Folder::reshaped, {axis}},
    {"Floor", 1, 1, first, &Folder::changed},
    {"Gather", 2, 2, first, &Folder::gather, {axis}},
    {"Greater", 2, 2, none, &Folder::elementwise},
    {"GreaterOrEqual", 2, 2, none, &Folder::elementwise},
    {"Identity", 1, 1, first, &Folder::changed},
    {"Less", 2, 2, none, &Folder::elementwise},
    {"LessOrEqual", 2, 2, none, &Folder::elementwise},
    {"Max", 1, any, all, &Folder::elementwise},
    {"Min", 1, any, all, &Folder::elementwise},
    {"Mod", 2, 2, all, &Folder::modulus, {{{"fmod"}}}},
    {"Mul", 2, 2, all, &Folder::elementwise},
    {"Neg", 1, 1, first, &Folder::changed},
    {"Not", 1, 1, none, &Folder::changed},
    {"Or", 2, 2, none, &Folder::elementwise},
    {"Pow", 2, 2, none, &Folder::elementwise},
    {"Range", 3, 3, none, &Folder::range},
    {"ReduceProd", 1, 2, first, &Folder::reduced, {axes, keepdims, noop}},
    {"ReduceSum", 1, 2, first, &Folder::reduced, {axes, keepdims, noop}},
    {"Reshape", 2, 2, first, &Folder::reshaped, {{{"allowzero"}}}},
    {"Shape", 1, 1, all, &Folder::shape, {{{"start"}, {"end"}}}},
    {"Size", 1, 1, all, &Folder::size},
    {"Slice",
     1,
     5,
     first,
     &Folder::slice,
     {{{"starts", AttributeType::integers, 1},
       {"ends", AttributeType::integers, 2},
       {"axes", AttributeType::integers, 3}}}},
    {"Sqrt", 1, 1, none, &Folder::changed},
    {"Squeeze", 1, 2, first, &Folder::reshaped, {axes}},
    {"Sub", 2, 2, all, &Folder::elementwise},
    {"Transpose", 1, 1, first, &Folder::transpose, {{{"perm", AttributeType::integers}}}},
    {"Unsqueeze", 1, 2, first, &Folder::reshaped, {axes}},
    {"Where", 3, 3, all & ~first, &Folder::where},
    {"Xor", 2, 2, none, &Folder::elementwise},
});

/// Returns true if the operator supports the attribute with this value.
bool takes(const FoldOperator& op, const FoldNode& node, const std::string& name, const ExpressionValue& value) {
  const auto found =
      std::find_if(op.attributes.begin(), op.attributes.end(), [&](const auto& a) { return a.name == name; });
  if (found == op.attributes.end()) return false;
  const bool given = found->input != 0 && found->input < node.inputs.size() && node.inputs[found->input] != nullptr;
  switch (found->type) {
    case AttributeType::integer:
      return std::holds_alternative<std::int64_t>(value);
    case AttributeType::integers:
      return std::holds_alternative<Ints>(value) && !given;
    default:
      return node.value != nullptr;
  }
}

/// Returns true if the elements of an input are known as far as the operator needs them.
bool takes(const FoldOperator& op, const TensorInfo* input, std::size_t i) {
  if (op.run == &Folder::shape || op.run == &Folder::size) return input != nullptr;
  if (input == nullptr) return i != 0;
  if (!input->constant && (!input->partial || (op.partial >> std::min<std::size_t>(i, 31) & 1) == 0)) return false;
  const bool list = std::any_of(op.attributes.begin(), op.attributes.end(),
                                [&](const auto& a) { return !a.name.empty() && a.input == i && i != 0; });
  return !list || (input->constant && input->constant->ints() != nullptr && input->constant->shape.size() <= 1);
}

/// Returns true if the dtype can represent the known elements.
bool fits(Constant constant) {
  if (auto* const ints = std::get_if<Ints>(&constant.elements)) {
    std::replace(ints->begin(), ints->end(), unknown_extent, std::int64_t{0});
  }
  return bytes_of(constant).has_value();
}

}  // namespace

std::span<const FoldOperator> fold_operators() noexcept { return operators; }

Result<Folded> folded(const FoldNode& node) {
  const auto op = std::lower_bound(operators.begin(), operators.end(), node.op,
                                   [](const FoldOperator& o, std::string_view name) { return o.name < name; });
  if (op == operators.end() || op->name != node.op) return Folded();
  if (node.inputs.size() < op->min_inputs || node.inputs.size() > op->max_inputs) return Folded();
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!takes(*op, node.inputs[i], i) || (i < op->min_inputs && node.inputs[i] == nullptr)) return Folded();
  }
  for (const auto& [name, value] : *node.attributes) {
    if (!takes(*op, node, name, value)) return Folded();
  }
  STELE_TRY_ASSIGN(Folded results, (Folder(node).*op->run)());
  for (const Constant& result : results ? *results : std::vector<Constant>()) {
    // Leaves overflows, for which DL4J has its own rules, and large results to DL4J.
    if (result.size() > max_folded || !fits(result)) return Folded();
  }
  return results;
}

}  // namespace stele::inline v0::detail::ir
