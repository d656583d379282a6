// FlatBuffers (https://flatbuffers.dev/internals): tables, vectors and strings, read one by one from a Source. Every
// offset is checked when it is followed, so a large file is not verified as a whole, and its data is not read. A reader
// follows a fixed number of offsets for each element of a vector, so shared offsets cost time in proportion to the
// vectors' sizes; the caller's budget bounds what it keeps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "stele/detail/little_endian.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::fb {

/// FlatBuffers' offsets have 32 bits, of which readers use 31.
inline constexpr std::uint64_t max_size = (std::uint64_t{1} << 31) - 1;
/// Maximum length of a string (64 KiB), which is that of names in a Snapshot.
inline constexpr std::uint64_t max_text = std::uint64_t{64} << 10;

/// A table that was found in the buffer. An absent table has no fields.
struct Table {
  std::uint64_t at = 0;      // the table's offset in the source
  std::uint64_t fields = 0;  // offset of the vtable's first field
  std::uint32_t count = 0;   // number of fields in the vtable
  std::uint32_t size = 0;    // size of the table in bytes

  explicit operator bool() const noexcept { return at != 0; }
};

/// A vector that was found in the buffer, with all its elements.
struct Vector {
  std::uint64_t at = 0;  // offset of the first element in the source
  std::uint64_t size = 0;
};

/// Reads the FlatBuffer that begins at the start of a source. After the first error, every member returns zeros and
/// empty objects, so that callers check status() once for each element.
class Reader {
 public:
  /// `size`: the maximum size of the buffer.
  Reader(SourcePtr source, std::uint64_t size);

  /// Returns the first error. Errors: malformed, those of the source.
  Status status() const { return error_ ? Status(*error_) : Status(); }
  /// Keeps an error, unless there is one.
  void fail(std::uint64_t at, std::string_view what, std::string_view expected = {}, const std::string& found = {});

  Table root() { return follow(0); }
  /// Returns a field; `otherwise` if it is absent.
  template <class T>
  T number(const Table& table, unsigned field, T otherwise = 0) {
    const std::uint64_t at = place(table, field, sizeof(T));
    return at != 0 ? load<T>(at) : otherwise;
  }
  Table table(const Table& table, unsigned field);
  /// Returns a vector whose elements have `width` bytes.
  Vector vector(const Table& table, unsigned field, unsigned width);
  /// Returns a string; empty if the field is absent.
  std::string text(const Table& table, unsigned field);
  /// Returns an element of a vector of tables or numbers. Requires i < vector.size.
  Table table(const Vector& vector, std::uint64_t i) { return follow(vector.at + 4 * i); }
  template <class T>
  T number(const Vector& vector, std::uint64_t i) {
    return load<T>(vector.at + sizeof(T) * i);
  }

  const SourcePtr& source() const noexcept { return source_; }

 private:
  /// Bytes of a source that is not in memory, read together: the tables of an entry are usually close to each other.
  static constexpr std::size_t page = std::size_t{8} << 10, pages = 32;

  template <class T>
  T load(std::uint64_t at) {
    std::byte bytes[sizeof(T)] = {};
    copy(at, bytes);
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(load_le<std::uint32_t>(bytes));
    } else {
      return static_cast<T>(load_le<std::make_unsigned_t<T>>(bytes));
    }
  }
  /// Reads bytes; leaves zeros after an error.
  void copy(std::uint64_t at, std::span<std::byte> out);
  /// Returns the offset of a field; 0 if it is absent.
  std::uint64_t place(const Table& table, unsigned field, unsigned width);
  /// Returns the target of the offset at `at`.
  std::uint64_t target(std::uint64_t at);
  Table follow(std::uint64_t at);
  Vector vector_at(std::uint64_t at, unsigned width);

  SourcePtr source_;
  SourcePtr memory_;  // the same bytes, in memory, if they can be had without reading all
  std::span<const std::byte> view_;
  std::uint64_t size_;
  std::vector<std::byte> cache_;
  std::vector<std::uint64_t> cached_;  // for each page of cache_: its number in the source and 1
  std::optional<Error> error_;
};

}  // namespace stele::inline v0::detail::fb
