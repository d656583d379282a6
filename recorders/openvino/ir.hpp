// The constants of an OpenVINO IR, from its two files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "stele/dtype.hpp"
#include "stele/node.hpp"
#include "stele/shape.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::openvino {

struct Constant {
  std::string name;  // unique in the model
  DType dtype = DType::none;
  std::vector<Extent> shape{};
  std::uint64_t bytes = 0;      // size of the elements
  std::uint64_t offset = 0;     // in the `.bin`
  std::uint64_t size = 0;       // in the `.bin`, at least `bytes`
  std::string unreadable{};     // the reason why stele cannot read it; else empty
  std::uint64_t text = 0;       // offset of the attribute `offset` in the `.xml`
  std::uint64_t text_size = 0;  // size of the attribute
};

/// Constants that the graph multiplies: (codes - zero) * scale. Numbers of constants.
struct Dequantized {
  std::uint32_t codes = 0, scale = 0, zero = no_index;
};

struct Ir {
  SourcePtr xml, bin;  // `bin` is null if no constant has elements
  std::string text;    // text of the `.xml`
  std::vector<Constant> constants;
  std::vector<Dequantized> dequantized;
};

/// Returns true if the text begins like a document whose root is <net>.
bool is_ir(std::string_view head) noexcept;

/// Returns the name of the other file: with the extension replaced, or added if there is none.
std::string with_ending(std::string_view name, std::string_view extension);

/// Opens a model from one of its files. `memory` bounds the memory for opening. Errors: malformed, unsupported,
/// not_found, limit, io.
Result<Ir> read_ir(const SourcePtr& source, IndexBudget& memory);

}  // namespace stele::inline v0::detail::openvino
