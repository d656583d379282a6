// Arrays of double for the tests' interpreter, and functions for building operations.
#pragma once

#include <stele/graph.hpp>
#include <stele/operators.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stele_test::interpreter {

using Extents = std::vector<std::int64_t>;

/// A row-major array.
struct Array {
  Extents shape;
  std::vector<double> values;

  /// Returns the position of the element at the end of `index`; an axis with one element is repeated.
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
  /// Returns the number of an operation of the family `scalar`.
  double scalar() const {
    const stele::GraphArray& given = arguments.scalar.value();
    float value = 0;
    require(given.dtype == stele::DType::f32 && given.bytes.size() == sizeof(value), "the dtype of a scalar");
    std::memcpy(&value, given.bytes.data(), sizeof(value));
    return value;
  }
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
/// Returns a flag for each axis; if there are none, or DL4J's "all", all flags are set.
inline std::vector<bool> flags_of(const Extents& axes, std::size_t rank) {
  const bool all = axes.empty() || axes[0] == std::numeric_limits<std::int32_t>::max();
  std::vector<bool> flags(rank, all);
  for (std::size_t i = 0; !all && i < axes.size(); ++i) flags[axis_of(axes[i], rank)] = true;
  return flags;
}

/// Advances to the next index in row-major order.
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
// These functions ignore a NaN, as libnd4j does.
inline double larger(double a, double b) { return std::fmax(a, b); }
inline double smaller(double a, double b) { return std::fmin(a, b); }
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
/// Reduces axes but keeps them, with one element each.
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

}  // namespace stele_test::interpreter
