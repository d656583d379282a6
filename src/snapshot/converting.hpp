// Converts pieces of a leaf on their way to another sink.
#pragma once

#include <cstdint>

#include "stele/precision/convert.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

Error convert_error(const ConvertOutcome& outcome, DType from, DType to, std::uint64_t first);

/// Converts pieces on their way to another sink.
class ConvertingSink final : public PieceSink {
 public:
  ConvertingSink(DType from, DType to, ConvertRules rules, PieceSink& next, ReadContext& context)
      : from_(from), to_(to), rules_(rules), next_(next), staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override;
  std::uint64_t overflowed() const noexcept { return overflowed_; }

 private:
  DType from_, to_;
  ConvertRules rules_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;  // elements
  std::uint64_t overflowed_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
