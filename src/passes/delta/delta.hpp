// The code that making, applying and merging deltas share. docs/formats/delta.md describes the stored data.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "snapshot/data.hpp"
#include "stele/bytes.hpp"
#include "stele/delta.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::delta {

/// Also the key of the annotations of encoded tensors.
inline constexpr const char* key = delta_key;

enum class Encoding : std::uint8_t {
  plain,   ///< the elements
  same,    ///< the elements of the base
  xored,   ///< the XOR of the elements of the base and of the new version
  sparse,  ///< the XOR of changed elements, and their positions
};

inline Error malformed(const char* text) { return Error(Errc::malformed, text); }

/// How a delta stores a tensor.
struct Coding {
  Encoding encoding = Encoding::plain;
  std::uint64_t hash = 0;       ///< XXH3-64 of the new elements in little-endian order
  std::uint64_t base_hash = 0;  ///< XXH3-64 of the base's elements
  std::string from{};           ///< the path in the base; empty: the same path
  // The tensor's dtype and shape; a leaf with the encoding `same` or `sparse` has different ones.
  DType dtype = DType::none;
  Shape shape{};
  std::uint64_t bytes = 0;
};

/// The description of a delta in its metadata.
struct Description {
  std::string base, next;  ///< weights_digest()
  std::string names;       ///< digest of the names, dtypes and shapes of the base
};

Result<Description> description_of(const Snapshot& snapshot);
Result<std::string> text_of(const Description& description);
Result<Coding> coding_of(const LeafView& leaf);
Value value_of(const Coding& coding);

/// A tensor under one of its names.
struct Named {
  std::uint32_t leaf;
  std::string path;
};

/// All names of a snapshot's tensors.
class Names {
 public:
  static Result<Names> of(const Snapshot& snapshot);
  const std::vector<Named>& list() const noexcept { return list_; }
  std::optional<std::uint32_t> find(const std::string& path) const {
    const auto found = index_.find(path);
    return found != index_.end() ? std::optional(found->second) : std::nullopt;
  }
  /// The digest of names, dtypes and shapes, and also of the elements if their hashes are passed.
  std::string digest(const Snapshot& snapshot, const std::vector<std::uint64_t>* hashes) const;

 private:
  std::vector<Named> list_;
  std::unordered_map<std::string, std::uint32_t> index_;
};

/// Hashes the bytes of files: the numbers in little-endian order.
class FileHasher {
 public:
  explicit FileHasher(DType dtype) noexcept : unit_(swap_unit(dtype)) {}
  void update(std::span<const std::byte> bytes);
  std::uint64_t digest() const { return hasher_.digest(); }

 private:
  Hasher hasher_;
  unsigned unit_;
};

/// Returns the hash of a leaf's elements if its file stores it.
std::optional<std::uint64_t> stored_hash(const LeafView& leaf);
/// Calls work(i) once for each i below `count`, on several threads unless `in_order`. Returns the error of the lowest
/// i.
Status each_leaf(std::size_t count, const LoadOptions& options, bool in_order,
                 const std::function<Status(std::size_t, ReadContext&)>& work);
/// Returns the hash of a leaf: the stored hash, or else the hash of its elements, which it reads.
Result<std::uint64_t> hash_of(const LeafView& leaf, ReadContext& context);
/// Returns the hash of each leaf.
Result<std::vector<std::uint64_t>> hashes_of(const Snapshot& snapshot, const LoadOptions& options);

/// Reads consecutive bytes of a leaf in few calls.
class Window {
 public:
  explicit Window(LeafView leaf) : leaf_(std::move(leaf)) {}
  /// Returns bytes of the leaf; valid until the next call.
  Result<std::span<const std::byte>> at(std::uint64_t offset, std::size_t size, ReadContext& context);

 private:
  static constexpr std::size_t ahead = std::size_t{1} << 20;  // a frame of a compressed .stele file
  LeafView leaf_;
  Bytes memory_;
  std::uint64_t begin_ = 0;
  std::size_t filled_ = 0;
};

// A sparse leaf has bytes: a table of two u32 for each block of elements, the bytes of its gaps and the number of its
// changed elements; then, for each block, the gaps and the XOR of old and new changed elements: the lowest bytes of
// all, then their second bytes, … A gap is the number of unchanged elements before a changed one, in the block, stored
// as bytes that are added: any number of 255, then one below 255.

/// The number of elements of a block; the last block may have fewer.
inline constexpr std::uint64_t sparse_block = std::uint64_t{1} << 20;

struct SparseBlock {
  std::uint32_t gaps = 0;   // bytes
  std::uint32_t count = 0;  // changed elements
};

/// The unit of a sparse leaf: an element, or a byte of packed elements.
inline std::size_t sparse_unit(DType dtype) noexcept { return element_size(dtype) != 0 ? element_size(dtype) : 1; }
inline std::uint64_t sparse_blocks(std::uint64_t bytes, std::size_t unit) noexcept {
  return (bytes / unit + sparse_block - 1) / sparse_block;
}

/// Converts a block of the table between the machine's byte order and the files' byte order.
inline void to_file_order([[maybe_unused]] SparseBlock& block) noexcept {
  if constexpr (std::endian::native != std::endian::little) {
    for (std::uint32_t* number : {&block.gaps, &block.count}) {
      auto* const bytes = reinterpret_cast<std::byte*>(number);
      std::reverse(bytes, bytes + sizeof *number);
    }
  }
}

/// Applies a sparse leaf to pieces of a tensor. Consecutive pieces are fastest.
class SparseReader {
 public:
  /// `bytes`: the size of the tensor.
  SparseReader(const LeafView& leaf, std::uint64_t bytes, DType dtype)
      : leaf_(leaf), bytes_(bytes), unit_(sparse_unit(dtype)), window_(leaf) {}
  /// Changes the bytes of the tensor from `offset` on. Errors: malformed, those of reading.
  Status patch(std::uint64_t offset, std::span<std::byte> bytes, ReadContext& context);

 private:
  Status read_table(ReadContext& context);
  Status begin(std::uint64_t block, ReadContext& context);
  Status advance();
  template <std::size_t Unit>
  Status patch_to(std::uint64_t at, std::uint64_t stop, std::uint64_t offset, std::byte* bytes);

  LeafView leaf_;
  std::uint64_t bytes_;
  std::size_t unit_;
  Window window_;
  std::vector<SparseBlock> table_;
  std::vector<std::uint64_t> places_;  // offsets of the blocks in the leaf
  // The current block:
  std::uint64_t block_ = UINT64_MAX;
  std::span<const std::byte> gaps_;    // the gaps after next_
  std::span<const std::byte> values_;  // the values of all changed units
  std::size_t count_ = 0, value_ = 0;  // the number of changed units, and the number of units before next_
  std::uint64_t next_ = UINT64_MAX;    // the next changed unit; UINT64_MAX: no further one
  std::uint64_t after_ = 0;            // the element after the last one that has a gap
  std::uint64_t passed_ = 0;           // the elements before this index were passed
};

/// Tensors that are decoded from a base and a delta.
class Decoded {
 public:
  struct Leaf {
    Encoding encoding = Encoding::same;
    LeafView base, delta;  // `delta` is unused for Encoding::same
    std::uint64_t bytes = 0;
    DType dtype = DType::none;
    std::optional<std::uint64_t> hash{}, base_hash{};  // checksums to verify: both are set, or neither
    std::string path{};
  };
  /// `leaves`: the maximum number of calls of add(). `chain`: the number of deltas that are applied, with those below.
  Decoded(std::size_t leaves, std::size_t chain) : checked_(leaves), chain_(chain) { leaves_.reserve(leaves); }
  /// Returns the chain of a leaf; 0 for a leaf that is not decoded from a delta.
  static std::size_t chain_of(const LeafView& leaf) noexcept;
  /// Adds a tensor.
  Provider add(Leaf leaf);
  void keep(const Snapshot& snapshot) { kept_.push_back(snapshot); }

  Status read(std::size_t leaf, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const;
  Status stream(std::size_t leaf, PieceSink& sink, ReadContext& context) const;
  const Leaf& leaf(std::size_t i) const noexcept { return leaves_[i]; }

 private:
  class Sink;
  Status check(std::size_t leaf, ReadContext& context) const;

  std::vector<Leaf> leaves_;
  std::vector<Snapshot> kept_;
  mutable std::vector<std::atomic<bool>> checked_;  // by leaf
  std::size_t chain_;
};

/// Tensors that encode the difference between leaves. Decoding the result with `base` gives `next`.
class Encoded {
 public:
  struct Leaf {
    LeafView base, next;
    Encoding encoding = Encoding::xored;
    std::vector<SparseBlock> blocks{};
  };
  explicit Encoded(std::size_t leaves) { leaves_.reserve(leaves); }
  Provider add(Leaf leaf);
  /// Returns the leaf if it encodes a difference between leaves; null otherwise.
  static const Leaf* of(const LeafView& leaf) noexcept;
  const Leaf& leaf(std::size_t i) const noexcept { return leaves_[i]; }

 private:
  std::vector<Leaf> leaves_;
};

/// The XOR of the changes of several deltas to a tensor. A list, because each level of nested leaves would read the one
/// below it more than once.
class Joined {
 public:
  struct Part {
    Encoding encoding = Encoding::xored;  // or sparse; or plain, for the elements of a new tensor
    LeafView leaf;
  };
  struct Leaf {
    std::vector<Part> parts{};
    std::uint64_t bytes = 0;
    DType dtype = DType::none;
  };
  explicit Joined(std::size_t leaves) { leaves_.reserve(leaves); }
  Provider add(Leaf leaf);
  const Leaf& leaf(std::size_t i) const noexcept { return leaves_[i]; }
  /// Returns the leaf if it is a joined one; null otherwise.
  static const Leaf* of(const LeafView& leaf) noexcept;

 private:
  std::vector<Leaf> leaves_;
};

/// The result of a comparison of two leaves with one dtype and shape.
struct Comparison {
  Encoding encoding = Encoding::same;
  std::uint64_t hash = 0, base_hash = 0;
  std::vector<SparseBlock> blocks{};
  std::uint64_t sparse_bytes = 0;
};
Result<Comparison> compare(const LeafView& base, const LeafView& next, ReadContext& context);

/// Returns the leaf of `bytes` zeros.
Provider zeros() noexcept;

/// Checks the encodings of all tensors of a delta. Errors: malformed, those of reading.
Status check_delta(const Snapshot& snapshot);

/// Returns true if both have the same values under the same paths.
bool same_values(const Snapshot& a, const Snapshot& b);

/// Replaces the data and the annotation (null: removes it) of a leaf while its snapshot is built.
void set_leaf(SnapshotData& data, std::size_t leaf, DType dtype, std::span<const Extent> shape, std::uint64_t bytes,
              const Provider& provider, const Value& annotation);

}  // namespace stele::inline v0::detail::delta
