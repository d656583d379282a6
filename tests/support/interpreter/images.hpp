// Operations on images for the tests' interpreter.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "support/interpreter/arrays.hpp"

namespace stele_test::interpreter {

/// Converts an image to NCHW, and back. "isNCHW" is 1 if the channels are last.
inline Array channels_first(const Call& call) {
  return call.integer("isNCHW") != 0 ? permuted(call.in(0), {0, 3, 1, 2}) : call.in(0);
}
inline Array formatted(const Call& call, Array a) {
  return call.integer("isNCHW") != 0 ? permuted(a, {0, 2, 3, 1}) : a;
}
/// Returns weights in the order of wFormat 1, in which rows and columns are last.
inline Array weights_of(const Call& call) {
  require(call.integer("wFormat") == 0 || call.integer("wFormat") == 1, "a format of weights");
  return call.integer("wFormat") == 0 ? permuted(call.in(1), {3, 2, 0, 1}) : call.in(1);
}

/// Windows over images in the format NCHW.
struct Window {
  explicit Window(const Call& call)
      : same(call.integer("isSameMode") != 0),
        kernel{call.integer("kH"), call.integer("kW")},
        stride{call.integer("sH"), call.integer("sW")},
        padding{call.integer("pH"), call.integer("pW")},
        dilation{call.integer("dH"), call.integer("dW")} {}
  std::int64_t span(std::size_t k) const { return (kernel[k] - 1) * dilation[k] + 1; }
  /// In the mode "same", sets the padding before an image that shrinks from `large` to `small`.
  void pad(std::size_t k, std::int64_t large, std::int64_t small) {
    if (same) padding[k] = std::max<std::int64_t>(0, (small - 1) * stride[k] + span(k) - large) / 2;
  }
  Extents output(const Extents& image, std::int64_t channels) {
    Extents shape = {image.at(0), channels};
    for (const std::size_t k : {0U, 1U}) {
      const std::int64_t size = image.at(2 + k);
      shape.push_back(same ? (size + stride[k] - 1) / stride[k] : (size + 2 * padding[k] - span(k)) / stride[k] + 1);
      pad(k, size, shape.back());
    }
    return shape;
  }
  /// Calls `f(row, column)` for each element of the kernel.
  template <class F>
  void each(F f) const {
    for (std::int64_t i = 0; i < kernel[0]; ++i) {
      for (std::int64_t j = 0; j < kernel[1]; ++j) f(i, j);
    }
  }
  /// Calls `f(element, row, column)` for each element in the window of an output, without padding.
  template <class F>
  void visit(const Array& image, const Extents& output, std::int64_t channel, F f) const {
    each([&](std::int64_t i, std::int64_t j) {
      const std::int64_t y = output[2] * stride[0] - padding[0] + i * dilation[0];
      const std::int64_t x = output[3] * stride[1] - padding[1] + j * dilation[1];
      if (y < 0 || y >= image.shape[2] || x < 0 || x >= image.shape[3]) return;
      f(image({output[0], channel, y, x}), i, j);
    });
  }
  bool same;
  std::array<std::int64_t, 2> kernel, stride, padding, dilation;
};

inline double bias_of(const Call& call, std::int64_t channel) {
  const Array* bias = call.find("bias");
  return bias == nullptr ? 0 : bias->values.at(static_cast<std::size_t>(channel));
}
/// Weights: outputs (for depthwise, per input), inputs, rows, columns.
inline Array convolution(const Call& call, bool depthwise) {
  const Array x = channels_first(call), w = weights_of(call);
  Window window(call);
  require(w.shape.at(1) == x.shape.at(1), "weights of a convolution");
  const Extents shape = window.output(x.shape, depthwise ? w.shape[0] * x.shape[1] : w.shape[0]);
  return formatted(
      call, make(shape, [&](const Extents& at) {
        double total = bias_of(call, at[1]);
        const std::int64_t first = depthwise ? at[1] / w.shape[0] : 0, last = depthwise ? first : x.shape[1] - 1;
        for (std::int64_t c = first; c <= last; ++c) {
          window.visit(x, at, c, [&](double v, auto i, auto j) { total += v * w({at[1] % w.shape[0], c, i, j}); });
        }
        return total;
      }));
}
/// Weights: inputs, outputs, rows, columns.
inline Array deconv2d(const Call& call) {
  const Array x = channels_first(call), w = weights_of(call);
  Window window(call);
  require(w.shape.at(0) == x.shape.at(1), "weights of deconv2d");
  Extents shape = {x.shape[0], w.shape[1]};
  for (const std::size_t k : {0U, 1U}) {
    const std::int64_t size = x.shape[2 + k], by = window.stride[k];
    shape.push_back(window.same ? size * by : (size - 1) * by + window.span(k) - 2 * window.padding[k]);
    window.pad(k, shape.back(), size);
  }
  return formatted(call, make(shape, [&](const Extents& at) {
                     double total = bias_of(call, at[1]);
                     window.each([&](std::int64_t i, std::int64_t j) {
                       const auto row = std::div(at[2] + window.padding[0] - i * window.dilation[0], window.stride[0]);
                       const auto column =
                           std::div(at[3] + window.padding[1] - j * window.dilation[1], window.stride[1]);
                       if (row.rem != 0 || row.quot < 0 || row.quot >= x.shape[2]) return;
                       if (column.rem != 0 || column.quot < 0 || column.quot >= x.shape[3]) return;
                       for (std::int64_t c = 0; c < x.shape[1]; ++c)
                         total += x({at[0], c, row.quot, column.quot}) * w({c, at[1], i, j});
                     });
                     return total;
                   }));
}
inline Array pool(const Call& call, bool average) {
  const Array x = channels_first(call);
  Window window(call);
  const bool whole = call.integer("extraParam0") == 1;  // an average counts the padding
  const Extents shape = window.output(x.shape, x.shape.at(1));
  return formatted(call, make(shape, [&](const Extents& at) {
                     std::vector<double> seen;
                     window.visit(x, at, at[1], [&](double v, auto, auto) { seen.push_back(v); });
                     require(whole || !seen.empty(), "a window that contains only padding");
                     if (!average) return *std::max_element(seen.begin(), seen.end());
                     if (whole) seen.resize(static_cast<std::size_t>(window.kernel[0] * window.kernel[1]));
                     return std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
                   }));
}

/// Images in the format NHWC.
inline Array resized(const Call& call, std::string_view half_pixel, bool linear) {
  const Array& x = call.in(0);
  const Extents size = integers(call.in(1));
  const bool corners = call.flag("alignCorners"), half = call.flag(half_pixel);
  require(!corners || !half, "two modes of resizing");
  Extents shape = x.shape;
  for (const std::size_t k : {1U, 2U}) shape.at(k) = size.at(k - 1);
  const auto position = [&](std::size_t k, std::int64_t at) {
    const auto from = static_cast<double>(x.shape[k]), to = static_cast<double>(shape[k]);
    const double scale = corners && shape[k] > 1 ? (from - 1) / (to - 1) : from / to;
    const double center = half ? (static_cast<double>(at) + 0.5) * scale : static_cast<double>(at) * scale;
    if (!linear) return std::min(corners ? std::round(center) : std::floor(center), from - 1);
    return std::clamp(half ? center - 0.5 : center, 0.0, from - 1);
  };
  return make(shape, [&](const Extents& i) {
    const double y = position(1, i[1]), z = position(2, i[2]), top = std::floor(y), left = std::floor(z);
    const auto pixel = [&](double row, double column) {
      const auto r = static_cast<std::int64_t>(row), c = static_cast<std::int64_t>(column);
      return x({i[0], std::min(r, x.shape[1] - 1), std::min(c, x.shape[2] - 1), i[3]});
    };
    const auto row = [&](double at) { return std::lerp(pixel(at, left), pixel(at, left + 1), z - left); };
    return std::lerp(row(top), row(top + 1), y - top);
  });
}
inline Array depth_to_space(const Call& call) {
  const Array& x = call.in(0);
  require(call.integer("isNHWC") == 1, "the format of depth_to_space");
  const std::int64_t n = call.integer("block_size"), depth = x.shape.at(3) / (n * n);
  return make({x.shape[0], x.shape[1] * n, x.shape[2] * n, depth}, [&](const Extents& i) {
    return x({i[0], i[1] / n, i[2] / n, (i[1] % n * n + i[2] % n) * depth + i[3]});
  });
}
/// Normalizes along the last axis.
inline Array lrn(const Call& call) {
  const Array& x = call.in(0);
  const std::int64_t depth = call.integer("depth");
  return make(x.shape, [&](const Extents& i) {
    double squares = 0;
    Extents at = i;
    for (at.back() = std::max<std::int64_t>(0, i.back() - depth);
         at.back() <= std::min(x.shape.back() - 1, i.back() + depth); ++at.back()) {
      squares += x(at) * x(at);
    }
    return x(i) / std::pow(call.real("bias") + call.real("alpha") * squares, call.real("beta"));
  });
}

}  // namespace stele_test::interpreter
