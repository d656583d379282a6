// Runs imported graphs, for tests: each operation as libnd4j defines it, on arrays of double. Strict rather than fast:
// it throws std::runtime_error for an operation or argument that no test needs, and for what libnd4j refuses.
#pragma once

#include <stele/checkpoint.hpp>
#include <stele/operators.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stele_test::interpreter {

using Extents = std::vector<std::int64_t>;

/// Row-major.
struct Array {
  Extents shape;
  std::vector<double> values;

  /// Returns the position of the element at the end of `index`; an axis of one element is repeated.
  std::size_t offset(const Extents& index) const {
    std::int64_t position = 0;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      position = position * shape[k] + (shape[k] == 1 ? 0 : index.at(index.size() - shape.size() + k));
    }
    return static_cast<std::size_t>(position);
  }
  double operator()(const Extents& index) const { return values.at(offset(index)); }
};
using Arrays = std::map<std::string, Array>;

using Outputs = std::vector<Array>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// An operation's inputs, and its arguments by name.
struct Call {
  std::vector<const Array*> inputs;
  stele::NamedArguments arguments;

  const Array& in(std::size_t i) const { return *inputs.at(i); }
  const Array* find(std::string_view name) const {
    const auto& all = arguments.inputs;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& argument) { return argument.first == name; });
    return found == all.end() ? nullptr : inputs.at(static_cast<std::size_t>(found - all.begin()));
  }
  Extents ints(std::string_view name) const { return values_of(arguments.ints, name); }
  std::int64_t integer(std::string_view name) const { return ints(name).at(0); }
  double real(std::string_view name) const { return values_of(arguments.doubles, name).at(0); }
  bool flag(std::string_view name) const { return values_of(arguments.bools, name).at(0); }

 private:
  template <class T>
  static std::vector<T> values_of(const stele::GraphArguments<T>& arguments, std::string_view name) {
    std::vector<T> values;
    for (const auto& argument : arguments) {
      if (argument.first == name) values.push_back(argument.second);
    }
    return values;
  }
};

inline std::size_t axis_of(std::int64_t axis, std::size_t rank) {
  const auto all = static_cast<std::int64_t>(rank);
  require(-all <= axis && axis < all, "no axis " + std::to_string(axis));
  return static_cast<std::size_t>(axis < 0 ? axis + all : axis);
}
/// Returns a flag for each axis; none or DL4J's "all": all are set.
inline std::vector<bool> flags_of(const Extents& axes, std::size_t rank) {
  const bool all = axes.empty() || axes[0] == std::numeric_limits<std::int32_t>::max();
  std::vector<bool> flags(rank, all);
  for (std::size_t i = 0; !all && i < axes.size(); ++i) flags[axis_of(axes[i], rank)] = true;
  return flags;
}

/// Goes to the next index in row-major order.
inline void advance(Extents& index, const Extents& shape) {
  for (std::size_t k = shape.size(); k-- != 0 && ++index[k] == shape[k];) index[k] = 0;
}
/// Returns the array whose elements are `element(index)`.
template <class F>
Array make(const Extents& shape, F element) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) {
    require(extent >= 0, "a negative extent");
    count *= static_cast<std::size_t>(extent);
  }
  Array a{shape, std::vector<double>(count)};
  Extents index(shape.size());
  for (double& value : a.values) {
    value = element(std::as_const(index));
    advance(index, shape);
  }
  return a;
}
inline Array list_of(const Extents& numbers) {
  return {{static_cast<std::int64_t>(numbers.size())}, {numbers.begin(), numbers.end()}};
}
inline Extents integers(const Array& a) {
  Extents numbers;
  for (const double value : a.values) numbers.push_back(static_cast<std::int64_t>(value));
  return numbers;
}

inline Extents broadcast(const Extents& a, const Extents& b) {
  if (a.size() < b.size()) return broadcast(b, a);
  Extents out = a;
  for (std::size_t k = 0; k < b.size(); ++k) {
    std::int64_t& extent = out[a.size() - b.size() + k];
    require(extent == b[k] || extent == 1 || b[k] == 1, "extents that differ");
    if (extent == 1) extent = b[k];
  }
  return out;
}
template <class F>
Array zip(const Array& a, const Array& b, F f) {
  return make(broadcast(a.shape, b.shape), [&](const Extents& i) { return f(a(i), b(i)); });
}
template <class F>
Array mapped(Array a, F f) {
  for (double& value : a.values) value = f(value);
  return a;
}
inline double sum(double a, double b) { return a + b; }
inline double product(double a, double b) { return a * b; }
inline double larger(double a, double b) { return std::max(a, b); }
inline double smaller(double a, double b) { return std::min(a, b); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double tanh(double x) { return std::tanh(x); }

inline Array reshaped(const Array& a, Extents shape) {
  auto rest = static_cast<std::int64_t>(a.values.size());
  for (const std::int64_t extent : shape) rest = extent > 0 ? rest / extent : rest;
  std::replace(shape.begin(), shape.end(), std::int64_t{-1}, rest);
  require(make(shape, [](const Extents&) { return 0; }).values.size() == a.values.size(), "reshape to another size");
  return {shape, a.values};
}
inline Array with_axis(const Array& a, std::size_t axis) {
  Extents shape = a.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return reshaped(a, shape);
}
inline Array without_axes(const Array& a, const std::vector<bool>& axes) {
  Extents shape;
  for (std::size_t k = 0; k < a.shape.size(); ++k) {
    if (!axes[k]) shape.push_back(a.shape[k]);
  }
  return reshaped(a, shape);
}
inline Array permuted(const Array& a, const Extents& axes) {
  require(axes.size() == a.shape.size(), "axes of a permutation");
  Extents shape, from(axes.size());
  for (const std::int64_t axis : axes) shape.push_back(a.shape[axis_of(axis, axes.size())]);
  return make(shape, [&](const Extents& i) {
    for (std::size_t k = 0; k < axes.size(); ++k) from[axis_of(axes[k], axes.size())] = i[k];
    return a(from);
  });
}
inline Array part(const Array& a, std::size_t axis, std::int64_t begin, std::int64_t size) {
  require(begin >= 0 && begin + size <= a.shape.at(axis), "outside of an array");
  Extents shape = a.shape;
  shape[axis] = size;
  return make(shape, [&](Extents i) {
    i[axis] += begin;
    return a(i);
  });
}
inline Array joined(const std::vector<const Array*>& arrays, std::size_t axis) {
  Extents shape = arrays.at(0)->shape, ends;
  shape.at(axis) = 0;
  for (const Array* a : arrays) {
    Extents other = a->shape;
    other.at(axis) = shape[axis];
    require(other == shape, "extents that differ");
    ends.push_back(shape[axis] += a->shape[axis]);
  }
  return make(shape, [&](Extents i) {
    const auto which = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i[axis]) - ends.begin());
    if (which != 0) i[axis] -= ends[which - 1];
    return (*arrays[which])(i);
  });
}
inline Array joined(const Outputs& arrays, std::size_t axis) {
  std::vector<const Array*> all;
  for (const Array& a : arrays) all.push_back(&a);
  return joined(all, axis);
}
/// Keeps the axes, with one element each.
template <class F>
Array folded(const Array& a, const std::vector<bool>& axes, double start, F fold) {
  Extents shape = a.shape, index(shape.size());
  for (std::size_t k = 0; k < shape.size(); ++k) shape[k] = axes[k] ? 1 : shape[k];
  Array out = make(shape, [&](const Extents&) { return start; });
  for (const double value : a.values) {
    double& result = out.values[out.offset(index)];
    result = fold(result, value);
    advance(index, a.shape);
  }
  return out;
}
inline Array product_of(const Array& a, const Array& b) {
  const std::size_t n = a.shape.size();
  require(n >= 2 && b.shape.size() == n && a.shape[n - 1] == b.shape[n - 2], "shapes of matmul");
  require(std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin()), "batches of matmul");
  Extents shape = a.shape;
  shape[n - 1] = b.shape[n - 1];
  return make(shape, [&](const Extents& i) {
    double total = 0;
    Extents left = i, right = i;
    for (std::int64_t k = 0; k < a.shape[n - 1]; ++k) {
      left[n - 1] = right[n - 2] = k;
      total += a(left) * b(right);
    }
    return total;
  });
}

/// Windows over images in the format NCHW.
struct Window {
  explicit Window(const Call& call)
      : kernel{call.integer("kH"), call.integer("kW")},
        stride{call.integer("sH"), call.integer("sW")},
        padding{call.integer("pH"), call.integer("pW")},
        dilation{call.integer("dH"), call.integer("dW")} {
    require(call.integer("isSameMode") == 0 && call.integer("isNCHW") == 0, "a mode or format of images");
  }
  std::int64_t span(std::size_t k) const { return (kernel[k] - 1) * dilation[k] + 1; }
  Extents output(const Extents& image, std::int64_t channels) const {
    Extents shape = {image.at(0), channels};
    for (const std::size_t k : {0U, 1U}) shape.push_back((image.at(2 + k) + 2 * padding[k] - span(k)) / stride[k] + 1);
    return shape;
  }
  /// Calls `f(row, column)` for each element of the kernel.
  template <class F>
  void each(F f) const {
    for (std::int64_t i = 0; i < kernel[0]; ++i) {
      for (std::int64_t j = 0; j < kernel[1]; ++j) f(i, j);
    }
  }
  /// Calls `f(element, row, column)` for the window of an output, without padding.
  template <class F>
  void visit(const Array& image, const Extents& output, std::int64_t channel, F f) const {
    each([&](std::int64_t i, std::int64_t j) {
      const std::int64_t y = output[2] * stride[0] - padding[0] + i * dilation[0];
      const std::int64_t x = output[3] * stride[1] - padding[1] + j * dilation[1];
      if (y < 0 || y >= image.shape[2] || x < 0 || x >= image.shape[3]) return;
      f(image({output[0], channel, y, x}), i, j);
    });
  }
  std::array<std::int64_t, 2> kernel, stride, padding, dilation;
};

inline double bias_of(const Call& call, std::int64_t channel) {
  const Array* bias = call.find("bias");
  return bias == nullptr ? 0 : bias->values.at(static_cast<std::size_t>(channel));
}
/// Weights: outputs (depthwise: of each input), inputs, rows, columns.
inline Array convolution(const Call& call, bool depthwise) {
  const Array &x = call.in(0), &w = call.in(1);
  const Window window(call);
  require(call.integer("wFormat") == 1 && w.shape.at(1) == x.shape.at(1), "weights of a convolution");
  return make(window.output(x.shape, depthwise ? w.shape[0] * x.shape[1] : w.shape[0]), [&](const Extents& at) {
    double total = bias_of(call, at[1]);
    const std::int64_t first = depthwise ? at[1] / w.shape[0] : 0, last = depthwise ? first : x.shape[1] - 1;
    for (std::int64_t c = first; c <= last; ++c) {
      window.visit(x, at, c, [&](double v, auto i, auto j) { total += v * w({at[1] % w.shape[0], c, i, j}); });
    }
    return total;
  });
}
/// Weights: inputs, outputs, rows, columns.
inline Array deconv2d(const Call& call) {
  const Array &x = call.in(0), &w = call.in(1);
  const Window window(call);
  require(call.integer("wFormat") == 1 && w.shape.at(0) == x.shape.at(1), "weights of deconv2d");
  Extents shape = {x.shape[0], w.shape[1]};
  for (const std::size_t k : {0U, 1U}) {
    shape.push_back((x.shape[2 + k] - 1) * window.stride[k] + window.span(k) - 2 * window.padding[k]);
  }
  return make(shape, [&](const Extents& at) {
    double total = bias_of(call, at[1]);
    window.each([&](std::int64_t i, std::int64_t j) {
      const auto row = std::div(at[2] + window.padding[0] - i * window.dilation[0], window.stride[0]);
      const auto column = std::div(at[3] + window.padding[1] - j * window.dilation[1], window.stride[1]);
      if (row.rem != 0 || row.quot < 0 || row.quot >= x.shape[2]) return;
      if (column.rem != 0 || column.quot < 0 || column.quot >= x.shape[3]) return;
      for (std::int64_t c = 0; c < x.shape[1]; ++c) total += x({at[0], c, row.quot, column.quot}) * w({c, at[1], i, j});
    });
    return total;
  });
}
inline Array pool(const Call& call, bool average) {
  const Array& x = call.in(0);
  const Window window(call);
  const bool whole = call.integer("extraParam0") == 1;  // an average counts the padding
  return make(window.output(x.shape, x.shape.at(1)), [&](const Extents& at) {
    std::vector<double> seen;
    window.visit(x, at, at[1], [&](double v, auto, auto) { seen.push_back(v); });
    require(whole || !seen.empty(), "a window of nothing but padding");
    if (!average) return *std::max_element(seen.begin(), seen.end());
    if (whole) seen.resize(static_cast<std::size_t>(window.kernel[0] * window.kernel[1]));
    return std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
  });
}

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
  const std::int64_t dtype = call.integer("dst");  // of DL4J: 1 is bool, 7 to 14 are integers
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

using Operator = std::function<Array(const Call&)>;
inline Operator unary(double (*f)(double)) {
  return [f](const Call& call) { return mapped(call.in(0), f); };
}
inline Operator binary(double (*f)(double, double)) {
  return [f](const Call& call) { return zip(call.in(0), call.in(1), f); };
}
inline const std::map<std::string_view, Operator>& operators() {
  static const std::map<std::string_view, Operator> table = {
      {"add", binary(sum)},
      {"avgpool2d", [](const Call& c) { return pool(c, true); }},
      {"batchnorm", batchnorm},
      {"boolean_not", unary([](double x) { return x == 0 ? 1.0 : 0.0; })},
      {"broadcast_dynamic_shape",
       [](const Call& c) { return list_of(broadcast(integers(c.in(0)), integers(c.in(1)))); }},
      {"broadcast_to", broadcast_to},
      {"cast", cast},
      {"ClipByValue",
       [](const Call& c) {
         return mapped(c.in(0),
                       [&](double v) { return std::clamp(v, c.real("clipValueMin"), c.real("clipValueMax")); });
       }},
      {"concat",
       [](const Call& c) { return joined(c.inputs, axis_of(c.integer("concatDimension"), c.in(0).shape.size())); }},
      {"conv2d", [](const Call& c) { return convolution(c, false); }},
      {"cumsum", cumsum},
      {"deconv2d", deconv2d},
      {"depthwise_conv2d", [](const Call& c) { return convolution(c, true); }},
      {"divide", binary([](double x, double y) { return x / y; })},
      {"equals", binary([](double x, double y) { return x == y ? 1.0 : 0.0; })},
      {"erf", unary([](double x) { return std::erf(x); })},
      {"exp", unary([](double x) { return std::exp(x); })},
      {"expand_dims",
       [](const Call& c) { return with_axis(c.in(0), axis_of(c.integer("dimensions"), c.in(0).shape.size() + 1)); }},
      {"fill", [](const Call& c) { return make(integers(c.in(0)), [&](const Extents&) { return c.real("value"); }); }},
      {"floormod", binary([](double x, double y) { return x - std::floor(x / y) * y; })},
      {"gather", gather},
      {"greater", binary([](double x, double y) { return x > y ? 1.0 : 0.0; })},
      {"identity", unary([](double x) { return x; })},
      {"less", binary([](double x, double y) { return x < y ? 1.0 : 0.0; })},
      {"log", unary([](double x) { return std::log(x); })},
      {"log_softmax", [](const Call& c) { return softmax(c, true); }},
      {"matmul", matmul},
      {"maximum", binary(larger)},
      {"maxpool2d", [](const Call& c) { return pool(c, false); }},
      {"minimum", binary(smaller)},
      {"multiply", binary(product)},
      {"neg", unary([](double x) { return -x; })},
      {"pad", pad},
      {"permute", [](const Call& c) { return permuted(c.in(0), c.ints("reverseDims")); }},
      {"Pow", binary([](double x, double y) { return std::pow(x, y); })},
      {"range", range},
      {"reduce_max", [](const Call& c) { return reduce(c, -infinity, larger); }},
      {"reduce_mean", [](const Call& c) { return reduce(c, 0, sum, true); }},
      {"reduce_min", [](const Call& c) { return reduce(c, infinity, smaller); }},
      {"reduce_prod", [](const Call& c) { return reduce(c, 1, product); }},
      {"reduce_sum", [](const Call& c) { return reduce(c, 0, sum); }},
      {"relu", unary([](double x) { return std::max(x, 0.0); })},
      {"reshape", [](const Call& c) { return reshaped(c.in(0), integers(c.in(1))); }},
      {"reverse", reverse},
      {"select", select},
      {"shape_of", [](const Call& c) { return list_of(c.in(0).shape); }},
      {"sigmoid", unary(sigmoid)},
      {"size_at",
       [](const Call& c) {
         const Extents& shape = c.in(0).shape;
         return Array{{}, {static_cast<double>(shape[axis_of(c.integer("dimensions"), shape.size())])}};
       }},
      {"softmax", [](const Call& c) { return softmax(c, false); }},
      {"sqrt", unary([](double x) { return std::sqrt(x); })},
      {"squeeze", [](const Call& c) { return without_axes(c.in(0), flags_of(c.ints("_a"), c.in(0).shape.size())); }},
      {"stack", stack},
      {"strided_slice", strided_slice},
      {"subtract", binary([](double x, double y) { return x - y; })},
      {"tanh", unary(tanh)},
  };
  return table;
}

inline Outputs run(const std::string& name, const Call& call) {
  if (const auto found = operators().find(name); found != operators().end()) return {found->second(call)};
  if (name == "lstmBlock") return lstm_block(call);
  require(name == "split" || name == "split_v", "an operation that the interpreter does not know");
  const Array& x = call.in(0);
  const std::int64_t axis = call.integer("dimensions");
  if (name == "split_v") return split(x, axis, integers(call.in(1)));
  const std::int64_t parts = call.integer("numSplit");
  return split(x, axis, Extents(static_cast<std::size_t>(parts), x.shape.at(axis_of(axis, x.shape.size())) / parts));
}

/// Checks the shape that the graph declares; rounds to the dtype if it is one of integers, as a division does.
inline Array declared(const Array& a, const stele::GraphVariable& variable) {
  const auto fits = [](std::int64_t extent, std::int64_t found) { return extent == -1 || extent == found; };
  const Extents& shape = variable.shape ? *variable.shape : a.shape;
  require(std::equal(shape.begin(), shape.end(), a.shape.begin(), a.shape.end(), fits),
          "another shape than that of the variable " + variable.name);
  const auto kind = stele::dtype_class(variable.dtype);
  const bool whole = kind == stele::DTypeClass::signed_int || kind == stele::DTypeClass::unsigned_int;
  return mapped(a, [&](double v) { return whole ? std::trunc(v) : v; });
}

template <class T>
Array read_as(const stele::LeafView& leaf) {
  std::vector<T> elements(static_cast<std::size_t>(leaf.size()));
  leaf.read(0, std::as_writable_bytes(std::span(elements))).value();
  return {{leaf.shape().begin(), leaf.shape().end()}, {elements.begin(), elements.end()}};
}

inline Array read_array(const stele::LeafView& leaf) {
  const stele::DType dtype = leaf.dtype();
  if (dtype == stele::DType::f64) return read_as<double>(leaf);
  if (dtype == stele::DType::f32) return read_as<float>(leaf);
  if (dtype == stele::DType::i64) return read_as<std::int64_t>(leaf);
  if (dtype == stele::DType::i32) return read_as<std::int32_t>(leaf);
  require(dtype == stele::DType::boolean, "a dtype that the interpreter does not know");
  return read_as<std::uint8_t>(leaf);
}

/// Returns the arrays of all of a graph's variables.
inline Arrays run_graph(const stele::Checkpoint& model, Arrays arrays) {
  const stele::Graph& graph = *model.graph;
  for (const stele::GraphVariable& variable : graph.variables) {
    if (const auto leaf = model.parameters.find(variable.name)) arrays.emplace(variable.name, read_array(*leaf));
  }
  const std::vector<std::size_t> order = graph.order().value();
  for (const std::size_t number : order) {
    const stele::GraphOperation& operation = graph.operations[number];
    try {
      const stele::OperatorDescriptor* descriptor = stele::OperatorSet::nd4j().find(operation.op_name);
      require(descriptor != nullptr, "no operation of DL4J");
      Call call{{}, named(*descriptor, operation).value()};
      for (const std::string& input : operation.inputs) call.inputs.push_back(&arrays.at(input));
      const Outputs outputs = run(operation.op_name, call);
      for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
        const std::string& output = operation.outputs[i];
        arrays[output] = declared(outputs.at(i), *graph.find_variable(output));
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(operation.op_name + " (" + operation.name + "): " + error.what());
    }
  }
  return arrays;
}

}  // namespace stele_test::interpreter
