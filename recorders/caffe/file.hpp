// Files of Caffe: one message NetParameter of protobuf (src/caffe/proto/caffe.proto), whose layers have blobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/limits.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::caffe {

/// The parts of a file that are not tensors.
struct Contents {
  bool gradients = false;  // blobs have gradients (`diff`)
};

/// Reads the layers, and passes their blobs to `add` in the order of the file. Each entry is valid during the call.
/// Errors: truncated, malformed, limit, io, those of `add`.
Result<Contents> read_network(const SourcePtr& source, IndexBudget& memory,
                              const std::function<Status(const TensorEntry&)>& add);

/// Returns true if a file of `size` bytes that starts with `head` is a network with a name or a layer.
bool is_network(std::span<const std::byte> head, std::uint64_t size) noexcept;

}  // namespace stele::inline v0::detail::caffe
