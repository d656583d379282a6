// The tensors of a Core ML model and of a file of weights.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/limits.hpp"
#include "passes/composites/composite.hpp"
#include "stele/bundle.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::coreml {

/// Files and numbers that the tensors' providers point to.
struct Owned {
  std::vector<SourcePtr> sources;
  std::deque<std::vector<std::byte>> numbers;
};

/// Adds tensors to a flat snapshot, under names that are unique.
class Tensors {
 public:
  Tensors(SnapshotBuilder& to, IndexBudget& memory) : to_(to), memory_(memory) {}

  /// Adds a tensor, or an unreadable entry if `unreadable` is not empty. Returns its name. Errors: limit.
  Result<std::string> add(std::string name, DType dtype, const std::vector<Extent>& shape, std::uint64_t bytes,
                          Provider provider, const std::string& unreadable = {});
  Result<std::string> add(std::string name, Value value);
  Status spend(std::uint64_t bytes);

  Owned owned;
  std::vector<composites::Scaled> scaled;

 private:
  Result<std::string> unique(std::string name);

  SnapshotBuilder& to_;
  IndexBudget& memory_;
  std::unordered_map<std::string, std::uint32_t> names_;  // and the number of the last entry that had it
};

/// A blob of a file of weights.
struct Blob {
  std::uint32_t type = 0;
  std::uint64_t offset = 0, size = 0, padding_bits = 0;
};
/// Reads the record at an offset. Errors: malformed, io.
Result<Blob> read_blob(const Source& weights, std::uint64_t at);

/// Returns true if the bytes begin like a file of weights.
bool is_weights(std::span<const std::byte> head, std::uint64_t size) noexcept;
/// Returns true if the bytes begin like a model.
bool is_model(std::span<const std::byte> head, std::uint64_t size) noexcept;

/// Reads all blobs of a file of weights; their names are numbers.
Status read_weights(const SourcePtr& weights, Tensors& to);

/// Reads a model. `folder` contains the files of weights that it names, below `prefix`; may be null. Errors: malformed,
/// unsupported, not_found, limit, io.
Status read_model(const SourcePtr& model, const std::shared_ptr<const Bundle>& folder, const std::string& prefix,
                  Tensors& to);

}  // namespace stele::inline v0::detail::coreml
