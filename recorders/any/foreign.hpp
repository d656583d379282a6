// Files of other programs that stele does not open.
#pragma once

#include <span>
#include <string_view>

#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// A kind of file that stele does not open, with advice on how to load its tensors.
struct Foreign {
  std::string_view what;
  std::span<const std::string_view> extensions;
  /// These functions check the first bytes of a file. `certain` applies always; `likely` applies only if no format
  /// recognizes the file.
  bool (*certain)(std::string_view head);
  bool (*likely)(std::string_view head);
  /// Errc::bad_magic if a file's name may show that a format has it after all.
  Errc code = Errc::unsupported;
};

/// Returns the kind to which the path's extension belongs, or null.
const Foreign* foreign_of_path(std::string_view path) noexcept;
/// Returns the kind of a file that is certainly not a model of a format here, from its first bytes, and for a zip file
/// from its names; null if there is none. Errors: those of the machine.
Result<const Foreign*> certain_foreign(const Source& source, std::string_view head);
/// Returns the kind of a file that no format recognizes, or null.
const Foreign* likely_foreign(std::string_view head) noexcept;

}  // namespace stele::inline v0::detail
