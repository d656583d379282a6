// Numbers of tensors as doubles, and statistics and histograms over them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "facts/names.hpp"

namespace stele::facts {

/// Returns true for dtypes whose elements to_doubles() converts: all but strings, opaque blocks and 6-bit floats.
bool has_numbers(DType dtype) noexcept;
/// Returns the number of doubles for each element: two for complex numbers, else one.
inline std::size_t parts_of(DType dtype) noexcept { return dtype_class(dtype) == DTypeClass::complex ? 2 : 1; }
/// Converts `count` elements that start at a byte's first element. `out` has parts_of(dtype) * count numbers.
void to_doubles(DType dtype, const std::byte* elements, std::size_t count, double* out);

/// Statistics of a tensor's numbers. Mean, deviation and norm cover only the finite numbers.
struct Statistics {
  std::uint64_t count = 0;  // real numbers: two for each complex one
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  double min = std::numeric_limits<double>::infinity();  // covers the finite numbers
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double squares = 0;  // the sum of the squared deviations from the mean

  void add(std::span<const double> numbers) noexcept;
  void merge(const Statistics& other) noexcept;
  /// Counts each number `times` times.
  void repeat(std::uint64_t times) noexcept;
  std::uint64_t finite() const noexcept { return count - nans - infinities; }
  double deviation() const noexcept;  // standard deviation of the population
  double norm() const noexcept;       // L2
};

/// Passes a leaf's numbers to a function, in blocks; none for dtypes without numbers.
class NumbersSink final : public PieceSink {
 public:
  NumbersSink(const LeafView& leaf, std::function<void(std::span<const double>)> use, const Advance& advance)
      : dtype_(leaf.dtype()), left_(leaf.size()), use_(std::move(use)), advance_(advance) {}
  Status piece(std::span<const std::byte> bytes) override;

 private:
  DType dtype_;
  std::uint64_t left_;
  std::function<void(std::span<const double>)> use_;
  const Advance& advance_;
};

/// Adds the numbers of a leaf to `sums`, and checks its checksum; adds none for dtypes without numbers.
Status add_leaf(const LeafView& leaf, Statistics& sums, const Advance& advance, ReadContext& context);
/// Returns the statistics of one leaf.
Result<Statistics> statistics_of(const Snapshot& snapshot, std::uint32_t leaf, const Advance& advance = {});

inline constexpr std::size_t histogram_bins = 48;
using Histogram = std::array<std::uint64_t, histogram_bins>;  // between a tensor's minimum and maximum

struct LeafFacts {
  Statistics statistics{};
  std::optional<Histogram> histogram{};
  std::optional<std::string> error{};
};

enum class Histograms : std::uint8_t { no, yes };

/// Reads a leaf; for a histogram, reads a leaf with numbers twice. A damaged one has an error instead. Errors:
/// cancelled.
Result<LeafFacts> facts_of(const LeafView& leaf, Histograms histograms, const Advance& advance, ReadContext& context);

}  // namespace stele::facts
