// The layout of llama2.c's files: docs/formats/llama2c.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::llama2c {

/// The numbers at the beginning of a file.
struct Header {
  int version = 0;
  std::uint64_t dim = 0, hidden_dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, vocab_size = 0, max_seq_len = 0;
  bool shared_classifier = false;  // the matrix of the embeddings is also the classifier
  std::uint64_t group_size = 0;    // version 2: elements that share a scale
  std::uint64_t bytes = 0;         // of the header

  std::uint64_t kv_dim() const noexcept { return dim / n_heads * n_kv_heads; }
};

/// Returns true for a file with the magic number, and for one of version 0, which has none, if its seven numbers
/// determine exactly this size.
bool recognises(std::span<const std::byte> head, std::uint64_t size) noexcept;

/// Returns the header of a file with the magic number, or of version 0. Errors: truncated, unsupported (another
/// version), malformed (numbers that no model has).
Result<Header> header_of(std::span<const std::byte> head);

/// A tensor that follows the header. The scales of an i8 tensor are the next tensor.
struct Tensor {
  std::string name;
  DType dtype = DType::none;
  Shape shape;
};

/// Calls `add` for each tensor, in the file's order, until it returns an error.
Status each_tensor(const Header& header, const std::function<Status(const Tensor&)>& add);

}  // namespace stele::inline v0::detail::llama2c
