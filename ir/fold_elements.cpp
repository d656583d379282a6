#include "ir/fold.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

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

bool is_arithmetic(std::string_view op) noexcept {
  return std::find(arithmetic_ops.begin(), arithmetic_ops.end(), op) != arithmetic_ops.end();
}
bool is_comparison(std::string_view op) noexcept {
  return std::find(comparison_ops.begin(), comparison_ops.end(), op) != comparison_ops.end();
}

Result<Folded> binary(std::string_view op, const Constant& left, const Constant& right) {
  if (left.elements.index() != right.elements.index()) return Folded();
  STELE_TRY_ASSIGN(const Ints shape, broadcast_shape(left.shape, right.shape));
  if (!small_count(shape) || shape.size() > static_cast<std::size_t>(max_rank)) return Folded();
  STELE_TRY_ASSIGN(const Constant a, aligned(left, shape));
  STELE_TRY_ASSIGN(const Constant b, aligned(right, shape));
  Constant out{.dtype = left.dtype, .shape = shape};
  const std::size_t count = a.size();
  if (is_comparison(op)) {
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

}  // namespace ir
}  // namespace detail
}  // namespace v0
}  // namespace stele
