// DEFLATE data (RFC 1951) of a zip entry or of a gzip file's members, inflated at once or as a Source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/threads.hpp"
#include "encodings/gzip/entry.hpp"
#include "encodings/gzip/gzip.hpp"
#include "stele/bytes.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::gzip {

// Size of a piece: its CRC is computed while it is in the cache.
inline constexpr std::size_t piece_size = std::size_t{128} << 10;

Error wrong_crc(const Source& source, const Data& data, std::uint32_t found);

/// Inflates from the beginning or from a kept state.
class Inflater {
 public:
  /// zlib's state after some bytes.
  class State;

  Inflater(const Source& source, const Data& data);
  Inflater(const Source& source, const Data& data, std::unique_ptr<State> state);
  ~Inflater();

  /// Returns the number of inflated bytes.
  std::uint64_t made() const noexcept;
  /// Returns a copy of the state.
  std::unique_ptr<State> keep();
  /// Reads `out.size()` inflated bytes again, from `offset` on, if zlib's window still contains them.
  bool again(std::uint64_t offset, std::span<std::byte> out);
  /// Reads the next bytes. Returns fewer only at the end.
  Result<std::size_t> next(std::span<std::byte> out);
  /// Reads the next bytes; the data must contain all of them.
  Status make(std::span<std::byte> out);
  /// Checks, after the last byte, that the compressed data ends here too, and that its checksum and length are correct.
  Status finish();

 private:
  Error bad(const char* why) const;
  Error damage() const;
  Result<std::size_t> some(std::span<std::byte> out);
  Status feed();

  const Source& source_;
  const Data& data_;
  std::unique_ptr<State> state_;
  bool ended_ = false;
  Bytes input_;
};

/// Inflated data with random access. Keeps zlib states, from which reads start.
class InflatedSource final : public EntrySource {
 public:
  InflatedSource(SourcePtr source, std::string name, const Data& data);
  /// Opens a gzip file, whose size is known only at the end of the pass. `max_size`: see Gzip.
  InflatedSource(const SourcePtr& source, std::uint64_t max_size);
  ~InflatedSource() override;

  /// Reads the next bytes of the pass.
  Result<std::size_t> pass(std::span<std::byte> out);

 private:
  Status read(std::uint64_t offset, std::span<std::byte> out) const override;
  Status make(Inflater& inflater, std::span<std::byte> out) const;
  Result<std::size_t> next(Inflater& inflater, std::span<std::byte> out) const;
  void keep(Inflater& inflater) const;

  const std::uint64_t max_size_ = UINT64_MAX;
  mutable bool size_known_ = true;
  mutable std::uint64_t step_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<Inflater> inflater_;
  mutable std::vector<std::unique_ptr<Inflater::State>> kept_;  // index i: after (i + 1) * step_ bytes
};

}  // namespace stele::inline v0::detail::gzip
