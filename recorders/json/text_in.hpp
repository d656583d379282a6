// Reads the characters of a document at any offset, for every compression.
//
// A `.json.zst` written by stele (docs/formats/json.md):
//
//  1. a skippable frame: u32 0x184D2A5D, u32 8, "stelejsn"
//  2. zstd frames, each of the next 640 KiB of the text (the last: of the rest), with checksums
//  3. a skippable frame, u32 0x184D2A5D and u32 size of the rest: "stelejsn"; u64 XXH3-64 of the entries (5) of (1)
//     and (2), and of all that follows in this frame; u64 plain size of the index; and the index as a zstd frame: u64
//     XXH3-64 of each frame (2) as it is stored, u64 number of leaves, u64 of nodes, for each leaf u64 where its data
//     begin in the text and u64 their length (bit 63: numbers), then the document without data. (If it compresses so
//     well that a reader would not admit the memory for it, the frame has raw blocks.)
//  4. a skippable frame, u32 0x184D2A5E and u32 size: zstd's seek table, which is
//  5. for each frame of (1) to (3): u32 its size and u32 its plain size (0 for (1) and (3)),
//  6. u32 number of the entries, u8 0, u32 0x8F92EAB1
//
// Source for the seek table: contrib/seekable_format/zstd_seekable_compression_format.md of zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::json {

// Size of a frame (640 KiB): keeps the memory of two threads that compress frames below 4 MiB, including zstd's own.
inline constexpr std::size_t frame_size = std::size_t{640} << 10;
inline constexpr std::uint32_t index_magic = 0x184d2a5d;
inline constexpr std::uint32_t table_magic = 0x184d2a5e;
inline constexpr std::uint32_t table_end = 0x8f92eab1;
inline constexpr char index_tag[] = "stelejsn";
inline constexpr std::uint64_t numbers_bit = std::uint64_t{1} << 63;

/// Returns true if a compressed file of `stored` bytes may have a structure (a document without data) of `structure`
/// characters. Opening takes up to index_rate::character bytes of memory for each character.
inline bool admits(std::uint64_t stored, std::uint64_t structure) noexcept {
  return structure <= add_scaled(compressed_index_base, stored, index_rate::compressed) / index_rate::character;
}

/// The characters of a document.
class Text {
 public:
  virtual ~Text() = default;
  /// Fills `out` from `offset` on, up to the end of the text. Returns the number of characters. Errors: io, malformed,
  /// checksum, truncated.
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// Returns the preferred number of characters to read together (a frame), or 0 if there is no preference.
  virtual std::size_t grain() const noexcept { return 0; }
  /// Returns true if a read at an earlier offset starts from the beginning of the text.
  virtual bool in_order() const noexcept { return false; }
};

enum class Coding : std::uint8_t { plain, zstd, gzip };
Coding coding_of(std::span<const std::byte> head) noexcept;

struct OpenedText {
  std::unique_ptr<const Text> text;
  std::string index;       // stele's index (3), without the hashes; empty if the file has no index
  std::uint64_t size = 0;  // number of characters; set if there is an index
};

/// Opens the text. `budget`: maximum memory for an index.
Result<OpenedText> open_text(SourcePtr source, Coding coding, std::uint64_t budget);

}  // namespace stele::inline v0::detail::json
