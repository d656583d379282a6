// Writes arrays of zarr v3: the document of an array, and its chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "encodings/zarr/metadata.hpp"
#include "stele/bundle.hpp"
#include "stele/bytes.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::zarr {

/// How an array is cut into chunks of whole rows.
struct ArrayPlan {
  const ItemType* type;
  std::vector<Extent> shape, chunk;
  std::uint64_t chunk_bytes;
};
/// `max_chunk_bytes`: size of a chunk, unless one row is larger; 0: one chunk. The dtype must have a type_of().
ArrayPlan plan_array(DType dtype, std::span<const Extent> shape, std::uint64_t max_chunk_bytes);

/// Returns `zarr.json`. `level`: of zstd, or 0. `dimension_names` may be null. Errors: those of JSON.
Result<std::string> document_of(const ArrayPlan& plan, int level, const Value& attributes,
                                const Value* dimension_names);

/// Compresses consecutive chunks by zstd.
class Compressor {
 public:
  /// Throws std::bad_alloc.
  explicit Compressor(int level);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// Begins a chunk of `size` bytes.
  void begin(std::uint64_t size);
  /// Compresses bytes of the chunk. `last`: these are the last bytes.
  Status put(std::span<const std::byte> bytes, bool last, Sink& to);

 private:
  struct State;
  std::unique_ptr<State> state_;
  Bytes buffer_;
  std::size_t used_ = 0;
  bool flushed_ = false;
};

/// Writes the bytes of an array as chunks.
class ChunkWriter final : public PieceSink {
 public:
  /// `name`: the array's folder; `compressor`: null if chunks are not compressed.
  ChunkWriter(Bundle& bundle, const std::string& name, const ArrayPlan& plan, Compressor* compressor);

  Status piece(std::span<const std::byte> bytes) override;
  /// Fills the last chunk up with zeros.
  Status finish();

 private:
  Status begin();

  Bundle& bundle_;
  std::string prefix_, suffix_;
  std::uint64_t chunk_, done_ = 0, number_ = 0;
  Compressor* compressor_;
  std::unique_ptr<Sink> file_;
};

}  // namespace stele::inline v0::detail::zarr
