// Constant folding: the ONNX operators that chains of shapes are made of.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "ir/tensors.hpp"
#include "stele/precision/convert.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

using Folded = std::optional<std::vector<Constant>>;

bool is_real(DType dtype) noexcept { return dtype_class(dtype) == DTypeClass::floating; }

/// The dtype that elements are computed in.
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

Error bad(std::string_view message) { return Error(Errc::invalid_argument, message); }

Folded one(Constant constant) {
  std::vector<Constant> list;
  list.push_back(std::move(constant));
  return list;
}

Constant of_ints(Ints elements, DType dtype = DType::i64) {
  Constant c{.dtype = dtype};
  c.shape = {static_cast<std::int64_t>(elements.size())};
  c.elements = std::move(elements);
  return c;
}

std::int64_t stride_of(const Ints& shape, std::size_t from) {
  std::int64_t n = 1;
  for (std::size_t i = from; i < shape.size(); ++i) n *= shape[i];
  return n;
}

/// Elements of `from` at these positions.
Constant taken(const Constant& from, Ints shape, const std::vector<std::size_t>& positions) {
  Constant to{.dtype = from.dtype, .shape = std::move(shape)};
  std::visit(
      [&](const auto& elements) {
        auto& out = to.elements.emplace<std::decay_t<decltype(elements)>>();
        out.reserve(positions.size());
        for (const std::size_t p : positions) out.push_back(elements[p]);
      },
      from.elements);
  return to;
}

/// For each element of a tensor of shape `to`, the position in one of shape `from` that is broadcast to it.
std::vector<std::size_t> broadcast_positions(const Ints& from, const Ints& to) {
  const auto total = static_cast<std::size_t>(stride_of(to, 0));
  std::vector<std::size_t> positions(total, 0);
  const std::size_t more = to.size() - from.size();
  for (std::size_t n = 0; n < total; ++n) {
    auto rest = static_cast<std::int64_t>(n);
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < to.size(); ++axis) {
      const std::int64_t below = stride_of(to, axis + 1);
      const std::int64_t i = rest / below;
      rest %= below;
      if (axis >= more && from[axis - more] != 1) at += i * stride_of(from, axis - more + 1);
    }
    positions[n] = static_cast<std::size_t>(at);
  }
  return positions;
}

Result<Ints> broadcast_shape(const Ints& a, const Ints& b) {
  Ints out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto extent = [&](const Ints& s) { return i < out.size() - s.size() ? 1 : s[i - (out.size() - s.size())]; };
    if (extent(a) != extent(b) && extent(a) != 1 && extent(b) != 1) {
      return Error(Errc::shape_mismatch, "two shapes do not broadcast").expected(to_text(a)).found(to_text(b));
    }
    out[i] = extent(a) == 1 ? extent(b) : extent(a);
  }
  return out;
}

Result<Constant> aligned(const Constant& from, const Ints& shape) {
  if (from.shape == shape) return from;
  return taken(from, shape, broadcast_positions(from.shape, shape));
}

double rounded(DType dtype, double value) { return dtype == DType::f64 ? value : static_cast<float>(value); }

std::optional<std::int64_t> integer_result(std::string_view op, std::int64_t a, std::int64_t b) {
  if (a == unknown_extent || b == unknown_extent) return unknown_extent;
  std::int64_t r = 0;
  if (op == "Add") return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "Sub") return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "Mul") return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  const bool divides = b != 0 && !(b == -1 && a == std::numeric_limits<std::int64_t>::min());
  if (op == "Div") return divides ? std::optional(a / b) : std::nullopt;
  if (op == "Mod") {
    if (!divides) return std::nullopt;
    const std::int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  if (op == "Min") return std::min(a, b);
  return std::max(a, b);
}

std::optional<double> real_result(std::string_view op, double a, double b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  return std::nullopt;
}

template <class T>
bool comparison(std::string_view op, T a, T b) {
  if (op == "Equal") return a == b;
  if (op == "Less") return a < b;
  if (op == "LessOrEqual") return a <= b;
  if (op == "Greater") return a > b;
  if (op == "GreaterOrEqual") return a >= b;
  if (op == "And") return (a != T()) && (b != T());
  if (op == "Or") return (a != T()) || (b != T());
  return (a != T()) != (b != T());
}

constexpr std::array<std::string_view, 8> arithmetic_ops = {"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Pow"};
constexpr std::array<std::string_view, 8> comparison_ops = {"Equal",          "Less", "LessOrEqual", "Greater",
                                                            "GreaterOrEqual", "And",  "Or",          "Xor"};

template <std::size_t N>
bool one_of(const std::array<std::string_view, N>& list, std::string_view op) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right) {
  if (left.elements.index() != right.elements.index()) return Folded();
  STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(left.shape, right.shape));
  if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank)) return Folded();
  STELE_TRY_ASSIGN(const Constant a, aligned(left, shape));
  STELE_TRY_ASSIGN(const Constant b, aligned(right, shape));
  Constant out{.dtype = left.dtype, .shape = shape};
  const std::size_t count = a.size();
  if (one_of(comparison_ops, op)) {
    out.dtype = DType::boolean;
    Ints& bits = out.elements.emplace<Ints>();
    for (std::size_t i = 0; i < count; ++i) {
      bits.push_back(a.ints() != nullptr ? comparison(op, (*a.ints())[i], (*b.ints())[i])
                                         : comparison(op, (*a.reals())[i], (*b.reals())[i]));
    }
    return one(std::move(out));
  }
  if (a.ints() != nullptr) {
    if (op == "Pow") return Folded();
    Ints& results = out.elements.emplace<Ints>();
    for (std::size_t i = 0; i < count; ++i) {
      const auto r = integer_result(op, (*a.ints())[i], (*b.ints())[i]);
      if (!r) return Folded();
      results.push_back(*r);
    }
    return one(std::move(out));
  }
  Reals& results = out.elements.emplace<Reals>();
  for (std::size_t i = 0; i < count; ++i) {
    const auto r = real_result(op, (*a.reals())[i], (*b.reals())[i]);
    if (!r) return Folded();
    results.push_back(rounded(left.dtype, *r));
  }
  return one(std::move(out));
}

Result<Folded> unary(std::string_view op, const Constant& in) {
  Constant out = in;
  if (op == "Identity") return one(std::move(out));
  const bool known_op = op == "Neg" || op == "Abs" || op == "Not" || op == "Floor" || op == "Ceil" || op == "Sqrt";
  if (!known_op) return Folded();
  if (auto* ints = std::get_if<Ints>(&out.elements)) {
    for (std::int64_t& e : *ints) {
      if (e == std::numeric_limits<std::int64_t>::min()) return Folded();
      if (op == "Neg") e = -e;
      if (op == "Abs") e = std::abs(e);
      if (op == "Not") e = e == 0 ? 1 : 0;
      if (op == "Sqrt") return Folded();
    }
    return one(std::move(out));
  }
  for (double& e : std::get<Reals>(out.elements)) {
    if (op == "Neg") e = -e;
    if (op == "Abs") e = std::abs(e);
    if (op == "Floor") e = std::floor(e);
    if (op == "Ceil") e = std::ceil(e);
    if (op == "Sqrt") e = rounded(out.dtype, std::sqrt(e));
    if (op == "Not") return Folded();
  }
  return one(std::move(out));
}

class Folder {
 public:
  explicit Folder(const FoldNode& node) : node_(node) {}

  Result<Folded> run() {
    const std::string_view op = node_.op;
    const TensorInfo* const first = node_.inputs.empty() ? nullptr : node_.inputs[0];
    if (op == "Shape" || op == "Size") return first != nullptr ? shape(*first) : Folded();
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
      const TensorInfo* const input = node_.inputs[i];
      if (input == nullptr || input->constant) continue;
      if (!input->partial || !takes_partial(i)) return Folded();
    }
    if (op == "Range") return range();
    if (first == nullptr) return Folded();
    if (op == "ConstantOfShape") return filled();
    if (op == "Cast") return cast();
    if (op == "Gather") return gather();
    if (op == "Unsqueeze" || op == "Squeeze" || op == "Reshape" || op == "Flatten") return reshaped();
    if (op == "Concat") return concat();
    if (op == "Slice") return slice();
    if (op == "Where") return where();
    if (op == "Expand") return expand();
    if (op == "Transpose") return transpose();
    if (op == "ReduceProd" || op == "ReduceSum") return reduced();
    if (one_of(arithmetic_ops, op) || one_of(comparison_ops, op)) {
      Constant sum = at(0);
      if (node_.inputs.size() == 1) return one(std::move(sum));
      for (std::size_t i = 1; i < node_.inputs.size(); ++i) {  // Min and Max take any number
        if (!has(i)) return Folded();
        STELE_TRY_ASSIGN(auto next, binary(op, sum, at(i)));
        if (!next) return Folded();
        sum = std::move(next->front());
      }
      return one(std::move(sum));
    }
    return node_.inputs.size() == 1 ? unary(op, at(0)) : Folded();
  }

 private:
  /// Tells whether elements of an input only move to the output, or are operands.
  bool takes_partial(std::size_t input) const {
    const std::string_view op = node_.op;
    if (op == "Range" || op == "ConstantOfShape" || one_of(comparison_ops, op)) return false;
    if (op == "Where") return input != 0;
    return input == 0 || op == "Concat" || one_of(arithmetic_ops, op);
  }
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
    const auto* value = attribute(name);
    const auto* i = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
    return i != nullptr ? *i : otherwise;
  }
  /// Integers of an attribute, or of an input.
  std::optional<Ints> integers(const std::string& name, std::size_t input) const {
    const auto* value = attribute(name);
    if (const auto* list = value != nullptr ? std::get_if<Ints>(value) : nullptr) return *list;
    if (has(input) && at(input).ints() != nullptr) return *at(input).ints();
    return std::nullopt;
  }

  static Result<std::size_t> axis(std::int64_t value, std::size_t rank) {
    const auto n = static_cast<std::int64_t>(rank);
    if (value < 0) value += n;
    if (value < 0 || value >= n) return bad("an axis is outside the tensor's rank");
    return static_cast<std::size_t>(value);
  }

  Result<Folded> shape(const TensorInfo& input) {
    if (!input.shape) return Folded();
    const auto rank = static_cast<std::int64_t>(input.shape->size());
    const auto place = [&](std::int64_t p) { return std::clamp<std::int64_t>(p < 0 ? p + rank : p, 0, rank); };
    const std::int64_t from = place(integer("start", 0)), to = std::max(from, place(integer("end", rank)));
    Ints extents(input.shape->begin() + from, input.shape->begin() + to);
    if (node_.op == "Size") {
      const auto count = small_count(extents);
      if (!count) return Folded();
      Constant c = of_ints({static_cast<std::int64_t>(*count)});
      c.shape.clear();
      return one(std::move(c));
    }
    return one(of_ints(std::move(extents)));
  }

  Result<Folded> filled() {
    if (at(0).ints() == nullptr) return Folded();
    const Ints extents = *at(0).ints();
    const auto count = small_count(extents);
    if (!count) return Folded();
    Constant c{.dtype = DType::f32, .shape = extents, .elements = Reals(*count, 0.0)};
    if (node_.value != nullptr) {
      if (node_.value->size() != 1) return bad("the value of ConstantOfShape does not have one element");
      c = taken(*node_.value, extents, std::vector<std::size_t>(*count, 0));
    }
    return one(std::move(c));
  }

  Result<Folded> cast() {
    const auto* to = attribute("to");
    const auto* code = to != nullptr ? std::get_if<std::int64_t>(to) : nullptr;
    if (code == nullptr) return Folded();
    Constant out = at(0);
    if (is_partial(out) && *code != 6 && *code != 7) return Folded();
    constexpr std::array<std::pair<std::int64_t, DType>, 5> dtypes = {
        {{1, DType::f32}, {6, DType::i32}, {7, DType::i64}, {9, DType::boolean}, {11, DType::f64}}};
    const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.first == *code; });
    if (found == dtypes.end()) return Folded();
    out.dtype = found->second;
    if (is_real(out.dtype) && out.ints() != nullptr) {
      Reals reals;
      for (const std::int64_t e : *out.ints()) reals.push_back(rounded(out.dtype, static_cast<double>(e)));
      out.elements = std::move(reals);
    } else if (!is_real(out.dtype) && out.reals() != nullptr) {
      Ints ints;
      for (const double e : *out.reals()) {
        if (out.dtype == DType::boolean) {
          ints.push_back(e != 0);
        } else if (std::abs(e) < 2147483648.0) {
          ints.push_back(static_cast<std::int64_t>(e));
        } else {
          return Folded();
        }
      }
      out.elements = std::move(ints);
    } else if (auto* ints = std::get_if<Ints>(&out.elements)) {
      for (std::int64_t& e : *ints) {
        if (out.dtype == DType::boolean) e = e != 0 ? 1 : 0;
        if (out.dtype == DType::i32 && e != static_cast<std::int32_t>(e)) return Folded();
      }
    } else {
      for (double& e : std::get<Reals>(out.elements)) e = rounded(out.dtype, e);
    }
    return one(std::move(out));
  }

  Result<Folded> gather() {
    if (!has(1) || at(1).ints() == nullptr) return Folded();
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

  Result<Folded> reshaped() {
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
      const auto wanted = integers("shape", 1);
      if (!wanted) return Folded();
      out.shape = *wanted;
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
      if (small_count(out.shape) != out.size()) return bad("Reshape changes the number of elements");
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

  Result<Folded> concat() {
    Constant out = at(0);
    if (out.shape.size() != 1) return Folded();
    for (std::size_t i = 1; i < node_.inputs.size(); ++i) {
      if (!has(i) || at(i).elements.index() != out.elements.index() || at(i).shape.size() != 1) return Folded();
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

  Result<Folded> slice() {
    const Constant& data = at(0);
    const auto starts = integers("starts", 1), ends = integers("ends", 2);
    if (!starts || !ends || starts->size() != ends->size() || data.shape.size() > static_cast<std::size_t>(max_rank))
      return Folded();
    Ints axes(starts->size()), steps(starts->size(), 1);
    std::iota(axes.begin(), axes.end(), 0);
    if (const auto given = integers("axes", 3)) axes = *given;
    if (has(4) && at(4).ints() != nullptr) steps = *at(4).ints();
    if (axes.size() != starts->size() || steps.size() != starts->size())
      return bad("the inputs of Slice differ in length");
    Constant out = data;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      STELE_TRY_ASSIGN(const std::size_t on, axis(axes[k], data.shape.size()));
      const std::int64_t extent = out.shape[on], step = steps[k];
      if (step == 0) return bad("a step of Slice is 0");
      const auto place = [&](std::int64_t p) {
        if (p < 0) p = p < -extent ? -1 : p + extent;
        return step > 0 ? std::clamp<std::int64_t>(p, 0, extent) : std::clamp<std::int64_t>(p, -1, extent - 1);
      };
      const std::int64_t from = place((*starts)[k]);
      // A negative end counts from the last element, except one before the first.
      const std::int64_t end = (*ends)[k];
      const std::int64_t to = step < 0 && end < -extent ? -1 : place(end);
      Ints picked;
      for (std::int64_t i = from; step > 0 ? i < to : i > to; i += step) {
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

  Result<Folded> range() {
    if (!has(0) || !has(1) || !has(2) || at(0).size() != 1 || at(1).size() != 1 || at(2).size() != 1) return Folded();
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

  Result<Folded> where() {
    if (!has(1) || !has(2) || at(0).ints() == nullptr || at(1).elements.index() != at(2).elements.index())
      return Folded();
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

  Result<Folded> expand() {
    if (!has(1) || at(1).ints() == nullptr) return Folded();
    STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(at(0).shape, *at(1).ints()));
    if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank)) return Folded();
    STELE_TRY_ASSIGN(Constant out, aligned(at(0), shape));
    return one(std::move(out));
  }

  Result<Folded> transpose() {
    const Constant& data = at(0);
    const std::size_t rank = data.shape.size();
    if (rank > static_cast<std::size_t>(max_rank)) return Folded();
    Ints order(rank);
    std::iota(order.rbegin(), order.rend(), 0);
    if (const auto given = integers("perm", 1)) order = *given;
    Ints sorted = order, all(rank);
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all) return bad("perm is no permutation of the axes");
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

  /// A list to a number, as chains of shapes have it.
  Result<Folded> reduced() {
    const Constant& data = at(0);
    if (data.shape.size() != 1 || data.ints() == nullptr) return Folded();
    std::int64_t total = node_.op == "ReduceProd" ? 1 : 0;
    for (const std::int64_t e : *data.ints()) {
      const auto r = integer_result(node_.op == "ReduceProd" ? "Mul" : "Add", total, e);
      if (!r) return Folded();
      total = *r;
    }
    Constant out = of_ints({total}, data.dtype);
    if (integer("keepdims", 1) == 0) out.shape.clear();
    return one(std::move(out));
  }

  const FoldNode& node_;
};

}  // namespace

std::optional<std::size_t> small_count(const Ints& shape, std::size_t most) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  return count <= static_cast<std::int64_t>(most) ? std::optional(static_cast<std::size_t>(count)) : std::nullopt;
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
  if (is_partial(out)) return std::optional<Constant>();  // an element is the number that stands for an open extent
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

Result<Folded> folded(const FoldNode& node) {
  STELE_TRY_ASSIGN(Folded results, Folder(node).run());
  for (const Constant& result : results ? *results : std::vector<Constant>()) {
    if (!is_partial(result) && !bytes_of(result)) return Folded();  // DL4J has its own rules for what overflows
  }
  return results;
}

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
