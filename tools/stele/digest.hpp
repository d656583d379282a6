// Digests of tensors: XXH3-64, XXH64, SHA-1, SHA-256.
#pragma once

#include <memory>
#include <string_view>

#include "facts/hash.hpp"

namespace stele::command {

/// Makes a digest: "xxh3", "xxh64", "sha1" or "sha256". Errors: unsupported.
Result<std::unique_ptr<facts::Digest>> digest(std::string_view algorithm);

}  // namespace stele::command
