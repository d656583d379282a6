// Elements of a tensor that are packed varints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "model.hpp"
#include "stele/dtype.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::onnx {

/// Each varint is an element, or for 4-bit dtypes a byte of two elements.
class Varints {
 public:
  /// `model` and `mutex`, which guards the places where reads ended, outlive it.
  Varints(const SourcePtr& model, std::mutex& mutex, Range range, DType dtype)
      : model_(&model), mutex_(&mutex), range_(range), dtype_(dtype) {}

  /// Returns the size of an element in memory.
  static std::size_t unit_of(DType dtype) noexcept;
  /// The provider of a leaf. Errors: malformed (more or fewer elements than bytes, elements that do not fit the dtype).
  Provider provider() const noexcept;

 private:
  struct Ops;
  /// An element's number and the offset of its varint.
  struct Place {
    std::uint64_t element, at;
  };

  bool fits(std::uint64_t value) const noexcept;
  Error bad(const char* message, std::uint64_t at) const;
  template <class Take>
  Result<Place> each(Place place, Take take) const;
  Place near(std::uint64_t element) const;
  void remember(Place place) const;

  const SourcePtr* model_;
  std::mutex* mutex_;
  Range range_;
  DType dtype_;
  mutable Place last_{0, 0};  // where the last read ended, so that reads in order decode each element once
};

}  // namespace stele::inline v0::detail::onnx
