// Layout: the names of a record's tensors, in order, for formats that hold tensors by position.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele {
inline namespace v0 {

class Snapshot;

/// The tensors of a record in declaration order, each name of a tied one. What is not known is left open.
struct Layout {
  struct Tensor {
    std::string path;
    DType dtype = DType::none;     // none: not known
    std::optional<Shape> shape{};  // absent: not known
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// The tensors of what was opened from a file, or of a live module's Snapshot. Errors: limit (aliases of aliased
/// containers that stand for more than 2^24 names).
STELE_EXPORT Result<Layout> layout_of(const Snapshot& snapshot);

/// As text: a line for each tensor, `path`, or `path<tab>dtype<tab>[2, 3]`. Errors: not_representable (a path with a
/// control character).
STELE_EXPORT Result<std::string> to_text(const Layout& layout);
/// Such text, as to_text() or a person writes it: empty lines and lines that begin with `#` are passed over. Errors:
/// malformed, duplicate; offset() counts bytes.
STELE_EXPORT Result<Layout> parse_layout(std::string_view text);

}  // namespace v0
}  // namespace stele
