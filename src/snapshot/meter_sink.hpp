// Counts the bytes of a leaf before they reach another sink.
#pragma once

#include "base/meter.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Passes pieces on and meters them.
class MeterSink final : public PieceSink {
 public:
  MeterSink(PieceSink& next, Meter& meter) : next_(next), meter_(meter) {}
  std::byte* place(std::uint64_t offset, std::size_t size) override { return next_.place(offset, size); }
  std::span<std::byte> room(std::size_t size) override { return next_.room(size); }
  Status piece(std::span<const std::byte> bytes) override;

 private:
  PieceSink& next_;
  Meter& meter_;
};

}  // namespace stele::inline v0::detail
