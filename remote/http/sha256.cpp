// Computes SHA-256.
#include "remote/http/sha256.hpp"

#include <openssl/evp.h>

#include <array>

#include "base/hex.hpp"

namespace stele::inline v0::remote {

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest{};
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(),
             nullptr);
  return v0::detail::hex(std::span<const std::byte>(digest));
}

}  // namespace stele::inline v0::remote
