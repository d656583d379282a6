#include "statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <stele/expansion.hpp>
#include <stele/precision/convert.hpp>

namespace stele::command {

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
  return progress_ == nullptr || progress_->add(bytes.size()) ? Status() : Progress::cancelled();
}

namespace {

Status add_leaf(const Unexpanded& stored, std::uint32_t number, ReadContext& context, Progress* progress,
                Statistics& sums) {
  const LeafView leaf = stored.snapshot.leaf(number);
  NumbersSink sink(
      leaf, [&](std::span<const double> numbers) { sums.add(numbers); }, progress);
  STELE_TRY(leaf.stream(sink, context));
  sums.repeat(stored.times[number]);
  return {};
}

}  // namespace

Result<std::vector<Statistics>> statistics_of(const Snapshot& snapshot, const std::vector<Named>& names,
                                              Terminal& terminal) {
  const Unexpanded stored = unexpanded(snapshot);
  std::vector<Statistics> all(snapshot.leaf_count());
  std::vector<std::uint32_t> leaves;
  std::uint64_t total = 0;
  std::vector<bool> seen(snapshot.leaf_count());
  for (const Named& named : names) {
    const LeafView leaf = stored.snapshot.leaf(named.leaf);
    if (seen[named.leaf] || !has_numbers(leaf.dtype())) continue;
    seen[named.leaf] = true;
    leaves.push_back(named.leaf);
    total += leaf.byte_size();
  }
  Progress progress(terminal, "reading", total);
  const auto read = [&](std::size_t i, ReadContext& context) -> Status {
    return add_leaf(stored, leaves[i], context, &progress, all[leaves[i]]);
  };
  STELE_TRY(for_each_leaf(stored.snapshot, leaves.size(), terminal.common().threads, read));
  std::vector<Statistics> out;
  out.reserve(names.size());
  for (const Named& named : names) out.push_back(all[named.leaf]);
  return out;
}

Result<Statistics> statistics_of(const Snapshot& snapshot, std::uint32_t leaf) {
  Statistics sums;
  if (!has_numbers(snapshot.leaf(leaf).dtype())) return sums;
  STELE_TRY(check_expansion(snapshot));
  ReadContext context;
  STELE_TRY(add_leaf(unexpanded(snapshot), leaf, context, nullptr, sums));
  return sums;
}

}  // namespace stele::command
