// The ties of a load: the contents of a shared object under its additional names.
#pragma once

#include "module/match.hpp"

namespace stele::inline v0::detail {

/// Compares the file's contents under the additional names of a shared object with the loaded contents. Adds a row for
/// each difference. Errors: unused (a difference that LoadOptions::allow_unused does not allow), and those of reading.
Status compare_ties(const LoadPlan& plan, const LoadOptions& options, ReadContext& context, Report& report);

}  // namespace stele::inline v0::detail
