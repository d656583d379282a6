// Arrays of archives and SameDiff files: shapes, dtypes, bytes and strings. See docs/formats/samediff.md. arrays_fb.hpp
// reads and writes them as FlatBuffers tables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/graph.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::samediff {

/// Arrays in these files are below 2 GiB: FlatBuffers' offsets have 32 bits, Java's lengths 31.
inline constexpr std::uint64_t max_buffer = 0x7fffffff;

bool holds(DType dtype);

inline Error malformed(const char* text) { return Error(Errc::malformed, text); }
/// Returns the error for an array whose content does not have the length that its dtype and shape require.
Error wrong_length(std::uint64_t expected, std::uint64_t found);
/// Returns the error for a file whose index takes more memory than its size allows.
Error too_much();
/// The properties that an array declares.
struct ArrayFacts {
  DType dtype = DType::none;
  std::vector<Extent> shape;
  std::uint64_t bytes = 0;        // size by dtype and shape; for strings: size of the buffer
  std::vector<std::size_t> axes;  // in file order, outermost first; empty if not permuted
  bool big_endian = false;
  bool scalar = false;  // ND4J's array without elements and axes; the shape is [0]
};

/// Returns the strings of a string array. Its buffer has one of three layouts. Errors: malformed.
Result<std::vector<std::string>> texts_of(const ArrayFacts& facts, std::span<const std::byte> buffer);

/// Checks that the arrays inside a graph fit their dtypes and shapes. Errors: invalid_argument.
Status check_arrays(const Graph& graph);

/// Returns the start of a buffer whose root is a little-endian array of dialect A. The content of `size` bytes must
/// follow it and end the buffer.
std::string array_head(DType dtype, std::span<const Extent> shape, std::uint64_t size);
/// Returns a buffer whose root is an array without content: empty, or with its bytes in a separate file (`external`).
std::string array_alone(DType dtype, std::span<const Extent> shape, const std::string& external, std::uint64_t size);
/// Returns a buffer without content for an existing array, with the byte order and axis order of its content.
std::string array_alone(const ArrayFacts& facts, const std::string& external);

/// The array at the root of a buffer. Reading it requires the whole buffer, or all bytes before the content.
struct ArrayHead {
  ArrayFacts facts;
  std::uint64_t begin = 0, end = 0;  // position of the content in the buffer; equal if it has none
  std::string external;              // name of the file with the content; else empty
};
/// Reads the head of a buffer of `size` bytes, of which `head` is available. Returns nullopt if more bytes are needed.
/// Errors: malformed (also if FlatBuffers' verifier rejects the buffer), unsupported.
Result<std::optional<ArrayHead>> read_head(std::span<const std::byte> head, std::uint64_t size);

/// Builds a flat snapshot of arrays. Converts bytes to the machine's order and axes to their logical order.
class Arrays {
 public:
  Arrays() { builder_.set_flat(); }
  /// Returns the memory that adding the array takes.
  static std::uint64_t memory_of(std::string_view name, const ArrayFacts& facts);
  /// Adds a tensor. Errors: malformed (an array without a data type).
  Status add(std::string_view name, const ArrayFacts& facts, Provider provider);
  /// Adds an array of strings as a value: a string, or lists of strings that are nested by the shape. Errors:
  /// malformed.
  Status add_texts(std::string_view name, const ArrayFacts& facts, std::span<const std::byte> buffer);
  bool contains(std::string_view name) const { return names_.contains(name); }
  /// Names a part of the file that the snapshot leaves out (SnapshotData::left_out).
  void leave_out(std::string_view part);
  /// Sets the metadata, after all arrays. Its key `stele` becomes values and ties (snapshot/flat.hpp). The caller must
  /// have admitted the strings to `memory`. Errors: malformed, duplicate, limit.
  Status set_metadata(std::map<std::string, std::string> metadata, IndexBudget& memory);
  Result<Snapshot> finish(std::shared_ptr<const void> keeper);

 private:
  SnapshotBuilder builder_;
  std::set<std::string_view> names_;
  std::vector<bool> big_endian_;                            // one for each leaf
  std::map<std::uint32_t, std::vector<std::size_t>> axes_;  // order of the axes of each permuted leaf
};

}  // namespace stele::inline v0::detail::samediff
