// Reads the structures of a file.
#include "file.hpp"

#include <algorithm>
#include <string>

namespace stele::inline v0::detail::hdf5 {

// Structures of a file do not overlap, so that reading each once takes at most the file's size.
File::File(const Source& source, IndexBudget& memory)
    : source_(source),
      view_(source.view()),
      memory_(memory),
      work_(add_scaled(std::uint64_t{64} << 10, source.size(), 2)) {}

Status File::take(std::uint64_t bytes) {
  if (memory_.take(bytes)) return {};
  return index_error("the file's objects need more memory than its size allows");
}

Status File::count_read(std::uint64_t bytes, std::uint64_t offset) {
  if (bytes > work_) return bad("structures of the file overlap", offset);
  work_ -= bytes;
  return {};
}

Result<View> File::read(std::uint64_t offset, std::uint64_t size, Bytes& buffer) {
  const std::uint64_t end = source_.size();
  if (offset > end || size > end - offset) {
    return Error(Errc::truncated, "a structure of the file exceeds its end")
        .offset(offset)
        .expected(std::to_string(size) + " bytes")
        .found(std::to_string(end - std::min(offset, end)));
  }
  STELE_TRY(count_read(size, offset));
  if (!view_.empty()) return view_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  if (buffer.size() < size) buffer = Bytes(static_cast<std::size_t>(size));
  const auto bytes = buffer.span().first(static_cast<std::size_t>(size));
  STELE_TRY(source_.read_at(offset, bytes));
  return View(bytes);
}

Result<In> File::structure(std::uint64_t offset, std::uint64_t size, std::string_view letters, Bytes& buffer) {
  STELE_TRY_ASSIGN(const View bytes, read(offset, size, buffer));
  In in(bytes);
  if (text_of(in.take(letters.size())) != letters) {
    return bad("a structure of the file does not begin with its letters", offset).expected(std::string(letters));
  }
  return in;
}

Status File::add_range(std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return {};
  STELE_TRY(take(3 * sizeof(Range)));
  ranges_.push_back({offset, size});
  return {};
}

Status File::no_overlaps() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].offset - ranges_[i - 1].offset < ranges_[i - 1].size) {
      return bad("two datasets overlap", ranges_[i].offset);
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail::hdf5
