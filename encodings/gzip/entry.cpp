// An archive's entry as a Source.
#include "entry.hpp"

#include <algorithm>

#include "io/os/os.hpp"

namespace stele::inline v0::detail::gzip {

Status EntrySource::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  return guarded(name(), [&]() -> Status {
    if (offset > data_.size || out.size() > data_.size - offset) {
      return Error(Errc::truncated, "the read passes the end of the entry")
          .file(name())
          .offset(offset)
          .expected(std::to_string(out.size()) + " bytes")
          .found(std::to_string(data_.size - std::min(offset, data_.size)));
    }
    return out.empty() ? Status() : read(offset, out);
  });
}

std::span<const std::byte> StoredSource::view() const noexcept {
  const auto all = source_->view();
  if (all.empty()) return {};
  return all.subspan(static_cast<std::size_t>(data_.offset), static_cast<std::size_t>(data_.size));
}

std::byte* StoredSource::writable_view(ByteRange range) const noexcept {
  if (range.offset > data_.size || range.size > data_.size - range.offset) return nullptr;
  return source_->writable_view({data_.offset + range.offset, range.size});
}

Status StoredSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  return source_->read_at(data_.offset + offset, out);
}

}  // namespace stele::inline v0::detail::gzip
