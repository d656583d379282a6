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

/// Decodes varints. Each varint is one element; for 4-bit dtypes it is a byte with two elements.
class Varints {
 public:
  /// `model` and `mutex` must outlive it. The mutex guards the positions at which reads ended.
  Varints(const SourcePtr& model, Mutex& mutex, Range range, DType dtype)
      : model_(&model), mutex_(&mutex), range_(range), dtype_(dtype) {}

  /// Returns the size of an element in memory.
  static std::size_t unit_of(DType dtype) noexcept;
  /// Returns the provider of a leaf. Errors: malformed (a wrong number of elements, elements that do not fit the
  /// dtype).
  Provider provider() const noexcept;

 private:
  struct Ops;
  /// An element's index and the offset of its varint.
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
  Mutex* mutex_;
  Range range_;
  DType dtype_;
  mutable Place last_{0, 0};  // end of the last read, so that reads in order decode each element once
};

}  // namespace stele::inline v0::detail::onnx
