// Gathers small pieces on their way to a sink, so that a save makes few system calls whatever the tensors' sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "snapshot/hash.hpp"
#include "stele/bytes.hpp"
#include "stele/sink.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

class STELE_EXPORT Gather {
 public:
  /// Leaves are hashed by XXH3-64, or by `crc`.
  explicit Gather(Sink& sink, Crc32 crc = nullptr);

  /// Appends; copied when small, else written from where it is.
  Status write(std::span<const std::byte> bytes);
  Status zeros(std::size_t count);
  /// Writes a leaf's bytes and, where `hash` is given, hashes them. Checks that it has the length it says.
  Status leaf(const LeafView& leaf, ReadContext& context, std::uint64_t* hash = nullptr);
  /// Appends bytes of a source (Sink::copy).
  Status copy(const Source& from, std::uint64_t offset, std::uint64_t size);
  /// Replaces bytes that were appended before; only where the sink can.
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes);
  bool can_patch() const noexcept { return sink_.can_patch(); }
  Status flush();
  /// Whether leaf() writes the leaf from where it is in a live module, without a look at the bytes.
  static bool passes_by(const LeafView& leaf) noexcept;
  /// Bytes appended so far.
  std::uint64_t position() const noexcept { return flushed_ + waiting_; }

 private:
  class LeafSink;
  static constexpr std::size_t size = std::size_t{1} << 20;
  static constexpr std::size_t direct = std::size_t{64} << 10;  // pieces from here on are not copied
  static constexpr std::size_t worth_referring =
      256;  // copying a leaf of less costs the system less than one more piece
  static constexpr std::size_t most_pieces = 1024;
  // Bytes of a live tensor that a second thread hashes while they are written: starting it takes a hundredth of that.
  static constexpr std::size_t worth_beside = std::size_t{4} << 20;
  /// Appends what stays where it is until the next flush().
  Status refer(std::span<const std::byte> bytes);

  Sink& sink_;
  Bytes staging_;
  std::size_t used_ = 0;                            // of the staging
  std::vector<std::span<const std::byte>> pieces_;  // not written yet, in order
  std::size_t waiting_ = 0;                         // bytes of the pieces
  std::uint64_t flushed_ = 0;
  Hasher hasher_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
