// Tensors that are stored in the graph itself: TensorProto of tensorflow/core/framework/tensor.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ir/tensorflow/graph_def.hpp"
#include "stele/dtype.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

/// Elements that are stored one by one. The last element fills the rest of the tensor. Without elements, the tensor is
/// 0.
struct Listed {
  std::vector<std::byte> bytes;
  std::size_t unit = 1;

  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
};

/// Reads tensors of a file. Owns the data that their leaves refer to.
class Constants {
 public:
  /// `memory` must outlive the reads. The leaves do not use it.
  Constants(SourcePtr source, IndexBudget& memory) : source_(std::move(source)), memory_(&memory) {}

  struct Tensor {
    DType dtype = DType::none;
    std::vector<Extent> shape;
    std::uint64_t bytes = 0;
    Provider provider;
  };
  /// Reads a tensor. Errors: unsupported (strings, handles, dtypes that stele does not have), malformed, limit, io.
  Result<Tensor> read(ByteRange place);
  /// Returns the elements of a tensor of strings. Errors: malformed, limit, io.
  Result<std::vector<std::string>> strings(ByteRange place);

 private:
  struct Parsed;
  Status parse(ByteRange place, Parsed& to);
  Status spend(std::uint64_t bytes);

  SourcePtr source_;
  IndexBudget* memory_;
  std::deque<Listed> listed_;
};

}  // namespace stele::inline v0::detail::ir::tensorflow
