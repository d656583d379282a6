// Protobuf's wire format (https://protobuf.dev/programming-guides/encoding/), read field by field from memory. No
// message is built, so a program of a gigabyte needs memory for its names only. Groups are rejected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stele/detail/little_endian.hpp"
#include "stele/result.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace paddle {

class Wire {
 public:
  /// `base`: the offset of the first byte in the file, for errors.
  explicit Wire(std::span<const std::byte> bytes, std::uint64_t base = 0) noexcept : bytes_(bytes), base_(base) {}

  /// Reads the next field. Returns false at the end of the message, or after an error.
  bool next() noexcept {
    if (failed_ || at_ == bytes_.size()) return false;
    std::uint64_t tag = 0;
    if (!varint(tag)) return false;
    field_ = static_cast<std::uint32_t>(tag >> 3);
    type_ = static_cast<unsigned>(tag & 7);
    if (tag >> 32 != 0 || field_ == 0) return fail();
    switch (type_) {
      case 0:
        return varint(number_);
      case 1:
        return take(8);
      case 2:
        return varint(number_) && take(number_);
      case 5:
        return take(4);
      default:
        return fail();
    }
  }
  /// Returns a varint, or the bytes of a length-delimited field. A field of another type is an error.
  bool is(std::uint32_t field) const noexcept { return field_ == field; }
  std::uint64_t number() noexcept {
    if (type_ != 0) fail();
    return number_;
  }
  std::span<const std::byte> bytes() noexcept {
    if (type_ != 2) fail();
    return taken_;
  }
  std::string_view text() noexcept {
    const auto all = bytes();
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }
  Wire message() noexcept {
    const auto all = bytes();
    return Wire(all, base_ + at_ - all.size());
  }
  /// Reads the next varint, for packed numbers.
  bool varint(std::uint64_t& out) noexcept {
    out = 0;
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto b = static_cast<std::uint64_t>(bytes_[at_++]);
      if (shift == 63 && b > 1) break;
      out |= (b & 0x7f) << shift;
      if (b < 0x80) return true;
    }
    return fail();
  }
  bool packed() const noexcept { return type_ == 2; }
  bool at_end() const noexcept { return at_ == bytes_.size(); }
  Status status() const {
    if (!failed_) return {};
    return Error(Errc::malformed, "no protobuf message").offset(base_ + at_);
  }

 private:
  bool fail() noexcept {
    failed_ = true;
    taken_ = {};
    return false;
  }
  bool take(std::uint64_t size) noexcept {
    if (size > bytes_.size() - at_) return fail();
    taken_ = bytes_.subspan(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return true;
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> taken_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
  std::uint32_t field_ = 0;
  unsigned type_ = 0;
  bool failed_ = false;
};

}  // namespace paddle
}  // namespace detail
}  // namespace v0
}  // namespace stele
