// A document without its tensors' data, and where those are: what opening reads. The data themselves are stepped over,
// without a look where their length is known.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stele/dtype.hpp"
#include "text_in.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace json {

/// Where the data of one tensor stand in the text, with the quotes or brackets around them; and what they are, once its
/// object has been parsed.
struct Data {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  std::uint64_t bytes = 0;
  std::uint32_t shape = 0;  // of numbers: place in the document's pool, of the rank and the extents behind it
  DType dtype = DType::none;
  bool numbers = false;
};

struct Skeleton {
  std::string text;         // null in place of data
  std::vector<Data> data;   // in the order of the text
  std::uint64_t nodes = 0;  // of the record, at most
  /// The last of `data` does not end where it should, or at all, and nothing behind it was read.
  Errc stopped = Errc::none;
};

/// `budget`: the most memory that the skeleton may take. Grammar is left to who parses the skeleton. Errors: limit, and
/// those of `text`.
Result<Skeleton> make_skeleton(const Text& text, std::uint64_t budget);

/// What a skeleton is in the index of a `.json.zst`, and back. `size`: of the document. Errors: malformed.
std::string encode_index(const Skeleton& skeleton);
Result<Skeleton> decode_index(std::string index, std::uint64_t size);

/// "F32" for DType::f32; none for another text.
DType dtype_of(std::string_view name) noexcept;
std::string dtype_name(DType dtype);

}  // namespace json
}  // namespace detail
}  // namespace v0
}  // namespace stele
