// Bounds the memory that a file may request, with one rule for every format.
//
// Opening takes memory for the file's index: nodes (32 bytes), leaves (48), extents, names, values, and the reader's
// own tables. The limit grows with the file's size, at a rate for each kind of bytes, so that all files of the writers
// can be opened, with any number of entries. Bytes that are used more than once (shared offsets, compression) do not
// raise it. `Limits::index_bytes` replaces it.
//
// Tensors may take as many bytes as the files can hold: the bytes of their leaves, or SnapshotData::capacity if the
// bytes are compressed or text. `Limits::tensor_bytes` and `total_bytes` replace this limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "stele/options.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail {

/// Maximum nesting of objects, on save and on load: a recursive module (a linked list) could otherwise overflow the
/// stack. A stack frame of the save or load walk is under 1 KiB, so this depth fits the smallest usual thread stack.
inline constexpr int max_depth = 512;

/// Maximum nesting of lists and maps in a value, equal in all formats, so that a Value can move between them.
inline constexpr int max_value_depth = 64;

/// Maximum number of names in a snapshot: aliases of aliased containers can name 2^n tensors in n bytes.
inline constexpr std::size_t max_names = std::size_t{1} << 24;

/// Bytes of memory for each byte of a file, by the kind of data to which the byte belongs.
namespace index_rate {
/// Any byte of a file; covers the parts of the index that are read and kept.
inline constexpr std::uint64_t file = 2;
/// Entries that are stored next to their data (zip, FlatBuffers, NNEF's files). The smallest entry has 150 bytes and
/// takes about 1300 bytes of memory: reader's tables, node, leaf, extents. Growing arrays temporarily need three times
/// their content.
inline constexpr std::uint64_t entry = 16;
/// Records of Paddle: a record without elements has 26 bytes and takes about 700 bytes of memory. In ONNX: 9 bytes and
/// 300.
inline constexpr std::uint64_t record = 32;
/// Text or binary tokens with names, shapes, values and metadata (a header of safetensors, a description of Burnpack,
/// metadata of any format). "0," or one byte of CBOR becomes a Value of 40 bytes in a growing array; `"a":0,` becomes a
/// named node of 400 bytes.
inline constexpr std::uint64_t index = 64;
/// Burn's MessagePack and bincode: an absent element is one byte, and becomes a node of 32 bytes in a growing array.
inline constexpr std::uint64_t token = 128;
/// JSON documents: "1," becomes a node and a Value.
inline constexpr std::uint64_t character = 40;
/// Any byte of a compressed file.
inline constexpr std::uint64_t compressed = 64;
}  // namespace index_rate

/// Base for files of any size (16 MiB): buffers, and tables that are never empty.
inline constexpr std::uint64_t index_base = std::uint64_t{16} << 20;
/// Base for compressed files (256 MiB): equal modules compress to a few bytes each, so the file's size does not bound
/// their number. 100,000 entries take up to 1 KiB each, and a text of 24 MiB is in memory several times.
inline constexpr std::uint64_t compressed_index_base = std::uint64_t{256} << 20;

/// Maximum number of bytes that a compressed byte expands to. Deflate: 258 bytes take two bits. Zstandard: a block of
/// 128 KiB takes four bytes. Models that contain only zeros come close to both.
inline constexpr std::uint64_t max_deflate_ratio = 1032;
inline constexpr std::uint64_t max_zstd_ratio = 32768;

/// Maximum number of times that a load may read the bytes of a file if the module loads tied names as separate tensors
/// (64: a layer that every block of a network shares).
inline constexpr std::uint64_t max_tied_copies = 64;
/// Bytes of tensors that a file of any size may load (16 MiB).
inline constexpr std::uint64_t tensor_base = std::uint64_t{16} << 20;

/// Returns a + b × c, at most 2^64 - 1.
constexpr std::uint64_t add_scaled(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  std::uint64_t product = 0;
  std::uint64_t sum = 0;
  if (__builtin_mul_overflow(b, c, &product) || __builtin_add_overflow(a, product, &sum)) return UINT64_MAX;
  return sum;
}

/// The memory that opening a file may still take.
class IndexBudget {
 public:
  /// For unit tests only.
  IndexBudget() = default;
  IndexBudget(const Limits& limits, std::uint64_t file_bytes, std::uint64_t rate = index_rate::file)
      : left_(limits.index_bytes != 0 ? limits.index_bytes : add_scaled(index_base, file_bytes, rate)),
        fixed_(limits.index_bytes != 0) {}

  /// Raises the budget for `bytes` bytes of the file.
  void admit(std::uint64_t bytes, std::uint64_t rate = 1) noexcept {
    if (!fixed_) left_ = add_scaled(left_, bytes, rate);
  }
  /// Raises the budget for a compressed file.
  void admit_compressed() noexcept { admit(compressed_index_base - index_base); }
  /// Takes `bytes`. If fewer are left, takes all of them and returns false.
  bool take(std::uint64_t bytes) noexcept {
    const bool enough = bytes <= left_;
    left_ -= std::min(bytes, left_);
    return enough;
  }
  /// Returns the remaining bytes, for parsers that do the subtraction themselves.
  std::uint64_t& left() noexcept { return left_; }
  std::uint64_t left() const noexcept { return left_; }

 private:
  std::uint64_t left_ = index_base;
  bool fixed_ = false;
};

/// Returns the error of an exhausted budget.
inline Error index_error(const char* what) {
  return Error(Errc::limit, what).hint("raise LoadOptions::limits.index_bytes");
}

}  // namespace stele::inline v0::detail
