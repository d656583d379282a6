// Reads the fields of messages in a source, forward.
#include "fields.hpp"

#include <algorithm>
#include <bit>

#include "base/varint.hpp"

namespace stele::inline v0::detail::protobuf {

Error Fields::bad(const char* message) const { return Error(Errc::malformed, message).offset(in_.position()); }

Result<std::uint64_t> Fields::varint() {
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(max_varint, end_ - in_.position()));
  STELE_TRY_ASSIGN(const std::byte* const bytes, in_.peek(n));
  std::span<const std::byte> rest(bytes, n);
  std::uint64_t value = 0;
  if (!take_varint(rest, value)) {
    return bad(n < max_varint ? "the protobuf message ends inside a varint" : "the protobuf varint exceeds 64 bits");
  }
  STELE_TRY(in_.skip(n - rest.size()));
  return value;
}

Result<bool> Fields::next() {
  if (in_.position() < next_) STELE_TRY(in_.skip(next_ - in_.position()));
  tag_ = in_.position();
  if (tag_ == end_) return false;
  STELE_TRY_ASSIGN(const std::uint64_t tag, varint());
  field_ = static_cast<std::uint32_t>(tag >> 3);
  type_ = static_cast<unsigned>(tag & 7);
  number_ = 0;
  if (tag >> 32 != 0 || field_ == 0) return bad("the protobuf field number is invalid");
  std::uint64_t size = 0;
  switch (type_) {
    case 0: {
      begin_ = in_.position();
      STELE_TRY_ASSIGN(number_, varint());
      next_ = in_.position();
      return true;
    }
    case 1:
      size = 8;
      break;
    case 2: {
      STELE_TRY_ASSIGN(size, varint());
      break;
    }
    case 5:
      size = 4;
      break;
    default:
      return bad("the protobuf wire type is not supported");
  }
  begin_ = in_.position();
  if (size > end_ - begin_) return bad("the protobuf field exceeds its message");
  next_ = begin_ + size;
  return true;
}

Result<std::optional<std::uint64_t>> Fields::element() {
  if (in_.position() == end_) return std::optional<std::uint64_t>();
  STELE_TRY_ASSIGN(const std::uint64_t value, varint());
  return std::optional(value);
}

Status Fields::integers(std::vector<std::int64_t>& out) {
  if (is_number()) {
    out.push_back(static_cast<std::int64_t>(number_));
    return {};
  }
  if (!has_length()) return bad("the integers of a protobuf field are not varints");
  for (Fields packed = message();;) {
    STELE_TRY_ASSIGN(const auto value, packed.element());
    if (!value) return {};
    out.push_back(static_cast<std::int64_t>(*value));
  }
}

Status Fields::floats(std::vector<float>& out) {
  if (is_number() || size() % sizeof(float) != 0) return bad("a float of a protobuf field does not have 4 bytes");
  for (std::uint64_t left = size(); left != 0; left -= sizeof(float)) {
    STELE_TRY_ASSIGN(const auto bits, in_.little<std::uint32_t>());
    out.push_back(std::bit_cast<float>(bits));
  }
  return {};
}

Status Fields::text(std::string& out) {
  if (!has_length()) return bad("the protobuf field is not length-delimited");
  return in_.text(size(), out);
}

}  // namespace stele::inline v0::detail::protobuf
