// Contents of object header messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/detail/little_endian.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::hdf5 {

inline constexpr std::uint64_t undefined = UINT64_MAX;  // the address of something that is not stored

/// Takes numbers from the front of bytes. After a number that the bytes do not contain, ok() is false, and all further
/// ones are 0.
class In {
 public:
  explicit In(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}
  std::span<const std::byte> take(std::uint64_t n) noexcept {
    if (n > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(static_cast<std::size_t>(n));
    rest_ = rest_.subspan(static_cast<std::size_t>(n));
    return taken;
  }
  /// Takes a number of 1 to 8 bytes.
  std::uint64_t number(std::size_t bytes) noexcept {
    const auto taken = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<std::uint64_t>(taken[i]) << 8 * i;
    return value;
  }
  std::uint8_t u8() noexcept { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() noexcept { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() noexcept { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() noexcept { return number(8); }
  /// Takes a string that ends with a zero byte, and the byte.
  std::string_view text() noexcept {
    const std::string_view all(reinterpret_cast<const char*>(rest_.data()), rest_.size());
    const std::size_t end = all.find('\0');
    if (end == all.npos) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    rest_ = rest_.subspan(end + 1);
    return all.substr(0, end);
  }
  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

struct Type {
  DType dtype = DType::none;
  bool big_endian = false;
  bool text = false, variable = false, opaque = false;
  bool enumerated = false;   // numbers with names other than h5py's FALSE and TRUE
  std::uint8_t padding = 0;  // padding of a fixed-length string: 0 ends with a zero byte, 1 zeros, 2 spaces
  std::uint32_t size = 0;    // bytes of an element
  std::string reason{};      // why elements have no dtype, as a noun phrase
};
/// Takes a datatype. Errors: malformed.
Result<Type> parse_type(In& in, int depth = 0);

struct Space {
  bool null = false;
  std::vector<Extent> shape{};
  std::vector<Extent> maximum{};  // the extents to which the dataset may grow (`undefined`: any); empty: none
  std::uint64_t count = 1;
};
/// Takes a dataspace. Errors: malformed.
Result<Space> parse_space(In& in);

struct Filter {
  std::uint16_t id = 0;
  std::uint32_t value = 0;  // the first client value, or 0
};
/// Takes the filters of a dataset. Errors: malformed.
Result<std::vector<Filter>> parse_filters(In& in);

struct Layout {
  enum class Kind : std::uint8_t { compact, contiguous, chunks, unknown };
  // tree, records: B-trees of version 1 and 2
  enum class Index : std::uint8_t { tree, single, implicit, fixed, extensible, records };
  Kind kind = Kind::unknown;
  Index index = Index::tree;
  std::uint64_t address = undefined;   // compact: offset in the message
  std::uint64_t size = 0;              // compact and contiguous; single: bytes of a chunk with filters
  std::uint32_t mask = 0;              // single: filters that were not applied
  bool plain_edges = false;            // partial edge chunks are not filtered
  std::vector<std::uint64_t> chunk{};  // extents of a chunk; the last is the size of an element
  std::string reason{};
};
/// Takes a layout. Errors: malformed.
Result<Layout> parse_layout(std::span<const std::byte> message);

inline Error damaged(const char* what) { return Error(Errc::malformed, what); }

}  // namespace stele::inline v0::detail::hdf5
