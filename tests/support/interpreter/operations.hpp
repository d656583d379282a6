// Operations for the tests' interpreter that are not elementwise functions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "support/interpreter/arrays.hpp"

namespace stele_test::interpreter {

inline Array reduce(const Call& call, double start, double (*fold)(double, double), bool mean = false) {
  const Array& x = call.in(0);
  Extents axes = call.ints("dimensions");
  axes.insert(axes.end(), call.arguments.dimensions.begin(), call.arguments.dimensions.end());
  const std::vector<bool> flags = flags_of(axes, x.shape.size());
  Array out = folded(x, flags, start, fold);
  const double count = static_cast<double>(x.values.size()) / static_cast<double>(out.values.size());
  if (mean) out = mapped(out, [&](double total) { return total / count; });
  return call.flag("keepDims") ? out : without_axes(out, flags);
}
inline Array argmax(const Call& call) {
  const Array& x = call.in(0);
  const std::size_t axis = axis_of(call.ints("dimensions").at(0), x.shape.size());
  require(!call.flag("keepDims"), "argmax that keeps dimensions");
  std::vector<bool> flags(x.shape.size());
  flags[axis] = true;
  Extents kept = x.shape;
  kept[axis] = 1;
  return without_axes(make(kept,
                           [&](Extents i) {
                             double best = -infinity, at = 0;
                             for (; i[axis] < x.shape[axis]; ++i[axis]) {
                               if (x(i) > best) at = static_cast<double>(i[axis]);
                               best = std::max(best, x(i));
                             }
                             return at;
                           }),
                      flags);
}
inline Array softmax(const Call& call, bool logarithm) {
  const Array& x = call.in(0);
  const std::vector<bool> axis = flags_of({call.integer("dimension")}, x.shape.size());
  const Array moved = zip(x, folded(x, axis, -infinity, larger), [](double a, double b) { return a - b; });
  const Array powers = mapped(moved, [](double a) { return std::exp(a); });
  const Array total = folded(powers, axis, 0, sum);
  if (logarithm) return zip(moved, total, [](double a, double b) { return a - std::log(b); });
  return zip(powers, total, std::divides<>());
}
inline Array matmul(const Call& call) {
  require(call.integer("transZ") == 0 && call.real("beta") == 0, "arguments of matmul");
  const auto turned = [&](Array a, std::string_view name) {
    Extents axes(a.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    if (call.integer(name) != 0) std::swap(axes.at(axes.size() - 1), axes.at(axes.size() - 2));
    return permuted(a, axes);
  };
  const Array z = product_of(turned(call.in(0), "transX"), turned(call.in(1), "transY"));
  return mapped(z, [&](double v) { return call.real("alpha") * v; });
}

inline Array pad(const Call& call) {
  const Array& x = call.in(0);
  const Extents paddings = integers(call.in(1));
  const std::int64_t mode = call.integer("mode"), edge = mode == 2 ? 1 : 0;  // 0: a value, 1 and 2: mirrored
  Extents shape = x.shape;
  for (std::size_t k = 0; k < shape.size(); ++k) shape[k] += paddings.at(2 * k) + paddings.at(2 * k + 1);
  return make(shape, [&](Extents i) {
    for (std::size_t k = 0; k < i.size(); ++k) {
      const std::int64_t last = x.shape[k] - 1;
      i[k] -= paddings[2 * k];
      if (mode == 0 && (i[k] < 0 || i[k] > last)) return call.real("padValue");
      if (i[k] < 0) i[k] = -i[k] - edge;
      if (i[k] > last) i[k] = 2 * last - i[k] + edge;
    }
    return x(i);
  });
}
inline Array gather(const Call& call) {
  const Array &x = call.in(0), &indices = call.in(1);
  const std::size_t axis = axis_of(call.integer("dimensions"), x.shape.size());
  Outputs parts;
  for (const std::int64_t i : integers(indices)) parts.push_back(part(x, axis, i, 1));
  Extents shape = x.shape;
  const auto after = shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(after, indices.shape.begin(), indices.shape.end());
  return reshaped(joined(parts, axis), shape);
}
/// An index outside the array is an error; libnd4j would read other memory.
inline Array gather_nd(const Call& call) {
  const Array &x = call.in(0), &indices = call.in(1);
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  Extents shape(indices.shape.begin(), indices.shape.end() - 1);
  const std::size_t outer = shape.size();
  shape.insert(shape.end(), x.shape.begin() + indices.shape.back(), x.shape.end());
  return make(shape, [&](const Extents& i) {
    Extents place(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(outer)), from;
    for (std::size_t k = 0; k < depth; ++k) {
      place.push_back(static_cast<std::int64_t>(k));
      from.push_back(static_cast<std::int64_t>(indices(place)));
      require(from[k] >= 0 && from[k] < x.shape[k], "an index outside of an array");
      place.pop_back();
    }
    from.insert(from.end(), i.begin() + static_cast<std::ptrdiff_t>(outer), i.end());
    return x(from);
  });
}
/// Calls work(i, row) for each row of `indices`; the row's offset in `x` follows from the coordinates on the last axis.
template <class F>
void each_row(const Array& x, const Array& indices, F work) {
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  const Array rest =
      make({x.shape.begin() + static_cast<std::ptrdiff_t>(depth), x.shape.end()}, [](auto&) { return 0; });
  for (std::size_t i = 0; i < indices.values.size() / depth; ++i) {
    std::size_t row = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      const double at = indices.values[i * depth + k];
      require(at >= 0 && at < static_cast<double>(x.shape[k]), "outside of an array");
      row = row * static_cast<std::size_t>(x.shape[k]) + static_cast<std::size_t>(at);
    }
    work(i * rest.values.size(), row * rest.values.size(), rest.values.size());
  }
}
inline Array scatter_nd_update(const Call& call) {
  Array out = call.in(0);
  each_row(out, call.in(1), [&](std::size_t from, std::size_t to, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) out.values[to + k] = call.in(2).values.at(from + k);
  });
  return out;
}
inline Array reverse_sequence(const Call& call) {
  const Array& x = call.in(0);
  const std::size_t time = axis_of(call.integer("seqDim"), x.shape.size());
  const std::size_t batch = axis_of(call.integer("batchDim"), x.shape.size());
  return make(x.shape, [&](Extents i) {
    const auto length = static_cast<std::int64_t>(call.in(1)({i[batch]}));
    if (i[time] < length) i[time] = length - 1 - i[time];
    return x(i);
  });
}
inline Array tile(const Call& call) {
  const Array& x = call.in(0);
  Extents shape = integers(call.in(1));
  for (std::size_t k = 0; k < shape.size(); ++k) shape[k] *= x.shape.at(k);
  return make(shape, [&](Extents i) {
    for (std::size_t k = 0; k < i.size(); ++k) i[k] %= x.shape[k];
    return x(i);
  });
}
/// Returns the coordinates of the nonzero elements.
inline Array where(const Call& call) {
  const Array& x = call.in(0);
  Array out{{0, static_cast<std::int64_t>(x.shape.size())}, {}};
  Extents index(x.shape.size());
  for (const double value : x.values) {
    if (value != 0) {
      out.values.insert(out.values.end(), index.begin(), index.end());
      ++out.shape[0];
    }
    advance(index, x.shape);
  }
  return out;
}
inline Array strided_slice(const Call& call) {
  const Array& x = call.in(0);
  require(call.integer("ellipsis_mask") == 0 && call.integer("new_axis_mask") == 0, "masks of strided_slice");
  Extents slice = call.ints("slice");  // all beginnings, all ends, all strides
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    for (const std::int64_t number : integers(call.in(i))) slice.push_back(number);
  }
  Extents begin(x.shape.size(), 0), stride(x.shape.size(), 1), shape = x.shape;
  std::vector<bool> removed(x.shape.size());
  for (std::size_t k = 0, n = slice.size() / 3; k < n; ++k) {
    const std::int64_t size = x.shape.at(k), step = stride[k] = slice[2 * n + k];
    const std::int64_t least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size;
    const auto masked = [&](std::string_view name) { return (call.integer(name) >> k & 1) != 0; };
    const auto bound = [&](std::int64_t i) { return std::clamp(i < 0 ? i + size : i, least, most); };
    begin[k] = !masked("begin_mask") ? bound(slice[k]) : step < 0 ? most : least;
    const std::int64_t end = !masked("end_mask") ? bound(slice[n + k]) : step < 0 ? least : most;
    removed[k] = masked("shrink_axis_mask");
    shape[k] = removed[k] ? 1 : std::max<std::int64_t>(0, (end - begin[k] + step + (step < 0 ? 1 : -1)) / step);
  }
  return without_axes(make(shape,
                           [&](Extents i) {
                             for (std::size_t k = 0; k < i.size(); ++k) i[k] = begin[k] + i[k] * stride[k];
                             return x(i);
                           }),
                      removed);
}
inline Array reverse(const Call& call) {
  const Array& x = call.in(0);
  const std::vector<bool> axes = flags_of(call.ints("dimensions"), x.shape.size());
  return make(x.shape, [&](Extents i) {
    for (std::size_t k = 0; k < i.size(); ++k) i[k] = axes[k] ? x.shape[k] - 1 - i[k] : i[k];
    return x(i);
  });
}
inline Array stack(const Call& call) {
  const std::size_t axis = axis_of(call.integer("dimensions"), call.in(0).shape.size() + 1);
  Outputs parts;
  for (const Array* input : call.inputs) parts.push_back(with_axis(*input, axis));
  return joined(parts, axis);
}
inline Array cumsum(const Call& call) {
  const Array& x = call.in(0);
  const std::size_t axis = axis_of(call.integer("dimensions"), x.shape.size());
  const bool exclusive = call.integer("exclusive") != 0, backward = call.integer("reverse") != 0;
  return make(x.shape, [&](Extents i) {
    double total = 0;
    for (const std::int64_t here = std::exchange(i[axis], 0); i[axis] < x.shape[axis]; ++i[axis]) {
      if (backward ? i[axis] > here : i[axis] < here) total += x(i);
      if (i[axis] == here && !exclusive) total += x(i);
    }
    return total;
  });
}
inline Array batchnorm(const Call& call) {
  const Array &x = call.in(0), *gamma = call.find("gamma"), *beta = call.find("beta");
  const std::size_t axis = axis_of(call.integer("axis"), x.shape.size());
  return make(x.shape, [&](const Extents& i) {
    const auto c = static_cast<std::size_t>(i[axis]);
    const double y = (x(i) - call.in(1).values.at(c)) / std::sqrt(call.in(2).values.at(c) + call.real("epsilon"));
    return y * (gamma == nullptr ? 1 : gamma->values.at(c)) + (beta == nullptr ? 0 : beta->values.at(c));
  });
}
inline Array range(const Call& call) {
  const double from = call.in(0).values.at(0), to = call.in(1).values.at(0), step = call.in(2).values.at(0);
  const auto size = static_cast<std::int64_t>(std::max(0.0, std::ceil((to - from) / step)));
  return make({size}, [&](const Extents& i) { return from + static_cast<double>(i[0]) * step; });
}
inline Array select(const Call& call) {
  const Array &condition = call.in(0), &x = call.in(1), &y = call.in(2);
  require(condition.shape == x.shape && x.shape == y.shape, "select from arrays of different shapes");
  return make(x.shape, [&](const Extents& i) { return condition(i) != 0 ? x(i) : y(i); });
}
inline Array broadcast_to(const Call& call) {
  const Extents shape = integers(call.in(1));
  require(broadcast(call.in(0).shape, shape) == shape, "broadcast_to a smaller shape");
  return make(shape, std::cref(call.in(0)));
}
inline Array cast(const Call& call) {
  const std::int64_t dtype = call.integer("dst");  // DL4J's number: 1 is bool, 7 to 14 are integers
  const bool whole = dtype >= 7 && dtype <= 14;
  return mapped(call.in(0), [&](double v) { return dtype == 1 ? (v != 0 ? 1.0 : 0.0) : whole ? std::trunc(v) : v; });
}

inline Outputs split(const Array& x, std::int64_t dimension, const Extents& sizes) {
  const std::size_t axis = axis_of(dimension, x.shape.size());
  Outputs parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) parts.push_back(part(x, axis, std::exchange(begin, begin + size), size));
  require(begin == x.shape[axis], "sizes of a split");
  return parts;
}
/// Input: steps, batch, features. Weights: features and units, gates of units in the order i, z, f, o.
inline Outputs lstm_block(const Call& call) {
  const Array &x = call.in(1), &weights = call.in(4), &bias = call.in(8);
  require(call.integer("dataFormat") == 0 && call.real("clippingCellValue") == 0, "a mode of lstmBlock");
  require(call.integer("peephole") == 0 && call.in(0).values.at(0) == static_cast<double>(x.shape.at(0)), "steps");
  Array cell = call.in(2), y = call.in(3);
  std::array<Outputs, 7> steps;
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    const Array now = without_axes(part(x, 0, t, 1), {true, false, false});
    const Array sums = zip(product_of(joined(Outputs{now, y}, 1), weights), bias, sum);
    const auto gate = [&](std::int64_t k) { return part(sums, 1, k * y.shape[1], y.shape[1]); };
    const Array i = mapped(gate(0), sigmoid), z = mapped(gate(1), tanh), o = mapped(gate(3), sigmoid);
    const Array f = mapped(gate(2), [&](double v) { return sigmoid(v + call.real("forgetBias")); });
    cell = zip(zip(f, cell, product), zip(i, z, product), sum);
    const Array squashed = mapped(cell, tanh);
    y = zip(o, squashed, product);
    const std::array<const Array*, 7> outputs = {&i, &cell, &f, &o, &z, &squashed, &y};
    for (std::size_t k = 0; k < outputs.size(); ++k) steps[k].push_back(with_axis(*outputs[k], 0));
  }
  Outputs outputs;
  for (const Outputs& list : steps) outputs.push_back(joined(list, 0));
  return outputs;
}

}  // namespace stele_test::interpreter
