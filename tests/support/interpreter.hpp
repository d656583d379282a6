// Runs imported graphs, for tests: executes each operation as libnd4j defines it, on arrays of double. Strict rather
// than fast: throws std::runtime_error for operations and arguments that no test needs, and for those that libnd4j
// refuses.
#pragma once

#include <stele/checkpoint.hpp>
#include <stele/operators.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/interpreter/arrays.hpp"
#include "support/interpreter/images.hpp"
#include "support/interpreter/operations.hpp"

namespace stele_test::interpreter {

using Operator = std::function<Array(const Call&)>;
inline Operator unary(double (*f)(double)) {
  return [f](const Call& call) { return mapped(call.in(0), f); };
}
inline Operator binary(double (*f)(double, double)) {
  return [f](const Call& call) { return zip(call.in(0), call.in(1), f); };
}
inline const std::map<std::string_view, Operator>& operators() {
  static const std::map<std::string_view, Operator> table = {
      {"abs", unary([](double x) { return std::abs(x); })},
      {"add", binary(sum)},
      {"argmax", argmax},
      // libnd4j's formula, which fails for large and for negative numbers.
      {"asinh", unary([](double x) { return std::log(x + std::sqrt(x * x + 1)); })},
      {"avgpool2d", [](const Call& c) { return pool(c, true); }},
      {"batchnorm", batchnorm},
      {"boolean_and", binary([](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; })},
      {"boolean_or", binary([](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; })},
      {"boolean_xor", binary([](double x, double y) { return (x != 0) != (y != 0) ? 1.0 : 0.0; })},
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
      {"depth_to_space", depth_to_space},
      {"depthwise_conv2d", [](const Call& c) { return convolution(c, true); }},
      {"divide", binary([](double x, double y) { return x / y; })},
      {"equals", binary([](double x, double y) { return x == y ? 1.0 : 0.0; })},
      {"erf", unary([](double x) { return std::erf(x); })},
      {"erfc", unary([](double x) { return std::erfc(x); })},
      {"exp", unary([](double x) { return std::exp(x); })},
      {"expand_dims",
       [](const Call& c) { return with_axis(c.in(0), axis_of(c.integer("dimensions"), c.in(0).shape.size() + 1)); }},
      {"fill", [](const Call& c) { return make(integers(c.in(0)), [&](const Extents&) { return c.real("value"); }); }},
      {"floor", unary([](double x) { return std::floor(x); })},
      {"floormod", binary([](double x, double y) { return x - std::floor(x / y) * y; })},
      {"fmod",
       [](const Call& c) {
         require(c.in(0).shape == c.in(1).shape, "fmod that broadcasts");
         return zip(c.in(0), c.in(1), [](double x, double y) { return std::fmod(x, y); });
       }},
      {"gather", gather},
      {"gather_nd", gather_nd},
      {"greater_equal", binary([](double x, double y) { return x >= y ? 1.0 : 0.0; })},
      {"greater", binary([](double x, double y) { return x > y ? 1.0 : 0.0; })},
      {"identity", unary([](double x) { return x; })},
      {"leakyrelu",
       [](const Call& c) { return mapped(c.in(0), [a = c.scalar()](double v) { return v < 0 ? a * v : v; }); }},
      {"less", binary([](double x, double y) { return x < y ? 1.0 : 0.0; })},
      {"log", unary([](double x) { return std::log(x); })},
      {"log1p", unary([](double x) { return std::log1p(x); })},
      {"log_softmax", [](const Call& c) { return softmax(c, true); }},
      {"lrn", lrn},
      {"matmul", matmul},
      {"maximum", binary(larger)},
      {"maxpool2d", [](const Call& c) { return pool(c, false); }},
      {"minimum", binary(smaller)},
      {"multiply", binary(product)},
      {"neg", unary([](double x) { return -x; })},
      {"ones_as", unary([](double) { return 1.0; })},
      {"pad", pad},
      {"permute", [](const Call& c) { return permuted(c.in(0), c.ints("reverseDims")); }},
      {"Pow", binary([](double x, double y) { return std::pow(x, y); })},
      {"range", range},
      {"Reciprocal", unary([](double x) { return 1 / x; })},
      {"reduce_max", [](const Call& c) { return reduce(c, -infinity, larger); }},
      {"reduce_mean", [](const Call& c) { return reduce(c, 0, sum, true); }},
      {"reduce_min", [](const Call& c) { return reduce(c, infinity, smaller); }},
      {"reduce_norm1", [](const Call& c) { return reduce(c, 0, [](double a, double b) { return a + std::abs(b); }); }},
      {"reduce_norm2",
       [](const Call& c) {
         return mapped(reduce(c, 0, [](double a, double b) { return a + b * b; }),
                       [](double total) { return std::sqrt(total); });
       }},
      {"reduce_prod", [](const Call& c) { return reduce(c, 1, product); }},
      {"reduce_sum", [](const Call& c) { return reduce(c, 0, sum); }},
      {"reverse_sequence", reverse_sequence},
      {"rint", unary([](double x) { return std::nearbyint(x); })},
      {"scatter_nd_update", scatter_nd_update},
      {"relu", unary([](double x) { return std::max(x, 0.0); })},
      {"reshape", [](const Call& c) { return reshaped(c.in(0), integers(c.in(1))); }},
      {"resize_bilinear", [](const Call& c) { return resized(c, "halfPixelCenters", true); }},
      {"resize_nearest_neighbor", [](const Call& c) { return resized(c, "halfPixelCenter", false); }},
      {"reverse", reverse},
      {"select", select},
      {"shape_of", [](const Call& c) { return list_of(c.in(0).shape); }},
      {"sigmoid", unary(sigmoid)},
      {"sign", unary([](double x) { return x > 0   ? 1.0
                                           : x < 0 ? -1.0
                                                   : 0.0; })},
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
      {"tile", tile},
      {"Where", where},
      {"truncatediv", binary([](double x, double y) { return std::trunc(x / y); })},
  };
  return table;
}

inline bool takes_no_bools(std::string_view name) {
  static constexpr std::string_view names[] = {
      "dynamic_partition", "gather", "gather_nd", "reverse_sequence", "scatter_nd",
      "scatter_nd_update", "split",  "split_v",   "unique",           "unstack"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

inline Outputs run(const std::string& name, const Call& call) {
  if (const auto found = operators().find(name); found != operators().end()) return {found->second(call)};
  if (name == "lstmBlock") return lstm_block(call);
  require(name == "split" || name == "split_v", "an operation that the interpreter does not support");
  const Array& x = call.in(0);
  const std::int64_t axis = call.integer("dimensions");
  if (name == "split_v") return split(x, axis, integers(call.in(1)));
  const std::int64_t parts = call.integer("numSplit");
  return split(x, axis, Extents(static_cast<std::size_t>(parts), x.shape.at(axis_of(axis, x.shape.size())) / parts));
}

/// Returns the number that a dtype stores for a number: 0 for an integer outside the dtype. Integers of 64 bits are
/// unchanged, because doubles cannot store all of them.
inline double held(double value, stele::DType dtype) {
  if (dtype == stele::DType::f32) return static_cast<float>(value);
  const auto kind = stele::dtype_class(dtype);
  const bool is_signed = kind == stele::DTypeClass::signed_int;
  if (!is_signed && kind != stele::DTypeClass::unsigned_int) return value;
  if (stele::element_size(dtype) == 8) return std::trunc(value);
  const int bits = static_cast<int>(8 * stele::element_size(dtype)) - (is_signed ? 1 : 0);
  const double whole = std::trunc(value);
  return whole < std::ldexp(1, bits) && whole >= (is_signed ? -std::ldexp(1, bits) : 0) ? whole : 0;
}

/// Checks that the array has the shape that the graph declares, and rounds it to the dtype.
inline Array declared(const Array& a, const stele::GraphVariable& variable) {
  const auto fits = [](std::int64_t extent, std::int64_t found) { return extent == -1 || extent == found; };
  const Extents& shape = variable.shape ? *variable.shape : a.shape;
  require(std::equal(shape.begin(), shape.end(), a.shape.begin(), a.shape.end(), fits),
          "another shape than that of the variable " + variable.name);
  return mapped(a, [&](double v) { return held(v, variable.dtype); });
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
  if (dtype == stele::DType::i8) return read_as<std::int8_t>(leaf);
  require(dtype == stele::DType::boolean || dtype == stele::DType::u8, "a dtype that the interpreter does not support");
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
      require(descriptor != nullptr, "not an operation of DL4J");
      Call call{{}, named(*descriptor, operation).value()};
      for (const std::string& input : operation.inputs) {
        const bool flags = graph.find_variable(input)->dtype == stele::DType::boolean;
        require(!flags || !takes_no_bools(operation.op_name), "libnd4j does not run this on bools");
        call.inputs.push_back(&arrays.at(input));
      }
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
