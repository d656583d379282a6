// The skeleton of a document: its text without the tensors' data, and the locations of the data. Opening reads only the
// skeleton and steps over data of known length.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stele/dtype.hpp"
#include "text_in.hpp"

namespace stele::inline v0::detail::json {

/// The location of one tensor's data in the text, including quotes or brackets. The dtype, size and shape are set when
/// the tensor's object has been parsed.
struct Data {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  std::uint64_t bytes = 0;
  std::uint32_t shape = 0;  // for numbers: index in Document::shapes of the rank, which the extents follow
  DType dtype = DType::none;
  bool numbers = false;
};

struct Skeleton {
  std::string text;         // contains null in place of data
  std::vector<Data> data;   // in the order of the text
  std::uint64_t nodes = 0;  // maximum number of nodes in the record
  /// Set if the last item of `data` has no end or a wrong end. The text after it was not read.
  Errc stopped = Errc::none;
};

/// Makes the skeleton of `text`, in at most `budget` bytes of memory. The skeleton's parser checks the grammar. Errors:
/// limit, and those of `text`.
Result<Skeleton> make_skeleton(const Text& text, std::uint64_t budget);

/// Encodes a skeleton for the index of a `.json.zst`, and decodes it. `size`: the document's size. Errors: malformed.
std::string encode_index(const Skeleton& skeleton);
Result<Skeleton> decode_index(std::string index, std::uint64_t size);

/// Returns DType::f32 for "F32", and so on; DType::none for another string.
DType dtype_of(std::string_view name) noexcept;
std::string dtype_name(DType dtype);

}  // namespace stele::inline v0::detail::json
