// Statistics and histograms of tensors.
#include "facts/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <stele/expansion.hpp>
#include <stele/precision/convert.hpp>

namespace stele::facts {

namespace {

/// f4_e2m1 (OCP MX, section 5.3.3).
constexpr std::array<double, 16> f4_values{0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};

double packed_value(DType dtype, unsigned code) {
  if (dtype == DType::f4_e2m1) return f4_values.at(code);
  return dtype == DType::i4 && code >= 8 ? static_cast<double>(code) - 16 : code;
}

}  // namespace

bool has_numbers(DType dtype) noexcept { return bits(dtype) != 0 && bits(dtype) != 6; }

void to_doubles(DType dtype, const std::byte* elements, std::size_t count, double* out) {
  if (bits(dtype) == 4) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = packed_value(dtype, std::to_integer<unsigned>(elements[i / 2]) >> (i % 2 * 4) & 15U);
    }
    return;
  }
  if (dtype == DType::boolean) {  // any other byte than 0 is true
    for (std::size_t i = 0; i < count; ++i) out[i] = elements[i] != std::byte{0} ? 1 : 0;
    return;
  }
  const DType from = dtype == DType::c64 ? DType::f32 : dtype == DType::c128 ? DType::f64 : dtype;
  static_cast<void>(convert(from, elements, DType::f64, reinterpret_cast<std::byte*>(out), count * parts_of(dtype),
                            {.allow_overflow = true, .allow_kind_change = true}));
}

void Statistics::add(std::span<const double> numbers) noexcept {
  Statistics block;
  block.count = numbers.size();
  double sum = 0;
  for (const double d : numbers) {
    if (std::isnan(d)) {
      ++block.nans;
    } else if (std::isinf(d)) {
      ++block.infinities;
    } else {
      sum += d;
      block.zeros += d == 0 ? 1 : 0;
      block.min = std::min(block.min, d);
      block.max = std::max(block.max, d);
    }
  }
  if (block.finite() != 0) block.mean = sum / static_cast<double>(block.finite());
  for (const double d : numbers) {
    if (std::isfinite(d)) block.squares += (d - block.mean) * (d - block.mean);
  }
  merge(block);
}

// Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979.
void Statistics::merge(const Statistics& other) noexcept {
  const auto n = static_cast<double>(finite());
  const auto m = static_cast<double>(other.finite());
  if (m > 0) {
    const double delta = other.mean - mean;
    mean += delta * (m / (n + m));
    squares += other.squares + delta * delta * (n * m / (n + m));
  }
  count += other.count;
  zeros += other.zeros;
  nans += other.nans;
  infinities += other.infinities;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

void Statistics::repeat(std::uint64_t times) noexcept {
  count *= times;
  zeros *= times;
  nans *= times;
  infinities *= times;
  squares *= static_cast<double>(times);
}

double Statistics::deviation() const noexcept {
  return finite() == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite()));
}

double Statistics::norm() const noexcept { return std::sqrt(squares + static_cast<double>(finite()) * mean * mean); }

Status NumbersSink::piece(std::span<const std::byte> bytes) {
  if (has_numbers(dtype_)) {
    std::array<double, 4096> numbers;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const std::size_t block = numbers.size() / parts_of(dtype_);
    const std::byte* at = bytes.data();
    const auto in_piece = std::min<std::uint64_t>(left_, bytes.size() * 8 / bits(dtype_));
    left_ -= in_piece;
    for (std::uint64_t i = 0; i < in_piece; i += block) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block, in_piece - i));
      to_doubles(dtype_, at, n, numbers.data());
      use_({numbers.data(), n * parts_of(dtype_)});
      at += n * bits(dtype_) / 8;
    }
  }
  return advanced(advance_, bytes.size());
}

Status add_leaf(const LeafView& leaf, Statistics& sums, const Advance& advance, ReadContext& context) {
  NumbersSink sink(
      leaf, [&](std::span<const double> numbers) { sums.add(numbers); }, advance);
  return leaf.stream(sink, context);
}

Result<Statistics> statistics_of(const Snapshot& snapshot, std::uint32_t leaf, const Advance& advance) {
  Statistics sums;
  if (!has_numbers(snapshot.leaf(leaf).dtype())) return sums;
  STELE_TRY(check_expansion(snapshot));
  const Unexpanded stored = unexpanded(snapshot);
  ReadContext context;
  STELE_TRY(add_leaf(stored.snapshot.leaf(leaf), sums, advance, context));
  sums.repeat(stored.times[leaf]);
  return sums;
}

namespace {

void count(Histogram& bins, std::span<const double> numbers, double low, double high) {
  const double width = high - low;
  for (const double d : numbers) {
    if (!std::isfinite(d)) continue;
    const double at = width > 0 && std::isfinite(width) ? (d - low) / width * histogram_bins : 0;
    ++bins.at(std::min(static_cast<std::size_t>(std::max(at, 0.0)), histogram_bins - 1));
  }
}

}  // namespace

Result<LeafFacts> facts_of(const LeafView& leaf, Histograms histograms, const Advance& advance, ReadContext& context) {
  LeafFacts out;
  auto read = add_leaf(leaf, out.statistics, advance, context);
  if (read && histograms == Histograms::yes && out.statistics.finite() != 0) {
    Histogram bins{};
    NumbersSink sink(
        leaf, [&](std::span<const double> numbers) { count(bins, numbers, out.statistics.min, out.statistics.max); },
        advance);
    read = leaf.stream(sink, context);
    out.histogram = bins;
  }
  if (read) return out;
  if (read.error().code() == Errc::cancelled) return read.error();
  out = {};
  out.error = read.error().to_string();
  return out;
}

}  // namespace stele::facts
