// Tensor elements stored as packed varints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/threads.hpp"
#include "model.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::onnx {

/// Decodes varints. Each varint is one element; for 4-bit dtypes it is a byte with two elements. Elements of 6 bits are
/// packed, four in three bytes.
class Varints {
 public:
  /// `model` and `mutex` must outlive it. The mutex guards the positions at which reads ended.
  /// `count` is count_of() the tensor's elements.
  Varints(const SourcePtr& model, Mutex& mutex, Range range, DType dtype, std::uint64_t count)
      : model_(&model), mutex_(&mutex), range_(range), dtype_(dtype), count_(count) {}

  /// Returns the number of varints of a tensor.
  static std::uint64_t count_of(DType dtype, std::uint64_t elements) noexcept;
  /// Returns the provider of a leaf. Errors: malformed (a wrong number of elements, elements that do not fit the
  /// dtype).
  Provider provider() const noexcept;

 private:
  struct Ops;
  /// The index of a unit (whole bytes of elements), and the offset of its first varint.
  struct Place {
    std::uint64_t unit, at;
  };

  bool fits(std::uint64_t value) const noexcept;
  Error bad(const char* message, std::uint64_t at) const;
  template <class Take>
  Result<Place> each(Place place, Take take) const;
  Place near(std::uint64_t unit) const;
  void remember(Place place) const;

  const SourcePtr* model_;
  Mutex* mutex_;
  Range range_;
  DType dtype_;
  std::uint64_t count_;
  mutable Place last_{0, 0};  // end of the last read, so that reads in order decode each element once
};

}  // namespace stele::inline v0::detail::onnx
