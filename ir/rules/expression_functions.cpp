// The functions of expressions. docs/import.md lists them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using Value = ExpressionValue;

using Integer = std::optional<std::int64_t>;  // nullopt: unknown

/// A function that needs known values. Unless it is `partial`, it accepts no unknown integers either.
struct Function {
  std::string_view name;
  std::size_t operands;
  Result<Value> (*call)(const std::vector<Value>&);
  bool partial = false;
};

Result<Ints> ints(const Value& value) {
  if (auto list = list_of<std::int64_t>(value)) return *std::move(list);
  return bad_operands("an integer is expected", value);
}
Result<OpenInts> extents(const Value& value) {
  if (auto list = open_list_of(value)) return *std::move(list);
  return bad_operands("an integer is expected", value);
}
Result<std::int64_t> integer(const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i;
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  return bad_operands("an integer is expected", value);
}
Result<std::size_t> list_size(const Value& value) {
  STELE_TRY_ASSIGN(const std::int64_t n, integer(value));
  if (n >= 0 && static_cast<std::uint64_t>(n) <= max_list) return static_cast<std::size_t>(n);
  return Error(Errc::limit, "the list length is outside 0..65536").found(std::to_string(n));
}

Result<Value> call_size(const std::vector<Value>& v) {
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (requires { elements.size(); }) return Value(static_cast<std::int64_t>(elements.size()));
        return bad_operands("size", v[0]);
      },
      v[0]);
}

template <class Take>
Result<Value> folded(const Value& list, std::int64_t start, Take take) {
  STELE_TRY_ASSIGN(const OpenInts elements, extents(list));
  Integer result = start;
  for (const Integer& e : elements) {
    STELE_TRY_ASSIGN(result, take(result, e));
  }
  return value_of(result);
}
Result<Value> call_sum(const std::vector<Value>& v) {
  return folded(v[0], 0, [](Integer a, Integer b) { return arithmetic('+', a, b); });
}
Result<Value> call_product(const std::vector<Value>& v) {
  return folded(v[0], 1, [](Integer a, Integer b) -> Result<Integer> {
    return a == 0 || b == 0 ? Integer(0) : arithmetic('*', a, b);
  });
}
template <bool greater>
Result<Value> extreme(const std::vector<Value>& v) {
  const auto a = open_list_of(v[0]), b = open_list_of(v[1]);
  const char* const name = greater ? "max" : "min";
  if (!a || !b) {
    if (open(v[0]) || open(v[1])) return Value();
    const auto x = list_of<double>(v[0]), y = list_of<double>(v[1]);
    if (!x || !y || x->size() != 1 || y->size() != 1) return bad_operands(name, v[0], v[1]);
    return Value(greater ? std::max(x->front(), y->front()) : std::min(x->front(), y->front()));
  }
  if (a->size() != b->size() && a->size() != 1 && b->size() != 1) return bad_operands(name, v[0], v[1]);
  OpenInts out;
  const std::size_t count = a->size() == 1 ? b->size() : a->size();
  for (std::size_t i = 0; i < count; ++i) {
    const Integer x = (*a)[a->size() == 1 ? 0 : i], y = (*b)[b->size() == 1 ? 0 : i];
    out.push_back(!x || !y ? Integer() : greater ? std::max(*x, *y) : std::min(*x, *y));
  }
  if (is_list(v[0]) || is_list(v[1])) return value_of(std::move(out));
  return value_of(out.front());
}
template <bool greater>
Result<Value> extreme_of(const std::vector<Value>& v) {
  return std::visit(
      [&]<class T>(const T& list) -> Result<Value> {
        if constexpr (std::is_same_v<T, OpenInts>) return Value(Unknown());
        if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Reals>) {
          if (!list.empty()) {
            return Value(greater ? *std::max_element(list.begin(), list.end())
                                 : *std::min_element(list.begin(), list.end()));
          }
        }
        return bad_operands(greater ? "max" : "min", v[0]);
      },
      v[0]);
}
Result<Value> call_filled(const std::vector<Value>& v) {
  if (open(v[0])) return Value();
  STELE_TRY_ASSIGN(const std::size_t n, list_size(v[0]));
  if (open(v[1])) return value_of(OpenInts(n));
  if (const auto* i = std::get_if<std::int64_t>(&v[1])) return Value(Ints(n, *i));
  if (const auto* d = std::get_if<double>(&v[1])) return Value(Reals(n, *d));
  return bad_operands("filled", v[1]);
}
Result<Value> call_range(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const std::int64_t from, integer(v[0]));
  STELE_TRY_ASSIGN(const std::int64_t to, integer(v[1]));
  if (to > from && static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from) > max_list) {
    return Error(Errc::limit, "a list has more than 65536 elements");
  }
  Ints out;
  for (std::int64_t i = from; i < to; ++i) out.push_back(i);
  return Value(std::move(out));
}
Result<Value> call_reversed(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts out, extents(v[0]));
  std::reverse(out.begin(), out.end());
  return value_of(std::move(out));
}
Result<Value> call_sorted(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  std::sort(out.begin(), out.end());
  return Value(std::move(out));
}
/// terms(equation): returns the text between "," and "->", without blanks.
Result<Value> call_terms(const std::vector<Value>& v) {
  const auto* text = std::get_if<std::string>(&v[0]);
  if (text == nullptr) return bad_operands("terms", v[0]);
  std::vector<std::string> out(1);
  for (const char c : *text) {
    if (c == ',' || c == '>') {
      out.emplace_back();
    } else if (c != ' ' && c != '-') {
      out.back() += c;
    }
  }
  return Value(std::move(out));
}
/// labels(term, rank): returns a name for each axis. The axes that "..." represents get numbers, counted from the last.
Result<Value> call_labels(const std::vector<Value>& v) {
  const auto* term = std::get_if<std::string>(&v[0]);
  if (term == nullptr) return bad_operands("labels", v[0]);
  STELE_TRY_ASSIGN(const std::size_t rank, list_size(v[1]));
  const std::size_t dots = term->find("...");
  const std::size_t letters = dots == term->npos ? term->size() : term->size() - 3;
  if (letters > rank || (dots == term->npos && letters != rank)) return bad_operands("labels", v[0], v[1]);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < term->size(); ++i) {
    if (i != dots) {
      out.emplace_back(1, (*term)[i]);
      continue;
    }
    for (std::size_t k = rank - letters; k > 0; --k) out.push_back(std::to_string(k));
    i += 2;
  }
  return Value(std::move(out));
}

/// axes(list, rank): returns axes from 0. Negative axes count from the end.
Result<Value> call_axes(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(Ints out, ints(v[0]));
  STELE_TRY_ASSIGN(const std::int64_t rank, integer(v[1]));
  for (std::int64_t& axis : out) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) {
      return Error(Errc::invalid_argument, "an axis is outside the tensor's rank")
          .found(to_text(v[0]))
          .expected(to_text(v[1]));
    }
  }
  if (!is_list(v[0])) return Value(out.front());
  return Value(std::move(out));
}
/// without(list, axes), with(list, axes, value): return the extents of reductions.
Result<Value> call_without(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const OpenInts list, extents(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  OpenInts out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) out.push_back(list[i]);
  }
  return value_of(std::move(out));
}
Result<Value> call_with(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts list, extents(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  STELE_TRY_ASSIGN(const OpenInts values, extents(v[2]));
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const std::int64_t axis = axes[k];
    if (axis < 0 || static_cast<std::size_t>(axis) >= list.size() || (values.size() != 1 && k >= values.size())) {
      return bad_operands("with", v[0], v[1]);
    }
    list[static_cast<std::size_t>(axis)] = values[values.size() == 1 ? 0 : k];
  }
  return value_of(std::move(list));
}
/// inserted(list, axes): inserts extents of 1 at these axes of the result.
Result<Value> call_inserted(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts list, extents(v[0]));
  STELE_TRY_ASSIGN(Ints axes, ints(v[1]));
  std::sort(axes.begin(), axes.end());
  for (const std::int64_t axis : axes) {
    if (axis < 0 || static_cast<std::size_t>(axis) > list.size()) return bad_operands("inserted", v[0], v[1]);
    list.insert(list.begin() + axis, 1);
  }
  return value_of(std::move(list));
}
/// picked(list, positions): returns the elements at the positions.
Result<Value> call_picked(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const OpenInts list, extents(v[0]));
  STELE_TRY_ASSIGN(const Ints positions, ints(v[1]));
  OpenInts out;
  for (const std::int64_t i : positions) {
    if (i < 0 || static_cast<std::size_t>(i) >= list.size()) return bad_operands("picked", v[0], v[1]);
    out.push_back(list[static_cast<std::size_t>(i)]);
  }
  return value_of(std::move(out));
}
/// pairs(list): returns [b0, e0, b1, e1] for [b0, b1, e0, e1].
Result<Value> call_pairs(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const OpenInts list, extents(v[0]));
  if (list.size() % 2 != 0) return bad_operands("pairs", v[0]);
  OpenInts out;
  for (std::size_t i = 0; i < list.size() / 2; ++i) {
    out.push_back(list[i]);
    out.push_back(list[i + list.size() / 2]);
  }
  return value_of(std::move(out));
}
/// opened(shape): replaces an unknown extent by -1. The result is unknown if the shape has two.
Result<Value> call_opened(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts out, extents(v[0]));
  std::size_t count = 0;
  for (Integer& e : out) {
    if (e && *e != -1) continue;
    e = -1;
    ++count;
  }
  return count > 1 ? Value() : value_of(std::move(out));
}
/// copied(shape, from): replaces a 0 by the extent of `from` at that axis.
Result<Value> call_copied(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts out, extents(v[0]));
  STELE_TRY_ASSIGN(const OpenInts from, extents(v[1]));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != 0) continue;
    if (i >= from.size()) return bad_operands("copied", v[0], v[1]);
    out[i] = from[i];
  }
  return value_of(std::move(out));
}
/// solved(shape, count): replaces -1 by the extent that gives this number of elements.
Result<Value> call_solved(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts out, extents(v[0]));
  const auto rest = std::find(out.begin(), out.end(), -1);
  if (rest == out.end()) return value_of(std::move(out));
  *rest = 1;
  STELE_TRY_ASSIGN(const Value others, call_product({value_of(out)}));
  const auto* const product = std::get_if<std::int64_t>(&others);
  const auto* const count = std::get_if<std::int64_t>(&v[1]);
  const bool known_product = product != nullptr && count != nullptr && *product != 0;
  *rest = known_product ? Integer(*count / *product) : Integer();
  return value_of(std::move(out));
}
/// bits(positions): returns a mask with the bits at the positions.
Result<Value> call_bits(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(const Ints positions, ints(v[0]));
  std::int64_t mask = 0;
  for (const std::int64_t p : positions) {
    if (p < 0 || p > 62) return bad_operands("bits", v[0]);
    mask |= std::int64_t{1} << p;
  }
  return Value(mask);
}

/// One axis of an ONNX slice, expressed with a positive step on the axis or on the reversed axis.
struct SliceAxis {
  std::int64_t begin = 0, end = 0, step = 1;
  Integer extent{};      // extent of the result
  bool open_end = true;  // the slice ends at the end of the axis
  bool reversed = false;
};

/// Returns nullopt if the result depends on an unknown extent.
std::optional<SliceAxis> slice_axis(Integer open_extent, std::int64_t begin, std::int64_t end, std::int64_t step) {
  SliceAxis to{.begin = begin, .end = end, .step = std::abs(step), .reversed = step < 0};
  constexpr std::int64_t far = std::numeric_limits<std::int32_t>::max();
  if (!open_extent) {
    if (to.step > far) return std::nullopt;  // libnd4j's arithmetic would overflow
    to.open_end = step > 0 ? end >= far : end <= -far;
    if (step < 0 && !((begin == -1 || begin >= far) && to.open_end)) return std::nullopt;
    if (step < 0) to.begin = 0;
    return to;
  }
  const std::int64_t extent = *open_extent;
  to.step = std::min(to.step, std::max<std::int64_t>(extent, 1));  // a longer step, too, takes only the first element
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  const auto place = [&](std::int64_t p) {
    return std::clamp(p < 0 ? std::max(p, -extent - 1) + extent : p, low, high);
  };
  to.begin = place(begin);
  to.end = place(end);
  if (step < 0) {
    to.begin = extent - 1 - to.begin;
    to.end = extent - 1 - to.end;
  }
  to.open_end = to.end == extent;
  to.extent = to.end <= to.begin ? 0 : (to.end - to.begin + to.step - 1) / to.step;
  return to;
}

/// The operands are shape, axes, starts, ends and steps. Returns an entry for each axis of the tensor.
Result<std::optional<std::vector<SliceAxis>>> slice_axes(const std::vector<Value>& v) {
  if (std::any_of(v.begin() + 1, v.end(), open)) return std::optional<std::vector<SliceAxis>>();
  STELE_TRY_ASSIGN(const OpenInts shape, extents(v[0]));
  STELE_TRY_ASSIGN(const Ints axes, ints(v[1]));
  STELE_TRY_ASSIGN(const Ints starts, ints(v[2]));
  STELE_TRY_ASSIGN(const Ints ends, ints(v[3]));
  STELE_TRY_ASSIGN(const Ints steps, ints(v[4]));
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) {
    return Error(Errc::invalid_argument, "the lists of a slice differ in length");
  }
  std::vector<SliceAxis> all(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) all[i].extent = shape[i];
  for (std::size_t k = 0; k < axes.size(); ++k) {
    constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();  // has no absolute value
    if (axes[k] < 0 || static_cast<std::size_t>(axes[k]) >= shape.size() || steps[k] == 0 || steps[k] == lowest) {
      return bad_operands("slice", v[1], v[4]);
    }
    const auto axis = static_cast<std::size_t>(axes[k]);
    const auto one = slice_axis(shape[axis], starts[k], ends[k], steps[k]);
    if (!one) return std::optional<std::vector<SliceAxis>>();
    all[axis] = *one;
  }
  return std::optional(std::move(all));
}
template <class Take>
Result<Value> sliced_axes(const std::vector<Value>& v, Take take) {
  STELE_TRY_ASSIGN(const auto axes, slice_axes(v));
  if (!axes) return Value();
  OpenInts out;
  for (std::size_t i = 0; i < axes->size(); ++i) take(out, (*axes)[i], static_cast<std::int64_t>(i));
  return value_of(std::move(out));
}
Result<Value> call_slice_begin(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t) { out.push_back(a.begin); });
}
Result<Value> call_slice_end(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t) { out.push_back(a.open_end ? 0 : a.end); });
}
Result<Value> call_slice_steps(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t) { out.push_back(a.step); });
}
Result<Value> call_slice_open(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t i) {
    if (a.open_end) out.push_back(i);
  });
}
Result<Value> call_slice_reversed(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t i) {
    if (a.reversed) out.push_back(i);
  });
}
Result<Value> call_slice_shape(const std::vector<Value>& v) {
  return sliced_axes(v, [](OpenInts& out, const SliceAxis& a, std::int64_t) { out.push_back(a.extent); });
}

/// index(list, value): returns the position of the value, or -1 if the list or string does not contain it.
Result<Value> call_index(const std::vector<Value>& v) {
  if (const auto* text = std::get_if<std::string>(&v[0]), *part = std::get_if<std::string>(&v[1]); text && part) {
    const std::size_t at = text->find(*part);
    return Value(at == text->npos ? std::int64_t{-1} : static_cast<std::int64_t>(at));
  }
  return std::visit(
      [&]<class T>(const T& elements) -> Result<Value> {
        if constexpr (std::is_same_v<T, OpenInts>) return Value();
        if constexpr (requires { elements.begin(); } && !std::is_same_v<T, std::string> &&
                      !std::is_same_v<T, OpenInts>) {
          const auto found =
              std::find_if(elements.begin(), elements.end(), [&](const auto& e) { return Value(e) == v[1]; });
          return Value(found == elements.end() ? std::int64_t{-1} : std::int64_t{found - elements.begin()});
        }
        return bad_operands("index", v[0], v[1]);
      },
      v[0]);
}
Result<Value> call_int(const std::vector<Value>& v) {
  if (const auto* d = std::get_if<double>(&v[0])) {
    if (!(std::abs(*d) < 9e18)) return bad_operands("int", v[0]);
    return Value(static_cast<std::int64_t>(*d));
  }
  STELE_TRY_ASSIGN(const std::int64_t i, integer(v[0]));
  return Value(i);
}
Result<Value> call_float(const std::vector<Value>& v) {
  if (const auto reals = list_of<double>(v[0]); reals && reals->size() == 1) return Value(reals->front());
  return bad_operands("float", v[0]);
}
Result<Value> call_sqrt(const std::vector<Value>& v) {
  if (const auto reals = list_of<double>(v[0]); reals && reals->size() == 1) return Value(std::sqrt(reals->front()));
  return bad_operands("sqrt", v[0]);
}
/// broadcast(a, b): returns the shape of an elementwise operation.
Result<Value> call_broadcast(const std::vector<Value>& v) {
  STELE_TRY_ASSIGN(OpenInts a, extents(v[0]));
  STELE_TRY_ASSIGN(OpenInts b, extents(v[1]));
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(b.begin(), a.size() - b.size(), 1);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || b[i] == 1) continue;
    if (a[i] == 1) {
      a[i] = b[i];
    } else if (!a[i] || !b[i]) {
      a[i] = !a[i] ? b[i] : a[i];  // the unknown extent is 1 or equal
    } else {
      return Error(Errc::shape_mismatch, "two shapes do not broadcast").expected(to_text(v[0])).found(to_text(v[1]));
    }
  }
  return value_of(std::move(a));
}

constexpr std::array<Function, 36> functions = {{
    {"size", 1, call_size, true},
    {"sum", 1, call_sum, true},
    {"product", 1, call_product, true},
    {"max", 2, extreme<true>, true},
    {"min", 2, extreme<false>, true},
    {"max", 1, extreme_of<true>, true},
    {"min", 1, extreme_of<false>, true},
    {"filled", 2, call_filled, true},
    {"range", 2, call_range},
    {"sorted", 1, call_sorted},
    {"terms", 1, call_terms},
    {"labels", 2, call_labels},
    {"resize_positions", 2, resize_positions},
    {"resize_weights", 2, resize_weights},
    {"reversed", 1, call_reversed, true},
    {"axes", 2, call_axes},
    {"without", 2, call_without, true},
    {"with", 3, call_with, true},
    {"inserted", 2, call_inserted, true},
    {"picked", 2, call_picked, true},
    {"pairs", 1, call_pairs, true},
    {"opened", 1, call_opened, true},
    {"copied", 2, call_copied, true},
    {"solved", 2, call_solved, true},
    {"bits", 1, call_bits},
    {"slice_begin", 5, call_slice_begin, true},
    {"slice_end", 5, call_slice_end, true},
    {"slice_steps", 5, call_slice_steps, true},
    {"slice_open", 5, call_slice_open, true},
    {"slice_reversed", 5, call_slice_reversed, true},
    {"slice_shape", 5, call_slice_shape, true},
    {"index", 2, call_index, true},
    {"int", 1, call_int},
    {"float", 1, call_float},
    {"sqrt", 1, call_sqrt},
    {"broadcast", 2, call_broadcast, true},
}};

}  // namespace

Result<Value> call_function(std::string_view name, const std::vector<Value>& operands) {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const Function& f) { return f.name == name && f.operands == operands.size(); });
  if (found == functions.end()) {
    return Error(Errc::missing, "no function has this name and number of operands")
        .path(name)
        .found(std::to_string(operands.size()) + " operands");
  }
  if (std::any_of(operands.begin(), operands.end(), [](const Value& v) { return !known(v); })) return Value();
  if (!found->partial && std::any_of(operands.begin(), operands.end(), open)) return Value();
  return found->call(operands);
}

}  // namespace stele::inline v0::detail::ir
