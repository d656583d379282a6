// SHA-256 of bytes in memory, by OpenSSL.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace stele::inline v0::remote {

/// Returns the digest in 64 hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace stele::inline v0::remote
