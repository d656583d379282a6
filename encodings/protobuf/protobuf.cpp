// Reads and writes the fields of messages in memory.
#include "protobuf.hpp"

#include <algorithm>
#include <bit>

#include "base/varint.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::protobuf {
namespace {

void put_varint(std::vector<std::byte>& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
  to.push_back(static_cast<std::byte>(value));
}

}  // namespace

bool Reader::next() noexcept {
  if (fault_ != nullptr || at_ == bytes_.size()) return false;
  std::uint64_t tag = 0;
  if (!take_varint(tag)) return false;
  field_ = static_cast<std::uint32_t>(tag >> 3);
  type_ = static_cast<unsigned>(tag & 7);
  if (tag >> 32 != 0 || field_ == 0) return fail("the protobuf field number is invalid");
  switch (type_) {
    case 0:
      return take_varint(number_);
    case 1:
      return take(8);
    case 2:
      return take_varint(number_) && take(number_);
    case 5:
      return take(4);
    default:
      return fail("the protobuf wire type is not supported");
  }
}

std::uint64_t Reader::number() noexcept {
  if (type_ != 0) fail("the protobuf field is not a varint");
  return number_;
}

std::span<const std::byte> Reader::bytes() noexcept {
  if (type_ != 2) fail("the protobuf field is not length-delimited");
  return taken_;
}

std::uint32_t Reader::fixed32() noexcept {
  if (type_ != 5) fail("the protobuf field does not have 4 bytes");
  return taken_.size() == 4 ? load_le<std::uint32_t>(taken_.data()) : 0;
}

std::string_view Reader::text() noexcept {
  const auto all = bytes();
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

Reader Reader::message() noexcept {
  const auto all = bytes();
  return Reader(all, base_ + at_ - all.size());
}

Status Reader::status() const {
  if (fault_ == nullptr) return {};
  return Error(Errc::malformed, fault_).offset(base_ + at_);
}

bool Reader::fail(const char* why) noexcept {
  if (fault_ == nullptr) fault_ = why;
  taken_ = {};
  return false;
}

bool Reader::take(std::uint64_t size) noexcept {
  if (size > bytes_.size() - at_) return fail("the protobuf field exceeds its message");
  taken_ = bytes_.subspan(at_, static_cast<std::size_t>(size));
  at_ += static_cast<std::size_t>(size);
  return true;
}

bool Reader::take_varint(std::uint64_t& out) noexcept {
  std::span<const std::byte> rest = bytes_.subspan(at_);
  if (!detail::take_varint(rest, out)) {
    at_ += std::min(rest.size(), max_varint);
    return fail(rest.size() < max_varint ? "the protobuf message ends inside a varint"
                                         : "the protobuf varint exceeds 64 bits");
  }
  at_ = bytes_.size() - rest.size();
  return true;
}

void put_number(std::vector<std::byte>& message, std::uint32_t field, std::uint64_t number) {
  put_varint(message, std::uint64_t{field} << 3);
  put_varint(message, number);
}

void put_length(std::vector<std::byte>& message, std::uint32_t field, std::uint64_t size) {
  put_varint(message, std::uint64_t{field} << 3 | 2);
  put_varint(message, size);
}

void put_float(std::vector<std::byte>& message, std::uint32_t field, float number) {
  put_varint(message, std::uint64_t{field} << 3 | 5);
  std::byte bytes[sizeof number];
  store_le(bytes, std::bit_cast<std::uint32_t>(number));
  message.insert(message.end(), bytes, bytes + sizeof bytes);
}

void put_text(std::vector<std::byte>& message, std::uint32_t field, std::string_view text) {
  put_length(message, field, text.size());
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

}  // namespace stele::inline v0::detail::protobuf
