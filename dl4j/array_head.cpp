// Arrays with separate buffers, each of which ends with the array's content.
#include <algorithm>

#include "arrays.hpp"
#include "arrays_fb.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::samediff {
std::string array_head(DType dtype, std::span<const Extent> shape, std::uint64_t size) {
  // The layout depends only on the size modulo 8, so a small size can replace the actual size. The content and its
  // padding are at the end of the buffer and are left out.
  const std::uint64_t stand_in = size % 8 + 8;
  flatbuffers::FlatBufferBuilder to(512);
  std::uint64_t content = 0;
  to.Finish(make_array(to, dtype, shape, stand_in, &content));
  std::string head(reinterpret_cast<const char*>(to.GetBufferPointer()),
                   static_cast<std::size_t>(to.GetSize() - content));
  store_le(reinterpret_cast<std::byte*>(head.data() + head.size() - 4), static_cast<std::uint32_t>(size));
  return head;
}

std::string array_alone(const ArrayFacts& facts, const std::string& external) {
  flatbuffers::FlatBufferBuilder to(512);
  const auto info = to.CreateVector(shape_info(facts.dtype, facts.shape, facts.bytes == 0, facts.axes));
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> names;
  if (!external.empty()) names = to.CreateVectorOfStrings({external});
  stele_fb::ArrayBuilder array(to);
  array.add_shape(info);
  array.add_dtype(type_of(facts.dtype));
  if (facts.big_endian) array.add_order(stele_fb::ByteOrder::big);
  if (!external.empty()) {
    array.add_external_names(names);
    array.add_is_external(true);
    array.add_total_size(static_cast<std::int64_t>(facts.bytes));
  }
  to.Finish(array.Finish());
  return {reinterpret_cast<const char*>(to.GetBufferPointer()), to.GetSize()};
}

std::string array_alone(DType dtype, std::span<const Extent> shape, const std::string& external, std::uint64_t size) {
  return array_alone(ArrayFacts{dtype, {shape.begin(), shape.end()}, size, {}, false}, external);
}

namespace {

/// Returns the offset of the root's field `buffer`. Returns nullopt if the field is absent or if finding it requires
/// the whole buffer.
std::optional<std::uint64_t> place_of_content(std::span<const std::byte> head) {
  const auto u32 = [&](std::uint64_t at) -> std::optional<std::uint32_t> {
    if (at > head.size() || head.size() - at < 4) return std::nullopt;
    return load_le<std::uint32_t>(head.data() + at);
  };
  const auto root = u32(0);
  if (!root) return std::nullopt;
  const auto back = u32(*root);
  if (!back) return std::nullopt;
  const std::int64_t table = static_cast<std::int64_t>(*root) - static_cast<std::int32_t>(*back);
  if (table < 0 || static_cast<std::uint64_t>(table) + 8 > head.size()) return std::nullopt;
  const auto length = load_le<std::uint16_t>(head.data() + table);
  if (length < 8) return std::nullopt;
  const auto field = load_le<std::uint16_t>(head.data() + table + 6);  // the second field
  if (field == 0) return std::nullopt;
  const std::uint64_t at = std::uint64_t{*root} + field;
  const auto offset = u32(at);
  if (!offset) return std::nullopt;
  return at + *offset;
}

Result<std::optional<ArrayHead>> checked_head(std::span<const std::byte> buffer, bool dummy_content,
                                              std::uint64_t begin, std::uint64_t content) {
  auto verifier = verifier_of(buffer);
  if (!verifier.VerifyBuffer<stele_fb::Array>(nullptr)) return malformed("the array is not a valid FlatBuffer");
  const auto& array = *flatbuffers::GetRoot<stele_fb::Array>(buffer.data());
  ArrayHead head;
  STELE_TRY_ASSIGN(head.facts, facts_of(array, Dialect::a));
  if (array.is_external()) {
    if (array.external_names() == nullptr || array.external_names()->size() != 1 || content_size(array) != 0) {
      return malformed("the external array does not name a file");
    }
    head.external = array.external_names()->Get(0)->str();
    if (head.external.empty()) return malformed("the external array does not name a file");
    if (array.total_size() < 0 || static_cast<std::uint64_t>(array.total_size()) != head.facts.bytes) {
      return wrong_length(head.facts.bytes, 0).found(std::to_string(array.total_size()));
    }
    return std::optional(std::move(head));
  }
  if (!dummy_content && array.buffer() != nullptr) {
    begin = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(array.buffer()->data()) - buffer.data());
    content = array.buffer()->size();
  }
  head.begin = begin;
  head.end = begin + content;
  if (head.facts.dtype == DType::string) {
    head.facts.bytes = content;
  } else if (head.facts.bytes != content) {
    return wrong_length(head.facts.bytes, content);
  }
  return std::optional(std::move(head));
}

}  // namespace

Result<std::optional<ArrayHead>> read_head(std::span<const std::byte> head, std::uint64_t size) {
  constexpr std::uint64_t max_head = std::uint64_t{64} << 10;
  // FlatBuffers reads numbers at aligned addresses, but a file's content may have any alignment.
  std::vector<std::uint64_t> memory;
  const auto aligned = [&](std::size_t n) {
    memory.assign(n / 8 + 1, 0);
    const auto copy = std::as_writable_bytes(std::span(memory)).first(n);
    std::copy_n(head.begin(), n, copy.begin());
    return copy;
  };
  // If the content is last, the bytes before it form a valid buffer after its length is set to 0.
  if (const auto at = place_of_content(head); at && *at <= head.size() && head.size() - *at >= 4) {
    const auto length = load_le<std::uint32_t>(head.data() + *at);
    if (*at < max_head && length != 0 && length <= max_buffer && *at + 4 + length == size) {
      const auto n = static_cast<std::size_t>(*at) + 4;
      const auto copy = aligned(n);
      store_le(copy.data() + n - 4, std::uint32_t{0});
      return checked_head(copy, true, n, length);
    }
  }
  if (head.size() != size) return std::optional<ArrayHead>();
  const bool fits = reinterpret_cast<std::uintptr_t>(head.data()) % 8 == 0;
  return checked_head(fits ? head : aligned(head.size()), false, 0, 0);
}

}  // namespace stele::inline v0::detail::samediff
