// HDF5 files: a bounded reader and a streaming writer of the part of the format that h5py writes. Own code: libhdf5
// reads no Source, follows external links, loads filter plugins, and bounds neither memory nor time.
//
// 1. superblock, after a user block of 0, 512, 1024, … bytes: "\x89HDF\r\n\x1a\n", u8 version (0, 1: address of the
//    root's symbol table entry; 2, 3: of its header)
// 2. object headers, version 1 (16 B, messages) or 2 ("OHDR", messages, checksum), with continuation blocks. Messages:
//    1 dataspace, 2 link info, 3 datatype, 5 fill value, 6 link, 7 external files, 8 layout, 11 filters, 12 attribute,
//    16 continuation, 17 symbol table
// 3. groups: a B-tree ("TREE", type 0) of nodes ("SNOD") of entries {u64 name, u64 header, u32 kind, u32 0, 16 B}, with
//    the names in a local heap ("HEAP"); or link messages in the header. Many links or attributes of an object are in
//    a fractal heap ("FRHP"): direct blocks ("FHDB") contain the messages, indirect blocks ("FHIB") the addresses of
//    blocks. B-trees of version 2 ("BTHD", "BTIN", "BTLF") contain the messages' places in the heap
// 4. datasets: compact (in the header), contiguous, or in chunks, whose addresses are in a B-tree (type 1), one after
//    the other, in a fixed array ("FAHD", "FADB"), in an extensible array ("EAHD", "EAIB", "EASB", "EADB"), or in a
//    B-tree of version 2
// 5. strings of variable length: {u32 length, u64 address of a collection, u32 index}, in collections ("GCOL")
// All little-endian; addresses and lengths have 8 bytes; addresses count from the superblock. Source: the HDF5 File
// Format Specification, version 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "stele/bytes.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::hdf5 {

inline constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";

/// Maximum nesting of groups: bounds the length of a path, and the writer's recursion.
inline constexpr std::size_t max_depth = 128;
/// The maximum rank of a dataset in HDF5.
inline constexpr std::uint32_t max_rank = 32;

/// The attribute of a dataset whose elements have no type in HDF5 ("bfloat16"), as Keras writes it.
inline constexpr std::string_view dtype_attribute = "dtype";

/// Returns true if the bytes are the beginning of an HDF5 file.
inline bool is_hdf5(std::span<const std::byte> head) noexcept {
  return std::string_view(reinterpret_cast<const char*>(head.data()), head.size()).starts_with(signature);
}

/// Returns the size of the user block before the superblock (0, 512, 1024, …), which has content of other programs, or
/// nothing if the file is not an HDF5 file. Errors: io.
Result<std::optional<std::uint64_t>> user_block(const Source& source);

/// An object of a file, or a link that is not followed.
struct Entry {
  enum class Kind : std::uint8_t { group, tensor, text, unreadable, link };
  Kind kind = Kind::group;
  std::string_view path;     // names of links, separated by slashes; empty for the root group
  std::uint64_t object = 0;  // address of the header. `link`: another link to an object that was visited before
  // tensor
  DType dtype = DType::none;
  bool big_endian = false;
  std::vector<Extent> shape{};
  std::uint64_t bytes = 0;
  Provider provider{};  // also for an unreadable entry with bytes in one place
  Value value{};        // text: a string, or a list of strings
  std::string reason{};
  std::vector<std::pair<std::string, Value>> attributes{};
  std::vector<std::string> skipped{};  // attributes of other kinds, and other data that the reader leaves out
};
using Visit = std::function<Status(Entry& entry)>;

/// Calls `visit` with the objects of a file: parents first; the members of a group in the file's order, or if all names
/// are numbers, in the order of the numbers. `keeper` receives the data that providers point to. Visits each object
/// once, and reads metadata in linear time. Links to other files, links by path, virtual datasets, external storage and
/// unknown filters are unreadable entries and never followed. Errors: bad_magic, truncated, malformed, unsupported
/// (superblocks), limit, io, those of `visit`.
Status read(const SourcePtr& source, IndexBudget& memory, std::shared_ptr<const void>& keeper, const Visit& visit);

/// A file to be written. Keeps all bytes in memory, except the tensors' bytes.
class Plan {
 public:
  Plan();
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Adds a dataset; creates its groups. Errors: not_representable (a name that HDF5 or the reader does not accept).
  Status add(std::span<const std::string> path, DType dtype, std::span<const Extent> shape, std::uint64_t bytes);
  /// Adds an attribute to an object; creates a group if there is none. Returns false if HDF5 cannot represent the value
  /// or the names, or if the object has the attribute.
  bool attribute(std::span<const std::string> path, std::string_view name, const Value& value);
  /// Lays out the file. The bytes of the tensors follow in the order in which they were added.
  void finish();
  /// The bytes before the first tensor.
  std::span<const std::byte> head() const noexcept;
  /// Returns the offset of a tensor, by its number.
  std::uint64_t offset(std::size_t tensor) const noexcept;
  std::uint64_t size() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns true if the writer has a datatype for these elements.
bool holds(DType dtype) noexcept;
/// The names of dtypes that datasets store as opaque bytes, or DType::none.
DType opaque_dtype(std::string_view name) noexcept;

}  // namespace stele::inline v0::detail::hdf5
