// Numbers of tensors as doubles, and statistics over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "model.hpp"

namespace stele::command {

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

/// Passes a leaf's numbers to a function, in blocks; none for dtypes without numbers. `progress` may be null.
class NumbersSink final : public PieceSink {
 public:
  NumbersSink(const LeafView& leaf, std::function<void(std::span<const double>)> use, Progress* progress)
      : dtype_(leaf.dtype()), left_(leaf.size()), use_(std::move(use)), progress_(progress) {}
  Status piece(std::span<const std::byte> bytes) override;

 private:
  DType dtype_;
  std::uint64_t left_;
  std::function<void(std::span<const double>)> use_;
  Progress* progress_;
};

/// Returns the statistics of each of `names`, and checks the tensors' checksums; count is 0 for dtypes without numbers.
Result<std::vector<Statistics>> statistics_of(const Snapshot& snapshot, const std::vector<Named>& names,
                                              Terminal& terminal);
/// The same for one leaf, outside of a run of the command, whose interruption does not end it.
Result<Statistics> statistics_of(const Snapshot& snapshot, std::uint32_t leaf);

}  // namespace stele::command
