// Encodes numbers: reads them, and determines scales, zero points and codes.
#include "passes/composites/encoder.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/threads.hpp"
#include "leaves/provider.hpp"
#include "leaves/region.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/paths.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::composites {
namespace {

constexpr float max_e2m1 = 6, max_e4m3 = 448;

/// The part of a Coding that decoding needs: an integer's code without a sign has this added.
float zero_of(const Weight& w) {
  const bool centered = w.scheme->package == Package::gptq;
  return centered ? static_cast<float>(1U << (w.scheme->bits - 1)) : 0;
}

Error not_finite(const Weight& w) {
  return Error(Errc::out_of_range, "the tensor has a number that is not finite, and cannot be quantized").path(w.path);
}

/// The midpoints between the numbers of nf4.
const std::array<float, 15>& nf4_bounds() {
  static const auto bounds = [] {
    std::array<float, 15> all{};
    const Table& table = *nf4_table();
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = (table[i] + table[i + 1]) / 2;
    return all;
  }();
  return bounds;
}

}  // namespace

Result<float> Encoder::global_of(const Weight& w, ReadContext& context) {
  const Lock lock(w.mutex);
  if (w.global != 0) return w.global;
  Encoder reader(w, context);
  float largest = 0;
  const std::uint64_t rows = std::max<std::uint64_t>(1, (std::uint64_t{1} << 18) / w.columns);
  for (std::uint64_t row = 0; row < w.rows; row += rows) {
    STELE_TRY(reader.load_rows(row, std::min(rows, w.rows - row)));
    const Extremes found = extremes(reader.floats_.data(), reader.floats_.size());
    if (!found.finite) return not_finite(w);
    largest = std::max({largest, -found.low, found.high});
  }
  const float global = largest > 0 ? max_e4m3 * max_e2m1 / largest : 1;
  w.global = std::isfinite(global) ? global : 1;
  return w.global;
}

Status Encoder::read(std::uint64_t first, std::uint64_t count, float* out) {
  const LeafView leaf = w_.floats();
  const std::size_t element = element_size(leaf.dtype());
  const auto size = static_cast<std::size_t>(count) * element;
  if (bytes_.size() < size) bytes_ = Bytes(size);
  const auto bytes = bytes_.span().first(size);
  STELE_TRY(with_path(read_bytes(leaf.provider(), leaf.byte_size(), first * element, bytes, context_), leaf));
  return to_floats(bytes.data(), first, static_cast<std::size_t>(count), out);
}

Status Encoder::to_floats(const std::byte* bytes, std::uint64_t first, std::size_t count, float* out) {
  const DType from = w_.floats().dtype();
  const ConvertOutcome outcome = convert(from, bytes, DType::f32, reinterpret_cast<std::byte*>(out), count);
  if (outcome.status == ConvertStatus::ok) return {};
  return convert_error(outcome, from, DType::f32, first).path(w_.path);
}

Status Encoder::load_rows(std::uint64_t row, std::uint64_t units) {
  const std::uint64_t first = row * w_.columns;
  const std::uint64_t count = std::min(w_.elements, first + units * w_.row_group * w_.columns) - first;
  width_ = w_.columns;
  floats_.resize(static_cast<std::size_t>(count));
  return read(first, count, floats_.data());
}

Status Encoder::load_columns(std::uint64_t column, std::uint64_t count) {
  const LeafView leaf = w_.floats();
  width_ = count;
  floats_.resize(static_cast<std::size_t>(w_.rows * count));
  if (leaf.location() || !leaf.view().empty()) {
    const std::size_t element = element_size(leaf.dtype());
    const std::array<Extent, 2> shape = {w_.rows, w_.columns};
    const RegionLeaf region(leaf.provider(), shape, element, {{0, column}, {w_.rows, count}});
    if (bytes_.size() < floats_.size() * element) bytes_ = Bytes(floats_.size() * element);
    const auto bytes = bytes_.span().first(floats_.size() * element);
    STELE_TRY(with_path(read_bytes(region.provider(), bytes.size(), 0, bytes, context_), leaf));
    return to_floats(bytes.data(), column, floats_.size(), floats_.data());
  }
  // Computed numbers: whole rows.
  const std::uint64_t at_once = std::max<std::uint64_t>(1, (std::uint64_t{1} << 20) / w_.columns);
  rows_.resize(static_cast<std::size_t>(std::min(at_once, w_.rows) * w_.columns));
  for (std::uint64_t row = 0; row < w_.rows; row += at_once) {
    const std::uint64_t n = std::min(at_once, w_.rows - row);
    STELE_TRY(read(row * w_.columns, n * w_.columns, rows_.data()));
    for (std::uint64_t r = 0; r < n; ++r) {
      std::copy_n(rows_.data() + r * w_.columns + column, count, floats_.data() + (row + r) * count);
    }
  }
  return {};
}

template <class F>
void Encoder::each_run(const F& f) {
  const auto width = static_cast<std::size_t>(width_), group = static_cast<std::size_t>(w_.group);
  for (std::size_t at = 0, row = 0; at < floats_.size(); ++row) {
    const std::size_t line = row / static_cast<std::size_t>(w_.row_group) * (width / group);
    for (std::size_t c = 0; c < width && at < floats_.size(); c += group) {
      const std::size_t n = std::min({group, width - c, floats_.size() - at});
      f(line + c / group, at, n);
      at += n;
    }
  }
}

Status Encoder::encode(bool measure) {
  const std::uint64_t units_of_rows = w_.by_columns() ? w_.rows : (floats_.size() + width_ - 1) / width_;
  const std::uint64_t lines = (units_of_rows + w_.row_group - 1) / w_.row_group;
  const auto cells = static_cast<std::size_t>(lines * (width_ / w_.group));
  found_.assign(cells, Extremes{});
  bool finite = true;
  each_run([&](std::size_t cell, std::size_t at, std::size_t n) {
    const Extremes e = extremes(floats_.data() + at, n);
    found_[cell].low = std::min(found_[cell].low, e.low);
    found_[cell].high = std::max(found_[cell].high, e.high);
    finite = finite && e.finite;
  });
  if (!finite) return not_finite(w_);
  stored_.resize(cells);
  for (std::size_t i = 0; i < cells; ++i) stored_[i] = scale_of(found_[i]);
  STELE_TRY(round_scales());
  scales_ = stored_;
  zeros_.assign(cells, zero_of(w_));
  for (std::size_t i = 0; i < cells; ++i) {
    if (w_.scheme->scaling == Scaling::of_weight) scales_[i] /= global_;
    if (w_.scheme->scaling == Scaling::range)
      zeros_[i] = std::clamp(std::nearbyint(-found_[i].low / scales_[i]), 0.0F, 15.0F);
  }
  codes_.resize(floats_.size());
  each_run([&](std::size_t cell, std::size_t at, std::size_t n) {
    encode_run(floats_.data() + at, scales_[cell], zeros_[cell], codes_.data() + at, n);
    if (measure) add_differences(cell, at, n);
  });
  return {};
}

float Encoder::scale_of(const Extremes& e) const {
  const float largest = std::max(-e.low, e.high);
  const auto steps = static_cast<float>((1U << w_.scheme->bits) - 1U);
  const float max = w_.scheme->coding == Coding::float4 ? max_e2m1 : max_e4m3;
  switch (w_.scheme->scaling) {
    case Scaling::range:
      return (e.high - e.low) / steps;
    case Scaling::exponent: {
      if (largest == 0) return 0x1p-127F;
      int exponent = 0;
      // Numbers above 1.75 * 2^e are at least as near to 2^(e + 1) as to the largest code.
      const float mantissa = std::frexp(largest, &exponent);  // in [0.5, 1)
      const int top = w_.scheme->coding == Coding::float4 ? 2 : 8;
      return std::ldexp(1.0F, std::clamp(exponent - 1 - top + (mantissa >= 0.875F ? 1 : 0), -127, 127));
    }
    case Scaling::of_weight:
      return std::min(largest / max * global_, max_e4m3);
    case Scaling::largest:
      break;
  }
  if (w_.scheme->coding == Coding::table) return largest;
  return w_.scheme->coding == Coding::integer ? largest / (steps / 2) : largest / max;
}

Status Encoder::round_scales() {
  const DType to = w_.scales;
  if (to != DType::f32 && to != DType::u8) {
    bytes_of_scales_.resize(stored_.size() * element_size(to));
    STELE_TRY(convert_scales(to, bytes_of_scales_.data()));
    const ConvertOutcome back =
        convert(to, bytes_of_scales_.data(), DType::f32, reinterpret_cast<std::byte*>(stored_.data()), stored_.size());
    if (back.status != ConvertStatus::ok) return convert_error(back, to, DType::f32, 0).path(w_.path);
  }
  for (float& s : stored_) {
    if (s == 0) s = w_.scheme->scaling == Scaling::of_weight ? 0.125F : 1;
  }
  return {};
}

Status Encoder::convert_scales(DType to, std::byte* out) const {
  const ConvertOutcome outcome =
      convert(DType::f32, reinterpret_cast<const std::byte*>(stored_.data()), to, out, stored_.size());
  if (outcome.status == ConvertStatus::ok) return {};
  return Error(Errc::out_of_range, "the tensor has a number that is too large for its group's scale")
      .path(w_.path)
      .expected("a scale in the range of " + std::string(name(to)));
}

void Encoder::encode_run(const float* x, float scale, float zero, std::uint8_t* codes, std::size_t n) {
  switch (w_.scheme->coding) {
    case Coding::integer: {
      const auto half = static_cast<float>(1U << (w_.scheme->bits - 1));
      if (w_.scheme->scaling == Scaling::range) {
        encode_integers(x, scale, -zero, 2 * half - 1 - zero, zero, codes, n);
      } else {
        encode_integers(x, scale, -half, half - 1, half, codes, n);
      }
      return;
    }
    case Coding::float4:
      return encode_e2m1(x, scale, codes, n);
    case Coding::float8: {
      divided_.resize(n);
      for (std::size_t i = 0; i < n; ++i) divided_[i] = std::clamp(x[i] / scale, -max_e4m3, max_e4m3);
      convert(DType::f32, reinterpret_cast<const std::byte*>(divided_.data()), DType::f8_e4m3fn,
              reinterpret_cast<std::byte*>(codes), n);
      return;
    }
    case Coding::table:
      return encode_between(x, scale, nf4_bounds().data(), codes, n);
  }
}

void Encoder::add_differences(std::size_t cell, std::size_t at, std::size_t n) {
  divided_.resize(n);
  decode_codes(codes_.data() + at, w_.table->data(), {scales_[cell], zeros_[cell]}, divided_.data(), n);
  for (std::size_t i = 0; i < n; ++i) {
    differences_.add(static_cast<double>(divided_[i]) - static_cast<double>(floats_[at + i]));
  }
}

}  // namespace stele::inline v0::detail::composites
