// Converts pieces of a leaf before they reach another sink.
#pragma once

#include <cstdint>

#include "stele/precision/convert.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

Error convert_error(const ConvertOutcome& outcome, DType from, DType to, std::uint64_t first);

/// Converts pieces and passes them to another sink.
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
  std::uint64_t done_ = 0;  // number of elements converted
  std::uint64_t overflowed_ = 0;
};

/// Streams the leaf's elements, converted to `to`. Returns the number of elements that became infinite. Converting a
/// bool to bool checks it. Errors: those of LeafView::stream, out_of_range, dtype_mismatch, malformed.
Result<std::uint64_t> stream_as(const LeafView& leaf, DType to, const ConvertRules& rules, PieceSink& sink,
                                ReadContext& context);

}  // namespace stele::inline v0::detail
