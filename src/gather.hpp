// Gathers small pieces on their way to a sink, so that a save makes few system calls whatever the tensors' sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hash.hpp"
#include "stele/bytes.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

class STELE_EXPORT Gather {
 public:
  explicit Gather(Sink& sink) : sink_(sink), staging_(size) {}

  /// Appends; copied when small, else written from where it is.
  Status write(std::span<const std::byte> bytes);
  Status zeros(std::size_t count);
  /// Writes a leaf's bytes and, where `hash` is given, computes their XXH3-64. Checks that it has the length it says.
  Status leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash = nullptr);
  Status flush();
  /// Bytes appended so far.
  std::uint64_t position() const noexcept { return position_; }

 private:
  class LeafSink;
  static constexpr std::size_t size = std::size_t{1} << 20;
  static constexpr std::size_t direct = std::size_t{64} << 10;  // pieces from here on are not copied
  Sink& sink_;
  Bytes staging_;
  std::size_t used_ = 0;
  std::uint64_t position_ = 0;
  Hasher hasher_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
