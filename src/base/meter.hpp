// Counts the bytes of a save or load for the progress callback.
#pragma once

#include "base/threads.hpp"
#include "stele/options.hpp"

namespace stele::inline v0::detail {

/// Counts bytes and asks the caller whether to continue. Thread-safe.
class Meter {
 public:
  /// `callback` may be empty.
  Meter(const ProgressCallback& callback, std::uint64_t total) : callback_(callback), progress_{0, total} {}
  bool idle() const noexcept { return !callback_; }
  /// Errors: cancelled.
  Status add(std::uint64_t bytes);

 private:
  const ProgressCallback& callback_;
  Mutex mutex_;
  Progress progress_;
  bool cancelled_ = false;
};

}  // namespace stele::inline v0::detail
