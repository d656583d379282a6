// Counts the bytes of a save or load for the progress callback.
#pragma once

#include <mutex>

#include "stele/options.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Counts bytes and asks the caller whether to go on; safe from several threads.
class Meter {
 public:
  /// `callback` may be empty: then nothing is asked.
  Meter(const ProgressCallback& callback, std::uint64_t total) : callback_(callback), progress_{0, total} {}
  bool idle() const noexcept { return !callback_; }
  /// Errors: cancelled.
  Status add(std::uint64_t bytes);

 private:
  const ProgressCallback& callback_;
  std::mutex mutex_;
  Progress progress_;
  bool cancelled_ = false;
};

/// Passes pieces on and meters them.
class MeterSink final : public PieceSink {
 public:
  MeterSink(PieceSink& next, Meter& meter) : next_(next), meter_(meter) {}
  std::byte* place(std::uint64_t offset, std::size_t size) override { return next_.place(offset, size); }
  Status piece(std::span<const std::byte> bytes) override;

 private:
  PieceSink& next_;
  Meter& meter_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
