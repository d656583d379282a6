// Arrays of SameDiff files: FlatBuffers tables in two dialects, with their shapes, dtypes, bytes and strings. See
// docs/formats/samediff.md.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "samediff_generated.h"
#include "stele/detail/little_endian.hpp"
#include "stele/graph.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {

/// Arrays in these files are below 2 GiB: FlatBuffers' offsets have 32 bits, Java's lengths 31.
inline constexpr std::uint64_t max_buffer = 0x7fffffff;

bool holds(DType dtype);
/// Returns the dtype for a type; DType::none for INHERIT. Errors: unsupported (stele has no such dtype).
Result<DType> dtype_of(stele_fb::Type type);
/// Returns the type for a dtype. Requires holds(dtype), string or none.
stele_fb::Type type_of(DType dtype);

/// A: `shape` is ND4J's shapeInfo, `order` is the byte order. B: `shape` has the extents, `order` is the order of
/// elements, and bytes are little-endian.
enum class Dialect : std::uint8_t { a, b };

/// The facts that an array declares.
struct ArrayFacts {
  DType dtype = DType::none;
  std::vector<Extent> shape;
  std::uint64_t bytes = 0;        // size by shape and dtype; for strings: size of the buffer
  std::vector<std::size_t> axes;  // in file order, outermost first; empty: not permuted
  bool big_endian = false;
  bool scalar = false;  // ND4J's array without elements and axes; the shape is [0]
};

/// Reads shape and dtype. `hint`: the dialect of an array of ambiguous form. `dtype`: the variable's, which overrides
/// that of an empty array. Errors: malformed, unsupported, limit (more than 32 axes).
Result<ArrayFacts> facts_of(const stele_fb::Array& array, Dialect hint, DType dtype = DType::none);

/// Returns the strings of a string array, whose buffer has one of three layouts. Errors: malformed.
Result<std::vector<std::string>> texts_of(const ArrayFacts& facts, std::span<const std::byte> buffer);

/// Reads an array into memory. Errors: those of facts_of() and texts_of().
Result<GraphArray> read_array(const stele_fb::Array& array, Dialect hint);
flatbuffers::Offset<stele_fb::Array> write_array(flatbuffers::FlatBufferBuilder& to, const GraphArray& array);
/// Checks that the arrays inside a graph fit their dtypes and shapes. Errors: invalid_argument.
Status check_arrays(const Graph& graph);

/// Makes an array of dialect A, little-endian, whose `size` bytes of content are written later. Sets `content`, if
/// given, to their place in the builder's memory, counted from its end. Does not touch that memory.
flatbuffers::Offset<stele_fb::Array> make_array(flatbuffers::FlatBufferBuilder& to, DType dtype,
                                                std::span<const Extent> shape, std::uint64_t size,
                                                std::uint64_t* content = nullptr);

/// Returns the start of a buffer whose root is an array of dialect A, little-endian. The content, `size` bytes, must
/// follow and ends the buffer.
std::string array_head(DType dtype, std::span<const Extent> shape, std::uint64_t size);
/// Returns a buffer whose root is an array without content: empty, or with its bytes in a separate file (`external`).
std::string array_alone(DType dtype, std::span<const Extent> shape, const std::string& external, std::uint64_t size);
/// Returns such a buffer for existing content, in the content's byte order and axis order.
std::string array_alone(const ArrayFacts& facts, const std::string& external);

/// The array at the root of a buffer. Reading it needs the whole buffer, or all bytes before the content.
struct ArrayHead {
  ArrayFacts facts;
  std::uint64_t begin = 0, end = 0;  // content in the buffer; equal if there is none
  std::string external;              // name of the file with the content, else empty
};
/// Reads the head of a buffer of `size` bytes, of which `head` is available. Returns nothing if more bytes are needed.
/// Errors: malformed (also if FlatBuffers' verifier rejects the buffer), unsupported.
Result<std::optional<ArrayHead>> read_head(std::span<const std::byte> head, std::uint64_t size);

/// Returns a verifier that allows only as many tables as fit in such a buffer without sharing.
flatbuffers::Verifier verifier_of(std::span<const std::byte> buffer);

inline std::string text_of(const flatbuffers::String* text) { return text != nullptr ? text->str() : std::string(); }
inline std::vector<std::string> texts_of(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* texts) {
  std::vector<std::string> all;
  if (texts == nullptr) return all;
  all.reserve(texts->size());
  for (const auto* text : *texts) all.push_back(text->str());
  return all;
}
/// Returns an element of a vector. Verification does not cover alignment: numbers of 8 bytes may be unaligned.
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

/// Reads properties of operations.
Result<std::vector<GraphProperty>> read_properties(
    const flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>* properties, Dialect hint);
flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>> write_properties(
    flatbuffers::FlatBufferBuilder& to, const std::vector<GraphProperty>& properties);

/// Returns a string array as a Value: a string, or lists of strings, nested by the shape.
Value value_of(const std::vector<std::string>& texts, std::span<const Extent> shape);

/// Builds a flat snapshot of arrays. Converts bytes to the machine's order and axes to their logical order.
class Arrays {
 public:
  Arrays() { builder_.set_flat(); }
  SnapshotBuilder& builder() noexcept { return builder_; }
  /// Adds a tensor. Errors: malformed (an array without a data type).
  Status add(std::string_view name, const ArrayFacts& facts, Provider provider);
  /// Adds an array of strings as a value.
  void add(std::string_view name, Value value);
  /// Returns the node with this name, or no_index.
  std::uint32_t node(std::string_view name) const;
  Result<Snapshot> finish(std::shared_ptr<const void> keeper);

 private:
  SnapshotBuilder builder_;
  std::map<std::string_view, std::uint32_t> nodes_;
  std::vector<bool> big_endian_;                            // for each leaf
  std::map<std::uint32_t, std::vector<std::size_t>> axes_;  // for each permuted leaf
};

}  // namespace samediff
}  // namespace detail
}  // namespace v0
}  // namespace stele
