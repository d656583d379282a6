// Arrays of SameDiff files: FlatBuffers tables, in two dialects; their shapes, dtypes, bytes and texts. Facts:
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

/// Arrays in these files are below 2 GiB: offsets of FlatBuffers have 32 bits, lengths in Java 31.
inline constexpr std::uint64_t max_buffer = 0x7fffffff;

bool holds(DType dtype);
/// Errors: unsupported (a type that stele has none for). INHERIT is DType::none.
Result<DType> dtype_of(stele_fb::Type type);
/// Only where holds(), or of string and none.
stele_fb::Type type_of(DType dtype);

/// A: `shape` is ND4J's shapeInfo, `order` that of bytes. B: `shape` has the extents, `order` is that of elements,
/// bytes are little-endian.
enum class Dialect : std::uint8_t { a, b };

/// What an array says of itself.
struct ArrayFacts {
  DType dtype = DType::none;
  std::vector<Extent> shape;
  std::uint64_t bytes = 0;        // that its shape and dtype ask for; of strings: that there are
  std::vector<std::size_t> axes;  // in the order of the file, outermost first; empty: as they are
  bool big_endian = false;
  bool scalar = false;  // no elements and no axes, which ND4J has: the shape is [0]
};

/// Reads shape and dtype. `hint`: the dialect that an array of unclear form has; `dtype`: of the variable, which is
/// right where an empty array says something else. Errors: malformed, unsupported, limit (more than 32 axes).
Result<ArrayFacts> facts_of(const stele_fb::Array& array, Dialect hint, DType dtype = DType::none);

/// The texts of a string array, whose buffer has one of three layouts. Errors: malformed.
Result<std::vector<std::string>> texts_of(const ArrayFacts& facts, std::span<const std::byte> buffer);

/// An array in memory. Errors: as above.
Result<GraphArray> read_array(const stele_fb::Array& array, Dialect hint);
flatbuffers::Offset<stele_fb::Array> write_array(flatbuffers::FlatBufferBuilder& to, const GraphArray& array);
/// Checks the arrays inside a graph, which nothing else ties to their dtypes and shapes. Errors: invalid_argument.
Status check_arrays(const Graph& graph);

/// An array of dialect A, little-endian, with `size` bytes of content that come later: `content`, where given, gets
/// their place in the builder's memory, counted from its end. Nothing is touched there.
flatbuffers::Offset<stele_fb::Array> make_array(flatbuffers::FlatBufferBuilder& to, DType dtype,
                                                std::span<const Extent> shape, std::uint64_t size,
                                                std::uint64_t* content = nullptr);

/// A buffer whose root is an array of dialect A, little-endian, as far as its content, `size` bytes, which ends it.
std::string array_head(DType dtype, std::span<const Extent> shape, std::uint64_t size);
/// A buffer whose root is an array without content: empty, or one whose bytes lie in a file beside it (`external`).
std::string array_alone(DType dtype, std::span<const Extent> shape, const std::string& external, std::uint64_t size);
/// The same of content that is there already, in its order of bytes and of axes.
std::string array_alone(const ArrayFacts& facts, const std::string& external);

/// The array at the root of a buffer of `size` bytes, of which `head` is known: all, or as much as its content leaves.
struct ArrayHead {
  ArrayFacts facts;
  std::uint64_t begin = 0, end = 0;  // of the content in the buffer; equal where there is none
  std::string external;              // the file that has it, else empty
};
/// Nothing where more of the buffer must be known. Errors: malformed (nor does the verifier of FlatBuffers let it
/// pass), unsupported.
Result<std::optional<ArrayHead>> read_head(std::span<const std::byte> head, std::uint64_t size);

/// A verifier that lets no more tables pass than such a buffer can hold apart.
flatbuffers::Verifier verifier_of(std::span<const std::byte> buffer);

inline std::string text_of(const flatbuffers::String* text) { return text != nullptr ? text->str() : std::string(); }
inline std::vector<std::string> texts_of(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* texts) {
  std::vector<std::string> all;
  if (texts == nullptr) return all;
  all.reserve(texts->size());
  for (const auto* text : *texts) all.push_back(text->str());
  return all;
}
/// An element of a vector. Verified is that it is there, not that it is aligned: numbers of 8 bytes may not be.
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

/// Properties of operations.
Result<std::vector<GraphProperty>> read_properties(
    const flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>* properties, Dialect hint);
flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>> write_properties(
    flatbuffers::FlatBufferBuilder& to, const std::vector<GraphProperty>& properties);

/// A text array as a Value: a text, or lists of them, nested as the shape says.
Value value_of(const std::vector<std::string>& texts, std::span<const Extent> shape);

/// A flat snapshot of arrays: bytes become the machine's, axes come in order.
class Arrays {
 public:
  Arrays() { builder_.set_flat(); }
  SnapshotBuilder& builder() noexcept { return builder_; }
  /// A tensor. Errors: malformed (an array without a data type).
  Status add(std::string_view name, const ArrayFacts& facts, Provider provider);
  /// An array of strings, which is a value.
  void add(std::string_view name, Value value);
  /// The node of what was added under this name, or no_index.
  std::uint32_t node(std::string_view name) const;
  Result<Snapshot> finish(std::shared_ptr<const void> keeper);

 private:
  SnapshotBuilder builder_;
  std::map<std::string_view, std::uint32_t> nodes_;
  std::vector<bool> big_endian_;                            // of each leaf
  std::map<std::uint32_t, std::vector<std::size_t>> axes_;  // of leaves, to be permuted so
};

}  // namespace samediff
}  // namespace detail
}  // namespace v0
}  // namespace stele
