// Interpolation along an axis as in ONNX's Resize (https://onnx.ai/onnx/operators/onnx__Resize.html).
#include <algorithm>
#include <cmath>

#include "ir/rules/operands.hpp"

namespace stele::inline v0::detail::ir {

namespace {

using Value = ExpressionValue;

struct Axis {
  double from = 0, to = 0, scale = 0, roi_start = 0, roi_end = 0, cubic = 0;
  bool exclude_outside = false, antialias = false;
  std::string mode, coordinates, rounding;
};

struct Taps {
  Ints positions;
  Reals weights;
};

Result<Axis> axis_of(const std::vector<Value>& operands) {
  const auto numbers = list_of<double>(operands[0]);
  const auto* names = std::get_if<std::vector<std::string>>(&operands[1]);
  if (!numbers || numbers->size() != 8 || names == nullptr || names->size() != 3) {
    return bad_operands("resize", operands[0], operands[1]);
  }
  const Reals& n = *numbers;
  Axis axis{n[0], n[1], n[2], n[3], n[4], n[5], n[6] != 0, n[7] != 0, (*names)[0], (*names)[1], (*names)[2]};
  const bool sizes = axis.from >= 1 && axis.from < 0x1p31 && axis.to >= 0 && axis.to <= double{max_list};
  if (!sizes || !(axis.scale > 0) || !(axis.scale < 0x1p31)) {
    return Error(Errc::limit, "an extent or a scale of a Resize is out of bounds").found(to_text(operands[0]));
  }
  return axis;
}

/// Returns the coordinate in the input for an element of the result.
Result<double> coordinate(const Axis& a, double x) {
  const double length = a.scale * a.from;
  const bool one = length == 1;
  if (a.coordinates == "align_corners") return one ? 0 : x * (a.from - 1) / (length - 1);
  if (a.coordinates == "asymmetric") return x / a.scale;
  if (a.coordinates == "pytorch_half_pixel" && one) return -0.5;
  if (a.coordinates == "half_pixel" || a.coordinates == "pytorch_half_pixel") return (x + 0.5) / a.scale - 0.5;
  if (a.coordinates == "half_pixel_symmetric") {
    return a.from / 2 * (1 - a.to / length) + (x + 0.5) / a.scale - 0.5;
  }
  if (a.coordinates == "tf_crop_and_resize") {
    const double span = (a.roi_end - a.roi_start) * (a.from - 1);
    return a.roi_start * (a.from - 1) + (one ? span / 2 : x * span / (length - 1));
  }
  return Error(Errc::invalid_argument, "Resize has no such coordinates").found(a.coordinates);
}

Result<double> nearest(const Axis& a, double x) {
  if (a.rounding == "floor") return std::floor(x);
  if (a.rounding == "ceil") return std::ceil(x);
  if (a.rounding == "round_prefer_floor") return std::ceil(x - 0.5);
  if (a.rounding == "round_prefer_ceil") return std::floor(x + 0.5);
  return Error(Errc::invalid_argument, "Resize has no such rounding").found(a.rounding);
}

double cubic(double a, double distance) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Adds the neighbors of one coordinate. Each coordinate has the same number of neighbors.
Status add_taps(const Axis& a, double x, Taps& to) {
  if (a.mode == "nearest") {
    STELE_TRY_ASSIGN(const double at, nearest(a, x));
    to.positions.push_back(static_cast<std::int64_t>(std::clamp(at, 0.0, a.from - 1)));
    to.weights.push_back(1);
    return {};
  }
  const bool linear = a.mode == "linear";
  if (!linear && a.mode != "cubic") return Error(Errc::invalid_argument, "Resize has no such mode").found(a.mode);
  const double scale = a.antialias ? std::min(a.scale, 1.0) : 1;
  const double radius = linear ? 1 : 2;
  // For an integer coordinate, the left neighbor is the element before it.
  const double floor = std::floor(x) == x ? x - 1 : std::floor(x);
  const double ratio = x - floor;
  const auto first = static_cast<std::int64_t>(std::floor(-radius / scale) + 1);
  const auto last = 1 - first;
  if (to.positions.size() + static_cast<std::size_t>(last - first) >= max_list) {
    return Error(Errc::limit, "a Resize interpolates more than 65536 elements of an axis");
  }
  const std::size_t begin = to.weights.size();
  double sum = 0;
  for (std::int64_t i = first; i <= last; ++i) {
    const double position = floor + static_cast<double>(i);
    const double distance = scale * (static_cast<double>(i) - ratio);
    double weight = linear ? std::max(0.0, 1 - std::abs(distance)) : cubic(a.cubic, distance);
    if (a.exclude_outside && (position < 0 || position > a.from - 1)) weight = 0;
    to.positions.push_back(static_cast<std::int64_t>(std::clamp(position, 0.0, a.from - 1)));
    to.weights.push_back(weight);
    sum += weight;
  }
  if (a.antialias || a.exclude_outside) {
    for (std::size_t k = begin; k < to.weights.size() && sum != 0; ++k) to.weights[k] /= sum;
  }
  return {};
}

Result<Taps> taps_of(const std::vector<Value>& operands) {
  STELE_TRY_ASSIGN(const Axis axis, axis_of(operands));
  Taps taps;
  for (double i = 0; i < axis.to; ++i) {
    STELE_TRY_ASSIGN(const double x, coordinate(axis, i));
    const std::size_t begin = taps.weights.size();
    STELE_TRY(add_taps(axis, x, taps));
    const bool outside = axis.coordinates == "tf_crop_and_resize" && (x < 0 || x > axis.from - 1);
    for (std::size_t k = begin; outside && k < taps.weights.size(); ++k) taps.weights[k] = 0;
  }
  return taps;
}

}  // namespace

Result<Value> resize_positions(const std::vector<Value>& operands) {
  STELE_TRY_ASSIGN(Taps taps, taps_of(operands));
  return Value(std::move(taps.positions));
}

Result<Value> resize_weights(const std::vector<Value>& operands) {
  STELE_TRY_ASSIGN(Taps taps, taps_of(operands));
  return Value(std::move(taps.weights));
}

}  // namespace stele::inline v0::detail::ir
