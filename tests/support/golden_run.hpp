// Compares the results of an imported model with those of the original.
#pragma once

#include <stele/recorders/safetensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "support/interpreter.hpp"
#include "support/models.hpp"

namespace stele_test::interpreter {

/// Returns the tensors of a file whose names begin with `prefix`, under the names without it.
inline Arrays arrays_in(const std::string& path, const std::string& prefix) {
  const stele::Snapshot file = good(stele::SafetensorsRecorder<>().open(path));
  Arrays arrays;
  for (const stele::Node& node : file.nodes()) {
    if (node.kind != stele::NodeKind::tensor) continue;
    const std::string name(node.name, node.name_size);
    if (name.rfind(prefix, 0) == 0) arrays.emplace(name.substr(prefix.size()), read_array(file.leaf(node.index)));
  }
  return arrays;
}

/// Returns the largest difference of an element, relative to the element. With a limit of 1e-5, elements near 0 may
/// differ by four spacings of 32-bit floats at the largest element. Infinities and NaN must be equal; otherwise the
/// result is not finite.
inline double difference(const Array& expected, const Array& found) {
  double largest = 1e-30, worst = 0;
  for (const double value : expected.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double a = expected.values[i], b = found.values[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(a - b) / (std::abs(a) + 4 * 0x1p-23 / 1e-5 * largest));
  }
  return worst;
}

/// Runs a model and compares it with a file that contains inputs (`in.NAME`) and the expected outputs (`out.NAME`).
inline void check_golden(const stele::Checkpoint& model, const std::string& golden, double tolerance = 1e-5) {
  const Arrays expected = arrays_in(golden, "out.");
  const Arrays found = run_graph(model, arrays_in(golden, "in."));
  CHECK(expected.size() == model.graph->outputs.size());
  for (const auto& output : expected) {
    CAPTURE(output.first);
    REQUIRE(found.count(output.first) == 1);
    REQUIRE(found.at(output.first).shape == output.second.shape);
    CHECK(difference(output.second, found.at(output.first)) <= tolerance);
  }
}

}  // namespace stele_test::interpreter
