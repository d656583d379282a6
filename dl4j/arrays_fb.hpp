// Arrays of SameDiff files as FlatBuffers tables, in two dialects. See docs/formats/samediff.md.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "samediff_generated.h"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::samediff {

/// Returns the dtype for a type; DType::none for INHERIT. Errors: unsupported (stele has no such dtype).
Result<DType> dtype_of(stele_fb::Type type);
/// Returns the type for a dtype. Requires holds(dtype), string or none.
stele_fb::Type type_of(DType dtype);

/// In dialect A, `shape` is ND4J's shapeInfo and `order` is the byte order. In dialect B, `shape` has the extents,
/// `order` is the order of elements, and bytes are little-endian.
enum class Dialect : std::uint8_t { a, b };

/// Reads shape and dtype. `hint` is the dialect of an array whose form is ambiguous. `dtype` is the variable's dtype,
/// which overrides the dtype of an empty array. Errors: malformed, unsupported, limit (more than 32 axes).
Result<ArrayFacts> facts_of(const stele_fb::Array& array, Dialect hint, DType dtype = DType::none);

/// Reads an array into memory. Errors: those of facts_of() and texts_of().
Result<GraphArray> read_array(const stele_fb::Array& array, Dialect hint);
flatbuffers::Offset<stele_fb::Array> write_array(flatbuffers::FlatBufferBuilder& to, const GraphArray& array);
/// Makes a little-endian array of dialect A, whose `size` bytes of content are written later. Sets `content`, if not
/// null, to the position of the content in the builder's memory, counted from the end. Does not touch that memory.
flatbuffers::Offset<stele_fb::Array> make_array(flatbuffers::FlatBufferBuilder& to, DType dtype,
                                                std::span<const Extent> shape, std::uint64_t size,
                                                std::uint64_t* content = nullptr);

/// Returns the extents of an array. Errors: malformed (a negative extent), limit (more than 32).
Result<std::vector<Extent>> extents_of(const flatbuffers::Vector<std::int64_t>& shape);
/// Returns the number of bytes of an array. Errors: malformed (the number exceeds 64 bits).
Result<std::uint64_t> bytes_of_array(DType dtype, std::span<const Extent> shape);
/// Returns the size of the content inside the table.
inline std::uint64_t content_size(const stele_fb::Array& array) {
  return array.buffer() != nullptr ? array.buffer()->size() : 0;
}
/// Returns shapeInfo: extents and strides in ND4J's form. The strides follow row-major order, or the order `axes`,
/// outermost first.
std::vector<std::int64_t> shape_info(DType dtype, std::span<const Extent> shape, bool empty,
                                     std::span<const std::size_t> axes = {});

/// Returns a verifier that allows at most as many tables as fit in the buffer without sharing.
flatbuffers::Verifier verifier_of(std::span<const std::byte> buffer);

inline std::string text_of(const flatbuffers::String* text) { return text != nullptr ? text->str() : std::string(); }
inline std::vector<std::string> texts_of(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* texts) {
  std::vector<std::string> all;
  if (texts == nullptr) return all;
  all.reserve(texts->size());
  for (const auto* text : *texts) all.push_back(text->str());
  return all;
}
/// Returns an element of a vector. Verification does not cover alignment: 8-byte numbers may be unaligned.
template <class T>
auto number_at(const flatbuffers::Vector<T>& numbers, std::size_t i) {
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(numbers.Data()) + 8 * i));
  } else {
    return numbers.Get(static_cast<flatbuffers::uoffset_t>(i));
  }
}
template <class T, class From>
std::vector<T> numbers_of(const flatbuffers::Vector<From>* numbers) {
  std::vector<T> all;
  if (numbers == nullptr) return all;
  all.reserve(numbers->size());
  for (flatbuffers::uoffset_t i = 0; i < numbers->size(); ++i) all.push_back(static_cast<T>(number_at(*numbers, i)));
  return all;
}

}  // namespace stele::inline v0::detail::samediff
