// The configuration of quantized weights, as their package reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/composites/encoded_schemes.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::composites {

/// The names of modules that are quantized, and of those that are not.
struct Modules {
  std::vector<std::string> quantized, kept;
  bool unfit = false;  // a kept module fits the scheme
};

/// Returns the configuration that the scheme's package reads.
Value config_of(const EncodedScheme& scheme, std::uint64_t group, const Modules& modules);

}  // namespace stele::inline v0::detail::composites
