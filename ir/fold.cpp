// Constant folding: the ONNX operators that chains of shapes are made of.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "ir/fold.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace ir {

namespace {

bool is_real(DType dtype) noexcept { return dtype_class(dtype) == DTypeClass::floating; }

Error bad(std::string_view message) { return Error(Errc::invalid_argument, message); }

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
    if (is_arithmetic(op) || is_comparison(op)) {
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
    if (op == "Range" || op == "ConstantOfShape" || is_comparison(op)) return false;
    if (op == "Where") return input != 0;
    return input == 0 || op == "Concat" || is_arithmetic(op);
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
