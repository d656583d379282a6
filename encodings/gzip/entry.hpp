// An archive's entry as a Source.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::gzip {

/// An entry in a Source: the `compressed` bytes at `offset` are, or inflate to, `size` bytes with this CRC-32. `gzip`:
/// the bytes are members of a gzip file, which contain their CRCs.
struct Data {
  std::uint64_t offset, compressed, size;
  std::uint32_t crc;
  bool gzip = false;
};

/// The bytes of an entry. Checks the ranges of reads.
class EntrySource : public Source {
 public:
  EntrySource(SourcePtr source, std::string name, const Data& data)
      : Source(std::move(name)), source_(std::move(source)), data_(data) {}
  std::uint64_t size() const noexcept override { return data_.size; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override;

 protected:
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;

  const SourcePtr source_;
  mutable Data data_;  // not const: the size of a gzip file is set later
};

/// The bytes of an entry that is stored uncompressed: a part of the archive, with the archive's view().
class StoredSource : public EntrySource {
 public:
  using EntrySource::EntrySource;
  std::span<const std::byte> view() const noexcept override;
  std::byte* writable_view(ByteRange range) const noexcept override;

 private:
  Status read(std::uint64_t offset, std::span<std::byte> out) const override;
};

}  // namespace stele::inline v0::detail::gzip
