// Layout: the names of a record's tensors, in order, for formats that store tensors by position.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stele/config.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0 {

class Snapshot;

/// The tensors of a record in declaration order, under each name of a tied tensor. Unknown properties are left open.
struct Layout {
  struct Tensor {
    std::string path;
    DType dtype = DType::none;     // none: unknown
    std::optional<Shape> shape{};  // nullopt: unknown
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::vector<Tensor> tensors;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Returns the tensors of an opened file, or of the Snapshot of an existing module. Errors: limit (aliases of aliased
/// containers that expand to more than 2^24 names).
STELE_EXPORT Result<Layout> layout_of(const Snapshot& snapshot);

/// Formats a layout as text: one line for each tensor, `path` or `path<tab>dtype<tab>[2, 3]`. Errors: not_representable
/// (a path with a control character).
STELE_EXPORT Result<std::string> to_text(const Layout& layout);
/// Parses text from to_text() or written by hand; skips empty lines and lines that begin with `#`. Errors: malformed,
/// duplicate; offset() counts bytes.
STELE_EXPORT Result<Layout> parse_layout(std::string_view text);

}  // namespace stele::inline v0
