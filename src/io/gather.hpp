// Collects small pieces for a sink, so that a save makes few system calls for tensors of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0::detail {

class STELE_EXPORT Gather {
 public:
  explicit Gather(Sink& sink);

  /// Appends bytes: copies small pieces, and writes large pieces directly from their memory.
  Status write(std::span<const std::byte> bytes);
  Status zeros(std::size_t count);
  /// Appends bytes of a source (see Sink::copy).
  Status copy(const Source& from, std::uint64_t offset, std::uint64_t size);
  /// Replaces bytes that were appended before, if the sink supports it.
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes);
  bool can_patch() const noexcept { return sink_.can_patch(); }
  Status flush();
  /// Returns the number of bytes appended so far.
  std::uint64_t position() const noexcept { return flushed_ + waiting_; }

 protected:
  /// Minimum size of a piece that is written without copying.
  static constexpr std::size_t direct = std::size_t{64} << 10;
  /// Appends bytes that must stay in place until the next flush().
  Status refer(std::span<const std::byte> bytes);

 private:
  static constexpr std::size_t size = std::size_t{1} << 20;
  static constexpr std::size_t max_pieces = 1024;

  Sink& sink_;
  Bytes staging_;
  std::size_t used_ = 0;                            // bytes used in the staging memory
  std::vector<std::span<const std::byte>> pieces_;  // not written yet, in order
  std::size_t waiting_ = 0;                         // bytes of the pieces
  std::uint64_t flushed_ = 0;
};

}  // namespace stele::inline v0::detail
