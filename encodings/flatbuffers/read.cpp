// Reads tables, vectors and strings of a FlatBuffer in a source.
#include <utility>

#include "flatbuffers.hpp"

namespace stele::inline v0::detail::fb {

Reader::Reader(SourcePtr source, std::uint64_t size)
    : source_(std::move(source)), size_(std::min({size, source_->size(), max_size})) {
  memory_ = source_->view().empty() ? source_->mapped() : source_;
  if (memory_ != nullptr) view_ = memory_->view();
}

void Reader::fail(std::uint64_t at, std::string_view what, std::string_view expected, const std::string& found) {
  if (error_) return;
  error_ = Error(Errc::malformed, std::string(what)).file(source_->name()).offset(at);
  if (!expected.empty()) error_ = std::move(*error_).expected(std::string(expected)).found(found);
}

void Reader::copy(std::uint64_t at, std::span<std::byte> out) {
  if (error_) return;
  if (at > size_ || out.size() > size_ - at) return fail(at, "the file ends inside a FlatBuffers table");
  if (!view_.empty()) {
    const auto bytes = view_.subspan(static_cast<std::size_t>(at), out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return;
  }
  if (cache_.empty()) {
    cache_.resize(page * pages);
    cached_.resize(pages);
  }
  while (!out.empty()) {
    const std::uint64_t number = at / page;
    const auto slot = static_cast<std::size_t>(number % pages), within = static_cast<std::size_t>(at % page);
    const std::span<std::byte> content(cache_.data() + slot * page, page);
    if (cached_[slot] != number + 1) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(page, size_ - number * page));
      if (auto read = source_->read_at(number * page, content.first(n)); !read) {
        cached_[slot] = 0;
        error_ = std::move(read).error();
        return;
      }
      cached_[slot] = number + 1;
    }
    const std::size_t n = std::min(out.size(), page - within);
    std::copy_n(content.data() + within, n, out.data());
    out = out.subspan(n);
    at += n;
  }
}

std::uint64_t Reader::place(const Table& table, unsigned field, unsigned width) {
  if (field >= table.count) return 0;
  const std::uint64_t offset = load<std::uint16_t>(table.fields + 2 * std::uint64_t{field});
  if (offset == 0) return 0;
  if (offset < 4 || offset + width > table.size) {
    fail(table.at, "a field is outside its FlatBuffers table", std::to_string(table.size) + " bytes",
         "offset " + std::to_string(offset));
    return 0;
  }
  return table.at + offset;
}

std::uint64_t Reader::target(std::uint64_t at) {
  const std::uint64_t offset = load<std::uint32_t>(at);
  if (error_) return 0;
  if (offset < 4 || offset > size_ - at) {  // copy() has checked `at`
    fail(at, "an offset of the FlatBuffer leads outside", "at most " + std::to_string(size_ - at),
         std::to_string(offset));
    return 0;
  }
  return at + offset;
}

Table Reader::follow(std::uint64_t at) {
  const std::uint64_t begin = target(at);
  const auto back = load<std::int32_t>(begin);
  const auto vtable = static_cast<std::int64_t>(begin) - back;
  if (error_) return {};
  if (vtable < 0 || static_cast<std::uint64_t>(vtable) >= size_) {
    fail(begin, "the vtable of a FlatBuffers table is outside the file");
    return {};
  }
  const auto first = static_cast<std::uint64_t>(vtable);
  const std::uint32_t bytes = load<std::uint16_t>(first), size = load<std::uint16_t>(first + 2);
  if (error_) return {};
  if (bytes < 4 || bytes % 2 != 0 || bytes > size_ - first || size < 4 || size > size_ - begin) {
    fail(first, "the vtable of a FlatBuffers table is damaged");
    return {};
  }
  return {begin, first + 4, (bytes - 4) / 2, size};
}

Table Reader::table(const Table& table, unsigned field) {
  const std::uint64_t at = place(table, field, 4);
  return at != 0 ? follow(at) : Table();
}

Vector Reader::vector_at(std::uint64_t at, unsigned width) {
  const std::uint64_t begin = target(at);
  const std::uint64_t count = load<std::uint32_t>(begin);
  if (error_) return {};
  if (count > (size_ - begin - 4) / width) {
    fail(begin, "a vector of the FlatBuffer ends outside",
         "at most " + std::to_string((size_ - begin - 4) / width) + " elements", std::to_string(count));
    return {};
  }
  return {begin + 4, count};
}

Vector Reader::vector(const Table& table, unsigned field, unsigned width) {
  const std::uint64_t at = place(table, field, 4);
  return at != 0 ? vector_at(at, width) : Vector();
}

std::string Reader::text(const Table& table, unsigned field) {
  const Vector bytes = vector(table, field, 1);
  if (bytes.size > max_text) {
    fail(bytes.at, "a string of the FlatBuffer is too long", "at most 64 KiB", std::to_string(bytes.size));
    return {};
  }
  std::string text(static_cast<std::size_t>(bytes.size), '\0');
  copy(bytes.at, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace stele::inline v0::detail::fb
