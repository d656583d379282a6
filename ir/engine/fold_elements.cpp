#include "ir/engine/fold.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::ir {

namespace {

/// Returns, for each element of a tensor of shape `to`, its position in a tensor of shape `from` that is broadcast to
/// `to`.
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

/// Returns the result of an operator that checks for overflow.
template <class Checked>
std::optional<std::int64_t> checked(std::int64_t a, std::int64_t b, Checked overflows) {
  if (a == unknown_extent || b == unknown_extent) return unknown_extent;
  std::int64_t r = 0;
  return overflows(a, b, &r) ? std::nullopt : std::optional(r);
}
bool divides(std::int64_t a, std::int64_t b, std::int64_t* r) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return false;
  *r = a / b;
  return true;
}
template <bool truncated>
std::optional<std::int64_t> rest_of(std::int64_t a, std::int64_t b) {
  return checked(a, b, [](std::int64_t x, std::int64_t y, std::int64_t* r) {
    if (!divides(x, y, r)) return true;
    *r = x % y;
    if (!truncated && *r != 0 && (*r < 0) != (y < 0)) *r += y;
    return false;
  });
}

struct Arithmetic {
  std::string_view name;
  IntegerOperator integers;  // nullptr if the operator is not computed
  double (*reals)(double, double);
};
constexpr std::array<Arithmetic, 7> arithmetic_operators = {{
    {"Add", sum_of, [](double a, double b) { return a + b; }},
    {"Sub",
     [](std::int64_t a, std::int64_t b) {
       return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_sub_overflow(x, y, r); });
     },
     [](double a, double b) { return a - b; }},
    {"Mul", product_of, [](double a, double b) { return a * b; }},
    {"Div",
     [](std::int64_t a, std::int64_t b) {
       return checked(a, b, [](auto x, auto y, auto* r) { return !divides(x, y, r); });
     },
     [](double a, double b) { return a / b; }},
    {"Pow", nullptr, [](double a, double b) { return std::pow(a, b); }},
    {"Min",
     [](std::int64_t a, std::int64_t b) {
       return checked(a, b, [](auto x, auto y, auto* r) { return *r = std::min(x, y), false; });
     },
     [](double a, double b) { return std::isnan(a) || a < b ? a : b; }},
    {"Max",
     [](std::int64_t a, std::int64_t b) {
       return checked(a, b, [](auto x, auto y, auto* r) { return *r = std::max(x, y), false; });
     },
     [](double a, double b) { return std::isnan(a) || a > b ? a : b; }},
}};

struct Comparison {
  std::string_view name;
  bool (*integers)(std::int64_t, std::int64_t);
  bool (*reals)(double, double);  // nullptr for operators that take only bools
};
template <template <class> class Compare>
constexpr Comparison comparison(std::string_view name) {
  return {name, [](std::int64_t a, std::int64_t b) { return Compare<std::int64_t>()(a, b); },
          [](double a, double b) { return Compare<double>()(a, b); }};
}
constexpr std::array<Comparison, 8> comparison_operators = {{
    comparison<std::equal_to>("Equal"),
    comparison<std::less>("Less"),
    comparison<std::less_equal>("LessOrEqual"),
    comparison<std::greater>("Greater"),
    comparison<std::greater_equal>("GreaterOrEqual"),
    {"And", [](std::int64_t a, std::int64_t b) { return a != 0 && b != 0; }, nullptr},
    {"Or", [](std::int64_t a, std::int64_t b) { return a != 0 || b != 0; }, nullptr},
    {"Xor", [](std::int64_t a, std::int64_t b) { return (a != 0) != (b != 0); }, nullptr},
}};

template <class Table>
auto find_operator(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& op) { return op.name == name; });
  return found != table.end() ? &*found : nullptr;
}

/// Two tensors that are broadcast to one shape.
struct BroadcastOperands {
  Constant a, b;
};
Result<std::optional<BroadcastOperands>> operands(const Constant& left, const Constant& right) {
  if (left.dtype != right.dtype) return std::optional<BroadcastOperands>();
  STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(left.shape, right.shape));
  if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank))
    return std::optional<BroadcastOperands>();
  STELE_TRY_ASSIGN(Constant a, aligned(left, shape));
  STELE_TRY_ASSIGN(Constant b, aligned(right, shape));
  return std::optional(BroadcastOperands{std::move(a), std::move(b)});
}

Result<Folded> arithmetic(const Constant& left, const Constant& right, const Arithmetic& op) {
  STELE_TRY_ASSIGN(auto both, operands(left, right));
  if (!both || left.dtype == DType::boolean) return Folded();
  auto& [a, b] = *both;
  if (auto* const ints = std::get_if<Ints>(&a.elements)) {
    if (op.integers == nullptr) return Folded();
    for (std::size_t i = 0; i < ints->size(); ++i) {
      const auto r = op.integers((*ints)[i], (*b.ints())[i]);
      if (!r) return Folded();
      (*ints)[i] = *r;
    }
    return one(std::move(a));
  }
  if (op.reals == nullptr) return Folded();
  auto& reals = std::get<Reals>(a.elements);
  for (std::size_t i = 0; i < reals.size(); ++i) reals[i] = op.reals(reals[i], (*b.reals())[i]);
  round_elements(a);
  return one(std::move(a));
}

}  // namespace

Folded one(Constant constant) {
  std::vector<Constant> list;
  list.push_back(std::move(constant));
  return list;
}

Constant of_ints(Ints elements, DType dtype) {
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

void round_elements(Constant& constant) {
  if (dtype_class(constant.dtype) != DTypeClass::floating) return;
  const auto bytes = bytes_of(constant);
  Reals reals(constant.size());
  if (bytes) {
    convert(constant.dtype, bytes->data(), DType::f64, reinterpret_cast<std::byte*>(reals.data()), reals.size());
    constant.elements = std::move(reals);
  }
}

std::optional<std::int64_t> sum_of(std::int64_t a, std::int64_t b) {
  return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_add_overflow(x, y, r); });
}
std::optional<std::int64_t> product_of(std::int64_t a, std::int64_t b) {
  return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_mul_overflow(x, y, r); });
}

Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right) {
  if (const Arithmetic* const found = find_operator(arithmetic_operators, op)) return arithmetic(left, right, *found);
  const Comparison* const compare = find_operator(comparison_operators, op);
  STELE_TRY_ASSIGN(const auto both, operands(left, right));
  const bool logical = compare != nullptr && compare->reals == nullptr;
  if (compare == nullptr || !both || (logical && left.dtype != DType::boolean)) return Folded();
  const auto& [a, b] = *both;
  Constant out{.dtype = DType::boolean, .shape = a.shape};
  Ints& bits = out.elements.emplace<Ints>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    bits.push_back(a.ints() != nullptr ? compare->integers((*a.ints())[i], (*b.ints())[i])
                                       : compare->reals((*a.reals())[i], (*b.reals())[i]));
  }
  return one(std::move(out));
}

Result<Folded> remainder(const Constant& left, const Constant& right, bool truncated) {
  return arithmetic(left, right,
                    truncated ? Arithmetic{"Mod", rest_of<true>, [](double a, double b) { return std::fmod(a, b); }}
                              : Arithmetic{"Mod", rest_of<false>, nullptr});
}

Folded unary(std::string_view op, const Constant& in) {
  Constant out = in;
  if (op == "Identity") return one(std::move(out));
  if (auto* ints = std::get_if<Ints>(&out.elements)) {
    if ((op == "Not") != (in.dtype == DType::boolean) || op == "Floor" || op == "Ceil" || op == "Sqrt") return Folded();
    for (std::int64_t& e : *ints) {
      if (e == unknown_extent) continue;
      e = op == "Not" ? 1 - e : op == "Neg" ? -e : std::abs(e);
    }
    return one(std::move(out));
  }
  if (op == "Not") return Folded();
  for (double& e : std::get<Reals>(out.elements)) {
    if (op == "Neg") e = -e;
    if (op == "Abs") e = std::abs(e);
    if (op == "Floor") e = std::floor(e);
    if (op == "Ceil") e = std::ceil(e);
    if (op == "Sqrt") e = std::sqrt(e);
  }
  round_elements(out);
  return one(std::move(out));
}

}  // namespace stele::inline v0::detail::ir
